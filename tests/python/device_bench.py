"""What the bindings cost on a GPU: JAX programs beside bare launches of the same image, and the host time of calls from PyTorch and JAX.

usage: device_bench.py [jax] [torch]      rounds are interleaved, medians are printed
"""

import ctypes
import itertools
import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
ROUNDS, HOST_ROUNDS = 7, 25
FEW, SAMPLE = 20, 0.1  # calls of a short queue; seconds of a long one
SHAPES = [(4, 4096, 16, 128), (2, 8192, 16, 128), (16, 1024, 32, 64)]


def host_time(call, synchronize, calls=100):
    """Seconds a call takes to return, while the device's queue has room. The first calls after a wait take longer."""
    synchronize()
    for _ in range(calls // 5):
        call()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def host_times(synchronize, **calls):
    for call in calls.values():
        for _ in range(20):
            call()
    found = {name: [] for name in calls}
    for _ in range(HOST_ROUNDS):
        for name, call in calls.items():
            found[name].append(host_time(call, synchronize))
    for name, times in found.items():
        print(f"{name:28} {statistics.median(times) * 1e6:7.2f} us of host time", flush=True)


def context_of(device):
    """Waiting for ejk's own launches, by the driver: a function."""
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0

    def wait():
        assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuStreamSynchronize(None) == 0

    return wait


def bare_launches(jax, q, k, v, wait):
    """A function: so many times `ejk_run` of the image that a program takes, each on the result of the one before."""
    from ejk._call import prepare
    from ejk._tensor import View

    views = {name: View(None, x.shape, None, "bf16", (2, 0)) for name, x in zip(("q", "k", "v", "out"), (q, k, v, q))}
    bare, buffers = prepare("flash_attention", views, {"causal": True}), [q + 0, q + 0]
    jax.block_until_ready(buffers)
    first, second, k_pointer, v_pointer = (x.unsafe_buffer_pointer() for x in (*buffers, k, v))
    turns = [[first, k_pointer, v_pointer, second], [second, k_pointer, v_pointer, first]]

    def launches(calls, keep=buffers):
        for i in range(calls):
            bare.run(turns[i % 2])
        wait()

    return launches


def queued(program, calls_a_program, q, k, v):
    """A function: programs of so many calls, each on the result of the one before; waited for only at the end, as a training loop does."""

    def programs(calls):
        x = q
        for _ in range(calls // calls_a_program):
            x = program(x, k, v)
        x.block_until_ready()

    return programs


def seconds(function, calls):
    start = time.perf_counter()
    function(calls)
    return time.perf_counter() - start


def device_times(jax, ejk, wait, b, s, h, d):
    """{what: [(seconds of few calls, of many) a round]}, and how many those are."""
    import jax.numpy as jnp

    q, k, v = (jax.random.normal(jax.random.key(i), (b, s, h, d), jnp.bfloat16) for i in range(3))

    def chain(q, k, v):
        for _ in range(FEW):
            q = ejk.flash_attention(q, k, v, causal=True)
        return q

    def products(x, y, _):
        for _ in range(FEW):
            x = x @ y
        return x

    x, y = (jax.random.normal(jax.random.key(i), (4096, 4096), jnp.bfloat16) / 64 for i in range(2))
    subjects = {
        "bare launches": bare_launches(jax, q, k, v, wait),
        "programs of a call": queued(jax.jit(lambda *x: ejk.flash_attention(*x, causal=True)), 1, q, k, v),
        f"programs of {FEW} calls": queued(jax.jit(chain), FEW, q, k, v),
        "of XLA's own product": queued(jax.jit(lambda x, y, _: x @ y), 1, x, y, y),
        f"of {FEW} such products": queued(jax.jit(products), FEW, x, y, y),
    }
    for subject in subjects.values():
        subject(2 * FEW)
    many = FEW * max(10, round(SAMPLE * 4e14 / (2 * b * h * s * s * d) / FEW))
    times = {name: [] for name in subjects}
    # Each comes as often after each other: a chip at its power limit is slower after work that heats it more. Products apart.
    names = list(subjects)
    for order in [*itertools.permutations(names[:3]), *[names[3:]] * ROUNDS]:
        for name in order:
            times[name].append((seconds(subjects[name], FEW), seconds(subjects[name], many)))
    return times, many


def report(times, many):
    """A call's time in a long queue; beside bare launches' of the same round; and what comes once, before the first and after the last.
    A program of one product beside one of many: what XLA's programs take on the device beside their kernels."""
    bare = times["bare launches"]
    for name, rounds in times.items():
        call = statistics.median((long - short) / (many - FEW) for short, long in rounds)
        once = statistics.median(short - FEW * call for short, _ in rounds)
        ratio = statistics.median(mine[1] / other[1] for mine, other in zip(rounds, bare))
        short = statistics.median(mine[0] / other[0] for mine, other in zip(rounds, bare))
        print(
            f"   {name:22} {statistics.median(x[1] for x in rounds) / many * 1e6:8.1f} us a call of {many} ({ratio:.4f}),"
            f" of {FEW} ({short:.4f}); once {once * 1e3:5.2f} ms",
            flush=True,
        )


def jax_programs():
    import jax
    import jax.numpy as jnp

    import ejk
    import ejk.jax

    wait = context_of(0)
    for b, s, h, d in SHAPES:
        print(f"flash_attention, causal, bf16, B {b} S {s} H {h} D {d}; beside bare launches in the same rounds")
        report(*device_times(jax, ejk, wait, b, s, h, d))
    for tokens in (128, 256):
        q = jax.random.normal(jax.random.key(0), (1, tokens, 16, 128), jnp.bfloat16)
        launches = len(ejk.explain(ejk.flash_attention, q, q, q)["launches"])
        program, add = jax.jit(lambda *x: ejk.flash_attention(*x)), jax.jit(lambda a, b, c: a + b + c)
        host_times(
            lambda: jax.block_until_ready(program(q, q, q)),
            **{
                f"jax: ejk, eager, {launches} launches": lambda: ejk.flash_attention(q, q, q),
                "jax: ejk.jax, eager": lambda: ejk.jax.flash_attention(q, q, q),
                "jax.jit of ejk": lambda: program(q, q, q),
                "jax.jit of an addition": lambda: add(q, q, q),
                "jax.numpy.add, eager": lambda: jnp.add(q, q),
            },
        )


def torch_calls():
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import ejk

    for tokens in (128, 256):
        q, k, v = (torch.randn(1, tokens, 16, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        launches = len(ejk.explain(ejk.flash_attention, q, k, v)["launches"])
        t = [x.transpose(1, 2) for x in (q, k, v)]
        need, need_t = q.detach().clone().requires_grad_(), t[0].detach().clone().requires_grad_()
        out, x, cotangent = torch.empty_like(q), torch.randn(4, 16, 64, device="cuda"), torch.randn_like(q)
        turned = cotangent.transpose(1, 2)
        plain = {
            f"ejk, {launches} launches": lambda: ejk.flash_attention(q, k, v),
            "ejk, causal": lambda: ejk.flash_attention(q, k, v, causal=True),
            "ejk, out=out": lambda: ejk.flash_attention(q, k, v, out=out),
            "ejk, mean_pooling": lambda: ejk.mean_pooling(x),
            "F.sdpa": lambda: F.scaled_dot_product_attention(*t),
            "F.sdpa, causal": lambda: F.scaled_dot_product_attention(*t, is_causal=True),
            "torch.add": lambda: torch.add(q, k),
        }
        recorded = {
            "ejk, under autograd": lambda: ejk.flash_attention(need, k, v),
            "F.sdpa, under autograd": lambda: F.scaled_dot_product_attention(need_t, *t[1:]),
            "ejk, and backward": lambda: torch.autograd.grad(ejk.flash_attention(need, k, v), need, cotangent),
            "F.sdpa, and backward": lambda: torch.autograd.grad(F.scaled_dot_product_attention(need_t, *t[1:]), need_t, turned),
        }
        print(f"PyTorch, B 1 S {tokens} H 16 D 128, bf16; F.sdpa as it chooses itself")
        with torch.no_grad():
            host_times(torch.cuda.synchronize, **plain)
        host_times(torch.cuda.synchronize, **recorded)
        print("the same, F.sdpa by FLASH_ATTENTION")
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
            host_times(torch.cuda.synchronize, **plain)


if __name__ == "__main__":
    for part in sys.argv[1:] or ["jax", "torch"]:
        {"jax": jax_programs, "torch": torch_calls}[part]()
