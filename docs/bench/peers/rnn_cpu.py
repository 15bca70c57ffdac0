#!/usr/bin/env python3
"""rnn and rnn_bwd on a CPU beside OpenBLAS's sgemm of the same products, and jax.lax.scan of the same cell: in turn, in one process.

usage: rnn_cpu.py [--threads N] [--seconds S] [--cases GLOB] [--no-jax] [--backward [--kept]]
PYTHONPATH: what `tools/wheel --tree FOLDER` prints; NumPy with OpenBLAS and JAX beside it. With one thread the clock is the process's own
CPU time, so that other work on the machine counts less; with more it is the wall's. Medians of the rounds that fit.

sgemm: the inputs' product of all tokens, then a product a step (backward: gates again, the steps', then the gradients of x and the
weights): products alone, no gates. scan: its steps have the state's product alone, the inputs' are made before; of the whole cell: both in each
step, as flax's nn.RNN has them. --kept: gates that the forward pass kept are given (numbers like them), and sgemm makes none again. Of steps alone (I = 8) GB/s are those of w_hh; "cache" reads a buffer of w_hh's size by dot products.
"""
import argparse
import fnmatch
import os
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--seconds", type=float, default=4)
parser.add_argument("--cases", default="*")
parser.add_argument("--no-jax", action="store_true")
parser.add_argument("--backward", action="store_true")
parser.add_argument("--kept", action="store_true")
options = parser.parse_args()
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
os.environ.update(OPENBLAS_NUM_THREADS=str(options.threads), EJKERNEL_THREADS=str(options.threads), JAX_PLATFORMS="cpu")
if options.threads == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import numpy as np

import ejk

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1}
CASES = [("lstm", "f32", 32, 64, 1024, 1024), ("gru", "f32", 32, 64, 1024, 1024), ("rnn_tanh", "f32", 32, 64, 1024, 1024),
         ("lstm", "bf16", 32, 64, 1024, 1024), ("gru", "bf16", 32, 64, 1024, 1024),
         ("lstm", "f32", 64, 128, 512, 512), ("gru", "f32", 64, 128, 512, 512), ("lstm", "bf16", 64, 128, 512, 512)]
CASES += [(cell, kind, 1, 256, inputs, width) for width in (256, 512, 1024) for inputs in (8, width)
          for cell, kind in (("lstm", "f32"), ("lstm", "bf16"), ("gru", "f32"), ("rnn_tanh", "f32"))]


def clock():
    return time.process_time() if options.threads == 1 else time.perf_counter()


def medians(functions):
    """Seconds of each function, called in turn."""
    for function in functions:
        function()
    samples, start = [[] for _ in functions], time.perf_counter()
    while time.perf_counter() - start < options.seconds or len(samples[0]) < 3:
        for function, found in zip(functions, samples):
            begin = clock()
            function()
            found.append(clock() - begin)
    return [sorted(found)[len(found) // 2] for found in samples]


def numbers(*shape):
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype(np.float32) * (shape[-1] ** -0.5)


def to_kind(array, kind):
    if kind == "f32":
        return array
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16)


def sgemm(x, w_ih, w_hh, h):
    batch, tokens, _ = x.shape
    rows = np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(batch * tokens, -1)
    brought = np.empty((batch * tokens, w_ih.shape[0]), np.float32)
    step = np.empty((batch, w_hh.shape[0]), np.float32)

    def forward():
        np.matmul(rows, w_ih.T, out=brought)
        for _ in range(tokens):
            np.matmul(h, w_hh.T, out=step)

    dgates, before = numbers(*brought.shape), numbers(batch * tokens, w_hh.shape[1])
    dstep, dh, dx, dw_ih, dw_hh = numbers(*step.shape), np.empty_like(h), np.empty_like(rows), np.empty_like(w_ih), np.empty_like(w_hh)

    def backward():
        if w_hh.shape[0] > w_hh.shape[1] and not options.kept:
            np.matmul(rows, w_ih.T, out=brought)
            np.matmul(before, w_hh.T, out=brought)
        for _ in range(tokens):
            np.matmul(dstep, w_hh, out=dh)
        np.matmul(dgates, w_ih, out=dx)
        np.matmul(dgates.T, rows, out=dw_ih)
        np.matmul(dgates.T, before, out=dw_hh)

    return backward if options.backward else forward


def scan(cell, x, w_ih, w_hh, whole):
    import jax
    import jax.numpy as jnp

    def gates_of(brought, h, c):
        if cell == "gru":
            r, z, n = jnp.split(brought, 3, -1)
            hr, hz, hn = jnp.split(h @ w_hh.T, 3, -1)
            z = jax.nn.sigmoid(z + hz)
            n = jnp.tanh(n + jax.nn.sigmoid(r + hr) * hn)
            return n + z * (h - n), c
        sums = brought + h @ w_hh.T
        if cell == "rnn_tanh":
            return jnp.tanh(sums), c
        i, f, g, o = jnp.split(sums, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def layer(x, w_ih, w_hh_):
        nonlocal w_hh
        w_hh = w_hh_
        zeros = jnp.zeros((x.shape[0], w_hh.shape[1]), x.dtype)

        def step(state, given):
            state = gates_of(given @ w_ih.T if whole else given, *state)
            return state, state[0]

        return jax.lax.scan(step, (zeros, zeros), jnp.swapaxes(x if whole else x @ w_ih.T, 0, 1))[1]

    arrays = [jnp.asarray(a) for a in (x, w_ih, w_hh)]
    if options.backward:  # of the kept forward pass, as an optimiser's step has it: both are in the time, the forward's is told apart
        function = jax.jit(jax.grad(lambda *a: layer(*a).astype(jnp.float32).sum(), argnums=(0, 1, 2)))
    else:
        function = jax.jit(layer)
    return lambda: jax.block_until_ready(function(*arrays))


def products(cell, batch, tokens, inputs, width):
    times = 1 if not options.backward else 3 if GATES[cell] > 1 and not options.kept else 2
    return times * 2 * batch * tokens * GATES[cell] * width * (inputs + width)


def row(cell, kind, batch, tokens, inputs, width):
    x, w_ih, w_hh = numbers(batch, tokens, inputs) * inputs**0.5, numbers(GATES[cell] * width, inputs), numbers(GATES[cell] * width, width)
    h = numbers(batch, width)
    given = [to_kind(a, kind) for a in (x, w_ih, w_hh)]
    ours = [given[0], given[1][None], given[2][None]]
    y = ejk.rnn(*ours, cell_type=cell)[0]
    dy = to_kind(numbers(*y.shape), kind)
    gates = numbers(1, batch, tokens, (GATES[cell] + 1) * width) if options.kept and GATES[cell] > 1 else None
    functions = [(lambda: ejk.rnn_bwd(*ours, y, dy, gates=gates, cell_type=cell)) if options.backward else (lambda: ejk.rnn(*ours, cell_type=cell)),
                 sgemm(x, w_ih, w_hh, h)]
    if batch == 1 and inputs == 8:
        buffer = np.ones(given[2].nbytes // 8, np.float32), np.ones(given[2].nbytes // 8, np.float32)
        functions.append(lambda: [np.dot(*buffer) for _ in range(tokens)])
    elif not options.no_jax:
        functions += [scan(cell, *given, whole) for whole in (False, True)]
    seconds = medians(functions)
    flops = products(cell, batch, tokens, inputs, width)
    text = [f"{cell} {kind} B {batch} T {tokens} I {inputs} H {width}", f"{seconds[0] * 1e3:.2f}", f"{flops / seconds[0] / 1e9:.1f}",
            f"{flops / seconds[1] / 1e9:.1f}", f"{seconds[1] / seconds[0]:.2f}"]
    rate = given[2].nbytes * tokens / 1e9
    if batch == 1 and inputs == 8:
        text += ["", "", "", "", f"{rate / seconds[0]:.1f}", f"{rate / seconds[2]:.1f}"]
    elif not options.no_jax:
        text += [f"{seconds[2] * 1e3:.2f}", f"{seconds[2] / seconds[0]:.2f}", f"{seconds[3] * 1e3:.2f}", f"{seconds[3] / seconds[0]:.2f}", "", ""]
    print("| " + " | ".join(text) + " |", flush=True)


def main():
    print(f"threads {options.threads}, NumPy {np.__version__}, {'backward' if options.backward else 'forward'}")
    print("| case | ms | GFLOP/s | sgemm GFLOP/s | of sgemm | scan ms | faster by | of the whole cell, ms | faster by | GB/s of w_hh | cache GB/s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for case in CASES:
        if fnmatch.fnmatch(" ".join(map(str, case)), options.cases):
            row(*case)


main()
