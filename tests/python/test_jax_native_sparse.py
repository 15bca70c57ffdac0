"""Native sparse attention of packed sequences in JAX programs, and of NumPy's arrays: each sequence as by a call of its own."""

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from references import error  # noqa: E402

import ejk  # noqa: E402

ENDS = [0, 21, 21, 24, 50]  # an empty sequence, one shorter than a block; the last tokens are of none
TOKENS, HEADS, BLOCK = 53, 2, 8


def draw(seed, *shape):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape, dtype="f4"))


def inputs(*rows):
    return [draw(i, *rows, 1, TOKENS, *shape) for i, shape in enumerate([(4, 16), (HEADS, 16), (HEADS, 16), (4,), (4,), (4,)])]


def attention(q, k, v, g_cmp, g_slc, g_swa, **more):
    return ejk.native_sparse_attention(q, k, v, g_cmp=g_cmp, g_slc=g_slc, g_swa=g_swa, block_size=BLOCK, block_count=3, window_left=10, **more)


def packed(*x):
    return attention(*x, cum_seqlens=jnp.asarray(ENDS, jnp.int32))


def alone(*x):
    outs = [attention(*(tensor[:, first:end] for tensor in x)) for first, end in zip(ENDS[:-1], ENDS[1:], strict=True)]
    return jnp.concatenate([*outs, jnp.zeros((1, TOKENS - ENDS[-1], 4, 16))], 1)


def gradients(f):
    return jax.jit(jax.grad(lambda *x: (f(*x) * draw(9, 1, TOKENS, 4, 16)).sum(), argnums=tuple(range(6))))


def test_packed_sequences_are_treated_alone():
    x = inputs()
    assert error(jax.jit(packed)(*x), alone(*x)) < 1e-6
    for found, expected in zip(gradients(packed)(*x), gradients(alone)(*x), strict=True):
        assert error(found, expected) < 1e-5


def test_packed_calls_under_vmap():
    x = inputs(3)
    rows = [[tensor[i] for tensor in x] for i in range(3)]
    assert error(jax.vmap(packed)(*x), jnp.stack([packed(*row) for row in rows])) < 1e-6
    for found, *expected in zip(jax.vmap(gradients(packed))(*x), *[gradients(packed)(*row) for row in rows], strict=True):
        assert error(found, jnp.stack(expected)) < 1e-6


def test_packed_blocks_that_the_caller_names():
    q, k, v = inputs()[:3]
    blocks = jnp.asarray(numpy.random.default_rng(3).integers(-1, 4, (1, TOKENS, HEADS, 3)), jnp.int32)
    offsets = numpy.asarray(ENDS, "i4")
    named = lambda q, k, v: ejk.apply_native_sparse_attention(q, k, v, blocks, cum_seqlens=jnp.asarray(offsets), block_size=BLOCK)
    arrays = [numpy.asarray(x) for x in (q, k, v, blocks)]
    assert error(jax.jit(named)(q, k, v), ejk.apply_native_sparse_attention(*arrays, cum_seqlens=offsets, block_size=BLOCK)) < 1e-6
    first, end = ENDS[-2:]
    own = lambda q, k, v: ejk.apply_native_sparse_attention(q, k, v, blocks[:, first:end], block_size=BLOCK)
    assert error(named(q, k, v)[:, first:end], own(q[:, first:end], k[:, first:end], v[:, first:end])) < 1e-6
    of_all = jax.grad(lambda *x: (named(*x)[:, first:end] ** 2).sum(), (0, 1, 2))(q, k, v)
    of_one = jax.grad(lambda *x: (own(*x) ** 2).sum(), (0, 1, 2))(q[:, first:end], k[:, first:end], v[:, first:end])
    for found, expected in zip(of_all, of_one, strict=True):
        assert error(found[:, first:end], expected) < 1e-5
        assert not found[:, :first].any() and not found[:, end:].any()
