"""Recurrent layers in JAX programs: values and gradients against jax.lax.scan of the same cell."""

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from references import error  # noqa: E402

import ejk  # noqa: E402

B, T, I, H = 3, 7, 5, 6
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def step(cell, carry, x, w_ih, w_hh, b_ih, b_hh):
    h, c = carry
    into, back = jnp.split(x @ w_ih.T + b_ih, GATES[cell], -1), jnp.split(h @ w_hh.T + b_hh, GATES[cell], -1)
    if cell == "lstm":
        i, f, o = (jax.nn.sigmoid(into[g] + back[g]) for g in (0, 1, 3))
        c = f * c + i * jnp.tanh(into[2] + back[2])
        return o * jnp.tanh(c), c
    if cell == "gru":
        r, z = (jax.nn.sigmoid(into[g] + back[g]) for g in (0, 1))
        n = jnp.tanh(into[2] + r * back[2])
        return (1 - z) * n + z * h, c
    total = into[0] + back[0]
    return (jnp.tanh(total) if cell == "rnn_tanh" else jnp.maximum(total, 0)), c


def by_scan(cell, lengths, x, w_ih, w_hh, h0, c0, b_ih, b_hh):
    """Each direction a scan over the tokens of its order, which leaves a row's state as it is past the row's length."""
    ys, hs, cs = [], [], []
    for d in range(w_ih.shape[0]):

        def token(carry, t, d=d):
            valid = (t < lengths)[:, None]
            new = step(cell, carry, x[:, t], w_ih[d], w_hh[d], b_ih[d], b_hh[d])
            carry = tuple(jnp.where(valid, a, b) for a, b in zip(new, carry))
            return carry, jnp.where(valid, carry[0], 0)

        order = jnp.arange(T) if d == 0 else jnp.arange(T)[::-1]
        (h, c), y = jax.lax.scan(token, (h0[d], c0[d]), order)
        ys.append(jnp.moveaxis(y if d == 0 else y[::-1], 0, 1)), hs.append(h), cs.append(c)
    return jnp.concatenate(ys, -1), jnp.stack(hs), jnp.stack(cs)


def by_ejk(cell, lengths, x, w_ih, w_hh, h0, c0, b_ih, b_hh, **more):
    more |= {"c0": c0} if cell == "lstm" else {}
    found = ejk.rnn(x, w_ih, w_hh, h0=h0, b_ih=b_ih, b_hh=b_hh, lengths=lengths, cell_type=cell, bidirectional=w_ih.shape[0] == 2, **more)
    return found.y, found.h_n


def inputs(cell, directions):
    rng = numpy.random.default_rng(5)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape, dtype="f4") / 2)
    rows = GATES[cell] * H
    return (draw(B, T, I), draw(directions, rows, I), draw(directions, rows, H), draw(directions, B, H), draw(directions, B, H),
            draw(directions, rows), draw(directions, rows))  # fmt: skip


@pytest.mark.parametrize("cell", GATES)
def test_values_and_gradients_are_those_of_a_scan(cell):
    arrays, lengths, rng = inputs(cell, directions=2), jnp.asarray([T, 0, 4], jnp.int32), numpy.random.default_rng(6)
    expected = by_scan(cell, lengths, *arrays)[:2]
    for mine, other in zip(jax.jit(lambda *x: by_ejk(cell, lengths, *x))(*arrays), expected):
        assert error(mine, other) < 1e-5
    weights = [jnp.asarray(rng.standard_normal(x.shape, dtype="f4")) for x in expected]
    loss = lambda function: lambda *x: sum((a * b).sum() for a, b in zip(function(cell, lengths, *x), weights))
    every = tuple(i for i in range(len(arrays)) if cell == "lstm" or i != 4)  # c0 is an LSTM's
    found = jax.jit(jax.grad(loss(by_ejk), argnums=every))(*arrays)
    for number, mine, other in zip(every, found, jax.grad(loss(by_scan), argnums=every)(*arrays)):
        assert error(mine, other) < 1e-5, f"argument {number}"


def test_gates_that_are_kept_give_the_gradients_of_those_made_again():
    for cell in ("lstm", "gru"):
        arrays, lengths = inputs(cell, directions=2), jnp.asarray([T, 0, 4], jnp.int32)
        kept, remade = (
            jax.grad(lambda *x, keep=keep: sum((a**2).sum() for a in by_ejk(cell, lengths, *x, keep_gates=keep)), argnums=(0, 1, 2, 3))(*arrays)
            for keep in (True, False)
        )
        for mine, other in zip(kept, remade):
            assert error(mine, other) < 1e-6
        sizes = [value.shape for value in jax.tree.leaves(jax.vjp(lambda x: ejk.rnn(x, *arrays[1:3], cell_type=cell, bidirectional=True).y, arrays[0])[1])]
        assert (2, B, T, (5 if cell == "lstm" else 4) * H) in sizes
