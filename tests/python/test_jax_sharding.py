"""Sharded programs on four devices of the CPU, in a process of their own: their number is fixed when JAX starts."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("jax")


def test_calls_on_sharded_arrays():
    program = pathlib.Path(__file__).with_name("jax_sharding.py")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    ran = subprocess.run([sys.executable, program, "4"], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]
