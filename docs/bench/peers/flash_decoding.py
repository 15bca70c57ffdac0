#!/usr/bin/env python3
"""Attention of few queries to many keys on a GPU, in CUDA graphs: ejk, and PyTorch's FLASH and cuDNN, in interleaved rounds.

usage: flash_decoding.py LIBEJK STORE
Calls captured in one graph, as many sets of tensors in turn that nothing stays in the L2 cache; medians of replays. Two heads of a result
are compared with float32. Floor: the bytes of the keys and values at 4600 GB/s.
"""
import ctypes
import gc
import json
import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

lib = ctypes.CDLL(sys.argv[1])
lib.ejk_last_error.restype = ctypes.c_char_p
i64 = ctypes.c_int64


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(i64)), ("strides", ctypes.POINTER(i64)), ("offset", ctypes.c_uint64)]


class Argument(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("tensor", ctypes.POINTER(Tensor))]


def tensor(t):
    n = t.dim()
    return Tensor(t.data_ptr(), 2, 0, n, 4, 16, 1, (i64 * n)(*t.shape), (i64 * n)(*t.stride()), 0)


def ours(x, causal):
    named = {name.encode(): tensor(x[name]) for name in ("q", "k", "v", "out")}
    arguments = (Argument * len(named))(*[Argument(name, ctypes.pointer(t)) for name, t in named.items()])
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if lib.ejk_call(b"flash_attention", arguments, len(named), json.dumps({"causal": causal}).encode(), None, stream):
        raise RuntimeError(lib.ejk_last_error().decode())


def peer(backend):
    def attend(x, causal):
        q, k, v = (x[name].transpose(1, 2) for name in "qkv")
        with sdpa_kernel([backend]):
            x["result"] = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1]).transpose(1, 2)
    return attend


def capture(attend, sets, calls, causal):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        attend(sets[0], causal)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            attend(sets[i % len(sets)], causal)
    return graph


def reference(x, heads, causal):
    q, k, v = x["q"], x["k"], x["v"]
    share = q.shape[2] // k.shape[2]
    q = q[:, :, heads].transpose(1, 2).float()
    k, v = (t[:, :, [h // share for h in heads]].transpose(1, 2).float() for t in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        scores.masked_fill_(torch.ones(scores.shape[-2:], device="cuda", dtype=torch.bool).triu(k.shape[2] - q.shape[2] + 1), -float("inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2)


def measure(batch, queries, keys, heads, kv_heads, dim=128, causal=False, seconds=0.3):
    size = 4 * batch * keys * kv_heads * dim
    count = max(1, min(8, -(-200_000_000 // size)))
    floor = size / 4.6e12 * 1e6
    calls = max(count, min(48, int(2000 / floor) // count * count))
    random = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    sets = [{"q": random(batch, queries, heads, dim), "k": random(batch, keys, kv_heads, dim), "v": random(batch, keys, kv_heads, dim),
             "out": torch.empty(batch, queries, heads, dim, device="cuda", dtype=torch.bfloat16)} for _ in range(count)]
    ways = {"ejk": ours}
    if not causal:
        ways |= {"FLASH": peer(SDPBackend.FLASH_ATTENTION), "cuDNN": peer(SDPBackend.CUDNN_ATTENTION)}
    some = [0, heads - 1]
    expected = reference(sets[0], some, causal)
    graphs, errors = {}, {}
    for name, attend in ways.items():
        attend(sets[0], causal)
        found = sets[0]["out" if name == "ejk" else "result"][:, :, some].float()
        errors[name] = ((found - expected).norm() / expected.norm()).item()
        graphs[name] = capture(attend, sets, calls, causal)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = {name: [] for name in graphs}
    stop = time.time() + seconds
    while time.time() < stop:
        for name, graph in graphs.items():
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / calls)
    row = [f"{batch} x {queries}{' causal' if causal else ''}", f"{keys}", f"{heads}/{kv_heads}", f"{floor:.2f}"]
    for name in ("ejk", "FLASH", "cuDNN"):
        row.append(f"{statistics.median(times[name][1:]):.2f}" if name in times else "-")
    mine = statistics.median(times["ejk"][1:])
    print("| " + " | ".join(row + [f"{mine / floor:.2f}", f"{size / mine / 1e3:.0f}", f"{errors['ejk']:.1e}"]) + " |", flush=True)
    del graphs, sets
    gc.collect()
    torch.cuda.empty_cache()


def main():
    if lib.ejk_add_store(sys.argv[2].encode()):
        raise RuntimeError(lib.ejk_last_error().decode())
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("| batch x queries | keys | heads | floor us | ejk | FLASH | cuDNN | of floor | GB/s | error |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for keys in (8192, 32768, 131072):
        for kv_heads in (32, 8):
            for queries in (1, 4, 16):
                measure(1, queries, keys, 32, kv_heads)
    measure(1, 8, 8192, 32, 32)
    measure(1, 16, 8192, 32, 32, causal=True)
    measure(1, 1, 1024, 32, 8)
    measure(8, 1, 8192, 32, 8)
    measure(64, 1, 8192, 32, 8)


main()
