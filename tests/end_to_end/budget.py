# `ejk-gen --budget`: fewer images by tuning records, with the regret of what is left out; `--select tuned`: what records won with.
import json
import shutil

import program
from program import run

device = "cpu-generic-2t"
rows = "mean_pooling.rows.cpu_generic.f32.batched.c"


class Budget(program.Test):
    def setUp(self):
        self.root = self.folder / self.id().rsplit(".", 1)[1]
        self.root.mkdir()
        for name in ("specs", "templates"):
            shutil.copytree(program.source / name, self.root / name)
        for path in (self.root / "specs").glob("*.json"):  # one kernel, so that a count is easy to follow
            if path.stem != "mean_pooling":
                path.unlink()
        spec = json.loads((self.root / "specs" / "mean_pooling.json").read_text())
        spec.pop("gradient", None)
        spec["cases"] = [{"name": "small", "doc": "16 tokens", "E": "f32", "B": 4, "S": 16, "C": 384},
                         {"name": "large", "doc": "32 tokens", "E": "f32", "B": 4, "S": 32, "C": 384}]
        (self.root / "specs" / "mean_pooling.json").write_text(json.dumps(spec))
        shutil.rmtree(self.root / "specs" / "tuned", ignore_errors=True)
        self.tuned = self.root / "specs" / "tuned" / device / "mean_pooling.jsonl"
        self.tuned.parent.mkdir(parents=True)
        self.generate("--select", rows + "*", "--out", self.root / "all", portfolio=False)
        manifest = json.loads((self.root / "all" / "manifest.json").read_text())
        self.images = {image["id"]: image for image in manifest["images"]}

    def generate(self, *more, code=0, portfolio=True):
        words = [program.ejk_gen, "specs", "--arch", "generic", *more] + ([] if "--out" in more else ["--out", "generated"])
        out, err = run(words, {}, code, self.root)
        return json.loads(out)["budget"] if portfolio and "--json" in more else out + err

    def record(self, tokens, winner, source=None, **times):
        def config(block_c):
            return {"variant": "rows", "arch": "cpu:generic", "block_c": block_c}
        best = times.pop(f"c{winner}")
        line = {"key": {"kernel": "mean_pooling", "device": device, "attributes": {},
                        "tensors": {"x": ["f32", [4, tokens, 384]], "out": ["f32", [4, 384]]}},
                "config": config(winner), "median_us": best, "source": source or self.images[f"{rows}{winner}"]["hash"],
                "alternatives": [[config(int(name[1:])), time] for name, time in times.items()]}
        with open(self.tuned, "a") as file:
            file.write(json.dumps(line) + "\n")

    def kept(self):
        return sorted(image["id"] for image in json.loads((self.root / "generated" / "manifest.json").read_text())["images"])

    def test_one_image_within_five_percent_of_two_winners(self):
        self.record(16, 256, c256=10.0, c1024=10.4, c4096=30.0)
        self.record(32, 4096, c4096=20.0, c1024=20.8, c256=50.0)
        told = self.generate("--within", "5%", "--json")
        self.assertEqual(self.kept(), [rows + "1024"])
        self.assertEqual([round(call["slowdown"], 3) for call in told["calls"]], [0.04, 0.04])
        self.assertEqual((told["tuned_calls"], told["exact"]), (2, True))
        self.generate("--within", "3")
        self.assertEqual(self.kept(), [rows + "256", rows + "4096"])
        out = self.generate("--within", "5%")
        self.assertIn(f"{rows}1024 instead of {rows}256: +4.0%", out)
        self.assertIn("2 lose 4.0% on average, 4.0% at most", out)
        self.assertIn("sizes are guessed from their sources", out)

    def test_a_budget_below_that_loses_least(self):
        self.record(16, 256, c256=10.0, c4096=11.0)
        self.record(32, 4096, c4096=20.0, c256=50.0)
        both = self.generate("--budget", "1GB", "--json")
        self.assertEqual((self.kept(), both["calls"][0]["slowdown"]), ([rows + "256", rows + "4096"], 0))
        told = self.generate("--budget", str(both["bytes"] - 1), "--json")
        self.assertEqual(self.kept(), [rows + "4096"])
        self.assertLess(told["bytes"], both["bytes"])
        self.assertEqual([round(call["slowdown"], 3) for call in told["calls"]], [0.1, 0])
        self.assertIn("the smallest set within 5% of the best takes", told["method"])
        out = self.generate("--budget", "10")
        self.assertIn("nothing serves it", out)
        self.assertIn("2 have none", out)

    def test_sizes_of_a_store_are_taken(self):
        self.record(16, 256, c256=10.0)
        guessed = self.generate("--budget", "1GB", "--json")
        store = self.root / "store"
        folder = store / "mean_pooling" / f"{rows}256-{self.images[rows + '256']['hash']}"
        folder.mkdir(parents=True)
        (folder / "image.json").write_text('{"binary_bytes": 123456}')
        known = self.generate("--budget", "1GB", "--sizes", store, "--json")
        source = (self.root / "all" / "src" / self.images[rows + "256"]["file"]).stat().st_size
        self.assertEqual(guessed["estimated_sizes"] - known["estimated_sizes"], 1)
        binary = 123456 + (folder / "image.json").stat().st_size
        self.assertAlmostEqual(known["bytes"] - guessed["bytes"], binary - 1.13 * source, delta=2)

    def test_untuned_cases_keep_the_heuristics_image(self):
        self.record(16, 256, c256=10.0)
        told = self.generate("--within", "5", "--json")
        self.assertEqual([call["call"] for call in told["calls"]][1:], ["mean_pooling case large on cpu:generic"])
        self.assertEqual(self.kept(), [rows + "1024", rows + "256"])

    def test_records_that_do_not_count_are_named(self):
        self.record(16, 256, source="0123456789abcdef", c256=10.0)
        self.tuned.write_text(self.tuned.read_text() + "no JSON\n" + json.dumps({"key": {}}) + "\n")
        skipped = self.generate("--within", "5", "--json")["skipped"]
        self.assertEqual(len(skipped), 3)
        self.assertEqual([line for line in skipped if "source has changed" in line][0].rsplit("jsonl:", 1)[1][0], "1")

    def test_select_tuned_has_the_winners_too(self):
        self.record(16, 256, c256=10.0)
        self.generate("--select", "tuned", portfolio=False)
        tuned = self.kept()
        self.generate("--select", "heuristic", portfolio=False)
        self.assertEqual(sorted(set(tuned) - set(self.kept())), [rows + "256"])

    def test_a_budget_is_no_part_of_a_later_run(self):
        self.record(16, 256, c256=10.0)
        self.generate("--select", "heuristic", portfolio=False)
        before = self.kept()
        self.generate("--budget", "1GB")
        self.assertNotEqual(self.kept(), before)
        self.assertIn("written", self.generate("--select", "heuristic", portfolio=False))
        self.assertEqual(self.kept(), before)
        self.generate("--budget", "1GB", "--check", code=1)

    def test_bad_options(self):
        for words, message in ((["--budget", "much"], "--budget: expected a size"), (["--within", "-1"], "--within: expected a percentage"),
                               (["--budget", "1MB", "--select", "all"], "--select does not go with --budget"),
                               (["--sizes", "."], "--sizes goes with --budget"), (["--budget", "1MB", "--sizes", "none"], "--sizes: no folder 'none'")):
            self.assertIn(message, self.generate(*words, code=2))


if __name__ == "__main__":
    program.main()
