"""A program for test_jax_sharding.py: batches that do not divide over the devices, meshes and axes drawn at random. Prints nothing if all
is well. EJK_SEED and ROUNDS in the environment repeat or lengthen a run."""

import os
import random

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from references import error

import ejk
import ejk.jax

ROWS = 16  # of what is placed on the devices; a call takes some of them
MESHES = (("x",), (8,)), (("x",), (4,)), (("x", "y"), (2, 4)), (("x", "y"), (4, 2)), (("x", "y", "z"), (2, 2, 2)), (("x",), (3,))


def drawn(seed, *shape):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), "float32")


def attention(batch):
    """Forward; k and v of the whole batch, a bias that it shares."""
    arrays = drawn(1, ROWS, 9, 4, 16), drawn(2, ROWS, 11, 2, 16), drawn(3, ROWS, 11, 2, 16), drawn(4, 1, 4, 9, 11)
    return arrays, lambda q, k, v, b: ejk.flash_attention(q[:batch], k[:batch], v[:batch], bias=b, return_lse=True)[:2]


def lengths(batch):
    arrays = drawn(1, ROWS, 9, 4, 16), drawn(2, ROWS, 11, 4, 16), jnp.arange(ROWS, dtype=jnp.int32)
    return arrays, lambda q, k, n: ejk.flash_attention(q[:batch], k[:batch], k[:batch], key_value_seq_lengths=n[:batch] + 1)


def gradient(batch):
    arrays, call = attention(batch)
    return arrays, jax.grad(lambda *x: (call(*x)[0] ** 2).sum(), argnums=(0, 1, 2, 3))


def mapped(batch):
    arrays = drawn(1, ROWS, 3, 9, 4, 16), drawn(2, ROWS, 3, 9, 4, 16)
    return arrays, lambda q, k: jax.vmap(lambda q, k: ejk.flash_attention(q, k, k, causal=True))(q[:batch], k[:batch])


def pooling(batch):
    arrays = drawn(1, ROWS, 9, 12), drawn(2, ROWS, 9) > 0
    return arrays, lambda x, m: ejk.mean_pooling(x[:batch], mask=m[:batch])


def pages(batch):
    """Page numbers and lengths of rows of padding would be anything, and 3 is added to them, where zeros could pass."""
    arrays = drawn(1, ROWS, 4, 16), jnp.full(ROWS, 4, jnp.int32), jnp.zeros((ROWS, 2), jnp.int32)
    cache = drawn(2, 5, 2, 8, 16)
    return arrays, lambda q, n, t: ejk.page_attention(q[:batch], cache, cache, n[:batch] * 3, t[:batch] - 3 + 7 // (t[:batch] + 1))


CALLS = attention, lengths, gradient, mapped, pooling, pages


def axes_of(mesh, draw):
    """Some of the mesh's axes, for one dim."""
    names = draw.sample(mesh.axis_names, draw.randint(1, len(mesh.axis_names)))
    return names[0] if len(names) == 1 else tuple(names)


def placed(array, mesh, axis, names):
    parts = numpy.prod([mesh.shape[name] for name in ((names,) if isinstance(names, str) else names)])
    if axis >= array.ndim or array.shape[axis] % parts:
        return array
    return jax.device_put(array, NamedSharding(mesh, P(*(None,) * axis, names)))


def constrained(call, mesh, names):
    """The same call of operands that the program itself lays along an axis, whether or not they divide."""
    lay = lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(names))) if x.ndim > 1 else x  # noqa: E731
    return lambda *x: call(*map(lay, x))


def check(draw):
    names, shape = draw.choice(MESHES)
    mesh = Mesh(numpy.asarray(jax.devices()[: numpy.prod(shape)]).reshape(shape), names)
    make, batch, axis, along = draw.choice(CALLS), draw.randint(1, ROWS), draw.choice((0, 0, 0, 1, 2)), axes_of(mesh, draw)
    arrays, call = make(batch)
    expected = call(*arrays)
    if draw.random() < 0.3:
        call = constrained(call, mesh, along)
    found = jax.jit(call)(*(placed(x, mesh, axis, along) for x in arrays))
    for mine, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert mine.shape == right.shape and error(mine, right) < 1e-5, (make.__name__, batch, axis, along, shape)


def main():
    seed = int(os.environ.get("EJK_SEED", random.randrange(1 << 30)))
    for round in range(int(os.environ.get("ROUNDS", 16))):
        try:
            check(random.Random(seed + round))
        except Exception as failed:
            raise AssertionError(f"EJK_SEED={seed + round} ROUNDS=1 repeats this") from failed


if __name__ == "__main__":
    main()
