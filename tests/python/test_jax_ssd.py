"""Mamba-2's state space in JAX programs: values and gradients against jax.lax.scan, vmap, decoding."""

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from references import error  # noqa: E402

import ejk  # noqa: E402

B, T, H, G, N, P = 2, 12, 4, 2, 16, 24
NAMES = ("x", "dt", "A", "Bm", "C", "D", "dt_bias", "initial_state")


def inputs():
    rng = numpy.random.default_rng(3)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape, dtype="f4"))
    return draw(B, T, H, P), draw(B, T, H), -abs(draw(H)), draw(B, T, G, N), draw(B, T, G, N), draw(H), draw(H), draw(B, H, P, N)


def by_scan(x, dt, A, Bm, C, D, bias, state):
    Bm, C = (jnp.repeat(each, H // G, 2) for each in (Bm, C))
    dt = jax.nn.softplus(dt + bias)

    def step(s, token):
        x, dt, b, c = token
        s = s * jnp.exp(dt * A)[..., None, None] + (dt[..., None] * x)[..., None] * b[:, :, None]
        return s, jnp.einsum("bhpn,bhn->bhp", s, c) + D[:, None] * x

    state, out = jax.lax.scan(step, state, [jnp.moveaxis(each, 1, 0) for each in (x, dt, Bm, C)])
    return jnp.moveaxis(out, 0, 1), state


def by_ejk(*arrays):
    return tuple(ejk.ssd(*arrays[:5], **dict(zip(NAMES[5:], arrays[5:])), dt_softplus=True))


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
    x, dt, A, b, c = inputs()[:5]
    one = lambda *each: ejk.ssd(each[0][None], each[1][None], A, each[2][None], each[3][None]).out[0]
    assert (jax.vmap(one)(x, dt, b, c) == ejk.ssd(x, dt, A, b, c).out).all()


def test_the_gradient_of_a_vmap_adds_up_what_its_rows_share():
    x, dt, A, b, c = inputs()[:5]
    one = lambda A, *each: ejk.ssd(each[0][None], abs(each[1][None]), A, each[2][None], each[3][None]).out
    rows = lambda A: (jax.vmap(one, (None, 0, 0, 0, 0))(A, x, dt, b, c) ** 2).sum()
    whole = lambda A: (ejk.ssd(x, abs(dt), A, b, c).out ** 2).sum()
    assert error(jax.grad(rows)(A), jax.grad(whole)(A)) < 1e-5


def test_decoding_under_scan_is_the_whole_sequence():
    x, dt, A, b, c, *_, state = inputs()
    dt = abs(dt)

    def step(state, token):
        found = ejk.ssd(*(each[:, None] for each in token[:2]), A, *(each[:, None] for each in token[2:]), initial_state=state)
        return found.final_state, found.out[:, 0]

    last, out = jax.jit(lambda *each: jax.lax.scan(step, state, [jnp.moveaxis(x, 1, 0) for x in each]))(x, dt, b, c)
    whole = ejk.ssd(x, dt, A, b, c, initial_state=state)
    assert error(jnp.moveaxis(out, 0, 1), whole.out) < 1e-5 and error(last, whole.final_state) < 1e-5


def test_decoding_with_a_state_of_bf16():
    x, dt, A, b, c, *_, state = inputs()
    dt, state = abs(dt), state.astype("bfloat16")
    found = jax.jit(lambda state: tuple(ejk.ssd_update(x, dt, A, b, c, state)))(state)
    whole = ejk.ssd(x, dt, A, b, c, initial_state=state.astype("float32"))
    assert found[1].dtype == jnp.bfloat16 and error(found[0], whole.out) < 1e-5
    assert (found[1] == whole.final_state.astype("bfloat16")).mean() > 0.99
