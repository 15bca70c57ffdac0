"""Native sparse attention under the names of the Python library ejkernel, beside its own XLA functions. Runs where that library is installed."""

import numpy
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("ejkernel")
import jax.numpy as jnp  # noqa: E402
from ejkernel.kernels._xla.native_sparse_attention import apply_native_sparse_attention as xla_apply  # noqa: E402
from ejkernel.kernels._xla.native_sparse_attention import native_sparse_attention as xla_native  # noqa: E402
from references import error  # noqa: E402

import ejk.jax.ejkernel  # noqa: E402, F401
from ejk.jax import _ejkernel_sparse as sparse  # noqa: E402

TOKENS, BLOCK, HEADS = 40, 8, 2


def normal(seed, *shape):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), "float32")


def inputs():
    return normal(1, 2, TOKENS, 4, 16), normal(2, 2, TOKENS, HEADS, 16), normal(3, 2, TOKENS, HEADS, 16)


def some_blocks(count, rows=TOKENS):
    """[2, rows, HEADS, count]: the first block, and others that begin at or before each query, no block twice."""
    random = numpy.random.default_rng(4)
    blocks = numpy.full((2, rows, HEADS, count), -1, "int32")
    for b, t, h in numpy.ndindex(2, rows, HEADS):
        own = t * TOKENS // rows // BLOCK
        chosen = random.permutation(numpy.arange(1, own + 1))[: count - 1]
        blocks[b, t, h, : len(chosen) + 1] = [0, *chosen]
    return jnp.asarray(blocks)


def alike(found, right):
    """Values and gradients of the first three arguments."""
    of = [jax.value_and_grad(lambda q, k, v, f=f: (f(q, k, v) ** 2).sum(), (0, 1, 2))(*inputs()) for f in (found, right)]
    assert abs(float(of[0][0] / of[1][0]) - 1) < 1e-5
    assert max(error(a, b) for a, b in zip(of[0][1], of[1][1], strict=True)) < 1e-5


@pytest.mark.parametrize("counts", [3, 2, "array"])
def test_named_blocks(counts):
    counts = jnp.asarray(numpy.random.default_rng(5).integers(1, 4, (2, TOKENS, HEADS)), jnp.int32) if counts == "array" else counts
    options = {"block_counts": counts, "block_size": BLOCK, "softmax_scale": 0.3}
    alike(*[lambda q, k, v, f=f: f(q, k, v, some_blocks(3), **options) for f in (sparse.apply_native_sparse_attention, xla_apply)])


def test_blocks_named_for_blocks_of_queries():
    blocks = jnp.moveaxis(some_blocks(2, TOKENS // BLOCK), 1, 2)
    options = {"block_counts": 2, "block_size": BLOCK}
    alike(*[lambda q, k, v, f=f: f(q, k, v, blocks, **options) for f in (sparse.apply_native_sparse_attention, xla_apply)])


def test_a_gate_of_named_blocks():
    options = {"g_slc": normal(6, 2, TOKENS, 4), "block_indices": some_blocks(3), "block_counts": 3, "block_size": BLOCK}
    alike(*[lambda q, k, v, f=f: f(q, k, v, **options) for f in (sparse.native_sparse_attention, xla_native)])


def test_means_and_as_many_blocks_as_there_are():
    options = {"g_cmp": normal(6, 2, TOKENS, 4), "g_slc": normal(7, 2, TOKENS, 4), "block_counts": TOKENS // BLOCK, "block_size": BLOCK}
    alike(*[lambda q, k, v, f=f: f(q, k, v, **options) for f in (sparse.native_sparse_attention, xla_native)])


def test_what_is_not_ours_is_refused():
    q, k, v = inputs()
    with pytest.raises(NotImplementedError, match="cu_seqlens is not supported"):
        sparse.apply_native_sparse_attention(q, k, v, some_blocks(2), cu_seqlens=jnp.asarray([0, TOKENS]))
    with pytest.raises(NotImplementedError, match="no one number, with g_cmp, is not supported"):
        sparse.native_sparse_attention(q, k, v, g_cmp=normal(6, 2, TOKENS, 4), block_counts=jnp.ones((2, TOKENS, HEADS), jnp.int32))
    with pytest.raises(ValueError, match="expected"):
        sparse.apply_native_sparse_attention(q, k, v, some_blocks(2)[:, :7], block_size=BLOCK)
