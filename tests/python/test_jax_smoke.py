"""What every JAX must do that ejk.jax serves: a little of everything, in a few seconds. The oldest release runs this and no more."""

import os
import subprocess
import sys

import numpy
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import ejk  # noqa: E402
import ejk.jax  # noqa: E402


def normal(seed, *shape):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), "float32")


def theirs(q, k, v, causal=False):
    with jax.default_matmul_precision("highest"):
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)


def apart(found, right):
    return max(float(jnp.abs(a - b).max()) for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(right)))


Q, K, V = (normal(seed, 3, 9, 2, 16) for seed in (1, 2, 3))


def loss(attend):
    return lambda q, k, v: (attend(q, k, v) ** 2).sum()


def test_eager_jit_grad_and_vmap():
    right = theirs(Q, K, V)
    assert apart(ejk.flash_attention(Q, K, V), right) < 1e-5 and apart(ejk.jax.flash_attention(Q, K, V), right) < 1e-5
    assert apart(jax.jit(ejk.flash_attention)(Q, K, V), right) < 1e-5
    gradients = [jax.jit(jax.grad(loss(f), argnums=(0, 1, 2)))(Q, K, V) for f in (ejk.flash_attention, theirs)]
    assert apart(*gradients) < 1e-4
    assert apart(jax.vmap(ejk.flash_attention, (0, None, None))(jnp.stack([Q, 2 * Q]), K, V)[1], theirs(2 * Q, K, V)) < 1e-5


def test_checkpoint_and_scan():
    step = lambda f: lambda q, k, v: jax.lax.scan(lambda c, _: (jax.checkpoint(f)(c, k, v) + c, None), q, None, length=2)[0]  # noqa: E731
    gradients = [jax.grad(loss(step(f)))(Q, K, V) for f in (ejk.flash_attention, theirs)]
    assert apart(*gradients) < 1e-3


def test_dot_product_attention():
    assert apart(ejk.jax.dot_product_attention(Q, K, V, is_causal=True), theirs(Q, K, V, True)) < 1e-5


SHARDED = """
import jax, numpy
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import ejk, ejk.jax
q = jnp.asarray(numpy.random.default_rng(1).standard_normal((8, 9, 2, 16)), "float32")
mesh = Mesh(numpy.asarray(jax.devices()), ("x",))
placed = jax.device_put(q, NamedSharding(mesh, P("x")))
for rows in (8, 5):
    call = jax.jit(lambda q: ejk.flash_attention(q[:rows], q[:rows], q[:rows], causal=True))
    assert abs(call(placed) - call(q)).max() < 1e-5
assert "all-gather" not in jax.jit(lambda q: ejk.flash_attention(q, q, q)).lower(placed).compile().as_text()
"""


def test_shardings():
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run([sys.executable, "-c", SHARDED], env={**os.environ, **flags}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
