#!/usr/bin/env python3
"""GFLOP/s of jax.nn.dot_product_attention on JAX's CPU backend, B1 H16 S2048 f32, for the ratios in docs/bench.

usage: taskset -c 0 jax_cpu_attention.py      (one thread; without taskset: all of the machine's)
Useful FLOPs: 4 B H S S D, half of that for causal, as `ejk bench` counts them. Median of the runs that fit in 3 seconds a case.
"""
import os
import time

os.environ["JAX_PLATFORMS"] = "cpu"
if len(os.sched_getaffinity(0)) == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
import jax


def median_seconds(function, *arguments, budget=3.0):
    function(*arguments).block_until_ready()
    samples, start = [], time.perf_counter()
    while time.perf_counter() - start < budget or len(samples) < 3:
        begin = time.perf_counter()
        function(*arguments).block_until_ready()
        samples.append(time.perf_counter() - begin)
    return sorted(samples)[len(samples) // 2]


def main():
    batch, heads, tokens = 1, 16, 2048
    print(f"jax {jax.__version__}, {len(os.sched_getaffinity(0))} threads")
    for dim in (64, 128):
        q, k, v = (jax.random.normal(jax.random.key(i), (batch, tokens, heads, dim)) for i in range(3))
        for causal in (False, True):
            attention = jax.jit(lambda q, k, v, causal=causal: jax.nn.dot_product_attention(q, k, v, is_causal=causal))
            seconds = median_seconds(attention, q, k, v)
            flops = 4 * batch * heads * tokens * tokens * dim / (2 if causal else 1)
            print(f"D{dim} {'causal' if causal else 'full':6} {flops / seconds / 1e9:8.1f} GFLOP/s")


main()
