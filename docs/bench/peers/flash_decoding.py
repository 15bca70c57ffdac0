#!/usr/bin/env python3
"""Attention of few queries to many keys on a GPU, in CUDA graphs: ejk, and PyTorch's FLASH and cuDNN, in interleaved rounds.

usage: flash_decoding.py LIBEJK STORE
Calls captured in one graph, as many sets of tensors in turn that nothing stays in the L2 cache; medians of replays. Two heads of a result
are compared with float32. Floor: the bytes of the keys and values at 4600 GB/s. "lent": with a workspace from PyTorch's allocator, where
the peers have theirs; otherwise ejk allocates it in the graph.
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


NAMES = ("q", "k", "v", "out")


def check(status):
    if status:
        raise RuntimeError(lib.ejk_last_error().decode())


def call_of(x, causal):
    named = {name.encode(): tensor(x[name]) for name in NAMES}
    arguments = (Argument * len(named))(*[Argument(name, ctypes.pointer(t)) for name, t in named.items()])
    return b"flash_attention", arguments, ctypes.c_size_t(len(named)), json.dumps({"causal": causal}).encode(), None


def current_stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def ours(x, causal):
    check(lib.ejk_call(*call_of(x, causal), current_stream()))


def lend(sets, causal):
    """Gives the sets one workspace and the prepared call."""
    prepared, choice = ctypes.c_void_p(), ctypes.c_char_p()
    check(lib.ejk_prepare(*call_of(sets[0], causal), ctypes.byref(prepared)))
    check(lib.ejk_choose(*call_of(sets[0], causal), ctypes.byref(choice)))
    size = json.loads(choice.value)["workspace_bytes"]
    workspace = torch.empty(max(size, 256), device="cuda", dtype=torch.uint8)
    for x in sets:
        x |= {"prepared": prepared, "workspace": workspace}


def lent(x, causal):
    data = (ctypes.c_void_p * len(NAMES))(*[x[name].data_ptr() for name in NAMES])
    workspace = x["workspace"]
    check(lib.ejk_run_in(x["prepared"], data, None, current_stream(), ctypes.c_void_p(workspace.data_ptr()), i64(workspace.numel())))


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
    lend(sets, causal)
    ways = {"ejk": ours, "lent": lent}
    if not causal:
        ways |= {"FLASH": peer(SDPBackend.FLASH_ATTENTION), "cuDNN": peer(SDPBackend.CUDNN_ATTENTION)}
    some = [0, heads - 1]
    expected = reference(sets[0], some, causal)
    graphs, errors = {}, {}
    for name, attend in ways.items():
        sets[0]["out"].fill_(float("nan"))
        attend(sets[0], causal)
        found = sets[0]["out" if name in ("ejk", "lent") else "result"][:, :, some].float()
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
    for name in ("ejk", "lent", "FLASH", "cuDNN"):
        row.append(f"{statistics.median(times[name][1:]):.2f}" if name in times else "-")
    row += [f"{statistics.median(times[name][1:]) / floor:.2f}" for name in ("ejk", "lent")]
    print("| " + " | ".join(row + [f"{max(errors['ejk'], errors['lent']):.1e}"]) + " |", flush=True)
    del graphs, sets
    gc.collect()
    torch.cuda.empty_cache()


def main():
    check(lib.ejk_add_store(sys.argv[2].encode()))
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("| batch x queries | keys | heads | floor us | ejk | lent | FLASH | cuDNN | ejk of floor | lent | error |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|")
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
