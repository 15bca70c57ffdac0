"""ejk.set_jit and ejk.wait_for_images; images of gradients that are built with the call's own. Each in a process with an empty cache; of
grouped_matmul, since the wheel that is tested has images of mean_pooling."""

import os
import subprocess
import sys

import pytest

import ejk

def run(code, tmp_path, **environment):
    variables = {**os.environ, "EJKERNEL_CACHE_DIR": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


BACKGROUND = """
import numpy, ejk
lhs, rhs, sizes = numpy.ones((8, 32), numpy.float32), numpy.ones((2, 32, 16), numpy.float32), numpy.array([3, 5], numpy.int32)
expected = ejk.grouped_matmul(lhs, rhs, group_sizes=sizes, cfg={"variant": "plain"})
ejk.set_jit("background")
first = ejk.grouped_matmul(lhs, rhs, group_sizes=sizes)
assert abs(first - expected).max() < 1e-6
assert ejk.wait_for_images(120)
second = ejk.grouped_matmul(lhs, rhs, group_sizes=sizes)
assert abs(second - expected).max() < 1e-6
counts = ejk.counters()
print(counts["stand_ins"], counts["compiles"])
"""


def test_a_stand_in_serves_until_the_image_is_there(tmp_path):
    assert run(BACKGROUND, tmp_path) == ["1", "2"]
    assert run(BACKGROUND, tmp_path) == ["0", "0"], "both are in the cache"


def test_what_is_not_legal_is_said():
    with pytest.raises(ejk.InputError, match="jit is 'maybe'; expected on, off or background"):
        ejk.set_jit("maybe")
    with pytest.raises(TypeError, match="jit must be a str"):
        ejk.set_jit(1)
    assert ejk.wait_for_images(0.0) in (True, False)


GRADIENT = """
import os, jax, ejk.jax
lhs, rhs, sizes = jax.numpy.ones((8, 32)), jax.numpy.ones((2, 32, 16)), jax.numpy.array([3, 5], "int32")
squares = lambda lhs, rhs: (ejk.jax.grouped_matmul(lhs, rhs, group_sizes=sizes) ** 2).sum()  # so that the gradient needs the call
gradient = jax.jit(jax.grad(squares, (0, 1)))
gradient.trace(lhs, rhs)  # nothing is lowered
assert ejk.wait_for_images(120)
before = ejk.counters()["compiles"]
print(before, *sorted(os.listdir(os.environ["EJKERNEL_CACHE_DIR"])))
gradient(lhs, rhs)
print(ejk.counters()["compiles"] - before)
"""


def test_jax_builds_the_gradients_image_while_the_call_is_traced(tmp_path):
    pytest.importorskip("jax")
    built = ["2", "grouped_matmul", "tgmm"]  # of the gradient of lhs, which is the forward call's image, too, and of rhs
    assert run(GRADIENT, tmp_path) == [*built, "0"]


EXPECTED = """
import os, numpy, ejk
from ejk import _call, _numpy_arrays
tensors = {"lhs": numpy.ones((8, 32), numpy.float32), "rhs": numpy.ones((2, 32, 16), numpy.float32),
           "group_sizes": numpy.array([3, 5], numpy.int32), "out": numpy.empty((8, 16), numpy.float32)}
call = _call.prepare("grouped_matmul", {name: _numpy_arrays.view(tensor) for name, tensor in tensors.items()})
call.expect_gradient(INPUTS)
call.run([tensor.ctypes.data for tensor in tensors.values()])
assert ejk.wait_for_images(120) and (tensors["out"] == 32).all()
print(ejk.counters()["compiles"], *sorted(os.listdir(os.environ["EJKERNEL_CACHE_DIR"])))
"""


def test_a_call_whose_gradient_is_expected_builds_both_images(tmp_path):
    """As PyTorch's autograd says it."""
    assert run(EXPECTED.replace("INPUTS", '["rhs"]'), tmp_path / "both") == ["2", "grouped_matmul", "tgmm"]
    assert run(EXPECTED.replace("INPUTS", "[]"), tmp_path / "one") == ["1", "grouped_matmul"]
