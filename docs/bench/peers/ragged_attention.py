#!/usr/bin/env python3
"""ragged_page_attention on a GPU beside FlashAttention-3's paged kernel, in interleaved rounds: ejk's v2, v3 and 8-bit caches.

usage: ragged_attention.py LIBEJK FA3 [CASE...]
FA3: its _C.so. bf16, 32/8 heads of 128, pages in random order, nothing in the L2 cache. A call's time is the device's, between two events; the device is
kept busy before the first one, so that the host's time is not in it. Medians of 15 rounds. Outputs are compared with FlashAttention-3's, 8-bit ones with
those of a cache of bf16 with the same numbers.
"""
import ctypes
import json
import statistics
import sys

import torch

lib = ctypes.CDLL(sys.argv[1])
lib.ejk_last_error.restype = ctypes.c_char_p
torch.ops.load_library(sys.argv[2])
i64 = ctypes.c_int64
ROUNDS = 15
HEADS, KV_HEADS, DIM = 32, 8, 128
BATCHES = {"prefills": [(2048, 4096)] * 4, "prefill": [(8192, 8192)], "mixed": [(1024, 4096)] * 2 + [(1, 8192)] * 62, "decodes": [(1, 8192)] * 64,
           "long": [(512, 32768)] + [(1, 4096)] * 16, "speculative": [(4, 8192)] * 64}  # new tokens, context
CODES = {torch.bfloat16: (4, 16), torch.int32: (0, 32), torch.int8: (0, 8), torch.float32: (2, 32), torch.float8_e4m3fn: (10, 8)}


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(i64)), ("strides", ctypes.POINTER(i64)), ("offset", ctypes.c_uint64)]


class Argument(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("tensor", ctypes.POINTER(Tensor))]


def tensor(t):
    n, (code, bits) = t.dim(), CODES[t.dtype]
    return Tensor(t.data_ptr(), 2, 0, n, code, bits, 1, (i64 * n)(*t.shape), (i64 * n)(*t.stride()), 0)


def ours(kernel, named):
    tensors = {name.encode(): tensor(t) for name, t in named.items()}
    arguments = (Argument * len(tensors))(*[Argument(name, ctypes.pointer(t)) for name, t in tensors.items()])

    def call():
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if lib.ejk_call(kernel, arguments, ctypes.c_size_t(len(tensors)), b"{}", None, stream):
            raise RuntimeError(lib.ejk_last_error().decode())

    call.given = named  # whose memory the call has
    return call


def fa3(x):
    starts, pages = x["query_start_loc"].tolist(), x["kv_pages"]
    words = {"softmax_scale": DIM**-0.5, "is_causal": True, "seqused_k": x["context_lens"], "page_table": x["block_tables"], "cu_seqlens_q": x["query_start_loc"],
             "max_seqlen_q": max(b - a for a, b in zip(starts, starts[1:])), "window_size_left": -1, "window_size_right": -1}
    return lambda: torch.ops.flash_attn_3.fwd(x["queries"], pages[:, :, 0::2], pages[:, :, 1::2], **words)


def numbers(*values):
    return torch.tensor(values, device="cuda", dtype=torch.int32)


def batch(name, page_size):
    torch.manual_seed(1)
    sequences = BATCHES[name]
    counts, tokens = [-(-keys // page_size) for _, keys in sequences], sum(new for new, _ in sequences)
    order, used = torch.randperm(sum(counts), device="cuda").to(torch.int32), 0
    tables = torch.zeros(len(sequences), max(counts), device="cuda", dtype=torch.int32)
    for row, count in enumerate(counts):
        tables[row, :count] = order[used : used + count]
        used += count
    x = {"queries": torch.randn(tokens, HEADS, DIM, device="cuda", dtype=torch.bfloat16),
         "kv_pages": torch.randn(sum(counts), page_size, 2 * KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16),
         "context_lens": numbers(*[keys for _, keys in sequences]), "block_tables": tables,
         "query_start_loc": numbers(*[sum(new for new, _ in sequences[:i]) for i in range(len(sequences) + 1)]), "num_seqs": numbers(len(sequences))}
    return x | {"out": torch.empty_like(x["queries"])}


def updating(x):
    """The same as v3's call, whose new keys and values are those that the pages have."""
    y = {name: t for name, t in x.items() if name != "num_seqs"} | {"distribution": numbers(0, 0, x["context_lens"].numel())}
    page_size, keys = x["kv_pages"].shape[1], []
    starts = x["query_start_loc"].tolist()
    for n, length in enumerate(x["context_lens"].tolist()):
        at = torch.arange(length - (starts[n + 1] - starts[n]), length, device="cuda")
        keys.append(x["kv_pages"][x["block_tables"][n, at // page_size].long(), at % page_size])
    rows = torch.cat(keys)
    return y | {"keys": rows[:, 0::2].contiguous(), "values": rows[:, 1::2].contiguous()}


def quantised(x, kind):
    """A cache of 8-bit numbers, and one of bf16 with the same."""
    scale = torch.full((1,), 1 / 24, device="cuda")
    stored = (x["kv_pages"].float() * 24).round().clamp(-127, 127).to(kind)
    return x | {"kv_pages": stored, "k_scale": scale, "v_scale": scale}, x | {"kv_pages": (stored.float() / 24).to(torch.bfloat16)}


def medians(calls):
    flush, times = torch.empty(256 << 20, dtype=torch.uint8, device="cuda"), {name: [] for name in calls}
    for turn in range(ROUNDS + 2):
        for name, call in calls.items():
            flush.fill_(turn)
            torch.cuda._sleep(600000)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            if turn > 1:
                times[name].append(begin.elapsed_time(end) * 1000)
    return {name: statistics.median(each) for name, each in times.items()}


def error(call, x, expected):
    x["out"].fill_(float("nan"))
    call()
    return float((x["out"].float() - expected.float()).norm() / expected.float().norm())


def show(*columns):
    print("| " + " | ".join(str(c) for c in columns) + " |", flush=True)


def main():
    wanted = sys.argv[3:]
    show("batch", "page", "FlashAttention-3", "ejk v2", "faster by", "ejk v3", "v2 / v3", "off by")
    show("---", *["---:"] * 7)
    for page_size in (64, 16, 128):
        for name in BATCHES:
            if wanted and f"{name}_p{page_size}" not in wanted:
                continue
            x = batch(name, page_size)
            calls = {"fa3": fa3(x), "v2": ours(b"ragged_page_attention", x), "v3": ours(b"ragged_page_attention_v3", updating(x))}
            expected = calls["fa3"]()
            expected = expected[0] if isinstance(expected, (tuple, list)) else expected
            errors = [error(calls[k], x, expected) for k in ("v2", "v3")]
            t = medians(calls)
            show(name, page_size, *[f"{t['fa3']:.1f}", f"{t['v2']:.1f}", f"{t['fa3'] / t['v2']:.3f}", f"{t['v3']:.1f}", f"{t['v2'] / t['v3']:.3f}", f"{max(errors):.4f}"])
            del x, calls, expected
            torch.cuda.empty_cache()
    print()
    show("8-bit cache", "page", "bf16", "8-bit", "bf16 / 8-bit", "off by")
    show("---", "---", *["---:"] * 4)
    for name in ("prefills", "decodes"):
        for kind in (torch.int8, torch.float8_e4m3fn):
            if wanted and f"{name}_quantised" not in wanted:
                continue
            given, same = quantised(batch(name, 64), kind)
            calls = {"bits": ours(b"ragged_page_attention", given), "bf16": ours(b"ragged_page_attention", same)}
            calls["bf16"]()
            off = error(calls["bits"], given, same["out"].clone())
            t = medians(calls)
            show(f"{name}, {str(kind)[6:]}", 64, f"{t['bf16']:.1f}", f"{t['bits']:.1f}", f"{t['bf16'] / t['bits']:.3f}", f"{off:.4f}")
            del given, same, calls
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
