# ejk-gen: the same bytes every time, --check, and bad specs that write nothing.
import re
import shutil

import program
from program import run, tree


class Generator(program.Test):
    def setUp(self):
        self.root = self.folder / self.id().rsplit(".", 1)[1]
        self.root.mkdir()
        for name in ("specs", "templates"):
            shutil.copytree(program.source / name, self.root / name)

    def generate(self, *more, out="generated", code=0):
        return run([program.ejk_gen, "specs", "--out", out, "--arch", "generic,avx2", *more], {}, code, self.root)

    def test_two_runs_write_the_same_bytes(self):
        self.generate(out="first")
        self.generate(out="second")
        self.assertGreater(len(tree(self.root / "first")), 100)
        self.assertEqual(tree(self.root / "first"), tree(self.root / "second"))

    def test_the_folder_of_the_specs_does_not_matter(self):
        self.generate(out="here")
        elsewhere = self.root / "else" / "where"
        for name in ("specs", "templates"):
            shutil.copytree(self.root / name, elsewhere / name)
        run([program.ejk_gen, elsewhere / "specs", "--out", self.root / "there", "--arch", "generic,avx2"])
        self.assertEqual(tree(self.root / "here"), tree(self.root / "there"))

    def test_a_run_with_nothing_to_do_rewrites_nothing(self):
        self.generate()
        times = {path: path.stat().st_mtime_ns for path in (self.root / "generated").rglob("*")}
        self.generate()
        self.assertEqual({path: path.stat().st_mtime_ns for path in (self.root / "generated").rglob("*")}, times)

    def test_check_sees_an_edited_template(self):
        self.generate()
        self.generate("--check")
        template = self.root / "templates" / "mean_pooling" / "forward.cpu.cpp"
        template.write_text(template.read_text() + "static_assert(true);\n")
        before = tree(self.root / "generated")
        out, err = self.generate("--check", code=1)
        self.assertIn("mean_pooling", out + err)
        self.assertEqual(tree(self.root / "generated"), before, "--check writes nothing")
        self.generate()
        self.generate("--check")

    def test_check_sees_an_edited_output(self):
        self.generate()
        header = self.root / "generated" / "include" / "ejk" / "mean_pooling.hpp"
        text = header.read_text()
        header.write_text(text + "\n")
        self.assertIn("mean_pooling.hpp", "".join(self.generate("--check", code=1)))
        self.generate()
        self.assertEqual(header.read_text(), text)

    def test_what_no_longer_exists_is_removed(self):
        self.generate()
        (self.root / "specs" / "page_attention.json").unlink()
        self.generate("--check", code=1)
        self.generate()
        self.assertEqual([name for name in tree(self.root / "generated") if re.search(r"(^|/)page_attention[./]", name)], [])

    def test_a_bad_spec_writes_nothing(self):
        spec = self.root / "specs" / "mean_pooling.json"
        sound = spec.read_text()
        spec.write_text(sound.replace('"priority": 10', '"priorty": 10').replace('"gradient": {"kernel": "mean_pooling_bwd"}', '"gradient": 5'))
        out, err = self.generate(code=2)
        self.assertEqual(out, "")
        self.assertFalse((self.root / "generated").exists())
        for pointer in ("specs/mean_pooling.json:/variants/0/priorty: ", "specs/mean_pooling.json:/gradient: "):
            self.assertIn(pointer, err, "all faults at once")
        spec.write_text(sound)
        self.generate()
        before = tree(self.root / "generated")
        spec.write_text(sound[:-10])
        self.generate(code=2)
        self.assertEqual(tree(self.root / "generated"), before)


if __name__ == "__main__":
    program.main()
