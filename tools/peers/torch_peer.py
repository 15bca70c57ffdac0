#!/usr/bin/env python3
"""PyTorch's side of `ejk bench --against torch`: measures its own kernels on the shapes it is told, one measurement a request.

One JSON object a line, on stdin the requests and on stdout their answers; {"error": ...} answers what cannot be done:
  {"do": "hello", "device": "cuda:0"}        -> {"versions": "torch 2.11.0, cuDNN 9.19, CUDA 13.0, NVIDIA H200"}
  {"do": "prepare", "call": {...}}           -> {"peers": [{"id": 0, "name": "SDPA FLASH"}, {"name": "SDPA cuDNN", "why_not": ...}]}
      call: kernel, form, attributes, and tensors by name {"type", "shape"}, offsets with their "values"
  {"do": "measure", "id": 0, "count": 1, "cold": true}  -> {"seconds": 1.2e-4}     of `count` runs in a row, by device events
  {"do": "drop"}                             -> {}                                 frees what was prepared
"""
import contextlib
import json
import sys
import time
import warnings

FLUSH_BYTES = 1 << 28  # as ejk's own flush


class CannotDo(Exception):
    """A call that PyTorch has no operation for."""


class Bench:
    def __init__(self, torch, device):
        self.torch = torch
        self.device = torch.device(device)
        self.peers = []
        self.flush = None
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            self.flush = torch.zeros(2, FLUSH_BYTES, dtype=torch.uint8, device=self.device)

    def versions(self):
        text = f"torch {self.torch.__version__}"
        if self.device.type == "cuda":
            text += f", cuDNN {self.torch.backends.cudnn.version()}, CUDA {self.torch.version.cuda}, "
            text += self.torch.cuda.get_device_name(self.device)
        return text

    def prepare(self, call):
        answer = []
        told = Call(self, call)
        for name, make, choose in PEERS.get(call["kernel"], []):
            try:
                run = make(self, told)
                with self.torch.no_grad(), choose():
                    run()
                    self.synchronize()
                answer.append({"id": len(self.peers), "name": name})
                self.peers.append((run, choose))
            except CannotDo as reason:
                answer.append({"name": name, "why_not": str(reason)})
            except RuntimeError as error:
                answer.append({"name": name, "why_not": " ".join(str(error).split())[:200]})
        return {"peers": answer}

    def synchronize(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def measure(self, peer, count, cold):
        run, choose = peer
        with self.torch.no_grad(), choose():
            if self.device.type != "cuda":
                begin = time.perf_counter()
                for _ in range(count):
                    run()
                return time.perf_counter() - begin
            start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            if cold:
                self.flush[0].copy_(self.flush[1])
            start.record()
            for _ in range(count):
                run()
            stop.record()
            stop.synchronize()
            return start.elapsed_time(stop) * 1e-3

    def answer(self, request):
        what = request["do"]
        if what == "hello":
            return {"versions": self.versions()}
        if what == "prepare":
            return self.prepare(request["call"])
        if what == "measure":
            return {"seconds": self.measure(self.peers[request["id"]], request["count"], request["cold"])}
        if what == "drop":
            self.peers = []
            if self.device.type == "cuda":
                self.torch.cuda.empty_cache()
            return {}
        raise ValueError(f"no such request: {what}")


class Call:
    """The tensors of a call, made on the device at first use, and its attributes."""

    def __init__(self, bench, call):
        self.bench, self.torch = bench, bench.torch
        self.form, self.attributes, self.tensors = call["form"], call["attributes"], call["tensors"]
        self.made = {}

    def given(self, name):
        return name in self.tensors

    def shape(self, name):
        return self.tensors[name]["shape"]

    def get(self, name, default=None):
        return self.attributes.get(name, default)

    def type(self, name):
        torch = self.torch
        return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, "i32": torch.int32,
                "i64": torch.int64, "bool": torch.bool}[self.tensors[name]["type"]]

    def tensor(self, name):
        if name not in self.made:
            told, torch, device = self.tensors[name], self.torch, self.bench.device
            if "values" in told:
                made = torch.tensor(told["values"], dtype=self.type(name), device=device)
            elif self.type(name) == torch.bool:
                made = torch.rand(told["shape"], device=device) < 0.8
            else:
                made = torch.randn(told["shape"], device=device).to(self.type(name))
            self.made[name] = made
        return self.made[name]

    def offsets(self, name):
        return self.tensors[name]["values"]


def sdpa_arguments(call):
    """q, k, v as scaled_dot_product_attention takes them, and its keywords."""
    if call.form == "packed":
        raise CannotDo("sequences of different lengths")
    for name, off in (("window_left", -1), ("window_right", -1), ("logits_soft_cap", 0.0), ("dropout_prob", 0.0)):
        if call.get(name, off) != off:
            raise CannotDo(f"no {name}")
    for name in ("q_segment_ids", "kv_segment_ids", "softmax_aux"):
        if call.given(name):
            raise CannotDo(f"no {name}")
    queries, keys = call.shape("q")[1], call.shape("k")[1]
    if call.get("causal", False) and (queries != keys or call.get("causal_offset", 0) != 0):
        raise CannotDo("its causal mask starts at the first key")
    if call.given("bias") and call.given("attention_mask"):
        raise CannotDo("takes a mask or a bias, not both")
    q, k, v = (call.tensor(name).transpose(1, 2) for name in ("q", "k", "v"))
    keywords = {"is_causal": bool(call.get("causal", False)), "scale": call.get("softmax_scale")}
    for name in ("bias", "attention_mask"):
        if call.given(name):
            keywords["attn_mask"] = call.tensor(name) if name == "attention_mask" else call.tensor(name).to(q.dtype)
    if q.shape[1] != k.shape[1]:
        keywords["enable_gqa"] = True
    return (q, k, v), keywords


def only(backend):
    """The scope in which scaled_dot_product_attention has that backend and no other."""
    def choose():
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel([getattr(SDPBackend, backend)])
    return choose


def sdpa(bench, call):
    tensors, keywords = sdpa_arguments(call)
    attend = bench.torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(*tensors, **keywords)


def sdpa_masked(bench, call):
    if not call.given("bias") and not call.given("attention_mask"):
        raise CannotDo("measured with a mask or a bias only")
    return sdpa(bench, call)


def flash_varlen(bench, call):
    if call.form != "packed":
        raise CannotDo("for packed sequences only")
    if call.get("window_left", -1) != -1 or call.get("window_right", -1) != -1 or call.get("logits_soft_cap", 0.0) != 0.0:
        raise CannotDo("no window, no soft cap")
    q, k, v = (call.tensor(name) for name in ("q", "k", "v"))
    cum_q, cum_k = call.tensor("cum_seqlens_q"), call.tensor("cum_seqlens_k")
    longest = [max((b - a for a, b in zip(o, o[1:])), default=0) for o in (call.offsets("cum_seqlens_q"), call.offsets("cum_seqlens_k"))]
    forward = call.torch.ops.aten._flash_attention_forward
    causal, scale = bool(call.get("causal", False)), call.get("softmax_scale")
    return lambda: forward(q, k, v, cum_q, cum_k, longest[0], longest[1], 0.0, causal, False, scale=scale)


def mean(bench, call):
    x = call.tensor("x")
    if call.form == "batched" and call.given("mask"):
        mask = call.tensor("mask").unsqueeze(-1)
        return lambda: (x * mask).sum(1) / mask.sum(1).clamp(min=1)
    if call.form == "batched":
        return lambda: x.mean(1)
    chunk = call.get("chunk_size", 0)
    if call.form == "chunks" and not call.given("mask") and x.shape[1] % chunk == 0:
        return lambda: x.unflatten(1, (-1, chunk)).mean(2)
    raise CannotDo("for sequences of one length, and whole chunks, only")


def segment_reduce(bench, call):
    if call.form not in ("packed", "packed_chunks"):
        raise CannotDo("for packed sequences only")
    bounds = call.offsets("cum_seqlens")
    if call.form == "packed_chunks":
        chunk = call.get("chunk_size")
        bounds = [t for a, b in zip(bounds, bounds[1:]) for t in range(a, b, chunk)] + [bounds[-1]]
    offsets = call.torch.tensor(bounds, dtype=call.torch.int64, device=bench.device)
    x = call.tensor("x")[:bounds[-1]]
    return lambda: call.torch.segment_reduce(x, "mean", offsets=offsets, axis=0, initial=0, unsafe=True)


def mean_backward(bench, call):
    dout = call.tensor("dout")
    if call.form == "batched" and not call.given("mask"):
        tokens = call.shape("dx")[1]
        return lambda: (dout / tokens).unsqueeze(1).expand(-1, tokens, *dout.shape[1:]).contiguous()
    if call.form == "packed":
        lengths = call.tensor("cum_seqlens").diff().long()
        tokens = call.offsets("cum_seqlens")[-1]
        scaled = lengths.clamp(min=1).to(dout.dtype).reshape(-1, *[1] * (dout.dim() - 1))
        return lambda: call.torch.repeat_interleave(dout / scaled, lengths, dim=0, output_size=tokens)
    raise CannotDo("for whole sequences without a mask only")


# By kernel: name, what makes the run of a call, the scope it runs in.
PEERS = {
    "flash_attention": [("SDPA FLASH", sdpa, only("FLASH_ATTENTION")), ("SDPA cuDNN", sdpa, only("CUDNN_ATTENTION")),
                        ("SDPA EFFICIENT", sdpa_masked, only("EFFICIENT_ATTENTION")), ("FLASH varlen", flash_varlen, contextlib.nullcontext)],
    "mean_pooling": [("torch.mean", mean, contextlib.nullcontext), ("torch.segment_reduce", segment_reduce, contextlib.nullcontext)],
    "mean_pooling_bwd": [("expand or repeat", mean_backward, contextlib.nullcontext)],
}


def serve(lines, out):
    bench = None
    for line in lines:
        try:
            request = json.loads(line)
            if bench is None:
                bench = open_bench(request["device"])
            answer = bench.answer(request)
        except Exception as error:  # every failure is the answer to its request; the caller decides
            answer = {"error": f"{type(error).__name__}: {error}" if str(error) else type(error).__name__}
        print(json.dumps(answer), file=out, flush=True)


def open_bench(device):
    import torch
    warnings.simplefilter("ignore")  # why a backend was not taken: the answer says it cannot, that is enough
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} finds no CUDA device")
    return Bench(torch, device)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
