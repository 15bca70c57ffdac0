# Many cold processes on one cache, caches that cannot be used, and builds that fail: what a user sees of each.
import os
import shutil
import subprocess
import unittest

import program
from program import run, tree

call = ["flash_attention", "--case", "d16", "--arch", "generic", "--variant", "plain"]
plain = "flash_attention.plain.cpu_generic.f32.m8"
pooling_call = ["mean_pooling", "--case", "masked_chunks.f32", "--arch", "generic", "--variant", "strided"]
nobody = 65534


class Fire(program.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder.chmod(0o755)  # another user runs ejk from it
        cls.store = cls.folder / "specs-only"
        for name in ("specs", "templates"):
            shutil.copytree(program.source / name, cls.store / name)
        (cls.folder / "tmp").chmod(0o1777)

    def setUp(self):
        self.cache = self.folder / f"cache-{self.id().rsplit('.', 1)[1]}"
        self.log = self.folder / f"log-{self.id().rsplit('.', 1)[1]}"
        self.environment = {"PATH": os.environ["PATH"], "TMPDIR": str(self.folder / "tmp"), "EJKERNEL_STORE": str(self.store),
                            "EJKERNEL_CACHE_DIR": str(self.cache), "CXX": str(self.compiler("one"))}

    def compiler(self, name):
        """A compiler that writes a line to the log for each image it is given; the two kernels it is tried with count for nothing."""
        path = self.folder / f"compiler-{name}-{self.log.name}"
        path.write_text(f"""#!/bin/sh
case "$*" in *--version*) echo "c++ called {name} 1.0"; exit 0;; esac
grep -q ejk_small source.cpp || {{ echo "$(grep -o -m 1 '[a-z_]*\\.[a-z]*\\.cpu_generic[^ ,]*' source.cpp)" >> '{self.log}'; sleep 0.3; }}
exec c++ "$@"
""")
        path.chmod(0o755)
        return path

    def compiled(self):
        return sorted(self.log.read_text().splitlines()) if self.log.exists() else []

    def run_call(self, words=call, **environment):
        return run([self.ejk, "run", *words], {**self.environment, **environment})

    # ---- many processes ----

    def test_32_cold_processes_compile_each_image_once(self):
        calls = [call if number % 2 else pooling_call for number in range(32)]
        children = [subprocess.Popen([self.ejk, "run", *words], env=self.environment, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for words in calls]
        for child in children:
            said = child.communicate(timeout=120)[0]
            self.assertEqual(child.returncode, 0, said)
            self.assertIn("agrees with the float64 reference", said)
        self.assertEqual(len(self.compiled()), 2, self.compiled())
        for kernel in ("flash_attention", "mean_pooling"):
            self.assertEqual(len(list((self.cache / kernel).iterdir())), 1, "nothing but the entry is left")

    # ---- caches that cannot be used ----

    def refused(self, *words, prefix=(), **environment):
        """The call is right all the same, from memory; `ejk info` and the log say why nothing is kept."""
        environment = {name: value for name, value in {**self.environment, **environment}.items() if value is not None}
        out, err = run([*prefix, self.ejk, "run", *call], {**environment, "EJKERNEL_LOG": "on"})
        self.assertIn("agrees with the float64 reference", out)
        for word in (f"compiled {plain}", f"{plain} is kept nowhere; ", *words):
            self.assertIn(word, err)
        return err

    def test_no_home(self):
        self.refused("none of EJKERNEL_CACHE_DIR, XDG_CACHE_HOME and HOME is set: name a folder in one", EJKERNEL_CACHE_DIR=None)
        told = run([self.ejk, "info"], {name: value for name, value in self.environment.items() if name != "EJKERNEL_CACHE_DIR"})[0]
        self.assertIn("none of EJKERNEL_CACHE_DIR, XDG_CACHE_HOME and HOME is set", told)

    def test_a_home_that_cannot_be_made(self):
        self.refused("cannot make the folder /proc/nowhere", "name another folder in EJKERNEL_CACHE_DIR", EJKERNEL_CACHE_DIR=None, HOME="/proc/nowhere")

    def test_a_file_in_the_caches_place(self):
        self.cache.write_text("")
        self.refused(f"cannot make the folder {self.cache}: Not a directory; name another folder in EJKERNEL_CACHE_DIR")

    def test_a_world_writable_cache(self):
        self.cache.mkdir()
        self.cache.chmod(0o777)
        self.refused(f"the cache folder {self.cache} is writable by others (mode 777): run chmod go-w on it")
        self.assertEqual(tree(self.cache), {})
        self.cache.chmod(0o755)
        self.run_call()
        self.assertTrue(list(self.cache.glob(f"flash_attention/{plain}-*")), "the advice helps")

    def test_a_world_writable_folder_in_the_cache(self):
        self.run_call()
        (self.cache / "flash_attention").chmod(0o777)
        self.refused(f"the cache folder {self.cache}/flash_attention is writable by others (mode 777): run chmod go-w on it")

    def test_no_umask_makes_a_folder_that_is_refused(self):
        before = os.umask(0)
        try:
            self.run_call()
            self.run_call()
        finally:
            os.umask(before)
        self.assertEqual(self.compiled(), [plain])

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "only root may act as another user")
    def test_a_cache_of_another_user(self):
        self.run_call()
        as_nobody = ["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups"]
        self.log.chmod(0o666)
        self.refused(f"the cache folder {self.cache} belongs to user 0, expected {nobody}: binaries of others are not loaded; "
                     "name another folder in EJKERNEL_CACHE_DIR", prefix=as_nobody)

    def test_a_read_only_cache(self):
        self.cache.mkdir()
        prefix = []
        if os.geteuid() == 0:
            if not shutil.which("setpriv"):
                self.skipTest("root can write everywhere, and there is no setpriv to become another user")
            os.chown(self.cache, nobody, nobody)
            prefix = ["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups"]
            self.log.touch()
            self.log.chmod(0o666)
        self.cache.chmod(0o555)
        self.refused(f"cannot make the folder {self.cache}/flash_attention: Permission denied", "serves this process from memory", prefix=prefix)
        self.assertEqual(tree(self.cache), {})

    # ---- builds that fail ----

    def test_a_failed_build_is_remembered_and_shown(self):
        store = self.folder / "broken"
        shutil.copytree(self.store, store)
        template = store / "templates" / "flash_attention" / "forward.plain.cpu.cpp"
        sound = template.read_text()
        template.write_text(sound + "\nstatic int broken() { return undeclared_thing; }\n")
        environment = {**self.environment, "EJKERNEL_STORE": str(store)}
        first = run([self.ejk, "run", *call], environment, code=1)[1]
        self.assertIn("c++ called one 1.0 failed on flash_attention.plain", first)
        self.assertIn("undeclared_thing", first)
        for command in ("run", "explain"):
            again = run([self.ejk, command, *call], environment, code=1)[1]
            self.assertIn("c++ called one 1.0 refused this source before; it said:", again)
            self.assertIn("undeclared_thing", again)
        self.assertEqual(len(self.compiled()), 1, "it was compiled again")
        run([self.ejk, "run", *call], {**environment, "CXX": str(self.compiler("two"))}, code=1)
        self.assertEqual(len(self.compiled()), 2, "another compiler may do better")
        template.write_text(sound)
        run([self.ejk, "run", *call], environment)
        self.assertEqual(len(self.compiled()), 3, "another source, another chance")


if __name__ == "__main__":
    program.main()
