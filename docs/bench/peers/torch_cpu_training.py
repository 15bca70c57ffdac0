#!/usr/bin/env python3
"""PyTorch's times on the CPU for docs/bench: causal attention forward and backward, and a matrix product a group, all in bf16.

usage: torch_cpu_training.py THREADS
Medians of the runs that fit in a second and a half (attention), or 0.7 seconds (products), after two that do not count.
"""
import sys
import time

import torch
import torch.nn.functional as F


def median_seconds(function, budget):
    function()
    function()
    samples, start = [], time.perf_counter()
    while time.perf_counter() - start < budget or len(samples) < 3:
        begin = time.perf_counter()
        function()
        samples.append(time.perf_counter() - begin)
    return sorted(samples)[len(samples) // 2]


def attention():
    q, k, v = (torch.randn(1, 2048, 16, 128).bfloat16().requires_grad_() for _ in range(3))
    dout = torch.randn(1, 2048, 16, 128).bfloat16()

    def forward():
        heads_first = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)

    with torch.no_grad():
        alone = median_seconds(forward, 1.5)
    both = median_seconds(lambda: torch.autograd.grad(forward(), (q, k, v), dout), 1.5)
    print(f"attention, causal, (1, 2048, 16, 128): forward {alone * 1e3:.2f} ms, forward and backward {both * 1e3:.2f} ms")


def groups(rows, depth, columns, transposed, count=8):
    lhs, out = torch.randn(rows, depth).bfloat16(), torch.empty(rows, columns).bfloat16()
    rhs = torch.randn(count, columns, depth).bfloat16().transpose(1, 2) if transposed else torch.randn(count, depth, columns).bfloat16()
    parts = list(zip(lhs.chunk(count), rhs, out.chunk(count)))

    def loop():
        for part, matrix, to in parts:
            torch.mm(part, matrix, out=to)

    with torch.no_grad():
        seconds = median_seconds(loop, 0.7)
    layout = "rhs transposed" if transposed else "rhs as it is"
    print(f"{count} products, {rows} x {depth} x {columns}, {layout}: {seconds * 1e3:.3f} ms, {2 * rows * depth * columns / seconds / 1e9:.0f} GFLOP/s")


def main():
    torch.set_num_threads(int(sys.argv[1]))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    attention()
    for rows, depth, columns in ((2048, 1024, 1024), (4096, 2048, 2048)):
        for transposed in (False, True):
            groups(rows, depth, columns, transposed)


main()
