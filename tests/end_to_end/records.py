# Tuning records as a user handles them: `ejk records`, what `ejk explain` says of them, and an edit of a template.
import json
import shutil

import program
from program import run


class Records(program.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.store, cls.cache = cls.folder / "store", cls.folder / "cache"
        for name in "specs", "templates":
            shutil.copytree(program.source / name, cls.store / name)
        shutil.rmtree(cls.store / "specs" / "tuned", ignore_errors=True)
        cls.environment = {**cls.tools, "EJKERNEL_STORE": str(cls.store), "EJKERNEL_CACHE_DIR": str(cls.cache)}
        cls.told = {block: json.loads(cls.ejk_out("explain", *cls.case, "--variant", "rows", "--arch", "generic", "--config",
                                                  json.dumps({"block_c": block}), "--json")) for block in (256, 1024)}

    case = "mean_pooling", "--case", "minilm.f32"

    def setUp(self):
        shutil.rmtree(self.cache / "tuned", ignore_errors=True)

    @classmethod
    def ejk_out(cls, *words, **options):
        return run([cls.ejk, *words], cls.environment, **options)[0]

    def refused(self, *words):
        return run([self.ejk, "records", *words], self.environment, code=2)[1]

    def record(self, block, median=100.0, noise=0.02, **more):
        told = self.told[block]
        return {"key": told["key"], "config": told["config"], "source": told["image"]["hash"], "samples_us": [median] * 9, "median_us": median,
                "noise": noise, "baseline": self.told[1024]["config"], "baseline_us": 150.0, "checked_against": "float64 reference",
                "residual": 0.25, "measured": 3, "rejected": 1, "machine": "a test's machine", "version": "0.1.0",
                "alternatives": [[self.told[1024]["config"], 150.0]], **more}

    def write(self, name, *records):
        path = self.folder / name
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return path

    def explain(self, *words):
        return json.loads(self.ejk_out("explain", *self.case, *words, "--json"))

    def test_an_imported_record_is_what_a_call_gets(self):
        self.assertIn("1 added, 0 replaced", self.ejk_out("records", "import", self.write("one.jsonl", self.record(256))))
        told = self.explain()
        tier = next(tier for tier in told["tiers"] if tier["answer"] == "chosen")
        self.assertEqual((tier["tier"], tier["config"]["block_c"]), ("persistent", 256))
        self.assertTrue(tier["detail"].endswith("mean_pooling.jsonl:1"), tier["detail"])
        self.assertEqual([tier["tier"] for tier in told["tiers"]], ["override", "overlay", "memory", "persistent", "autotune", "heuristic"])
        self.assertEqual(told["evidence"]["gain"], 1.5)
        self.assertEqual(told["evidence"]["alternatives"][0]["median_us"], 150.0)
        text = self.ejk_out("explain", *self.case)
        for part in ("measured (persistent tier)", "median    100.00 us of 9 samples, noise 2.00%", "1.50 times as long", "against float64 reference: 0.250 of the tolerance",
                     "3 configs timed, 1 rejected", "a test's machine", "other configs", "records of this call and near it", "this call"):
            self.assertIn(part, text)
        self.assertIn("1 records", self.ejk_out("records", "ls"))
        self.assertIn("a test's machine", self.ejk_out("records", "show", "--kernel", "mean_*"))

    def test_a_near_size_is_served_and_told(self):
        key = json.loads(json.dumps(self.told[256]["key"]))
        for tensor in key["tensors"].values():
            tensor[1][0] *= 2  # sequences
        self.ejk_out("records", "import", self.write("near.jsonl", self.record(256, key=key)))
        told = self.explain()
        tier = next(tier for tier in told["tiers"] if tier["answer"] == "chosen")
        self.assertRegex(tier["detail"], r"^nearest: .*mean_pooling\.jsonl:1 measured at B=64 \(here 32\)")
        self.assertEqual(told["near"][0]["measured"], "B=64 (here 32)")

    def test_a_shipped_record_has_its_image_in_the_pack_and_yours_comes_first(self):
        specs, pack = self.folder / "shipped" / "specs", self.folder / "pack"
        shutil.copytree(self.store / "specs", specs)
        key = self.told[256]["key"]
        shipped = specs / "tuned" / key["device"] / "mean_pooling.jsonl"
        shipped.parent.mkdir(parents=True)
        shipped.write_text(json.dumps(self.record(256)) + "\n")
        rendered = self.folder / "shipped" / "generated"
        words = [program.ejk_gen, specs, "--templates", self.store / "templates", "--out", rendered, "--arch", "generic"]
        named = {select: run([*words, "--select", select, "--list"], self.tools)[0].split("\n") for select in ("heuristic", "tuned")}
        image = self.told[256]["image"]["id"]
        self.assertEqual([line.split()[0] for line in named["tuned"] if line not in named["heuristic"]], [image])
        run([*words, "--select", "tuned"], self.tools)
        run([self.ejk, "build", rendered, "--store", pack, "--select", image, "--specs", specs, "--templates", self.store / "templates"], self.tools)
        environment = {**self.environment, "EJKERNEL_STORE": str(pack), "EJKERNEL_CACHE_DIR": str(self.folder / "fresh"), "EJKERNEL_JIT": "off"}
        told = json.loads(run([self.ejk, "explain", *self.case, "--json"], environment)[0])
        tier = next(tier for tier in told["tiers"] if tier["answer"] == "chosen")
        self.assertEqual(tier["detail"], f"{pack}/specs/tuned/{key['device']}/mean_pooling.jsonl:1")
        self.assertEqual((told["image"]["id"], told["image"]["origin"], told["image"]["fallback"]), (image, "pack", False))
        own = self.record(1024, config={**self.told[1024]["config"]}, source=self.told[1024]["image"]["hash"])
        run([self.ejk, "records", "import", self.write("own.jsonl", own)], environment)
        environment.pop("EJKERNEL_JIT")
        told = json.loads(run([self.ejk, "explain", *self.case, "--json"], environment)[0])
        self.assertEqual(told["config"]["block_c"], 1024)

    def test_an_edit_of_the_template_makes_the_row_stale_and_nothing_else(self):
        self.ejk_out("records", "import", self.write("one.jsonl", self.record(256)))
        template = self.store / "templates" / "mean_pooling" / "forward.cpu.cpp"
        before = template.read_text()
        try:
            template.write_text(before + "// a comment\n")
            self.assertEqual(self.explain()["evidence"]["of"], "persistent")  # comments are not hashed
            template.write_text(before + "static_assert(true);\n")
            told = self.explain()
            detail = next(tier["detail"] for tier in told["tiers"] if tier["tier"] == "persistent")
            self.assertIn("mean_pooling.jsonl: the source has changed since it was measured", detail)
            self.assertIn("row 1 of ", detail)
        finally:
            template.write_text(before)
        self.assertEqual(self.explain()["evidence"]["of"], "persistent")

    def test_stale_records_are_listed_and_measured_anew(self):
        sound, stale = self.record(256), self.record(1024, source="0123456789abcdef")
        for tensor in stale["key"]["tensors"].values():
            tensor[1][0] += 1  # another call
        self.ejk_out("records", "import", self.write("two.jsonl", sound, stale))
        told = json.loads(self.ejk_out("records", "ls", "--stale", "--json"))
        self.assertEqual([row["stale"] for row in told], ["the source has changed since it was measured"])
        self.assertEqual(told[0]["record"]["key"], stale["key"])
        self.assertIn("1 stale records", self.ejk_out("records", "ls", "--stale"))
        tuned = json.loads(self.ejk_out("tune", "--stale", "--budget", "30s", "--json"))
        self.assertEqual(len(tuned["cases"]), 1)
        self.assertIn("no record of", self.ejk_out("tune", "--stale"))
        self.assertIn("0 stale records", self.ejk_out("records", "ls", "--stale"))
        self.assertIn("give either --recorded or --stale", run([self.ejk, "tune", "--stale", "--recorded", "x"], self.environment, code=2)[1])

    # Two shipped records. One's template gets a local variable of another name, the other's an instruction: the first is kept, by the command
    # that compiles both and compares them; the second is listed, and it alone is measured anew.
    def test_an_edit_that_leaves_the_machine_code_keeps_the_record(self):
        told = json.loads(self.ejk_out("explain", "mean_pooling_bwd", "--case", "minilm.f32", "--variant", "tokens", "--arch", "generic", "--json"))
        backward = self.record(256, key=told["key"], config=told["config"], source=told["image"]["hash"], baseline=told["config"], alternatives=[])
        shipped = self.store / "specs" / "tuned"
        files = {}
        for record in self.record(256), backward:
            files[record["key"]["kernel"]] = shipped / record["key"]["device"] / (record["key"]["kernel"] + ".jsonl")
            files[record["key"]["kernel"]].parent.mkdir(parents=True, exist_ok=True)
            files[record["key"]["kernel"]].write_text(json.dumps(record) + "\n")

        def records():
            return {kernel: json.loads(file.read_text()) for kernel, file in files.items()}

        def stale():
            return {row["record"]["key"]["kernel"]: row["stale"] for row in json.loads(self.ejk_out("records", "ls", "--stale", "--json"))}

        def tier(kernel):
            told = json.loads(self.ejk_out("explain", kernel, "--case", "minilm.f32", "--json"))
            return next(tier for tier in told["tiers"] if tier["answer"] == "chosen")["tier"]

        def renewed():
            told = json.loads(self.ejk_out("records", "renew", shipped, "--json"))
            return told["sound"], told["renewed"], told["identified"], len(told["stale"])

        templates = self.store / "templates" / "mean_pooling"
        before = {name: (templates / name).read_text() for name in ("forward.cpu.cpp", "backward.cpu.cpp")}

        def edit(name, old, new):
            self.assertIn(old, before[name])
            (templates / name).write_text(before[name].replace(old, new))

        changed = "the source has changed since it was measured"
        try:
            self.assertEqual(renewed(), (0, 0, 2, 0))  # whatever was measured before records had a hash of the machine code
            self.assertEqual(renewed(), (2, 0, 0, 0))
            first = records()
            self.assertEqual({len(record["code"]) for record in first.values()}, {16})

            edit("backward.cpu.cpp", "row_begin", "begin_of_the_row")
            edit("forward.cpu.cpp", "side_by_side", "abreast")
            unseen = changed + ", and no binary of it is here whose machine code could be compared"
            self.assertEqual(stale(), {"mean_pooling": unseen, "mean_pooling_bwd": unseen})
            listed = self.ejk_out("records", "ls", "--stale")
            self.assertIn("`ejk records renew", listed)
            self.assertTrue(listed.endswith("\n2 stale records\n"), listed)
            self.assertEqual(tier("mean_pooling"), "heuristic")
            out, err = run([self.ejk, "records", "renew", shipped], self.environment)
            self.assertIn("compiling 2 images", err)
            self.assertIn("of 2 records 0 sound, 2 renewed, 0 given the hash of their machine code, 0 stale", out)
            self.assertEqual((tier("mean_pooling"), tier("mean_pooling_bwd")), ("persistent", "persistent"))
            for kernel, record in records().items():
                self.assertNotEqual(record["source"], first[kernel]["source"])
                self.assertEqual({**record, "source": ""}, {**first[kernel], "source": ""})

            # Back again, and the forward with one instruction more.
            edit("backward.cpu.cpp", "row_begin", "row_begin")
            row = "    Row row = row_of(layout, r);\n"
            edit("forward.cpu.cpp", row, row + '    __asm__ volatile("nop");\n')
            self.assertEqual(stale(), {"mean_pooling": unseen})  # the binary of the source before is here, and tells
            self.assertEqual(renewed(), (0, 1, 0, 1))
            self.assertEqual(stale(), {"mean_pooling": changed + ", and the machine code with it"})
            self.assertEqual(tier("mean_pooling"), "heuristic")

            # Neither is here: the tuner compiles both, and measures one.
            shutil.rmtree(self.cache)
            edit("backward.cpu.cpp", "row_begin", "begin_of_this_row")
            self.assertEqual(stale(), {"mean_pooling": unseen, "mean_pooling_bwd": unseen})
            out, err = run([self.ejk, "tune", "--stale", "--budget", "30s", "--json", "--ship", shipped], self.environment)
            self.assertIn("compiling 2 images, whose machine code is compared with what was measured", err)
            self.assertEqual([case["case"].split()[0] for case in json.loads(out)["cases"]], ["mean_pooling"])
            self.assertEqual(stale(), {})
            record = records()["mean_pooling"]
            self.assertNotEqual(record["code"], first["mean_pooling"]["code"])
            self.assertEqual(len(record["code"]), 16)
            self.assertEqual(renewed(), (1, 1, 0, 0))
        finally:
            for name, text in before.items():
                (templates / name).write_text(text)
            shutil.rmtree(shipped)

    def test_what_cannot_be_compiled_is_told(self):
        environment = {**self.environment, "EJKERNEL_CACHE_DIR": str(self.folder / "another"), "EJKERNEL_JIT": "off"}
        record = self.record(256, source="0123456789abcdef", code="0123456789abcdef")
        run([self.ejk, "records", "import", self.write("one.jsonl", record)], environment)
        out = run([self.ejk, "records", "renew"], environment)[0]
        self.assertIn("0 renewed, 0 given the hash of their machine code, 1 stale", out)
        self.assertIn("could be compared (EJKERNEL_JIT=off)", out)
        self.assertIn("no such file", self.refused("renew", self.folder / "nothing.jsonl"))

    def test_merging_keeps_the_better_measured(self):
        noisy, quiet = self.write("noisy.jsonl", self.record(1024, noise=0.5)), self.write("quiet.jsonl", self.record(256, source=self.told[1024]["image"]["hash"]))
        merged = self.folder / "merged.jsonl"
        self.assertIn("1 records", self.ejk_out("records", "merge", noisy, quiet, "--to", merged))
        self.assertEqual(json.loads(merged.read_text())["noise"], 0.02)
        self.assertEqual(json.loads(self.ejk_out("records", "import", noisy, "--json"))["added"], 1)
        self.assertEqual(json.loads(self.ejk_out("records", "import", quiet, "--json"))["replaced"], 1)
        self.assertEqual(json.loads(self.ejk_out("records", "import", noisy, "--json"))["kept"], 1)

    def test_export_and_drop(self):
        self.ejk_out("records", "import", self.write("one.jsonl", self.record(256)))
        out = self.folder / "out.jsonl"
        self.assertIn("1 records", self.ejk_out("records", "export", out))
        self.assertEqual(json.loads(out.read_text())["median_us"], 100.0)
        self.assertIn("0 records dropped", self.ejk_out("records", "drop", "--kernel", "flash*"))
        self.assertIn("1 records dropped", self.ejk_out("records", "drop", "--all"))
        self.assertEqual(self.ejk_out("records", "ls"), "0 records\n")
        self.assertIn("there is no such record of yours", self.refused("export", out))

    def test_errors_say_what_to_do(self):
        self.assertIn("no action 'shw'; did you mean 'show'?", self.refused("shw"))
        self.assertIn("drop: say which of your records", self.refused("drop"))
        self.assertIn("no such file", self.refused("import", self.folder / "nothing.jsonl"))
        self.assertIn("merge: name the files, and the one to write by --to FILE", self.refused("merge", self.write("one.jsonl", self.record(256))))
        unmeasured = self.write("unmeasured.jsonl", self.record(256, samples_us=[]))
        self.assertIn("a record needs the samples and the median of its measurement", self.refused("import", unmeasured))
        self.assertIn("examples:", self.ejk_out("records", "--help"))

    def test_torn_and_foreign_lines_are_told_and_skipped(self):
        path = self.write("torn.jsonl", self.record(256))
        path.write_text("{\"config\": 5}\n" + path.read_text() + path.read_text()[:100])
        out, err = run([self.ejk, "records", "import", path], self.environment)
        self.assertIn("1 added", out)
        self.assertIn("skipped", err)
        self.assertIn("1 (no key), 3 (not a JSON object)", err)


if __name__ == "__main__":
    program.main()
