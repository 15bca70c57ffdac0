"""Attention behind a mask of blocks in JAX programs: values and gradients against flash_attention with the dense mask."""

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from references import error  # noqa: E402

import ejk  # noqa: E402


def test_values_and_gradients_are_those_of_the_dense_mask():
    rng = numpy.random.default_rng(8)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape, dtype="f4"))
    q, k, v, slope = draw(1, 80, 4, 64), draw(1, 100, 2, 64), draw(1, 100, 2, 64), draw(1, 80, 4, 64)
    blocks = jnp.asarray(rng.random((1, 1, 3, 4)) < 0.5).at[0, 0, 1].set(False)  # rows 32 to 63 see nothing
    dense = jnp.repeat(jnp.repeat(blocks, 32, 2), 32, 3)[:, :, :80, :100]
    sparse = lambda *x: ejk.blocksparse_attention(*x, blocks, block_q=32, block_k=32, causal=True)
    whole = lambda *x: ejk.flash_attention(*x, attention_mask=dense, causal=True)
    assert error(jax.jit(sparse)(q, k, v), whole(q, k, v)) < 1e-5
    grads = lambda f: jax.jit(jax.grad(lambda *x: (f(*x) * slope).sum(), argnums=(0, 1, 2)))(q, k, v)
    for mine, other in zip(grads(sparse), grads(whole)):
        assert error(mine, other) < 1e-5
    assert (grads(sparse)[0][:, 32:64] == 0).all()


def test_packed_calls_are_as_calls_of_each_sequence():
    rng = numpy.random.default_rng(9)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape, dtype="f4"))
    lengths = [40, 0, 33, 7]
    total = sum(lengths)
    q, k, v, slope = draw(total, 4, 64), draw(total, 2, 64), draw(total, 2, 64), draw(total, 4, 64)
    ends = jnp.asarray(numpy.cumsum([0, *lengths]), jnp.int32)
    mask = ejk.block_masks.packed([ejk.block_masks.local(n, n, 1, block_q=16, block_k=16, like=q) & ejk.block_masks.causal(n, n, block_q=16, block_k=16, like=q) for n in lengths])
    packed = lambda *x: ejk.blocksparse_attention(*x, cum_seqlens_q=ends, cum_seqlens_k=ends, **mask.arguments())

    def alone(q, k, v):
        parts = []
        for number, n in enumerate(lengths):
            part = slice(sum(lengths[:number]), sum(lengths[: number + 1]))
            blocks = mask.block_mask[number : number + 1, :, : -(-n // 16), : -(-n // 16)]
            parts.append(ejk.blocksparse_attention(q[None, part], k[None, part], v[None, part], blocks, block_q=16, block_k=16, causal=True)[0])
        return jnp.concatenate(parts)

    assert error(jax.jit(packed)(q, k, v), alone(q, k, v)) < 1e-5
    grads = lambda f: jax.jit(jax.grad(lambda *x: (f(*x) * slope).sum(), argnums=(0, 1, 2)))(q, k, v)
    for mine, other in zip(grads(packed), grads(alone)):
        assert error(mine, other) < 1e-5
    several = jnp.stack([q, 2 * q])
    found = jax.jit(jax.vmap(jax.grad(lambda x: (packed(x, k, v) * slope).sum())))(several)
    for mine, one in zip(found, several):
        assert error(mine, jax.grad(lambda x: (packed(x, k, v) * slope).sum())(one)) < 1e-5
