"""Times of the flash attention of the Python library ejkernel (Triton) on a GPU: forward and backward, 16384 tokens, 2048 features of all heads, bf16.

usage: ejkernel_attention.py [SECONDS]     cells in the order of their weight, until SECONDS have passed (default 60)
Prints TFLOP/s a cell: 4 B H S S D operations forward, 2.5 times that backward, half of it when causal. Calls are queued one after another; the time
is the wall clock's over all of a queue, the least of three queues."""

import itertools
import os
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp
from ejkernel.kernels._triton.flash_attention import flash_attention

TOKENS, FEATURES = 16384, 2048
end = time.time() + float(sys.argv[1] if len(sys.argv) > 1 else 60)


def seconds(run, of_a_queue=0.06):
    """Of a call, of a queue of calls."""
    jax.block_until_ready(run())
    start = time.perf_counter()
    jax.block_until_ready(run())
    count = max(3, int(of_a_queue / (time.perf_counter() - start)))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(count):
            last = run()
        jax.block_until_ready(last)
        best = min(best, (time.perf_counter() - start) / count)
    return best


def cell(length, dim, causal):
    shape = (TOKENS // length, length, FEATURES // dim, dim)
    q, k, v, g = (jax.random.normal(jax.random.key(i), shape, jnp.bfloat16) for i in range(4))
    work = 4 * TOKENS * FEATURES * length * (0.5 if causal else 1) / 1e12
    forward = jax.jit(lambda q, k, v: flash_attention(q, k, v, causal=causal))
    t = seconds(lambda: forward(q, k, v))
    print(f"D {dim} S {length} {'causal' if causal else 'full'}: forward {t * 1e3:.3f} ms {work / t:.0f}", end="", flush=True)

    both = jax.jit(lambda q, k, v, g: jax.vjp(lambda *x: flash_attention(*x, causal=causal), q, k, v)[1](g))
    t2 = seconds(lambda: both(q, k, v, g))
    print(f"; forward and backward {t2 * 1e3:.3f} ms, so backward {2.5 * work / (t2 - t):.0f}", flush=True)


for length, dim, causal in itertools.product((8192, 2048, 512, 16384, 4096, 1024), (128, 64, 256), (False, True)):
    if time.time() > end:
        print("out of time")
        break
    try:
        cell(length, dim, causal)
    except Exception as e:
        print(f"\nD {dim} S {length} {causal}: {type(e).__name__}: {str(e)[:200]}", flush=True)
