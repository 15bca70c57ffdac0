# A process that makes one call, from the pack that `ejk pack` made of it: no compiler is asked, and the way from its start to the end of the launch is short.
import pathlib
import re
import shutil
import statistics
import time
import unittest

import program
from program import run

budget = 25_000_000  # instructions, loader included: 10 ms are about 60 million of them on a slow core
kernels = ("mean_pooling", "flash_attention")


class ColdStart(program.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Not beside the build's own store, which may have the image.
        cls.program = shutil.copy2(pathlib.Path(program.ejk_built).parent / "cold_start", cls.folder / "bin")
        texts, trace = cls.folder / "specs-only", cls.folder / "calls.jsonl"
        for name in ("specs", "templates"):
            shutil.copytree(program.source / name, texts / name)
        for kernel in kernels:  # 1: it says that something was compiled. Under valgrind the machine is another: it knows no AVX-512.
            for number, under in enumerate(([], cls.valgrind()) if shutil.which("valgrind") else ([],)):
                cache = {"EJKERNEL_CACHE_DIR": str(cls.folder / f"cache-{number}")}  # or the second finds what the first compiled
                run(under + cls.words(kernel, texts), {**cls.tools, **cache, "EJKERNEL_OPS_RECORD": str(trace)}, code=1)
        cls.store = cls.folder / "pack"
        run([cls.ejk, "pack", "--used-by", trace, "--out", cls.store], {**cls.tools, "EJKERNEL_STORE": str(texts)})
        cls.log = cls.folder / "asked"
        compiler = cls.folder / "compiler"
        compiler.write_text(f"#!/bin/sh\necho asked >> '{cls.log}'\nexit 1\n")
        compiler.chmod(0o700)
        cls.environment = {"PATH": "/usr/bin:/bin", "CXX": str(compiler), "EJKERNEL_CACHE_DIR": str(cls.folder / "cache")}

    @classmethod
    def words(cls, kernel, store=None):
        return [cls.program, store or cls.store, kernel, str(time.clock_gettime_ns(time.CLOCK_MONOTONIC))]

    @classmethod
    def valgrind(cls):
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={cls.folder}/callgrind.out"]

    def test_no_compiler_is_asked(self):
        for kernel in kernels:
            run(self.words(kernel), self.environment)
            self.assertFalse(self.log.exists(), kernel)

    @unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
    def test_instructions(self):
        for kernel in kernels:
            said = run(self.valgrind() + self.words(kernel), self.environment)[1]
            instructions = int(re.search(r"Collected : (\d+)", said).group(1))
            print(f"{kernel}: {instructions / 1e6:.1f} million instructions from start to end")
            self.assertLess(instructions, budget, kernel)

    def nothing(self):
        """The milliseconds that the program takes to start and say how it is used."""
        start = time.perf_counter()
        run([self.program], self.environment, code=2)
        return (time.perf_counter() - start) * 1e3

    def test_ten_milliseconds(self):
        limit = max(10, 8 * min(self.nothing() for _ in range(50)))  # on a machine that is slow to start any process it is more
        for kernel in kernels:
            times = sorted(float(run(self.words(kernel), self.environment)[0]) for _ in range(50))
            print(f"{kernel}: first launch done {times[0]:.2f} ms after the start at best, median {statistics.median(times):.2f}, "
                  f"9 of 10 within {times[44]:.2f}")
            self.assertLess(times[0], limit, f"{kernel}, on an idle core")


if __name__ == "__main__":
    program.main()
