# `ejk cache`: what it lists, what it finds bad and mends, what it prunes, and how it explains a miss.
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import time

import program
from program import run, tree

generic = ["--arch", "generic", "--variant", "plain"]
call = ["flash_attention", "--case", "d16", *generic]
plain = "flash_attention.plain.cpu_generic.f32.m8"
pooling = ["mean_pooling", "--case", "masked_chunks.f32", "--arch", "generic", "--variant", "strided"]


class Cache(program.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.store = cls.folder / "specs-only"
        for name in ("specs", "templates"):
            shutil.copytree(program.source / name, cls.store / name)
        cls.filled = cls.folder / "filled"
        cls.environment = {**cls.tools, "EJKERNEL_STORE": str(cls.store), "EJKERNEL_CACHE_DIR": str(cls.filled)}
        for words in (call, pooling):
            run([cls.ejk, "run", *words], cls.environment)

    def setUp(self):
        self.cache = self.folder / self.id().rsplit(".", 1)[1]
        shutil.copytree(self.filled, self.cache)
        self.environment = {**self.environment, "EJKERNEL_CACHE_DIR": str(self.cache)}
        self.entry = next(self.cache.glob(f"flash_attention/{plain}-*"))
        self.pooled = next(self.cache.glob("mean_pooling/*"))

    def ask(self, *words, code=0):
        return run([self.ejk, "cache", *words], self.environment, code)

    def told(self, *words, code=0):
        return json.loads(self.ask(*words, "--json", code=code)[0])

    def aged(self, path, days):
        for each in (path, *(path.iterdir() if path.is_dir() else ())):
            os.utime(each, (time.time() - days * 86400,) * 2)

    def test_ls(self):
        self.aged(self.entry, 10)
        place = self.told("ls")[0]
        self.assertEqual((place["role"], place["path"], len(place["entries"])), ("user cache", str(self.cache), 2))
        entry = place["entries"][0]
        self.assertEqual((entry["id"], entry["kind"], entry["superseded"]), (plain, "image", False))
        self.assertEqual(entry["bytes"], sum(path.stat().st_size for path in self.entry.iterdir()))
        self.assertAlmostEqual(entry["age_days"], 10, 1)
        self.assertEqual([len(self.told("ls", glob)[0]["entries"]) for glob in ("flash*", plain, "*/mean*", "none*")], [1, 1, 1, 0])
        self.assertIn(plain, self.ask("ls", "flash*")[0])

    def test_a_killed_prune_leaves_entries_whole_or_gone(self):
        whole = self.folder / "whole-entry"
        shutil.copytree(self.pooled, whole)
        files, killed_at_work = {path.name for path in whole.iterdir()}, 0
        for number in range(4):
            for other in range(100):
                shutil.copytree(whole, self.pooled.parent / f"{self.pooled.name}{number}{other:03}")
            words = [str(self.ejk), "cache", "prune", "--all"]
            with subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as prune:
                for _ in range(1 + 5 * number):  # it is at work
                    prune.stdout.readline()
                prune.kill()
            left = [entry for entry in self.pooled.parent.iterdir() if not entry.name.startswith(".")]
            killed_at_work += prune.returncode == -9 and len(left) > 0
            for entry in left:
                self.assertEqual({path.name for path in entry.iterdir()}, files, "half an entry")
            self.assertIn("agrees with the float64 reference", run([self.ejk, "run", *pooling], self.environment)[0])
        self.assertGreater(killed_at_work, 0)
        self.ask("prune", "--all")
        self.assertEqual(list(self.pooled.parent.iterdir()), [], "what the killed ones left goes, too")

    def test_a_call_keeps_an_entry_young(self):
        self.aged(self.entry, 10)
        self.aged(self.pooled, 10)
        run([self.ejk, "run", *call], self.environment)
        by_kernel = {entry["entry"].split("/")[0]: entry for entry in self.told("ls")[0]["entries"]}
        self.assertLess(by_kernel["flash_attention"]["idle_days"], 0.1)
        self.assertAlmostEqual(by_kernel["flash_attention"]["age_days"], 10, 1)
        self.assertAlmostEqual(by_kernel["mean_pooling"]["idle_days"], 10, 1)

    def test_verify_names_and_repairs(self):
        self.assertEqual(self.told("verify")["sound"], 2)
        binary = self.entry / "binary.so"
        raw = bytearray(binary.read_bytes())
        raw[-1] ^= 1
        binary.write_bytes(raw)
        (self.cache / "mean_pooling" / (self.pooled.name + ".failed")).write_text("no sha256\nc++ 1\nits words\n")
        out = self.ask("verify", code=1)[0]
        self.assertIn(f"BAD {self.entry}: binary.so: its hash is", out)
        self.assertIn(f"BAD {self.pooled}.failed: its words do not have the sha256 of its first line", out)
        self.assertEqual(self.told("verify", "mean_pooling.*", code=1)["faults"][0]["path"], f"{self.pooled}.failed")
        told = self.told("verify", "--repair")
        self.assertEqual((told["sound"], told["repaired"]), (1, 2))
        self.assertEqual(self.told("verify")["faults"], [])
        self.assertTrue((self.entry.parent / (self.entry.name + ".bad-1")).exists(), "set aside, not lost")
        run([self.ejk, "run", *call], self.environment)
        self.assertEqual(self.told("verify")["sound"], 2, "the call built it anew")

    def test_verify_does_not_touch_packs(self):
        pack = self.folder / "pack"
        shutil.copytree(self.store, pack)
        shutil.copytree(self.cache, pack, dirs_exist_ok=True)
        (pack / "flash_attention" / self.entry.name / "binary.so").write_bytes(b"bad")
        before = tree(pack)
        self.environment["EJKERNEL_STORE"] = str(pack)
        self.assertIn("BAD", self.ask("verify", "--repair", code=1)[0])
        self.assertIn("2 entries removed", self.ask("prune", "--all")[0])
        self.assertEqual(tree(pack), before)

    def test_prune(self):
        superseded = self.entry.parent / f"{plain}-{'0' * 16}"
        shutil.copytree(self.entry, superseded)
        self.aged(superseded, 3)
        aside, failed = self.entry.parent / f"{self.entry.name}.bad-1", self.entry.parent / f"{plain}-{'1' * 16}.failed"
        shutil.copytree(self.entry, aside)
        failed.write_text("x\ny\nz")
        dead = self.entry.parent / ".tmp-host-boot-ns-1-1-abc"
        dead.mkdir()
        self.aged(dead, 3)
        before = tree(self.cache)
        dry = self.told("prune", "--unused", "--dry-run")
        self.assertEqual(tree(self.cache), before, "--dry-run removes nothing")
        why = {entry["entry"].split("/")[1]: entry["why"] for entry in dry["entries"]}
        self.assertEqual(why, {superseded.name: "superseded by a newer source", aside.name: "set aside", failed.name: "failed build",
                               dead.name: "leftover"})
        self.assertEqual(self.told("prune", "--unused")["removed"], 4)
        self.assertEqual(sorted(path.name for path in self.cache.glob("*/*")), sorted([self.entry.name, self.pooled.name]))
        self.aged(self.pooled, 40)
        self.assertEqual([entry["why"][:17] for entry in self.told("prune", "--older", "30")["entries"]], ["not taken for 40."])
        self.assertFalse(self.pooled.exists())
        self.assertEqual(self.told("prune", "mean*", "--all")["removed"], 0, "the pattern counts")
        self.assertEqual(self.told("prune", "--all")["removed"], 1)
        self.assertEqual(list(self.cache.glob("*/*")), [])

    def test_prune_leaves_what_a_living_process_writes(self):
        host, boot, namespace = (name for name in self.names_of_this_process())
        mine = self.entry.parent / f".tmp-{host}-{boot}-{namespace}-{os.getpid()}-{self.start_time()}-abc"
        mine.mkdir()
        self.assertNotIn(mine.name, str(self.told("prune", "--all", "--dry-run")))
        self.ask("prune", "--all")
        self.assertTrue(mine.exists())

    def names_of_this_process(self):
        def plain_text(text, limit):
            return "".join(c for c in text if c.isalnum())[:limit]
        yield plain_text(os.uname().nodename, 32)
        yield plain_text(pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(), 12)
        yield plain_text(os.readlink("/proc/self/ns/pid"), 32)

    def start_time(self):
        return pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]

    def test_a_limit_removes_what_was_not_taken_for_longest(self):
        self.aged(self.pooled, 2)
        size = sum(path.stat().st_size for path in self.entry.iterdir())
        self.assertEqual(self.told("prune", "--limit", "1GB")["removed"], 0)
        self.assertEqual([entry["why"] for entry in self.told("prune", "--limit", str(size))["entries"]], ["above --limit"])
        self.assertTrue(self.entry.exists() and not self.pooled.exists())

    def test_why_miss(self):
        image = json.loads(run([self.ejk, "explain", "flash_attention", "--case", "d16", "--json"], self.environment)[0])["image"]["id"]
        told = self.told("why-miss", "flash_attention", "--case", "d16")
        self.assertEqual((told["image"], told["hit"], told["places"][0]["verdict"]), (image, True, "hit"))
        self.assertIn("hit, compiled by", self.ask("why-miss", plain)[0])

    def test_why_miss_shows_the_line_of_the_source(self):
        text = (self.entry / "source.cpp").read_text()
        line = next(number for number, each in enumerate(text.splitlines(), 1) if "for (" in each)
        edited = text.splitlines(keepends=True)
        edited[line - 1] = "// another version\n"
        (self.entry / "source.cpp").write_text("".join(edited))
        self.entry.rename(self.entry.parent / f"{plain}-{'0' * 16}")
        place = self.told("why-miss", plain, code=1)["places"][0]
        self.assertEqual((place["verdict"], place["nearest"]), ("miss", f"{plain}-{'0' * 16}"))
        differs = {each["field"]: each for each in place["differs"]}
        self.assertEqual(differs[f"source, line {line}, the first that differs"]["stored"], "// another version")
        self.assertEqual(differs["source hash (it covers spec, template, flags and version)"]["wanted"], self.entry.name.rsplit("-", 1)[1])

    def test_why_miss_shows_arch_config_and_variant(self):
        def fields(image):
            return {each["field"]: (each["stored"], each["wanted"]) for each in self.told("why-miss", image, code=1)["places"][0]["differs"]}
        self.assertEqual(fields(plain.replace("generic", "avx2")), {"arch": ("cpu_generic", "cpu_avx2")})
        stored = self.pooled.name.rsplit("-", 1)[0]
        others = [line for line in run([program.ejk_gen, program.source / "specs", "--select", "mean_pooling.strided.cpu_generic.f32.*",
                                        "--list"])[0].split() if line.rsplit(".", 1)[0] == stored.rsplit(".", 1)[0] and line != stored]
        self.assertEqual(fields(others[0]), {"config": (stored.rsplit(".", 1)[1], others[0].rsplit(".", 1)[1])})

    def test_why_miss_shows_the_compiler_of_a_failed_build(self):
        shutil.rmtree(self.entry)
        words = "c++ of another machine 1.0\nerror: no\n"
        (self.entry.parent / (self.entry.name + ".failed")).write_text(hashlib.sha256(words.encode()).hexdigest() + "\n" + words)
        failed = self.told("why-miss", plain, code=1)["places"][0]["failed_build"]
        self.assertIn("the compiler differs: then c++ of another machine 1.0, now ", failed)


if __name__ == "__main__":
    program.main()
