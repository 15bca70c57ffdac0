"""ejk.set_jit and ejk.wait_for_images; images of gradients that are built with the call's own. Each in a process with an empty cache."""

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
x = numpy.ones((1, 64, 32), numpy.float32)
generic = {"variant": "strided"} if SOME else None
expected = ejk.mean_pooling(x, cfg=generic)
ejk.set_jit("background")
first = ejk.mean_pooling(x)
assert abs(first - expected).max() < 1e-6
assert ejk.wait_for_images(120)
second = ejk.mean_pooling(x)
assert abs(second - expected).max() < 1e-6
counts = ejk.counters()
print(counts["stand_ins"], counts["compiles"])
"""


def test_a_stand_in_serves_until_the_image_is_there(tmp_path):
    assert run(BACKGROUND.replace("SOME", "True"), tmp_path) == ["1", "2"]
    assert run(BACKGROUND.replace("SOME", "True"), tmp_path) == ["0", "0"], "both are in the cache"


def test_what_is_not_legal_is_said():
    with pytest.raises(ejk.InputError, match="jit is 'maybe'; expected on, off or background"):
        ejk.set_jit("maybe")
    with pytest.raises(TypeError, match="jit must be a str"):
        ejk.set_jit(1)
    assert ejk.wait_for_images(0.0) in (True, False)


GRADIENT = """
import jax, ejk.jax
x = jax.numpy.ones((1, 64, 32))
pooled = lambda x: (ejk.jax.mean_pooling(x) ** 2).sum()  # so that the gradient needs the call
jax.jit(jax.grad(pooled)).trace(x)  # nothing is lowered
assert ejk.wait_for_images(120)
before = ejk.counters()["compiles"]
import os
print(before, *sorted(os.listdir(os.environ["EJKERNEL_CACHE_DIR"])))
jax.jit(jax.grad(pooled))(x)
print(ejk.counters()["compiles"] - before)
"""


def test_jax_builds_the_gradients_image_while_the_call_is_traced(tmp_path):
    pytest.importorskip("jax")
    before, kernel, *rest, more = run(GRADIENT, tmp_path)
    assert (before, kernel, rest) == ("1", "mean_pooling_bwd", [])
    assert more == "1", "the forward image alone"


EXPECTED = """
import os, numpy, ejk
from ejk import _call, _numpy_arrays
x, out = numpy.ones((1, 64, 32), numpy.float32), numpy.empty((1, 32), numpy.float32)
call = _call.prepare("mean_pooling", {"x": _numpy_arrays.view(x), "out": _numpy_arrays.view(out)})
call.expect_gradient(INPUTS)
call.run([x.ctypes.data, out.ctypes.data])
assert ejk.wait_for_images(120) and (out == 1).all()
print(ejk.counters()["compiles"], *sorted(os.listdir(os.environ["EJKERNEL_CACHE_DIR"])))
"""


def test_a_call_whose_gradient_is_expected_builds_both_images(tmp_path):
    """As PyTorch's autograd says it."""
    assert run(EXPECTED.replace("INPUTS", '["x"]'), tmp_path / "both") == ["2", "mean_pooling", "mean_pooling_bwd"]
    assert run(EXPECTED.replace("INPUTS", "[]"), tmp_path / "one") == ["1", "mean_pooling"]
