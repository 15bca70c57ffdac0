#!/usr/bin/python3
"""Validates every spec and arch file against the JSON Schemas, and checks that the schemas refuse what they should.

usage: validate_schemas.py [REPOSITORY]
"""
import copy
import json
import pathlib
import sys

import jsonschema


def validator(root, name):
    schema = json.loads((root / "specs/schema" / f"{name}.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def faults(check, path, document):
    return [f"{path}:/{'/'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in check.iter_errors(document)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
    kernel, arch = validator(root, "kernel"), validator(root, "arch")
    found, seen = [], 0
    good = root / "tests/generator/bad_specs/good.json"
    for check, paths in ((kernel, sorted(root.glob("specs/*.json")) + [good]), (arch, sorted(root.glob("specs/arch/*.json")))):
        for path in paths:
            found += faults(check, path.relative_to(root), json.loads(path.read_text()))
            seen += 1
    # A schema that accepts everything would pass the above.
    for key in ("doc", "cost", "outputs"):
        broken = copy.deepcopy(json.loads(good.read_text()))
        del broken[key]
        if not faults(kernel, good, broken):
            found.append(f"kernel.schema.json accepts a spec without '{key}'")
    if not faults(kernel, good, dict(json.loads(good.read_text()), unknown=1)):
        found.append("kernel.schema.json accepts an unknown field")
    print("\n".join(found) or f"{seen} files agree with their schemas")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
