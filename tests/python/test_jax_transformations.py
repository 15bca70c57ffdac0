"""Transformations of JAX over each other, in an order that shares what JAX remembers of a call: values and gradients stay right."""

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import ejk  # noqa: E402
import ejk.jax  # noqa: E402

Q, K, V = (jax.random.normal(jax.random.key(seed), (2, 8, 2, 16)) for seed in range(3))


def ours(q, k, v):
    return ejk.flash_attention(q, k, v)


def theirs(q, k, v):
    with jax.default_matmul_precision("highest"):
        return jax.nn.dot_product_attention(q, k, v)


def loss(function):
    return lambda *x: (function(*x) ** 2).sum()


def scanned(function):
    return lambda q, k, v: jax.lax.scan(lambda carry, _: (function(carry, k, v) + carry, None), q, None, length=3)[0]


def apart(found, expected):
    return max(float(jnp.abs(x - y).max()) for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))


def test_gradients_of_other_operands_before_and_after():
    """JAX keeps one tree of residuals of a traced call: whose gradient was asked for last must not decide whose is computed now."""
    whole = lambda function: jax.grad(loss(function), (0, 1, 2))(Q, K, V)  # noqa: E731
    expected = whole(theirs)
    assert apart(whole(ours), expected) < 1e-4
    for position in range(3):
        assert apart(jax.grad(loss(scanned(ours)), position)(Q, K, V), jax.grad(loss(scanned(theirs)), position)(Q, K, V)) < 1e-3
        assert apart(whole(jax.checkpoint(ours)), expected) < 1e-4
        assert apart(jax.grad(loss(jax.checkpoint(ours)), position)(Q, K, V), expected[position]) < 1e-4
        assert apart(whole(jax.jit(ours)), expected) < 1e-4


@pytest.mark.parametrize("axes", [((0, None, None), (0, None, None)), ((None, 0, 0), (0, None, None)), ((0, 0, 0), (1, None, 1))], ids=str)
def test_vmap_of_vmap(axes):
    inner, outer = axes
    arrays = []
    for x, first, second in zip((Q, K, V), inner, outer):
        x = x if first is None else jnp.stack([x, 2 * x, -x])
        arrays.append(x if second is None else jnp.stack([x, x + 1], second))
    twice = lambda function: jax.vmap(jax.vmap(function, inner), outer)  # noqa: E731
    assert apart(twice(ours)(*arrays), twice(theirs)(*arrays)) < 1e-5
    gradients = lambda function: twice(jax.grad(loss(function), (0, 1, 2)))(*arrays)  # noqa: E731
    assert apart(gradients(ours), gradients(theirs)) < 1e-3


def test_without_jit():
    with jax.disable_jit():
        assert apart(ours(Q, K, V), theirs(Q, K, V)) < 1e-5


def test_symbolic_shapes_are_refused_in_words():
    shape = jax.export.symbolic_shape("b, 8, 2, 16") if hasattr(jax, "export") else None
    if shape is None:
        pytest.skip("this JAX exports nothing")
    with pytest.raises(ejk.InputError, match="q has shape .*a kernel is chosen for numbers"):
        jax.export.export(jax.jit(ours))(*[jax.ShapeDtypeStruct(shape, jnp.float32)] * 3)
