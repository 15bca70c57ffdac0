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


def softmax_over(q, k, v, seen, scale):
    """seen: [B, T, HEADS, keys]. What sees nothing is 0."""
    k, v, seen = [jnp.repeat(x, q.shape[2] // HEADS, 2) for x in (k, v, seen)]
    scores = jnp.where(seen, jnp.einsum("bthd,bjhd->bthj", q, k) * scale, -1e30)
    return jnp.einsum("bthj,bjhd->bthd", jnp.where(seen, jax.nn.softmax(scores, -1), 0), v)


def over_blocks(q, k, v, blocks, scale=16**-0.5):
    tokens = jnp.arange(TOKENS)
    seen = (blocks[..., None] == tokens // BLOCK).any(3) & (tokens <= tokens[:, None])[None, :, None]
    return softmax_over(q, k, v, seen, scale)


def over_means(q, k, v):
    means = [x.reshape(2, TOKENS // BLOCK, BLOCK, HEADS, 16).mean(2) for x in (k, v)]
    seen = (jnp.arange(TOKENS // BLOCK) + 1) * BLOCK <= jnp.arange(TOKENS)[:, None] + 1
    return softmax_over(q, *means, jnp.broadcast_to(seen[None, :, None], (2, TOKENS, HEADS, TOKENS // BLOCK)), 16**-0.5)


def alike(found, theirs, right):
    """The values of all three. Gradients of our function are those of the dense one: that library's own (0.0.80) are of something else."""
    assert error(found(*inputs()), theirs(*inputs())) < 1e-5
    of = [jax.value_and_grad(lambda q, k, v, f=f: (f(q, k, v) ** 2).sum(), (0, 1, 2))(*inputs()) for f in (found, right)]
    assert abs(float(of[0][0] / of[1][0]) - 1) < 1e-5
    assert max(error(a, b) for a, b in zip(of[0][1], of[1][1], strict=True)) < 1e-5


def both(ours, xla, *arguments, **options):
    return [lambda q, k, v, f=f: f(q, k, v, *arguments, **options) for f in (ours, xla)]


@pytest.mark.parametrize("counts", [3, 2, "array"])
def test_named_blocks(counts):
    blocks = some_blocks(3)
    if counts == "array":
        counts = jnp.asarray(numpy.random.default_rng(5).integers(1, 4, (2, TOKENS, HEADS)), jnp.int32)
    counted = jnp.where(jnp.arange(3) < jnp.broadcast_to(counts, (2, TOKENS, HEADS))[..., None], blocks, -1)
    options = {"block_counts": counts, "block_size": BLOCK, "softmax_scale": 0.3}
    functions = both(sparse.apply_native_sparse_attention, xla_apply, blocks, **options)
    alike(*functions, lambda q, k, v: over_blocks(q, k, v, counted, 0.3))


def test_blocks_named_for_blocks_of_queries():
    blocks = some_blocks(2, TOKENS // BLOCK)
    functions = both(sparse.apply_native_sparse_attention, xla_apply, jnp.moveaxis(blocks, 1, 2), block_counts=2, block_size=BLOCK)
    alike(*functions, lambda q, k, v: over_blocks(q, k, v, jnp.repeat(blocks, BLOCK, 1)))


def test_a_gate_of_named_blocks():
    gate, blocks = normal(6, 2, TOKENS, 4), some_blocks(3)
    functions = both(sparse.native_sparse_attention, xla_native, g_slc=gate, block_indices=blocks, block_counts=3, block_size=BLOCK)
    alike(*functions, lambda q, k, v: over_blocks(q, k, v, blocks) * gate[..., None])


def test_means_and_as_many_blocks_as_there_are():
    gates, count = [normal(seed, 2, TOKENS, 4) for seed in (6, 7)], TOKENS // BLOCK
    functions = both(sparse.native_sparse_attention, xla_native, *gates, block_counts=count, block_size=BLOCK)
    every = jnp.broadcast_to(jnp.arange(count), (2, TOKENS, HEADS, count))
    alike(*functions, lambda q, k, v: over_means(q, k, v) * gates[0][..., None] + over_blocks(q, k, v, every) * gates[1][..., None])


def test_packed_sequences():
    """That library's XLA functions do not take them: each sequence by a call of its own."""
    (q, k, v), blocks, gate = [x[:1] for x in inputs()], some_blocks(3)[:1], normal(6, 1, TOKENS, 4)
    ends = [0, 13, 13, 17, TOKENS]

    def packed(q, k, v):
        named = {"block_counts": 3, "block_size": BLOCK, "cu_seqlens": jnp.asarray(ends)}
        return sparse.apply_native_sparse_attention(q, k, v, blocks, **named), sparse.native_sparse_attention(q, k, v, gate, gate, **named)

    def alone(q, k, v):
        outs = []
        for first, end in zip(ends[:-1], ends[1:], strict=True):
            rows = slice(first, end)
            own, options = [x[:, rows] for x in (q, k, v)], {"block_counts": 3, "block_size": BLOCK}
            named = sparse.apply_native_sparse_attention(*own, blocks[:, rows], **options)
            outs.append((named, sparse.native_sparse_attention(*own, gate[:, rows], gate[:, rows], **options)))
        return tuple(jnp.concatenate(parts, 1) for parts in zip(*outs, strict=True))

    def loss(f):
        return lambda *x: sum((out**2).sum() for out in f(*x))

    for found, expected in zip(packed(q, k, v), alone(q, k, v), strict=True):
        assert error(found, expected) < 1e-6
    for found, expected in zip(*[jax.grad(loss(f), (0, 1, 2))(q, k, v) for f in (packed, alone)], strict=True):
        assert error(found, expected) < 1e-5


def test_what_is_not_ours_is_refused():
    q, k, v = inputs()
    with pytest.raises(NotImplementedError, match="token_indices without cu_seqlens is not supported"):
        sparse.apply_native_sparse_attention(q, k, v, some_blocks(2), token_indices=jnp.zeros((TOKENS, 2), jnp.int32))
    with pytest.raises(ValueError, match="with cu_seqlens expected"):
        some = jnp.moveaxis(some_blocks(2, TOKENS // BLOCK), 1, 2)[:1]
        sparse.apply_native_sparse_attention(q[:1], k[:1], v[:1], some, 2, BLOCK, cu_seqlens=jnp.asarray([0, TOKENS]))
    with pytest.raises(NotImplementedError, match="no one number, with g_cmp, is not supported"):
        sparse.native_sparse_attention(q, k, v, g_cmp=normal(6, 2, TOKENS, 4), block_counts=jnp.ones((2, TOKENS, HEADS), jnp.int32))
    with pytest.raises(ValueError, match="expected"):
        sparse.apply_native_sparse_attention(q, k, v, some_blocks(2)[:, :7], block_size=BLOCK)
