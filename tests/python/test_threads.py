"""Whose threads do CPU work: PyTorch's OpenMP threads, XLA's pool inside jax.jit, our own where there is neither."""

import os
import subprocess
import sys

import pytest


def python(code, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300)


def output(code, **variables):
    done = python(code, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


NUMPY = "import numpy, ejk; x = numpy.ones((4, 2000, 64), numpy.float32); ejk.mean_pooling(x); print(ejk.info()['executor'])"


def test_numpy_programs_have_our_own():
    assert output(NUMPY) == "own pool\n"


def test_the_own_pool_can_be_asked_for():
    assert output(NUMPY, EJKERNEL_EXECUTOR="own") == "own pool (EJKERNEL_EXECUTOR=own)\n"
    assert "environment variable EJKERNEL_EXECUTOR is 'mine'; expected auto or own, or unset it" in python(NUMPY, EJKERNEL_EXECUTOR="mine").stderr


def test_pytorch_programs_lend_theirs():
    pytest.importorskip("torch")
    code = """
import time, numpy, ejk
x = numpy.random.rand(8, 4096, 64).astype("f4")
before, alone = ejk.info()["executor"], ejk.mean_pooling(x)
import torch
torch.set_num_threads(2)
time.sleep(0.05)
assert (ejk.mean_pooling(x) == alone).all()
assert (ejk.mean_pooling(torch.from_numpy(x)).numpy() == alone).all()
print(before, ejk.info()["executor"], sep="\\n")
"""
    before, after = output(code).splitlines()
    assert before == "own pool" and after.startswith("OpenMP of libtorch_cpu.so (") and after.endswith("2 threads")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("when", ["before", "after"])  # the fork, ejk is imported
def test_a_child_of_a_pytorch_program_does_not_wait_for_threads_it_has_not(when):
    pytest.importorskip("torch")
    code = f"""
import os, signal, numpy, torch
x = numpy.ones((4, 2000, 64), "f4")
torch.randn(512, 512) @ torch.randn(512, 512)
if {when == "before"}:
    import ejk
    ejk.mean_pooling(x)
child = os.fork()
if child == 0:
    signal.alarm(100)
    import ejk
    os._exit(0 if (ejk.mean_pooling(x) == 1).all() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    output(code)


def test_in_a_jax_program_xlas_pool_does_the_work():
    pytest.importorskip("jax")
    code = """
import os, jax, numpy, ejk, ejk.jax
x = jax.numpy.asarray(numpy.random.rand(8, 4096, 64).astype("f4"))
program = jax.jit(lambda x: ejk.mean_pooling(x) + ejk.mean_pooling(x + 1))
jax.block_until_ready(jax.jit(lambda x: x @ x.transpose(0, 2, 1))(x))
before = len(os.listdir("/proc/self/task"))
for _ in range(20):
    inside = program(x)
after = len(os.listdir("/proc/self/task"))
host = numpy.asarray(x)
assert (numpy.asarray(inside) == ejk.mean_pooling(host) + ejk.mean_pooling(host + 1)).all()
print(after - before)
"""
    assert int(output(code, EJKERNEL_THREADS="64", JAX_PLATFORMS="cpu")) < 32, "none of our own 63 threads were started"


WORKERS = """
import os, jax, numpy, ejk, ejk.jax
q = jax.numpy.asarray(numpy.random.rand(2, 1024, 8, 64).astype("f4"))
program = jax.jit(lambda q: ejk.flash_attention(q, q, q))
product = jax.jit(lambda x: x @ x)
big = jax.numpy.ones((1024, 1024), "f4")
jax.block_until_ready([product(big), program(q)])
def spent():
    times = {}
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/schedstat") as times_of, open(f"/proc/self/task/{thread}/comm") as name:
            times[thread] = int(times_of.read().split()[0]), name.read().strip()
    return times
before = spent()
for _ in range(30):
    jax.block_until_ready(program(q))
worked = {thread: (time - before.get(thread, (0,))[0], name) for thread, (time, name) in spent().items()}
total = sum(time for time, _ in worked.values())
theirs = sum(time for thread, (time, name) in worked.items() if name.startswith("tf_XLA") or int(thread) == os.getpid())
print((total - theirs) / total)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="XLA has no pool on one CPU")
def test_the_threads_that_work_inside_jax_are_xlas():
    pytest.importorskip("jax")
    assert float(output(WORKERS, JAX_PLATFORMS="cpu")) < 0.05, "part of the processor's time that neither the caller nor XLA's pool took"
    assert float(output(WORKERS, EJKERNEL_EXECUTOR="own", JAX_PLATFORMS="cpu")) > 0.1, "this is how it looks when our own pool does it"
