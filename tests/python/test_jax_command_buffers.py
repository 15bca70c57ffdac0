"""Calls inside XLA's command buffers, in a process of its own: XLA reads its flags once. Needs a GPU."""

import os
import pathlib
import subprocess
import sys

import pytest

jax = pytest.importorskip("jax")


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="command buffers are a GPU's")
def test_calls_are_captured_and_replayed():
    program = pathlib.Path(__file__).with_name("jax_command_buffers.py")
    flags = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
    ran = subprocess.run([sys.executable, program], env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]
