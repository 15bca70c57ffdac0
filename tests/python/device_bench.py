"""What the bindings cost on a GPU: JAX programs beside bare launches of the same image, and the host time of calls from PyTorch and JAX.

usage: device_bench.py [jax] [torch]      rounds are interleaved, medians are printed
"""

import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
ROUNDS = 15
SHAPES = [(4, 4096, 16, 128), (2, 8192, 16, 128), (16, 1024, 32, 64)]


def median_of(rounds, *functions):
    """Seconds of each function, interleaved; medians."""
    times = [[] for _ in functions]
    for function in functions:
        function()
    for _ in range(rounds):
        for function, kept in zip(functions, times):
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return [statistics.median(kept) for kept in times]


def host_time(call, synchronize, calls=200):
    """Seconds a call takes to return, while the device's queue has room."""
    synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def host_times(synchronize, **calls):
    for call in calls.values():
        for _ in range(20):
            call()
    found = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            found[name].append(host_time(call, synchronize))
    for name, times in found.items():
        print(f"{name:28} {statistics.median(times) * 1e6:7.2f} us of host time")


def device_times(jax, ejk, torch, prepare, b, s, h, d):
    """Twenty calls, each on the result of the one before: as bare launches, in one program, and as a program each."""
    import jax.numpy as jnp

    from ejk._tensor import View

    calls = 20
    q, k, v = (jax.random.normal(jax.random.key(i), (b, s, h, d), jnp.bfloat16) for i in range(3))
    buffers = [jnp.copy(q), jnp.zeros_like(q)]
    jax.block_until_ready((q, k, v, buffers))
    one = jax.jit(lambda *x: ejk.flash_attention(*x, causal=True))

    @jax.jit
    def many(q, k, v):
        for _ in range(calls):
            q = ejk.flash_attention(q, k, v, causal=True)
        return q

    views = {name: View(None, x.shape, None, "bf16", (2, 0)) for name, x in zip(("q", "k", "v", "out"), (q, k, v, q))}
    bare = prepare("flash_attention", views, {"causal": True})
    first, second, k_pointer, v_pointer = (x.unsafe_buffer_pointer() for x in (*buffers, k, v))
    turns = [[first, k_pointer, v_pointer, second], [second, k_pointer, v_pointer, first]]

    def launches():
        for i in range(calls):
            bare.run(turns[i % 2])
        torch.cuda.synchronize()

    def programs():
        x = q
        for _ in range(calls):
            x = one(x, k, v)
        x.block_until_ready()

    times = median_of(ROUNDS, launches, lambda: many(q, k, v).block_until_ready(), programs)
    return [seconds / calls for seconds in times]


def jax_programs():
    import jax
    import jax.numpy as jnp
    import torch

    import ejk
    import ejk.jax
    from ejk._call import prepare

    torch.zeros(1, device="cuda")
    print("flash_attention, causal, bf16; us a call: bare launches | a program of 20 calls | 20 programs of a call")
    for b, s, h, d in SHAPES:
        bare, many, one = device_times(jax, ejk, torch, prepare, b, s, h, d)
        rate = 2 * b * h * s * s * d / bare / 1e12
        print(
            f"B {b:2} S {s} H {h} D {d:3}: {bare * 1e6:8.1f} ({rate:.0f} TFLOP/s) | {many * 1e6:8.1f} ({many / bare:.3f})"
            f" | {one * 1e6:8.1f} ({one / bare:.3f})"
        )
    q = jax.random.normal(jax.random.key(0), (1, 128, 8, 64), jnp.bfloat16)
    program, add = jax.jit(lambda *x: ejk.flash_attention(*x)), jax.jit(lambda a, b, c: a + b + c)
    eager = lambda: ejk.flash_attention(q, q, q)  # noqa: E731
    wait = lambda: jax.block_until_ready(program(q, q, q))  # noqa: E731
    host_times(wait, **{"jax: ejk, eager": eager, "jax.jit of ejk": lambda: program(q, q, q), "jax.jit of an addition": lambda: add(q, q, q)})


def torch_calls():
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import ejk

    q, k, v = (torch.randn(1, 128, 8, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    t = [x.transpose(1, 2) for x in (q, k, v)]
    need = q.detach().clone().requires_grad_()

    def sdpa():
        return F.scaled_dot_product_attention(*t, is_causal=True)

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        host_times(
            torch.cuda.synchronize,
            **{
                "torch: ejk, eager": lambda: ejk.flash_attention(q, k, v, causal=True),
                "torch: ejk, mean_pooling": lambda: ejk.mean_pooling(q[0]),
                "torch: ejk, under autograd": lambda: ejk.flash_attention(need, k, v, causal=True),
                "torch: F.sdpa (FLASH)": sdpa,
                "torch: torch.add": lambda: torch.add(q, k),
            },
        )


if __name__ == "__main__":
    for part in sys.argv[1:] or ["jax", "torch"]:
        {"jax": jax_programs, "torch": torch_calls}[part]()
