# A hostile second user (nobody) against caches, agreement folders and packs of this one: nothing planted runs, nothing private is touched.
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

import program
from program import run

nobody = 65534
as_nobody = ["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups"]
plain = "flash_attention.plain.cpu_generic.f32.m8"
call = ["flash_attention", "--case", "d16", "--arch", "generic", "--variant", "plain"]
seconds = 6  # of each race

# What nobody runs: exchanges two folders, so that each is there for a part of what a compile takes.
exchange = """
import os, random, sys, time
mine, place, away, end = sys.argv[1], sys.argv[2], sys.argv[2] + "-away", time.time() + float(sys.argv[3])
count = 0
while time.time() < end:
    for source, target in ((place, away), (mine, place), (None, None), (place, mine), (away, place), (None, None)):
        if source is None:
            time.sleep(random.choice((0.002, 0.05, 0.2, 0.6)))
            continue
        try:
            os.rename(source, target)
            count += 1
        except OSError:
            pass
print(count)
"""


may_act_as_nobody = os.geteuid() == 0 and shutil.which("setpriv")


@unittest.skipUnless(may_act_as_nobody or "CI" in os.environ, "only root may act as another user, and by setpriv")
class SecondUser(program.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not may_act_as_nobody:  # CI runs this test or fails
            raise AssertionError("only root may act as another user, and by setpriv: run CI as root, with util-linux installed")
        cls.folder.chmod(0o755)
        cls.texts = cls.folder / "texts"  # a store without images
        for name in ("specs", "templates"):
            shutil.copytree(program.source / name, cls.texts / name)
        shutil.rmtree(cls.texts / "specs" / "tuned", ignore_errors=True)
        cls.marker = cls.folder / "planted-code-ran"
        cls.good = cls.folder / "good"
        run([cls.ejk, "run", *call], cls.words(cls.good))
        cls.evil = cls.planted(cls.folder / "evil")

    @classmethod
    def words(cls, cache, **more):
        return {**cls.tools, "EJKERNEL_STORE": str(cls.texts), "EJKERNEL_CACHE_DIR": str(cache), **more}

    @classmethod
    def planted(cls, to):
        """A cache as the victim would make it, but for one binary: it says who ran it. Its image.json is right of it."""
        shutil.copytree(cls.good, to)
        source = cls.folder / "evil.c"
        source.write_text('#include <fcntl.h>\n__attribute__((constructor)) static void run(void) '
                          f'{{ open("{cls.marker}", O_CREAT | O_WRONLY, 0600); }}\n')
        entry = next(path for path in to.glob(f"flash_attention/{plain}-*") if path.is_dir())
        run(["cc", "-shared", "-fPIC", "-o", entry / "binary.so", source], cls.tools)
        raw = (entry / "binary.so").read_bytes()
        text = (entry / "image.json").read_text()
        old = (cls.good / entry.relative_to(to) / "binary.so").read_bytes()
        text = text.replace(hashlib.sha256(old).hexdigest(), hashlib.sha256(raw).hexdigest()).replace(f" {len(old)}", f" {len(raw)}")
        (entry / "image.json").write_text(text)
        return to

    def setUp(self):
        self.marker.unlink(missing_ok=True)
        self.place = self.folder / self.id().rsplit(".", 1)[1]
        self.place.mkdir()
        self.private = self.place / "private"
        self.private.write_text("of the owner\nwithout a last line end")
        self.private.chmod(0o600)

    def owned_by_nobody(self, path):
        for each in [path, *path.rglob("*")]:
            os.chown(each, nobody, nobody, follow_symlinks=False)
        return path

    def victim(self, cache, code=None, words=("run", *call), **more):
        done = subprocess.run([str(self.ejk), *words], env=self.words(cache, EJKERNEL_LOG="on", **more), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)
        self.assertFalse(self.marker.exists(), "the second user's code ran:\n" + done.stdout + done.stderr)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def race(self, place, mine, act, rounds=2):
        """`act` again and again while nobody exchanges `place` and `mine`."""
        with subprocess.Popen([*as_nobody, sys.executable, "-c", exchange, str(mine), str(place), str(seconds)],
                              stdout=subprocess.PIPE, text=True) as attacker:
            done, end = 0, time.time() + seconds
            while time.time() < end or done < rounds:
                act()
                done += 1
            self.assertGreater(int(attacker.communicate(timeout=60)[0]), 10, "the attack did not take place")

    # ---- the planted code would run, were it taken: what the other tests say is worth something ----

    def test_0_the_planted_code_runs_for_who_trusts_it(self):
        shutil.copytree(self.evil, self.place / "cache")
        subprocess.run([str(self.ejk), "run", *call], env=self.words(self.place / "cache"), capture_output=True, timeout=120)
        self.assertTrue(self.marker.exists())

    # ---- 1: the cache ----

    def test_a_cache_exchanged_while_its_kernel_is_compiled(self):
        parent = self.place / "open"
        parent.mkdir()
        parent.chmod(0o777)
        cache, mine = parent / "cache", parent / "mine"
        shutil.copytree(self.evil, mine)
        self.owned_by_nobody(mine)

        def act():
            if not cache.exists():
                try:
                    cache.mkdir(mode=0o700)
                except FileExistsError:
                    pass
            said = self.victim(cache)
            self.assertIn("agrees with the float64 reference", said)

        cache.mkdir(mode=0o700)
        self.race(cache, mine, act)
        said = self.victim(parent / "another")
        self.assertIn(f"{parent}, above the cache folder, is writable by others (mode 777): run chmod go-w on it", said)

    def test_a_link_in_the_caches_place(self):
        parent = self.place / "sticky"
        parent.mkdir()
        parent.chmod(0o1777)
        mine = self.owned_by_nobody(shutil.copytree(self.evil, parent / "mine"))
        subprocess.run([*as_nobody, "ln", "-s", mine, parent / "cache"], check=True)
        self.assertIn("agrees with the float64 reference", self.victim(parent / "cache", 0))
        self.assertIn("agrees with the float64 reference", self.victim(mine, 0))
        own = parent / "own"  # our own folder in a sticky one serves
        self.victim(own, 0)
        self.assertTrue(list(own.glob(f"flash_attention/{plain}-*")))

    # ---- 2: the agreement ----

    def agreement(self, mode):
        folder = self.place / "agreed"
        folder.mkdir()
        folder.chmod(mode)
        return folder

    def tune(self, folder):
        return self.victim(self.folder / "good", None, ("run", *call[:3]), EJKERNEL_AGREEMENT=str(folder), EJKERNEL_AUTOTUNE_POLICY="autotune",
                           EJKERNEL_LOG_AUTOTUNE="on", EJKERNEL_AGREEMENT_TIMEOUT="2")

    def untouched(self):
        self.assertEqual(self.private.read_text(), "of the owner\nwithout a last line end")
        self.assertFalse((self.place / "made").exists(), "a file was made elsewhere")

    def test_an_agreement_that_others_can_write(self):
        folder = self.agreement(0o777)
        told = json.loads(run([self.ejk, "info", "--json"], self.words(self.good))[0])
        device = next(each["fingerprint"] for each in told["backends"] if each["platform"] == "cpu")
        inner = folder / device
        subprocess.run([*as_nobody, "mkdir", inner], check=True)
        for name in ("flash_attention.jsonl", "flash_attention.jsonl.new"):
            subprocess.run([*as_nobody, "ln", "-s", self.private, inner / name], check=True)
        said = self.tune(folder)
        self.assertIn(f"the agreement folder {folder} is writable by others (mode 777): run chmod o-w on it", said)
        self.untouched()
        self.assertEqual(sorted(path.name for path in inner.iterdir()), ["flash_attention.jsonl", "flash_attention.jsonl.new"])

    def test_links_in_an_agreement_of_a_group(self):
        folder = self.agreement(0o2770)  # root's group, of which this process is; links as a member would leave them
        told = json.loads(run([self.ejk, "info", "--json"], self.words(self.good))[0])
        inner = folder / next(each["fingerprint"] for each in told["backends"] if each["platform"] == "cpu")
        inner.mkdir()
        (inner / "flash_attention.jsonl").symlink_to(self.private)
        said = self.tune(folder)
        self.assertIn("a symbolic link, which is not followed here", said)
        self.untouched()
        for lock in inner.glob(".*.lock"):
            lock.unlink()
            lock.symlink_to(self.place / "made")
        self.tune(folder)
        self.untouched()

    # ---- 3: packs ----

    def pack(self):
        pack = self.place / "pack"
        shutil.copytree(self.texts, pack)
        shutil.copytree(self.evil / "flash_attention", pack / "flash_attention")
        return pack

    def refused(self, pack, words):
        environment = {"EJKERNEL_STORE": f"{pack}:{self.texts}"}
        said = self.victim(self.place / "cache", 0, **environment)
        self.assertIn("agrees with the float64 reference", said)
        self.assertIn(words, said)
        self.assertIn(words, self.victim(self.place / "cache", 0, ("info",), **environment))

    def test_a_pack_that_others_can_write(self):
        pack = self.pack()
        self.owned_by_nobody(next(pack.glob("flash_attention/*/binary.so")))
        pack.chmod(0o777)
        self.refused(pack, f"the store {pack} is writable by others (mode 777): run chmod go-w on it, or name the store in EJKERNEL_TRUST")

    def test_a_pack_of_another_user(self):
        pack = self.owned_by_nobody(self.pack())
        self.refused(pack, f"the store {pack} belongs to user {nobody}, expected 0")

    def test_a_binary_of_another_user_in_a_pack_of_ours(self):
        pack = self.pack()
        self.owned_by_nobody(next(pack.glob("flash_attention/*/binary.so")))
        said = self.victim(self.place / "cache", 0, ("explain", *call), EJKERNEL_STORE=str(pack))
        self.assertIn(f"binary.so, in the store, belongs to user {nobody}, expected 0", said)

    def test_a_template_of_another_user(self):
        pack = self.pack()
        template = pack / "templates" / "flash_attention" / "forward.plain.cpu.cpp"
        self.owned_by_nobody(template)
        self.refused(pack, f"{template}, in the store, belongs to user {nobody}, expected 0")

    def test_a_pack_of_another_user_that_is_named_is_taken(self):
        pack = self.owned_by_nobody(shutil.copytree(self.texts, self.place / "pack"))
        said = self.victim(self.place / "cache", 0, EJKERNEL_STORE=str(pack), EJKERNEL_TRUST=str(pack))
        self.assertIn("agrees with the float64 reference", said)

    def test_a_pack_exchanged_while_it_is_read(self):
        parent = self.place / "open"
        parent.mkdir()
        parent.chmod(0o777)
        pack = shutil.copytree(self.texts, parent / "pack")
        mine = shutil.copytree(self.evil, parent / "mine")
        shutil.copytree(self.texts, mine, dirs_exist_ok=True)
        self.owned_by_nobody(mine)
        self.race(pack, mine, lambda: self.victim(self.place / "cache", None, EJKERNEL_STORE=f"{pack}:{self.texts}"))


if __name__ == "__main__":
    program.main()
