#!/usr/bin/env python3
"""recurrent and recurrent_update on a GPU beside flash-linear-attention, in interleaved rounds on the same tensors.

usage: recurrent_fla.py forward|decode|both [ROUNDS]

A call's time is the device's, between two events, the caches flushed before the first one; the flush takes longer than the host needs for a call.
forward: 8 sequences of 4096 tokens, 16 heads of 128, bf16. decode: one token of 1, 64 and 256 sequences, 32 heads of 128 x 128, f32 states, which ejk
updates in place and FLA writes elsewhere; each call as it is and (graph) in a CUDA graph, and 20 calls one after another in a graph, whose states come
from the cache where they fit. Medians and half the distance of the quartiles; how far the two are apart at most, relative to the largest number.
"""
import statistics
import sys

import ejk
import fla.ops as ops
import torch

DEVICE, CHAIN = "cuda", 20
flush = [torch.empty(1 << 27, device=DEVICE) for _ in range(2)]


def log_gates(*shape):
    return torch.nn.functional.logsigmoid(torch.randn(*shape, device=DEVICE))


def graph_of(run, count=1):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(count):
            run()
    return graph.replay


def measure(runs, rounds, flushes=1):
    """Microseconds of each run by name. FLA's forward pass is several calls of Triton, for which the host needs longer than one flush takes."""
    times = {name: [] for name in runs}
    for number in range(rounds + 2):
        for name, run in runs.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(flushes):
                flush[0].copy_(flush[1])
            start.record()
            run()
            stop.record()
            stop.synchronize()
            if number > 1:
                times[name].append(start.elapsed_time(stop) * 1e3)
    return times


def told(times, more=lambda name, median: ""):
    for name, samples in times.items():
        median = statistics.median(samples)
        quartiles = statistics.quantiles(samples, n=4)
        print(f"  {name:22s} {median:9.2f} us, noise {(quartiles[2] - quartiles[0]) / 2 / median * 100:4.1f}%{more(name, median)}", flush=True)


def apart(x, y):
    return ((x.float() - y.float()).abs().max() / y.float().abs().max()).item()


def forward(rounds):
    batch, tokens, heads, features = 8, 4096, 16, 128
    q, k, v = (torch.randn(batch, tokens, heads, features, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
    g, gk, beta = log_gates(batch, tokens, heads), log_gates(batch, tokens, heads, features), torch.randn(batch, tokens, heads, device=DEVICE).sigmoid()
    gamma, scale = log_gates(heads), features ** -0.5
    forms = {"lightning": (dict(g_gamma=gamma), lambda: ops.chunk_simple_gla(q, k, v, g_gamma=gamma, scale=scale, output_final_state=True)),
             "simple_gla": (dict(g=g), lambda: ops.chunk_simple_gla(q, k, v, g=g, scale=scale, output_final_state=True)),
             "gla": (dict(gk=gk), lambda: ops.chunk_gla(q, k, v, gk, scale=scale, output_final_state=True)),
             "gated_delta": (dict(g=g, beta=beta, l2_norm=True), lambda: ops.chunk_gated_delta_rule(q, k, v, g=g, beta=beta, scale=scale, output_final_state=True, use_qk_l2norm_in_kernel=True)),
             "kda": (dict(gk=gk, beta=beta, l2_norm=True), lambda: ops.chunk_kda(q, k, v, gk, beta, scale=scale, output_final_state=True, use_qk_l2norm_in_kernel=True))}
    runs = {}
    for name, (gates, theirs) in forms.items():
        ours = lambda gates=gates: ejk.recurrent(q, k, v, softmax_scale=scale, **gates)
        print(f"  {name}: apart by {apart(ours()[0], theirs()[0]):.1e}", flush=True)
        runs["ejk " + name], runs["FLA " + name] = ours, theirs
    with torch.no_grad():
        told(measure(runs, rounds, 6))


def decode(rounds):
    heads, features = 32, 128
    for batch in (1, 64, 256):
        for kind in (torch.bfloat16, torch.float32):
            q, k, v = (torch.randn(batch, 1, heads, features, device=DEVICE, dtype=kind) for _ in range(3))
            g, gk, beta = log_gates(batch, 1, heads), log_gates(batch, 1, heads, features), torch.randn(batch, 1, heads, device=DEVICE).sigmoid()
            state, out, scale = torch.randn(batch, heads, features, features, device=DEVICE), torch.empty_like(v), features ** -0.5
            before = state.clone()
            runs = {"ejk delta": lambda: ejk.recurrent_update(q, k, v, state, beta=beta, g=g, l2_norm=True, softmax_scale=scale, out=out),
                    "FLA delta": lambda: ops.fused_recurrent_gated_delta_rule(q, k, v, g=g, beta=beta, scale=scale, initial_state=before, output_final_state=True, use_qk_l2norm_in_kernel=True),
                    "ejk gla": lambda: ejk.recurrent_update(q, k, v, state, gk=gk, softmax_scale=scale, out=out),
                    "FLA gla": lambda: ops.fused_recurrent_gla(q, k, v, gk=gk, scale=scale, initial_state=before, output_final_state=True)}
            for name in ("delta", "gla"):
                state.copy_(before)
                runs["ejk " + name]()
                theirs = runs["FLA " + name]()
                print(f"  {name}: apart by {apart(out, theirs[0]):.1e}, states by {apart(state, theirs[1]):.1e}", flush=True)
            runs["state.mul_"] = lambda: state.mul_(0.5)
            moved = 2 * 4 * state.numel()
            print(f"{batch} sequences, {kind}", flush=True)
            count = max(rounds * 64 // (64 + batch), 5)
            with torch.no_grad():
                told(measure(runs, count, 2), lambda _, median: f", {moved / median / 1e3:5.0f} GB/s")
                try:
                    told(measure({f"{name}, graph": graph_of(run) for name, run in runs.items()}, count), lambda _, median: f", {moved / median / 1e3:5.0f} GB/s")
                    if batch == 1:
                        told(measure({f"{name}, {CHAIN} in a row": graph_of(run, CHAIN) for name, run in runs.items()}, count, 0), lambda _, median: f", {median / CHAIN:6.2f} us each")
                except RuntimeError as error:
                    print("  no graphs:", str(error)[:200], flush=True)
            del state, before, runs
            torch.cuda.empty_cache()


torch.manual_seed(1)
for what in (decode, forward):
    if sys.argv[1] in (what.__name__, "both"):
        what(int(sys.argv[2]) if len(sys.argv) > 2 else 25)
