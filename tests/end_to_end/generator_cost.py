# What ejk-gen spends on an image, in instructions, which do not depend on how busy the machine is; and that its memory does not grow with them.
import os
import re
import shutil
import unittest

import program
from program import run

counted_budget, rendered_budget = 20_000, 8_000_000  # an image that is only counted, or listed; one that is rendered and written
counted, rendered = "*cuda_sm_90a*", "mean_pooling.gpu.cuda_sm_90a.bf16.packed.v*_s4_*"


@unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
class GeneratorCost(program.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.specs = cls.folder / "specs"
        shutil.copytree(program.source / "specs/arch", cls.specs / "arch")
        for name in ("mean_pooling", "mean_pooling_bwd"):
            shutil.copy(program.source / f"specs/{name}.json", cls.specs)

    def generate(self, *words):
        """What it says, and its instructions."""
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.folder}/callgrind.out"]
        said, told = run(valgrind + [program.ejk_gen, self.specs, "--templates", program.source / "templates", *words], self.tools)
        return said, int(re.search(r"Collected : (\d+)", told).group(1))

    def test_instructions_an_image(self):
        few, few_cost = self.generate("--select", rendered, "--count")
        many, many_cost = self.generate("--select", counted, "--count")
        _, rendered_cost = self.generate("--select", rendered, "--out", self.folder / "generated")
        few, many = int(few), int(many)
        self.assertGreater(few, 50)
        self.assertGreater(many, 50 * few)
        a_counted, a_rendered = (many_cost - few_cost) / (many - few), (rendered_cost - few_cost) / few
        print(f"{a_counted:.0f} instructions an image of {many} counted, {a_rendered:.0f} of {few} rendered")
        self.assertLess(a_counted, counted_budget)
        self.assertLess(a_rendered, rendered_budget)


class GeneratorMemory(program.Test):
    def test_memory_does_not_grow_with_the_space(self):
        words = [program.ejk_gen, program.source / "specs", "--select", counted, "--list"]
        listing = os.posix_spawn(words[0], list(map(str, words)), {}, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
        _, status, usage = os.wait4(listing, 0)
        print(f"{usage.ru_maxrss >> 10} MiB to list {counted}")
        self.assertEqual(status, 0)
        self.assertLess(usage.ru_maxrss, 300 << 10)


if __name__ == "__main__":
    program.main()
