#!/usr/bin/env python3
"""grouped_matmul and tgmm in f32 beside OpenBLAS's sgemm, called group by group on the same data: GFLOP/s, in turn, in one process.

usage: openblas_grouped.py LIBEJK LIBOPENBLAS THREADS [SECONDS]
Set EJKERNEL_STORE to a store, and OPENBLAS_CORETYPE to the core OpenBLAS does not recognise (SkylakeX for AVX-512). With one thread the
clock is the thread's own CPU time, so that other work on the machine counts less; with more it is the wall's. Medians; the largest difference
of the results is told too.
"""
import array
import ctypes
import json
import random
import sys
import time

FLOAT, INT = (2, 32, 1), (0, 32, 1)


class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("rank", ctypes.c_int32), ("type", Type), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


class Argument(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("tensor", ctypes.POINTER(Tensor))]


class Memory:
    """A tensor of numbers, row-major."""

    def __init__(self, kind, shape, values):
        self.values = array.array("f" if kind == FLOAT else "i", values)
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.address = self.values.buffer_info()[0]
        self.tensor = Tensor(self.address, Device(1, 0), len(shape), Type(*kind), ctypes.addressof(self.shape), None, 0)


def numbers(count):
    block = [random.uniform(-0.5, 0.5) for _ in range(min(count, 65521))]
    return (block * (count // len(block) + 1))[:count]


def equal(groups, rows):
    return [rows // groups] * groups


def ragged(groups, rows):
    weights = [0.1 + random.random() for _ in range(groups)]
    sizes = [int(rows * weight / sum(weights)) for weight in weights]
    sizes[-1] += rows - sum(sizes)
    return sizes


class Bench:
    def __init__(self, ejk, blas, threads, seconds):
        self.ejk, self.blas, self.threads, self.seconds = ejk, blas, threads, seconds
        ejk.ejk_last_error.restype = ctypes.c_char_p

    def call(self, kernel, tensors, attributes):
        arguments = (Argument * len(tensors))(*[(name.encode(), ctypes.pointer(each.tensor)) for name, each in tensors.items()])
        text = json.dumps(attributes).encode()

        def run():
            if self.ejk.ejk_call(kernel.encode(), arguments, len(tensors), text, None, None):
                raise RuntimeError(self.ejk.ejk_last_error().decode())
        return run

    def sgemm(self, transposes, m, n, k, a, lda, b, ldb, c):
        if m and n:
            self.blas.cblas_sgemm(101, *(112 if t else 111 for t in transposes), m, n, k, ctypes.c_float(1), ctypes.c_void_p(a), lda,
                                  ctypes.c_void_p(b), ldb, ctypes.c_float(0), ctypes.c_void_p(c), n)

    def row(self, name, flops, ours, peer, out, peer_out):
        clock = time.thread_time if self.threads == 1 else time.perf_counter
        samples, start = ([], []), time.perf_counter()
        ours(), peer()
        worst = max(abs(x - y) for x, y in zip(out.values[:200000], peer_out.values[:200000]))
        while time.perf_counter() - start < self.seconds or len(samples[0]) < 5:
            for function, list_ in zip((ours, peer), samples):
                if self.threads > 1:
                    time.sleep(0.05)  # the other library's threads spin for a while
                begin = clock()
                function()
                list_.append(clock() - begin)
        rates = [flops / sorted(list_)[len(list_) // 2] / 1e9 for list_ in samples]
        print(f"| {name} | {self.threads} | {rates[0]:.0f} | {rates[1]:.0f} | {rates[0] / rates[1]:.2f} | {worst:.0e} |", flush=True)

    def forward(self, name, m, k, n, sizes, transposed=False):
        groups = len(sizes)
        lhs, rhs = Memory(FLOAT, (m, k), numbers(m * k)), Memory(FLOAT, (groups, n, k) if transposed else (groups, k, n), numbers(groups * k * n))
        out, other, counts = Memory(FLOAT, (m, n), [0] * m * n), Memory(FLOAT, (m, n), [0] * m * n), Memory(INT, (groups,), sizes)

        def peer():
            row = 0
            for group, size in enumerate(sizes):
                self.sgemm((False, transposed), size, n, k, lhs.address + 4 * row * k, k, rhs.address + 4 * group * k * n, k if transposed else n,
                           other.address + 4 * row * n)
                row += size
        ours = self.call("grouped_matmul", {"lhs": lhs, "rhs": rhs, "group_sizes": counts, "out": out}, {"transpose_rhs": transposed})
        self.row(f"grouped_matmul {name}", 2 * m * k * n, ours, peer, out, other)

    def backward(self, name, m, k, n, sizes):
        groups = len(sizes)
        lhs, dout = Memory(FLOAT, (m, k), numbers(m * k)), Memory(FLOAT, (m, n), numbers(m * n))
        out, other = (Memory(FLOAT, (groups, k, n), [0] * groups * k * n) for _ in range(2))
        counts = Memory(INT, (groups,), sizes)

        def peer():
            row = 0
            for group, size in enumerate(sizes):
                self.sgemm((True, False), k, n, size, lhs.address + 4 * row * k, k, dout.address + 4 * row * n, n, other.address + 4 * group * k * n)
                row += size
        ours = self.call("tgmm", {"lhs": lhs, "dout": dout, "group_sizes": counts, "out": out}, {})
        self.row(f"tgmm {name}", 2 * m * k * n, ours, peer, out, other)


def main():
    threads, seconds = int(sys.argv[3]), float(sys.argv[4]) if len(sys.argv) > 4 else 2.0
    ejk, blas = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
    blas.openblas_set_num_threads(threads)
    ejk.ejk_set_threads(threads)
    blas.openblas_get_corename.restype = ctypes.c_char_p
    random.seed(1)
    print(f"OpenBLAS core {blas.openblas_get_corename().decode()}\n\n| case | threads | ejk GFLOP/s | OpenBLAS GFLOP/s | ratio | difference |")
    print("|---|---:|---:|---:|---:|---:|")
    bench = Bench(ejk, blas, threads, seconds)
    for name, m, k, n, groups in (("8 groups, 2048 x 1024 x 1024", 2048, 1024, 1024, 8), ("8 groups, 4096 x 1024 x 2048", 4096, 1024, 2048, 8),
                                  ("64 groups, 2048 x 1024 x 512", 2048, 1024, 512, 64), ("one group, 2048 x 1024 x 1024", 2048, 1024, 1024, 1)):
        bench.forward(f"{name}, equal", m, k, n, equal(groups, m))
        if groups > 1:
            bench.forward(f"{name}, random", m, k, n, ragged(groups, m))
    bench.forward("8 groups, 2048 x 1024 x 1024, rhs transposed", 2048, 1024, 1024, equal(8, 2048), True)
    bench.backward("8 groups, 2048 x 1024 x 1024, equal", 2048, 1024, 1024, equal(8, 2048))
    bench.backward("8 groups, 2048 x 1024 x 1024, random", 2048, 1024, 1024, ragged(8, 2048))


main()
