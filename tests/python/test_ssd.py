"""Mamba-2's state space on NumPy's arrays, against a loop in float64: options, decoding in place, packed sequences, errors."""

import numpy as np
import pytest
from references import TOLERANCE, error, normal

import ejk

B, T, H, G, N, P = 2, 20, 4, 2, 16, 24


def in_order(x, dt, A, Bm, C, D=0.0, state=None):
    """out and the last state [B, H, P, N], of steps as they count."""
    state = np.zeros((x.shape[0], H, P, N)) if state is None else state.astype("f8")
    Bm, C = (np.repeat(each.astype("f8"), H // G, 2) for each in (Bm, C))
    out = np.zeros(x.shape)
    for t in range(x.shape[1]):
        written = (dt[:, t, :, None] * x[:, t])[..., None] * Bm[:, t, :, None]
        state = state * np.exp(dt[:, t] * A)[..., None, None] + written
        out[:, t] = np.einsum("bhpn,bhn->bhp", state, C[:, t]) + np.broadcast_to(D, (H,))[:, None] * x[:, t]
    return out, state


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def operands(rng, name="float32"):
    x, b, c = (normal(rng, (B, T, *shape), name) for shape in ((H, P), (G, N), (G, N)))
    return x, np.abs(normal(rng, (B, T, H), "float32")), -np.abs(normal(rng, (H,), "float32")), b, c


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_every_input(rng, name):
    x, z, A, b, c = operands(rng, name)
    D, bias, state = (normal(rng, shape, "float32") for shape in ((H,), (H,), (B, H, P, N)))
    found = ejk.ssd(x, z, A, b, c, D=D, dt_bias=bias, initial_state=state, dt_softplus=True)
    out, last = in_order(x.astype("f8"), np.log1p(np.exp(z.astype("f8") + bias)), A, b, c, D, state)
    assert found.out.dtype == x.dtype and error(found.out, out) < TOLERANCE[name]
    assert error(found.final_state, last) < 1e-5
    out, last = in_order(x.astype("f8"), z, A, b, c)
    found = ejk.ssd(x, z, A, b, c)
    assert error(found.out, out) < TOLERANCE[name] and error(found.final_state, last) < 1e-5


def test_a_token_a_call_with_the_state_in_place(rng):
    x, dt, A, b, c = operands(rng)
    state = normal(rng, (B, H, P, N), "float32")
    out, last = in_order(x, dt, A, b, c, state=state)
    for t in range(T):
        one = [np.ascontiguousarray(each[:, t : t + 1]) for each in (x, dt, b, c)]
        found = ejk.ssd_update(one[0], one[1], A, one[2], one[3], state)
        assert error(found.out[:, 0], out[:, t]) < 1e-5
    assert error(state, last) < 1e-5


def test_a_state_of_bf16_is_rounded_once_a_call(rng):
    x, dt, A, b, c = operands(rng)
    state = normal(rng, (B, H, P, N), "bfloat16")
    out, last = in_order(x, dt, A, b, c, state=state.astype("f8"))
    given = state.copy()
    found = ejk.ssd_update(x, dt, A, b, c, state)
    assert found.state is state and state.dtype == "bfloat16" and found.out.dtype == np.float32
    assert error(found.out, out) < 1e-5  # nothing on the way is rounded
    assert (state == last.astype("f4").astype(state.dtype)).mean() > 0.99 and error(state, last) < 3e-3
    for t in range(T):
        one = [np.ascontiguousarray(each[:, t : t + 1]) for each in (x, dt, b, c)]
        ejk.ssd_update(one[0], one[1], A, one[2], one[3], given)
    assert 1e-3 < error(given, last) < 2e-2


def test_packed_sequences_keep_apart(rng):
    x, dt, A, b, c = operands(rng)
    x, dt, b, c = (each[:1] for each in (x, dt, b, c))
    found = ejk.ssd(x, dt, A, b, c, cum_seqlens=np.array([0, 5, 5, 17], "i4"))
    for n, (begin, end) in enumerate([(0, 5), (5, 5), (5, 17)]):
        out, state = in_order(x[:, begin:end], dt[:, begin:end], A, b[:, begin:end], c[:, begin:end])
        assert error(found.final_state[n], state[0]) < 1e-5
        assert begin == end or error(found.out[:, begin:end], out) < 1e-5
    assert (found.out[:, 17:] == 0).all()


def test_errors(rng):
    x, dt, A, b, c = operands(rng)
    with pytest.raises(ejk.InputError, match="must be a multiple of G, the groups of Bm and C; found G = 3"):
        ejk.ssd(x, dt, A, np.repeat(b, 3, 2)[:, :, :3].copy(), np.repeat(c, 3, 2)[:, :, :3].copy())
    with pytest.raises(ejk.InputError, match="must end within the 20 tokens of x; found 21"):
        ejk.ssd(x[:1], dt[:1], A, b[:1], c[:1], cum_seqlens=np.array([0, 21], "i4"))
