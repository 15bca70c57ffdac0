# Where binaries come from: packs without a compiler or a writable place, nearest configs, other variants, JIT, a user cache that heals.
import json
import shutil

import program
from program import run, tree

exact = "flash_attention.tiled.cpu_generic.f32.d16_dv16.v3_p4_n128"  # the heuristic's choice for the case on the generic arch
nearby = "flash_attention.tiled.cpu_generic.f32.d16_dv16.v1_p4_n64"
plain = "flash_attention.plain.cpu_generic.f32.m8"
pooling = "mean_pooling.rows.cpu_generic.f32.chunks_masked.c256"
attention_case = ["flash_attention", "--case", "d16"]
pooling_case = ["mean_pooling", "--case", "masked_chunks.f32"]
generic = ["--arch", "generic"]  # so that the test is the same on every CPU


class Packs(program.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.store = cls.make_store("pack", exact, pooling)
        cls.nearby_store = cls.make_store("nearby-pack", nearby)
        cls.plain_store = cls.make_store("plain-pack", plain)

    def bare(self, store, **more):
        """No compiler, no home, no place to write."""
        return {"PATH": "/nonexistent", "EJKERNEL_STORE": str(store), "EJKERNEL_CACHE_DIR": "/proc/nowhere", "TMPDIR": "/proc/nowhere", **more}

    def image(self, words, environment):
        """Where the binary of a call comes from, as `ejk explain` tells."""
        return json.loads(run([self.ejk, "explain", *words, "--json"], environment)[0])["image"]

    def served(self, words, environment, image_id, fallback):
        told = self.image(words, environment)
        self.assertEqual((told["id"], told["origin"], told["fallback"]), (image_id, "pack", fallback))
        out, err = run([self.ejk, "run", *words], environment)
        self.assertIn("agrees with the float64 reference", out)
        self.assertEqual(err, "", "the library prints nothing")
        return told

    def test_the_exact_image_comes_from_the_pack(self):
        before = tree(self.store)
        for more in ({}, {"EJKERNEL_JIT": "off"}):
            environment = self.bare(self.store, **more)
            self.served([*attention_case, *generic, "--variant", "tiled"], environment, exact, False)
            self.served([*pooling_case, *generic, "--config", '{"block_c": 256}'], environment, pooling, False)
        self.assertEqual(tree(self.store), before, "a pack is never written")

    def test_the_nearest_prebuilt_config_stands_in(self):
        for more in ({}, {"EJKERNEL_JIT": "off"}):
            told = self.served(attention_case, self.bare(self.nearby_store, **more), nearby, True)
            self.assertTrue(any(line.startswith(exact + ": pack: no entry") for line in told["tried"]), told["tried"])

    def test_the_plain_variant_stands_in_for_the_fast_one(self):
        told = self.served(attention_case, self.bare(self.plain_store), plain, True)
        self.assertTrue(any("flash_attention.tiled on cpu:generic: none of its" in line for line in told["tried"]), told["tried"])
        err = run([self.ejk, "run", *attention_case], self.bare(self.plain_store, EJKERNEL_LOG="on"))[1]
        self.assertIn("fell back to " + plain, err)

    def test_an_override_is_never_substituted(self):
        err = run([self.ejk, "run", *attention_case, *generic, "--variant", "tiled"], self.bare(self.nearby_store), code=1)[1]
        self.assertIn(exact + ": pack: no entry", err)

    def test_nothing_suitable_names_everything_tried(self):
        for more, reason in ({}, "no C++ compiler"), ({"EJKERNEL_JIT": "off"}, "EJKERNEL_JIT=off"):
            out, err = run([self.ejk, "run", *pooling_case], self.bare(self.plain_store, **more), code=1)
            self.assertEqual(out, "")
            self.assertTrue(err.startswith("ejk run: mean_pooling: no binary for this call, and none could be built. Tried:"), err)
            for words in ("user cache: ", f"pack: no entry {self.plain_store}/mean_pooling/{pooling}", "mean_pooling.strided.cpu_generic.f32.chunks_masked: pack: no entry",
                          "rows on cpu:generic: none of its 2 other configs is in a store", "jit: ", reason, "`ejk build`"):
                self.assertIn(words, err)

    def test_a_damaged_pack_is_not_loaded(self):
        store = self.folder / "damaged"
        shutil.copytree(self.plain_store, store)
        binary = next(store.glob("flash_attention/*/binary.so"))
        self.flip(binary)
        err = run([self.ejk, "run", *attention_case], self.bare(store), code=1)[1]
        self.assertIn(f"{binary}: sha256 is ", err)

    def flip(self, path):
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)


class UserCache(program.Test):
    """One image, compiled on demand into the user's cache."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.store = cls.folder / "specs-only"
        for name in ("specs", "templates"):
            shutil.copytree(program.source / name, cls.store / name)
        cls.cache = cls.folder / "cache"
        cls.environment = {**cls.tools, "EJKERNEL_STORE": str(cls.store), "EJKERNEL_CACHE_DIR": str(cls.cache), "EJKERNEL_LOG": "on"}

    def setUp(self):
        shutil.rmtree(self.cache, ignore_errors=True)

    def compiles(self):
        """Runs the call; how many images that compiled."""
        out, err = run([self.ejk, "run", *attention_case, *generic, "--variant", "plain"], self.environment)
        self.assertIn("agrees with the float64 reference", out)
        return err.count(f"compiled {plain}")

    def entry(self):
        return next(path for path in self.cache.glob(f"flash_attention/{plain}-*") if path.name.count(".") == plain.count("."))

    def test_a_second_process_loads_what_the_first_compiled(self):
        self.assertEqual((self.compiles(), self.compiles()), (1, 0))
        words = [self.ejk, "explain", *attention_case, *generic, "--variant", "plain", "--json"]
        self.assertEqual(json.loads(run(words, self.environment)[0])["image"]["origin"], "user cache")
        self.assertIn("agrees", run([self.ejk, "run", *attention_case, *generic, "--variant", "plain"], {**self.environment, "PATH": "/nonexistent", "EJKERNEL_JIT": "off"})[0])

    def test_a_damaged_entry_heals(self):
        self.compiles()
        sound = tree(self.entry())
        for name, damage in self.damages().items():
            with self.subTest(name):
                damage(self.entry())
                self.assertEqual((self.compiles(), self.compiles()), (1, 0))
                self.assertEqual(tree(self.entry()), sound)

    def damages(self):
        def change(name, edit):
            return lambda entry: (entry / name).write_bytes(edit((entry / name).read_bytes()))

        def middle_flipped(raw):
            return raw[:len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 0x10]) + raw[len(raw) // 2 + 1:]

        return {
            "truncated binary": change("binary.so", lambda raw: raw[:len(raw) // 2]),
            "empty binary": change("binary.so", lambda raw: b""),
            "longer binary": change("binary.so", lambda raw: raw + b"\0"),
            "flipped bit": change("binary.so", middle_flipped),
            "no binary": lambda entry: (entry / "binary.so").unlink(),
            "truncated image.json": change("image.json", lambda raw: raw[:len(raw) // 2]),
            "empty image.json": change("image.json", lambda raw: b""),
            "image.json of another image": change("image.json", lambda raw: raw.replace(b".m8", b".m9")),
            "no image.json": lambda entry: (entry / "image.json").unlink(),
            "nothing in the entry": lambda entry: [path.unlink() for path in entry.iterdir()],
            "a file in the entry's place": lambda entry: (shutil.rmtree(entry), entry.write_text("")),
        }


if __name__ == "__main__":
    program.main()
