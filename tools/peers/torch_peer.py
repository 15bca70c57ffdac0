#!/usr/bin/env python3
"""PyTorch's side of `ejk bench --against torch`: measures its own kernels on the shapes it is told, one measurement a request.

One JSON object a line, on stdin the requests and on stdout their answers; {"error": ...} answers what cannot be done:
  {"do": "hello", "device": "cuda:0"}        -> {"versions": "torch 2.11.0, cuDNN 9.19, CUDA 13.0, NVIDIA H200"}
  {"do": "prepare", "call": {...}}           -> {"peers": [{"id": 0, "name": "SDPA FLASH"}, {"name": "SDPA cuDNN", "why_not": ...}]}
      call: kernel, form, attributes, and tensors by name {"type", "shape"}, offsets with their "values"
  {"do": "measure", "id": 0, "count": 1, "cold": true}  -> {"seconds": 1.2e-4}     of `count` runs in a row, by device events
  {"do": "drop"}                             -> {}                                 frees what was prepared
"""
import contextlib  # for the kernels
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
                "i64": torch.int64, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool, "f8_e4m3": getattr(torch, "float8_e4m3fn", None)}[self.tensors[name]["type"]]

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


# By kernel: name, what makes the run of a call, the scope it runs in. tests/kernels/<kernel>.torch.py adds its own.
PEERS = {}

# tests/kernels/*.torch.py


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
