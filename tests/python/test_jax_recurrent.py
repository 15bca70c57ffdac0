"""Linear recurrences in JAX programs: values and gradients against jax.lax.scan, vmap, decoding under lax.scan."""

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from references import error  # noqa: E402

import ejk  # noqa: E402

B, T, H, K, V = 2, 12, 4, 16, 24
NAMES = ("q", "k", "v", "g", "beta", "gk", "gv", "g_gamma", "initial_state")


def inputs():
    rng = numpy.random.default_rng(3)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape, dtype="f4"))
    gate = lambda *shape: -abs(draw(*shape))
    return (draw(B, T, 2, K), draw(B, T, 1, K), draw(B, T, H, V), gate(B, T, H), jax.nn.sigmoid(draw(B, T, H)), gate(B, T, H, K),
            gate(B, T, H, V), gate(H), draw(B, H, K, V))  # fmt: skip


def by_scan(q, k, v, g, beta, gk, gv, g_gamma, state):
    q, k = (jnp.repeat(x / jnp.sqrt((x * x).sum(-1, keepdims=True) + 1e-6), H // x.shape[2], 2) for x in (q, k))

    def step(s, token):
        q, k, v, g, beta, gk, gv = token
        s = s * jnp.exp((g + g_gamma)[..., None, None] + gk[..., None] + gv[..., None, :])
        write = beta[..., None] * (v - jnp.einsum("bhkv,bhk->bhv", s, k))
        s = s + k[..., None] * write[..., None, :]
        return s, jnp.einsum("bhkv,bhk->bhv", s, q) / K**0.5

    state, out = jax.lax.scan(step, state, [jnp.moveaxis(x, 1, 0) for x in (q, k, v, g, beta, gk, gv)])
    return jnp.moveaxis(out, 0, 1), state


def by_ejk(*arrays):
    return tuple(ejk.recurrent(*arrays[:3], **dict(zip(NAMES[3:], arrays[3:])), l2_norm=True))


def test_values_and_gradients_are_those_of_a_scan():
    arrays, rng = inputs(), numpy.random.default_rng(4)
    weights = [jnp.asarray(rng.standard_normal(x.shape, dtype="f4")) for x in by_scan(*arrays)]
    loss = lambda function: lambda *x: sum((a * b).sum() for a, b in zip(function(*x), weights))
    for found, expected in zip(jax.jit(by_ejk)(*arrays), by_scan(*arrays)):
        assert error(found, expected) < 1e-5
    every = tuple(range(len(arrays)))
    found = jax.jit(jax.grad(loss(by_ejk), argnums=every))(*arrays)
    for name, mine, other in zip(NAMES, found, jax.grad(loss(by_scan), argnums=every)(*arrays)):
        assert error(mine, other) < 1e-5, name


def test_vmap_is_a_larger_batch():
    q, k, v = inputs()[:3]
    one = lambda *x: ejk.lightning_attn(*(each[None] for each in x), layer_idx=1, num_layers=4).out[0]
    assert (jax.vmap(one)(q, k, v) == ejk.lightning_attn(q, k, v, layer_idx=1, num_layers=4).out).all()


def test_decoding_under_scan_is_the_whole_sequence():
    q, k, v, g = inputs()[:4]
    state = inputs()[-1]

    def step(state, token):
        q, k, v, g = (x[:, None] for x in token)
        found = ejk.recurrent_update(q, k, v, state, g=g)
        return found.state, found.out[:, 0]

    last, out = jax.jit(lambda s: jax.lax.scan(step, s, [jnp.moveaxis(x, 1, 0) for x in (q, k, v, g)]))(state)
    whole = ejk.recurrent(q, k, v, g=g, initial_state=state)
    assert error(jnp.moveaxis(out, 0, 1), whole.out) < 1e-5 and error(last, whole.final_state) < 1e-5
