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
