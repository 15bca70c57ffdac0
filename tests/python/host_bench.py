"""What a call costs the host, on data so small that the kernel itself is nearly nothing: eager calls of NumPy, PyTorch and JAX on the CPU.

usage: host_bench.py numpy|torch|jax      CPU time of the calling thread, the least of many interleaved rounds; instructions, where Linux counts them
"""

import ctypes
import os
import struct
import sys
import time

ROUNDS, CALLS = 60, 1000


def counter():
    """A function that reads this thread's instructions outside the kernel, or None (perf_event_open of x86-64)."""
    attributes = bytearray(128)
    struct.pack_into("IIQ", attributes, 0, 0, len(attributes), 1)  # a hardware event: instructions
    struct.pack_into("Q", attributes, 40, 1 << 5 | 1 << 6)  # neither the kernel's nor a hypervisor's
    file = ctypes.CDLL(None).syscall(298, (ctypes.c_char * len(attributes)).from_buffer(attributes), 0, -1, -1, 0)
    return None if file < 0 else lambda: struct.unpack("Q", os.read(file, 8))[0]


def measure(calls):
    """{name: (us, instructions or None)} of each call."""
    read, best = counter(), {name: (float("inf"), float("inf")) for name in calls}
    for call in calls.values():
        for _ in range(200):
            call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            instructions, start = read() if read else 0, time.thread_time()
            for _ in range(CALLS):
                call()
            seconds = time.thread_time() - start
            instructions = read() - instructions if read else 0
            best[name] = (min(best[name][0], seconds / CALLS * 1e6), min(best[name][1], instructions / CALLS))
    return best


def attention_calls(ejk, q, x, out):
    return {
        "flash_attention(q, k, v)": lambda: ejk.flash_attention(q, q, q),
        "the same, causal=True": lambda: ejk.flash_attention(q, q, q, causal=True),
        "the same, softmax_scale=0.5": lambda: ejk.flash_attention(q, q, q, softmax_scale=0.5),
        "the same, out=out": lambda: ejk.flash_attention(q, q, q, out=out),
        "mean_pooling(x)": lambda: ejk.mean_pooling(x),
    }


def bare(ejk, name, q, pointer):
    """ejk_run by ctypes alone."""
    from ejk._call import prepare
    from ejk._tensor import View

    views = {each: View(None, tuple(q.shape), None, "f32", (1, 0)) for each in ("q", "k", "v", "out")}
    prepared, data = prepare("flash_attention", views), [pointer] * 3 + [pointer + 32]
    return {name: lambda: prepared.run(data)}


def numpy_calls():
    import numpy

    import ejk

    memory = numpy.ones((2, 1, 1, 1, 8), numpy.float32)
    q, out = memory
    return {
        **attention_calls(ejk, q, q[0], out),
        **bare(ejk, "ejk_run by ctypes", q, q.ctypes.data),
        "numpy.add(q, q)": lambda: numpy.add(q, q),
    }


def torch_calls():
    import torch
    import torch.nn.functional as F

    import ejk

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    q, out = torch.ones(2, 1, 1, 1, 8)
    heads_second = q.transpose(1, 2)
    return {
        **attention_calls(ejk, q, q[0], out),
        **bare(ejk, "ejk_run by ctypes", q, q.data_ptr()),
        "torch.empty_like(q)": lambda: torch.empty_like(q),
        "F.scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(*(heads_second,) * 3),
        "torch.add(q, q)": lambda: torch.add(q, q),
    }


def jax_calls():
    import jax
    import jax.numpy as jnp

    import ejk
    import ejk.jax  # noqa: F401

    q = jnp.ones((1, 1, 1, 8), jnp.float32)
    program, add = jax.jit(lambda *x: ejk.flash_attention(*x)), jax.jit(lambda a, b, c: a + b + c)
    short = ejk.jax.flash_attention
    return {
        "ejk.flash_attention(q, k, v)": lambda: ejk.flash_attention(q, q, q),
        "ejk.jax.flash_attention(q, k, v)": lambda: short(q, q, q),
        "the same, causal=True": lambda: short(q, q, q, causal=True),
        "jax.jit of it": lambda: program(q, q, q),
        "jax.jit of an addition of three": lambda: add(q, q, q),
    }


if __name__ == "__main__":
    for library in sys.argv[1:] or ["numpy", "torch", "jax"]:
        for name, (microseconds, instructions) in measure({"numpy": numpy_calls, "torch": torch_calls, "jax": jax_calls}[library]()).items():
            print(f"{library:5} {name:34} {microseconds:7.2f} us {instructions:8.0f} instructions")
