"""Times recurrences on one core of a CPU beside NumPy's sgemm, jax.lax.scan and reads of memory: python recurrent_cpu.py (needs ejk and NumPy; without JAX
its columns are empty).

All by the process's own CPU time, the least of several runs, in turn: other work on the machine counts for little. FLOPs of the forward pass: what its products
of chunks of 24 tokens have, pairs of tokens j <= t counted once; of a gradient none are given.
"""
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import numpy as np

import ejk

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None

CHUNK, HEADS, TOKENS, SIZE = 24, 4, 1024, 128
random = np.random.default_rng(0)


def normal(*shape):
    return random.standard_normal(shape, np.float32)


def gates(*shape):
    return -0.1 * random.random(shape, np.float32)


def least(calls, rounds):
    """Of each call the least time in seconds."""
    times = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for call, found in zip(calls, times):
            begin = time.process_time()
            call()
            found.append(time.process_time() - begin)
    return [min(found) for found in times]


def scan(names):
    def step(state, token):
        q, k, v, rest = *token[:3], dict(zip(names, token[3:]))
        if "g" in rest:
            state = state * jnp.exp(rest["g"])[..., None, None]
        if "gk" in rest:
            state = state * jnp.exp(rest["gk"])[..., None]
        if "beta" in rest:
            v = rest["beta"][..., None] * (v - jnp.einsum("bhkv,bhk->bhv", state, k))
        state = state + k[..., None] * v[..., None, :]
        return state, SIZE**-0.5 * jnp.einsum("bhkv,bhk->bhv", state, q)

    def run(*arrays):
        start = jnp.zeros((1, HEADS, SIZE, SIZE), jnp.float32)
        return jax.lax.scan(step, start, tuple(x.swapaxes(0, 1) for x in arrays))[1].swapaxes(0, 1)

    return run


def compare():
    q, k, v, dout = (normal(1, TOKENS, HEADS, SIZE) for _ in range(4))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    square = normal(1024, 1024)
    out, state = np.empty_like(v), np.empty((1, HEADS, SIZE, SIZE), np.float32)
    every = {"g": gates(1, TOKENS, HEADS), "gk": gates(1, TOKENS, HEADS, SIZE), "gv": gates(1, TOKENS, HEADS, SIZE), "beta": random.random((1, TOKENS, HEADS), np.float32)}
    print("| given | ms | GFLOP/s | sgemm | ratio | blocks of 4 tokens | lax.scan | gradient | token by token | of lax.scan, with its forward pass |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for names in ([], ["g"], ["gk"], ["gv"], ["g", "beta"], ["gk", "beta"], ["g", "gk", "gv", "beta"]):
        given = {name: every[name] for name in names}
        run = lambda cfg=None: ejk.recurrent(q, k, v, **given, out=out, final_state=state, cfg=cfg)
        grads = {"d" + name: np.empty_like(x) for name, x in {"q": q, "k": k, "v": v, **given}.items()}
        back = lambda cfg=None: ejk.recurrent_bwd(q, k, v, dout, **given, **grads, cfg=cfg)
        calls = [run, lambda: square @ square, lambda: run({"variant": "blocks"}), back, lambda: back({"variant": "sweep"})]
        if jax and "gv" not in names:
            arrays = [jnp.asarray(x) for x in (q, k, v, *given.values())]
            forward = jax.jit(scan(names))
            gradient = jax.jit(jax.grad(lambda *x: jnp.vdot(scan(names)(*x), dout), argnums=tuple(range(len(arrays)))))
            calls += [lambda: forward(*arrays).block_until_ready(), lambda: jax.block_until_ready(gradient(*arrays))]
        times = least(calls[:3], 20) + least(calls[3:5], 4) + [least([call], 2)[0] for call in calls[5:]]
        products = 4 * SIZE * SIZE + CHUNK * 2 * SIZE + ("beta" in names) * (2 * SIZE * SIZE + CHUNK * 2 * SIZE)
        rate, sgemm = HEADS * TOKENS * products / times[0] / 1e9, 2 * 1024**3 / times[1] / 1e9
        ms = [f"{1e3 * t:.1f}" for t in times] + ["", ""]
        print(f"| {' '.join(names) or 'no gate'} | {ms[0]} | {rate:.0f} | {sgemm:.0f} | {rate / sgemm:.2f} | {ms[2]} | {ms[5]} | {ms[3]} | {ms[4]} | {ms[6]} |", flush=True)


def decode():
    batch, heads = 32, 32
    state = normal(batch, heads, SIZE, SIZE)
    q, k, v = (normal(batch, 1, heads, SIZE) for _ in range(3))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g, gk, beta = gates(batch, 1, heads), gates(batch, 1, heads, SIZE), random.random((batch, 1, heads), np.float32)
    flat = state.reshape(-1)
    read, delta, keys = least([lambda: np.dot(flat, flat), lambda: ejk.recurrent_update(q, k, v, state, g=g, beta=beta), lambda: ejk.recurrent_update(q, k, v, state, gk=gk)], 15)
    rates = [state.nbytes / read / 1e9, 2 * state.nbytes / delta / 1e9, 2 * state.nbytes / keys / 1e9]
    print("\nDecoding, GB/s: reads of memory {:.1f}; state read and written, gated delta rule {:.1f}, a gate a key feature {:.1f}".format(*rates))


compare()
decode()
