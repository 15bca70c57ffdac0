"""A program for test_jax_sharding.py: calls on arrays that several devices share. Prints nothing if all is well."""

import sys

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from references import error

import ejk
import ejk.jax

COLLECTIVES = ("all-gather", "all-to-all", "collective-permute", "all-reduce")


def normal(seed, *shape):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), "float32")


def loss(q, k, v):
    return (ejk.flash_attention(q, k, v, causal=True) ** 2).sum()


def operands():
    return normal(1, 8, 33, 4, 64), normal(2, 8, 33, 2, 64), normal(3, 8, 33, 2, 64)


def jit_cuts_the_batch(mesh):
    """Forward and gradients stay where they are: no collective but the loss's own sum."""
    arrays = operands()
    expected = jax.value_and_grad(loss, argnums=(0, 1, 2))(*arrays)
    placed = [jax.device_put(x, NamedSharding(mesh, P("x"))) for x in arrays]
    program = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2))).lower(*placed).compile()
    text = program.as_text()
    assert text.count("all-reduce(") <= 1 and not any(f" {name}(" in text for name in COLLECTIVES[:3]), text
    assert f"f32[{8 // mesh.size},33,4,64]" in text and 'custom_call_target="ejk"' in text
    value, grads = program(*placed)
    assert abs(float(value) / float(expected[0]) - 1) < 1e-5
    for found, right in zip(grads, expected[1]):
        assert error(found, right) < 1e-6
        assert found.sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 4), found.sharding


def jit_gathers_other_dims(mesh):
    arrays = operands()
    placed = [jax.device_put(x, NamedSharding(mesh, P(None, None, None, "x"))) for x in arrays]
    found = jax.jit(lambda *x: ejk.flash_attention(*x, causal=True))(*placed)
    assert error(found, ejk.flash_attention(*arrays, causal=True)) < 1e-6


def a_shared_bias_stays_whole(mesh):
    arrays, bias = operands(), normal(4, 1, 4, 33, 33)
    placed = [jax.device_put(x, NamedSharding(mesh, P("x"))) for x in arrays]
    found = jax.jit(lambda q, k, v, b: ejk.flash_attention(q, k, v, bias=b))(*placed, bias)
    assert error(found, ejk.flash_attention(*arrays, bias=bias)) < 1e-6
    both = [jax.jit(jax.grad(lambda b, q, k, v: (ejk.flash_attention(q, k, v, bias=b) ** 2).sum()))(bias, *x) for x in (placed, arrays)]
    assert error(*both) < 1e-6


def vmap_in_a_sharded_program(mesh):
    arrays = [jnp.stack([x, -x, 2 * x]) for x in operands()]
    placed = [jax.device_put(x, NamedSharding(mesh, P(None, "x"))) for x in arrays]
    mapped = jax.vmap(lambda *x: ejk.flash_attention(*x, causal=True))
    assert error(jax.jit(mapped)(*placed), mapped(*arrays)) < 1e-6


def shard_map_cuts_heads(mesh):
    q, k, v = normal(1, 2, 33, 8, 64), normal(2, 2, 33, 4, 64), normal(3, 2, 33, 4, 64)
    heads, attend = P(None, None, "x"), lambda *x: ejk.flash_attention(*x, causal=True)
    for options in ({}, {"check_vma": False}):
        cut = jax.shard_map(attend, mesh=mesh, in_specs=(heads,) * 3, out_specs=heads, **options)
        assert error(jax.jit(cut)(q, k, v), attend(q, k, v)) < 1e-6
        grads = [jax.jit(jax.grad(lambda q: (f(q, k, v) ** 2).sum()))(q) for f in (cut, attend)]
        assert error(*grads) < 1e-6


def shard_map_adds_up_what_devices_share(mesh):
    """The gradient of keys and values that all devices have, also under vmap."""
    q, k, v = normal(1, 8, 33, 4, 64), normal(2, 1, 33, 2, 64), normal(3, 1, 33, 2, 64)

    def attend(q, k, v):
        return ejk.flash_attention(q, *(jnp.broadcast_to(x, (q.shape[0], *x.shape[1:])) for x in (k, v)), causal=True)

    cut = jax.shard_map(attend, mesh=mesh, in_specs=(P("x"), P(), P()), out_specs=P("x"))
    losses = [jax.grad(lambda q, k, v: (f(q, k, v) ** 2).sum(), argnums=(0, 1, 2)) for f in (cut, attend)]
    for found, right in zip(*(jax.jit(each)(q, k, v) for each in losses)):
        assert error(found, right) < 1e-6
    several = jnp.stack([k, -2 * k])
    for found, right in zip(*(jax.vmap(each, (None, 0, None))(q, several, v) for each in losses)):
        assert error(found, right) < 1e-6


CHECKS = (
    jit_cuts_the_batch,
    jit_gathers_other_dims,
    a_shared_bias_stays_whole,
    vmap_in_a_sharded_program,
    shard_map_cuts_heads,
    shard_map_adds_up_what_devices_share,
)


def main():
    devices = jax.devices()[: int(sys.argv[1])]
    assert len(devices) == int(sys.argv[1]), devices
    mesh = Mesh(numpy.asarray(devices), ("x",))
    for check in CHECKS:
        check(mesh)


if __name__ == "__main__":
    main()
