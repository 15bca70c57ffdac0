# `ejk pack`: what recorded calls use, in a store of a given size, with the regret of what is left out.
import json
import shutil

import program
from program import run, tree

device = "cpu-generic-2t"  # of a machine that is not here, so that the test is the same everywhere
rows = "mean_pooling.rows.cpu_generic.f32.batched.c"


def pooling(tokens, features=384, **more):
    return {"kernel": "mean_pooling", "device": device, "attributes": {},
            "tensors": {"x": ["f32", [4, tokens, features]], "out": ["f32", [4, features]]}, **more}


def attention(heads):
    shape = ["f32", [1, 32, heads, 16]]
    return {"kernel": "flash_attention", "device": device, "attributes": {}, "tensors": {"q": shape, "k": shape, "v": shape, "out": shape}}


def config(block_c):
    return {"variant": "rows", "arch": "cpu:generic", "block_c": block_c}


class Pack(program.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.store = cls.make_store("built", rows + "*")
        cls.hashes = {path.name.rsplit("-", 1)[0]: path.name.rsplit("-", 1)[1] for path in cls.store.glob("mean_pooling/*")}

    def setUp(self):
        self.root = self.folder / self.id().rsplit(".", 1)[1]
        self.root.mkdir()
        self.out = self.root / "pack"
        self.environment = {**self.tools, "EJKERNEL_STORE": str(self.store), "EJKERNEL_CACHE_DIR": str(self.root / "cache")}

    def pack(self, calls, *more, code=0):
        trace = self.root / "calls.jsonl"
        trace.write_text("".join((call if isinstance(call, str) else json.dumps(call)) + "\n" for call in calls))
        return run([self.ejk, "pack", "--used-by", trace, "--out", self.out, *more], self.environment, code)

    def told(self, calls, *more, code=0):
        return json.loads(self.pack(calls, *more, "--json", code=code)[0])

    def record(self, call, winner, **times):
        """What the tuner leaves: times of block_c 256, 1024 and 4096, us."""
        folder = self.root / "cache" / "tuned" / device
        folder.mkdir(parents=True, exist_ok=True)
        (self.root / "cache").chmod(0o700)
        best = times.pop(f"c{winner}")
        line = {"key": {name: call[name] for name in ("kernel", "device", "tensors", "attributes")}, "config": config(winner),
                "source": self.hashes[f"{rows}{winner}"], "samples_us": [best], "median_us": best, "noise": 0.01, "baseline": config(winner),
                "baseline_us": best, "alternatives": [[config(int(name[1:])), time] for name, time in times.items()],
                "checked_against": "float64 reference", "residual": 0.1, "measured": 3, "rejected": 0, "machine": "a test", "version": "0.1.0"}
        with open(folder / "mean_pooling.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")

    def files(self):
        return sum(path.stat().st_size for path in self.out.rglob("*") if path.is_file())

    def test_a_pack_serves_its_calls_and_no_compiler_is_needed(self):
        summary = self.told([pooling(16, count=7), pooling(16), attention(2)])
        self.assertEqual([(call["count"], call["served_by"] == call["image"]) for call in summary["calls"]], [(8, True), (1, True)])
        self.assertEqual(summary["total"]["with_their_image"], 2)
        self.assertEqual(len(list(self.out.glob("*/*/binary.so"))), 2, "one of them was built for it")
        bare = {"PATH": "/nonexistent", "EJKERNEL_JIT": "off", "EJKERNEL_STORE": str(self.out), "EJKERNEL_CACHE_DIR": "/proc/nowhere"}
        words = ["mean_pooling", "--case", "bert.f32", "--arch", "generic", "--variant", "rows"]
        told = json.loads(run([self.ejk, "explain", *words, "--json"], bare)[0])
        self.assertEqual((told["image"]["origin"], told["image"]["from"].startswith(str(self.out))), ("pack", True))
        self.assertEqual(json.loads(run([self.ejk, "cache", "verify", "--json"], bare)[0])["faults"], [])

    def test_the_limit_is_of_the_whole_pack(self):
        whole = self.told([pooling(16), attention(2)])
        self.assertEqual(whole["bytes"] + (self.out / "pack.json").stat().st_size, self.files())
        size = self.files() - 1
        cut = self.told([pooling(16), attention(2)], "--limit", str(size), code=1)
        self.assertLessEqual(self.files(), size)
        self.assertEqual((len(cut["images"]), len(cut["left_out"]), cut["total"]["without_any"]), (1, 1, 1))
        self.assertIn("no image", self.pack([pooling(16), attention(2)], "--limit", str(size), code=1)[0])
        self.assertIn("the specs and templates alone take", self.pack([pooling(16)], "--limit", "1k", code=2)[1])

    def test_what_is_left_out_is_what_costs_least(self):
        """16 tokens: c256 is best, c4096 nearly so. 32 tokens: c4096 is best, c256 slow. Room for one: c4096."""
        self.record(pooling(16), 256, c256=10.0, c1024=12.0, c4096=11.0)
        self.record(pooling(32), 4096, c4096=20.0, c1024=30.0, c256=50.0)
        calls = [pooling(16, count=3), pooling(32)]
        whole = self.told(calls)
        self.assertEqual([call["image"] for call in whole["calls"]], [rows + "256", rows + "4096"])
        self.assertEqual((whole["images"], whole["left_out"]), ([rows + "256", rows + "4096"], [rows + "1024"]))
        self.assertEqual([call["tier"] for call in whole["calls"]], ["persistent"] * 2)
        self.assertEqual(whole["total"]["measured_us"], 50)
        limit = self.files() - 3000
        cut = self.told(calls, "--limit", str(limit))
        self.assertEqual(cut["images"], [rows + "4096"])
        self.assertEqual([call["regret_us"] for call in cut["calls"]], [1, 0])
        self.assertEqual(cut["total"]["regret_us"], 3, "three calls of 1 us each")
        out = self.pack(calls, "--limit", str(limit))[0]
        self.assertIn("+1.00 us (+10.0%)", out)
        self.assertIn("1 of 2 calls have their own image; 1 another, in all 3.00 us slower of 50.00 (+6.00%)", out)

    def test_two_calls_may_share_what_neither_chooses(self):
        self.record(pooling(16), 256, c256=10.0, c1024=10.5, c4096=30.0)
        self.record(pooling(32), 4096, c4096=20.0, c1024=20.5, c256=50.0)
        self.told([pooling(16), pooling(32)])
        cut = self.told([pooling(16), pooling(32)], "--limit", str(self.files() - 3000))
        self.assertEqual(cut["images"], [rows + "1024"], "a measured alternative that a store has")
        self.assertEqual([call["regret_us"] for call in cut["calls"]], [0.5, 0.5])

    def test_what_nobody_measured_is_said_to_be_unknown(self):
        self.record(pooling(16), 256, c256=10.0)
        self.record(pooling(16, features=768), 1024, c1024=20.0)
        calls = [pooling(16), pooling(16, features=768, count=9)]
        whole = self.told(calls)
        self.assertEqual([call["us"] for call in whole["calls"]], [10, 20])
        self.assertEqual([call["image"] for call in whole["calls"]], [rows + "256", rows + "1024"])
        limit = str(self.files() - 3000)
        cut = self.told(calls, "--limit", limit)
        self.assertEqual([call["regret_us"] for call in cut["calls"]], ["unknown", 0])
        self.assertIn("1 another whose cost is unknown", self.pack(calls, "--limit", limit)[0])

    def test_a_pack_is_replaced_and_nothing_else_is(self):
        self.told([pooling(16)])
        self.told([attention(2)])
        self.assertEqual([path.name for path in self.out.iterdir() if path.name in ("mean_pooling", "flash_attention")], ["flash_attention"])
        self.assertEqual(sorted(path.name for path in self.root.iterdir()), ["cache", "calls.jsonl", "pack"] if (self.root / "cache").exists()
                         else ["calls.jsonl", "pack"], "nothing is left beside it")
        shutil.rmtree(self.out)
        self.out.mkdir()
        (self.out / "mine").write_text("")
        self.assertIn("is there and is no pack", self.pack([pooling(16)], code=2)[1])
        self.assertEqual(list(tree(self.out)), ["mine"])

    def test_bad_input(self):
        told = self.told(["no JSON", pooling(16), {**pooling(16), "kernel": "none"}], code=1)
        self.assertEqual((len(told["not_read"]), len(told["skipped"]), len(told["images"])), (1, 1, 1))
        for words, message in ((["pack"], "expected --used-by TRACE"), (["pack", "--used-by", "/nonexistent"], "/nonexistent"),
                               (["pack", "--used-by", "x", "--limit", "much"], "--limit: expected a size")):
            out, err = run([self.ejk, *words], self.environment, code=1 if "/nonexistent" in words else 2)
            self.assertIn(message, err)


if __name__ == "__main__":
    program.main()
