"""Linear recurrences on NumPy's arrays, against a loop in float64: options, decoding in place, the kernels that narrow them, errors."""

import numpy as np
import pytest
from references import TOLERANCE, error, normal

import ejk

B, T, H, K, V = 2, 20, 4, 16, 24


def in_order(q, k, v, *, g=0.0, gk=0.0, gv=0.0, beta=None, state=None):
    """out and the last state; g [B, T, H], heads repeated."""
    state = np.zeros((q.shape[0], H, K, v.shape[-1])) if state is None else state.astype("f8")
    of_tokens, of_keys, of_values = np.broadcast_to(g, q.shape[:3]), np.broadcast_to(gk, q.shape), np.broadcast_to(gv, v.shape)
    decay = np.exp((of_tokens[..., None] + of_keys)[..., None] + of_values[:, :, :, None].astype("f8"))
    out = np.zeros(v.shape)
    for t in range(q.shape[1]):
        state = state * decay[:, t]
        write = v[:, t].astype("f8")
        if beta is not None:
            write = beta[:, t, :, None] * (write - np.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + k[:, t, :, :, None] * write[:, :, None]
        out[:, t] = np.einsum("bhkv,bhk->bhv", state, q[:, t]) / np.sqrt(K)
    return out, state


def unit(x):
    x = x.astype("f8")
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def qkv(rng, name="float32", width=V):
    return [normal(rng, (B, T, H, n), name) for n in (K, K, width)]


def gate(rng, *shape):
    return -np.abs(rng.standard_normal(shape, dtype="f4")) / 2


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_gates(rng, name):
    q, k, v = qkv(rng, name)
    gates = {"g": gate(rng, B, T, H), "gk": gate(rng, B, T, H, K), "gv": gate(rng, B, T, H, V)}
    found = ejk.recurrent(q, k, v, **gates)
    out, state = in_order(q, k, v, **gates)
    assert found.out.dtype == q.dtype and found.final_state.dtype == np.float32
    assert error(found.out, out) < TOLERANCE[name] and error(found.final_state, state) < 1e-5


def test_delta_rule_and_fewer_heads(rng):
    q, k, v = qkv(rng)
    beta = 2 * rng.random((B, T, H), dtype="f4")
    found = ejk.gated_delta_rule(q[:, :, :2].copy(), k[:, :, :1].copy(), v, beta, l2_norm=True)
    out, state = in_order(unit(np.repeat(q[:, :, :2], 2, 2)), unit(np.repeat(k[:, :, :1], 4, 2)), v, beta=beta)
    assert error(found.out, out) < 1e-5 and error(found.final_state, state) < 1e-5


def test_a_token_a_call_with_the_state_in_place(rng):
    q, k, v = qkv(rng)
    gk, beta, state = gate(rng, B, T, H, K), rng.random((B, T, H), dtype="f4"), normal(rng, (B, H, K, V), "float32")
    out, last = in_order(unit(q), unit(k), v, gk=gk, beta=beta, state=state)
    for t in range(T):
        one = [np.ascontiguousarray(x[:, t : t + 1]) for x in (q, k, v, gk, beta)]
        found = ejk.recurrent_update(*one[:3], state, gk=one[3], beta=one[4], l2_norm=True)
        assert error(found.out[:, 0], out[:, t]) < 1e-5
    assert error(state, last) < 1e-5


def test_a_state_of_bf16_is_rounded_once_a_call(rng):
    q, k, v = qkv(rng)
    g, beta, state = gate(rng, B, T, H), rng.random((B, T, H), dtype="f4"), normal(rng, (B, H, K, V), "bfloat16")
    out, last = in_order(unit(q), unit(k), v, g=g, beta=beta, state=state)
    given = state.copy()
    found = ejk.recurrent_update(q, k, v, state, g=g, beta=beta, l2_norm=True)
    assert found.state is state and state.dtype == "bfloat16" and found.out.dtype == np.float32
    assert error(found.out, out) < 1e-5  # nothing on the way is rounded
    assert (state == last.astype("f4").astype(state.dtype)).mean() > 0.99 and error(state, last) < 3e-3
    for t in range(T):
        one = [np.ascontiguousarray(x[:, t : t + 1]) for x in (q, k, v, g, beta)]
        ejk.recurrent_update(*one[:3], given, g=one[3], beta=one[4], l2_norm=True)
    assert 1e-3 < error(given, last) < 2e-2


def test_packed_sequences_keep_apart(rng):
    q, k, v = (x[:1] for x in qkv(rng))
    g = gate(rng, 1, T, H)
    found = ejk.gla(q, k, v, g=g, cum_seqlens=np.array([0, 5, 5, 17], "i4"))
    for n, (begin, end) in enumerate([(0, 5), (5, 5), (5, 17)]):
        out, state = in_order(q[:, begin:end], k[:, begin:end], v[:, begin:end], g=g[:, begin:end])
        assert error(found.final_state[n], state[0]) < 1e-5
        assert begin == end or error(found.out[:, begin:end], out) < 1e-5
    assert (found.out[:, 17:] == 0).all()


def test_lightning_decays_by_head(rng):
    q, k, v = qkv(rng)
    slopes = -8 / H * (1 - 2 / 5) * np.arange(H)
    out, _ = in_order(q, k, v, g=np.broadcast_to(slopes, (B, T, H)))
    assert error(ejk.lightning_attn(q, k, v, layer_idx=2, num_layers=5).out, out) < 1e-5


def test_errors(rng):
    q, k, v = qkv(rng)
    with pytest.raises(ejk.InputError, match="gk or g must be given"):
        ejk.gla(q, k, v)
    with pytest.raises(ejk.InputError, match="must be a multiple of q's; found Hq = 3"):
        ejk.recurrent(q[:, :, :3].copy(), k, v)
    with pytest.raises(ejk.InputError, match="must end within the 20 tokens of q; found 21"):
        ejk.recurrent(q[:1], k[:1], v[:1], cum_seqlens=np.array([0, 21], "i4"))
    with pytest.raises(ejk.InputError, match="layer_idx must be in 0 to num_layers = 5; found 6"):
        ejk.lightning_attn(q, k, v, layer_idx=6, num_layers=5)


def test_little_decay_over_thousands_of_tokens(rng):
    """exp(-1e-4) in f32 is off by up to 3e-8, which 4096 steps would make 1e-4."""
    tokens = 4096
    q, k, v = (normal(rng, (1, tokens, H, n), "float32") for n in (K, K, 8))
    g_gamma = np.array([-1e-4, -3e-4, -7e-5, -2e-3], "f4")
    found = ejk.recurrent(q, k, v, g_gamma=g_gamma)
    out, state = in_order(q, k, v, g=np.broadcast_to(g_gamma.astype("f8"), (1, tokens, H)))
    assert error(found.out, out) < 1e-5 and error(found.final_state, state) < 1e-5
