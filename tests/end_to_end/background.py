# EJKERNEL_JIT=background by the program: another variant serves the first process, the call's own image, which that one has built, the next; on the CPU and the emulator.
import subprocess

import program
from program import run

case = ["mean_pooling", "--case", "narrow.f32"]


class Background(program.Test):
    def environment_of(self, cache):
        return {**self.tools, "EJKERNEL_STORE": str(program.source), "EJKERNEL_CACHE_DIR": str(self.folder / cache), "EJKERNEL_JIT": "background"}

    def image(self, out):
        return next(line.split()[1].rstrip(",") for line in out.splitlines() if line.split()[:1] == ["image"])

    def later_calls_take_their_own_image(self, device, slow):
        words, environment = [self.ejk, "run", *case, "--device", device], self.environment_of(device)
        run([*words, "--variant", slow], {**environment, "EJKERNEL_JIT": "on"})
        out, _ = run(words, environment)
        self.assertIn("agrees with the float64 reference", out)
        self.assertIn(f".{slow}.", self.image(out))
        out, _ = run(words, environment)  # the first process has ended when what it compiled was kept
        self.assertIn("agrees with the float64 reference", out)
        self.assertNotIn(f".{slow}.", self.image(out))

    def test_on_the_cpu(self):
        self.later_calls_take_their_own_image("cpu", "strided")

    def test_on_the_emulator(self):
        self.later_calls_take_their_own_image("simt", "gpu_strided")

    def test_processes_with_one_cache(self):
        words, environment = [self.ejk, "run", *case], self.environment_of("shared")
        run([*words, "--variant", "strided"], {**environment, "EJKERNEL_JIT": "on"})
        processes = [subprocess.Popen(list(map(str, words)), env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        for process in processes:
            out, _ = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0)
            self.assertIn("agrees with the float64 reference", out)
        built = [path.name for path in (self.folder / "shared" / "mean_pooling").iterdir()]
        self.assertEqual(len(built), 2, built)


if __name__ == "__main__":
    program.main()
