"""Sharded programs on four devices of the CPU, in a process of their own: their number is fixed when JAX starts. And on the GPUs there are."""

import os
import pathlib
import subprocess
import sys

import pytest

jax = pytest.importorskip("jax")


def passes(devices, flags, program="jax_sharding.py", *words):
    command = [sys.executable, pathlib.Path(__file__).with_name(program), str(devices), *words]
    ran = subprocess.run(command, env={**os.environ, **flags}, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]


SHARD_MAP = pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="this JAX has no jax.shard_map")


@SHARD_MAP
@pytest.mark.parametrize("shardy", ["1", "0"])  # XLA's partitioner and the one before it
def test_calls_on_sharded_arrays(shardy):
    passes(4, {"JAX_PLATFORMS": "cpu", "JAX_USE_SHARDY_PARTITIONER": shardy, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"})


@SHARD_MAP
@pytest.mark.parametrize("form", ["batched", "packed"])
def test_recurrences_on_tokens_of_eight_devices(form):
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    passes(8, flags, "jax_sequence_sharding.py", form)


@pytest.mark.parametrize("shardy", ["1", "0"])
def test_batches_that_do_not_divide(shardy):
    if not hasattr(jax, "shard_map"):
        pytest.skip("jaxlib 0.6.0 ends the process at the JSON of a call that it cuts: Shardy always, the partitioner before it at some draws")
    flags = {"JAX_PLATFORMS": "cpu", "JAX_USE_SHARDY_PARTITIONER": shardy, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    passes(8, flags, "jax_uneven_sharding.py")


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU")
def test_calls_on_sharded_arrays_of_gpus():
    count = len(jax.devices())
    passes(4 if count >= 4 else 2 if count >= 2 else 1, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
