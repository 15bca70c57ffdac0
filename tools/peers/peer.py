#!/usr/bin/env python3
"""A library's side of `ejk bench --against LIBRARY`: measures its own kernels on the shapes it is told, one measurement a request. What is common to all
libraries; <library>_peer.py has the library, reference/kernels/<kernel>.<library>.py its operations. All three are one script when ejk runs it.

One JSON object a line, on stdin the requests and on stdout their answers, in the same order; {"error": ...} answers what cannot be done:
  {"do": "hello", "device": "cuda:0"}        -> {"versions": "torch 2.11.0, cuDNN 9.19, CUDA 13.0, NVIDIA H200"}
  {"do": "prepare", "call": {...}}           -> {"peers": [{"id": 0, "name": "SDPA FLASH"}, {"name": "SDPA cuDNN", "why_not": ...}]}
      call: kernel, form, attributes, and tensors by name {"type", "shape"}, offsets with their "values"
  {"do": "measure", "id": 0, "count": 1, "cold": true}  -> {"seconds": 1.2e-4}     of `count` runs in a row
  {"do": "drop"}                             -> {}                                 frees what was prepared
"""
import contextlib  # for the kernels
import json
import os
import sys
import time

FLUSH_BYTES = 1 << 28  # as ejk's own flush


class CannotDo(Exception):
    """A call that the library has no operation for."""


class Call:
    """The tensors of a call, made on the device at first use, and its attributes."""

    def __init__(self, bench, call):
        self.bench = bench
        self.form, self.attributes, self.tensors = call["form"], call["attributes"], call["tensors"]
        self.made = {}

    def given(self, name):
        return name in self.tensors

    def shape(self, name):
        return self.tensors[name]["shape"]

    def type(self, name):
        return self.bench.types[self.tensors[name]["type"]]

    def get(self, name, default=None):
        return self.attributes.get(name, default)

    def offsets(self, name):
        return self.tensors[name]["values"]

    def tensor(self, name):
        if name not in self.made:
            self.made[name] = self.bench.make_tensor(self.type(name), self.tensors[name])
        return self.made[name]


class Bench:
    """What was prepared, by id. A library has types, its own by ejk's names, versions(), make_tensor(type, told), first_run(peer),
    seconds(peer, count, cold) and free()."""
    call_type = Call
    refusals = (RuntimeError,)  # what a library throws at a call that it cannot do

    def __init__(self):
        self.peers = []

    def prepare(self, call):
        answer = []
        told = self.call_type(self, call)
        for name, make, choose in PEERS.get(call["kernel"], []):
            try:
                peer = (make(self, told), choose)
                self.first_run(peer)
                answer.append({"id": len(self.peers), "name": name})
                self.peers.append(peer)
            except CannotDo as reason:
                answer.append({"name": name, "why_not": str(reason)})
            except self.refusals as error:
                answer.append({"name": name, "why_not": " ".join(str(error).split())[:200]})
        return {"peers": answer}

    def answer(self, request):
        what = request["do"]
        if what == "hello":
            return {"versions": self.versions()}
        if what == "prepare":
            return self.prepare(request["call"])
        if what == "measure":
            return {"seconds": self.seconds(self.peers[request["id"]], request["count"], request["cold"])}
        if what == "drop":
            self.peers = []
            self.free()
            return {}
        raise ValueError(f"no such request: {what}")


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


# By kernel: name, what makes the run of a call, the scope it runs in. reference/kernels/<kernel>.<library>.py adds its own.
PEERS = {}

# the library

# its operations

if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    serve(sys.stdin, answers)
