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


def jax_programs():
    import jax
    import jax.numpy as jnp
    import torch

    import ejk
    import ejk.jax
    from ejk._call import prepare
    from ejk._tensor import View

    device = torch.device("cuda")
    torch.zeros(1, device=device)
    calls = 20
    for b, s, h, d in SHAPES:
        q, k, v = (jax.random.normal(jax.random.key(i), (b, s, h, d), jnp.bfloat16) for i in range(3))
        out = jnp.zeros_like(q)
        jax.block_until_ready((q, k, v, out))
        program = jax.jit(lambda *x: ejk.flash_attention(*x, causal=True))
        views = {name: View(None, x.shape, None, "bf16", (2, 0)) for name, x in (("q", q), ("k", k), ("v", v), ("out", out))}
        bare = prepare("flash_attention", views, {"causal": True})
        pointers = [x.unsafe_buffer_pointer() for x in (q, k, v, out)]

        def in_jax():
            for _ in range(calls):
                result = program(q, k, v)
            result.block_until_ready()

        def launched():
            for _ in range(calls):
                bare.run(pointers)
            torch.cuda.synchronize()

        ours, alone = median_of(ROUNDS, in_jax, launched)
        flops = 2 * b * h * s * s * d
        print(
            f"jax.jit  B {b} S {s} H {h} D {d} causal bf16: {ours / calls * 1e6:8.1f} us a call, bare launches {alone / calls * 1e6:8.1f}"
            f" ({ours / alone:.3f}), {flops * calls / ours / 1e12:.0f} TFLOP/s"
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
