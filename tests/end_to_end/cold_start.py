# A process that makes one call from a prebuilt pack: no compiler is asked, and the way from its start to the end of the launch is short.
import pathlib
import re
import shutil
import statistics
import time
import unittest

import program
from program import run

budget = 40_000_000  # instructions, loader included: 10 ms are about 60 million of them on a slow core
selects = {"mean_pooling": "mean_pooling.*.cpu_generic.f32.batched*", "flash_attention": "flash_attention.*.cpu_generic.f32.*d64_dv64.*"}


class ColdStart(program.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.program = pathlib.Path(program.ejk_built).parent / "cold_start"
        cls.store = cls.make_store("pack", *selects.values())
        cls.log = cls.folder / "asked"
        compiler = cls.folder / "compiler"
        compiler.write_text(f"#!/bin/sh\necho asked >> '{cls.log}'\nexit 1\n")
        compiler.chmod(0o700)
        cls.environment = {"PATH": "/usr/bin:/bin", "CXX": str(compiler), "EJKERNEL_CACHE_DIR": str(cls.folder / "cache")}

    def words(self, kernel):
        return [self.program, self.store, kernel, "cpu:generic", str(time.clock_gettime_ns(time.CLOCK_MONOTONIC))]

    def test_no_compiler_is_asked(self):
        for kernel in selects:
            run(self.words(kernel), self.environment)
            self.assertFalse(self.log.exists(), kernel)

    @unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
    def test_instructions(self):
        for kernel in selects:
            words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.folder}/callgrind.out", *self.words(kernel)]
            said = run(words, self.environment)[1]
            instructions = int(re.search(r"Collected : (\d+)", said).group(1))
            print(f"{kernel}: {instructions / 1e6:.1f} million instructions from start to end")
            self.assertLess(instructions, budget, kernel)

    def test_ten_milliseconds(self):
        for kernel in selects:
            times = sorted(float(run(self.words(kernel), self.environment)[0]) for _ in range(50))
            print(f"{kernel}: first launch done {times[0]:.2f} ms after the start at best, median {statistics.median(times):.2f}, "
                  f"9 of 10 within {times[44]:.2f}")
            self.assertLess(times[0], 10, f"{kernel}, on an idle core")


if __name__ == "__main__":
    program.main()
