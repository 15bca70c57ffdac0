# `ejk build` killed at random moments and started again ends with the bytes of an undisturbed build and leaves nothing behind.
import random
import subprocess
import time

import program
from program import run, tree

images = "mean_pooling*.cpu_generic.f32.*c1024*"
kills = 8


class InterruptedBuild(program.Test):
    def build(self, store):
        return self.build_words(self.rendered, store) + ["--jobs", "2"]

    def setUp(self):
        self.rendered = self.render(self.folder / "rendered", images)[0]
        self.undisturbed = self.folder / "undisturbed"
        start = time.monotonic()
        out = run(self.build(self.undisturbed), self.tools)[0]
        self.seconds = time.monotonic() - start
        self.assertRegex(out, r"[1-9][0-9]* built, 0 already there, 0 failed")

    def test_killed_builds_complete_with_the_same_bytes(self):
        seed = random.randrange(2**32)
        moments = random.Random(seed)
        store = self.folder / "disturbed"
        killed = 0
        for _ in range(kills):
            child = subprocess.Popen(self.build(store), env=self.tools, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                child.wait(moments.uniform(0, self.seconds / 4))
            except subprocess.TimeoutExpired:
                child.kill()
                killed += child.wait() == -9
        self.assertGreater(killed, 0, f"seed {seed}: no build was killed")
        out = run(self.build(store), self.tools)[0]
        self.assertIn("0 failed", out)
        self.assertIn(" 0 built, ", run(self.build(store), self.tools)[0])
        self.assertEqual(self.names(store), self.names(self.undisturbed), f"seed {seed}")
        self.assertEqual(tree(store), tree(self.undisturbed), f"seed {seed}")
        self.assertEqual(list((self.folder / "tmp").iterdir()), [], f"seed {seed}: left in TMPDIR")

    def names(self, store):
        return sorted(tree(store))


if __name__ == "__main__":
    program.main()
