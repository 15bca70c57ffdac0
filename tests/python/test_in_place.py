"""Outputs that are an input's memory, and outputs for the gradient alone: each library in a process of its own, with the test store."""

import os
import pathlib
import subprocess
import sys

import pytest


def passes(library, **flags):
    program = pathlib.Path(__file__).with_name("in_place.py")
    ran = subprocess.run([sys.executable, program, library], env={**os.environ, **flags}, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]


def test_numpy_arrays_are_written():
    passes("numpy")


def test_jax_aliases_operand_and_result():
    jax = pytest.importorskip("jax")
    if not hasattr(jax, "shard_map"):
        pytest.skip("this JAX has no jax.shard_map")
    passes("jax", JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=2")


def test_torch_operators_mutate():
    pytest.importorskip("torch")
    passes("torch")
