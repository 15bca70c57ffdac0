"""Sharded programs on four devices of the CPU, in a process of their own: their number is fixed when JAX starts."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("jax")


@pytest.mark.parametrize("shardy", ["1", "0"])  # XLA's partitioner and the one before it
def test_calls_on_sharded_arrays(shardy):
    program = pathlib.Path(__file__).with_name("jax_sharding.py")
    flags = {"JAX_PLATFORMS": "cpu", "JAX_USE_SHARDY_PARTITIONER": shardy, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    ran = subprocess.run([sys.executable, program, "4"], env={**os.environ, **flags}, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]
