#!/usr/bin/env python3
"""GFLOP/s of PyTorch's scaled_dot_product_attention on the CPU, B1 H16 S2048, for the ratios in docs/bench.

usage: torch_cpu_attention.py THREADS
Useful FLOPs: 4 B H S S D, half of that for causal, as `ejk bench` counts them. Median of the runs that fit in a second a case.
"""
import sys
import time

import torch
import torch.nn.functional as F


def median_seconds(function, budget=1.0):
    function()
    samples, start = [], time.perf_counter()
    while time.perf_counter() - start < budget or len(samples) < 3:
        begin = time.perf_counter()
        function()
        samples.append(time.perf_counter() - begin)
    return sorted(samples)[len(samples) // 2]


def main():
    threads = int(sys.argv[1])
    torch.set_num_threads(threads)
    batch, heads, tokens = 1, 16, 2048
    print(f"torch {torch.__version__}, {threads} threads")
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16):
            for dim in (64, 128):
                q, k, v = (torch.randn(batch, heads, tokens, dim).to(dtype) for _ in range(3))
                for causal in (False, True):
                    seconds = median_seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
                    flops = 4 * batch * heads * tokens * tokens * dim / (2 if causal else 1)
                    print(f"{str(dtype)[6:]:8} D{dim:<4} {'causal' if causal else 'full':6} {flops / seconds / 1e9:8.1f} GFLOP/s")


main()
