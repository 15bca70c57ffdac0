# The programs under test in folders of their own, and what the end-to-end tests share: running, rendering, building, safetensors.
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ejk_gen, source = "", pathlib.Path()  # set by main()
ejk_built = ""


def run(words, environment=None, code=0, folder=None):
    """Runs a program with nothing but `environment`; the exit code must be `code`. Returns stdout, stderr."""
    done = subprocess.run([str(word) for word in words], env=environment or {}, cwd=folder, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300)
    if done.returncode != code:
        raise AssertionError(f"{' '.join(map(str, words))}: exit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def tree(folder):
    """Every file below a folder with its bytes."""
    folder = pathlib.Path(folder)
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


class Test(unittest.TestCase):
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ejk-end-to-end-"))
        (cls.folder / "bin").mkdir()
        (cls.folder / "tmp").mkdir()
        cls.ejk = cls.folder / "bin" / "ejk"  # alone: no folder named "store" beside "bin"
        shutil.copy(ejk_built, cls.ejk)
        cls.tools = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TMPDIR": str(cls.folder / "tmp"),
                     "EJKERNEL_CACHE_DIR": str(cls.folder / "build-cache")}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    @classmethod
    def render(cls, out, *selects):
        """Renders each selection of the generic arch into out/0, out/1, ..."""
        folders = []
        for number, select in enumerate(selects):
            folders.append(pathlib.Path(out) / str(number))
            run([ejk_gen, source / "specs", "--templates", source / "templates", "--out", folders[-1], "--arch", "generic",
                 "--select", select], cls.tools)
        return folders

    @classmethod
    def build_words(cls, rendered, store):
        return [cls.ejk, "build", rendered, "--store", store, "--specs", source / "specs", "--templates", source / "templates"]

    @classmethod
    def make_store(cls, name, *selects):
        """A store with the images of the generic arch that match, and what was rendered for it."""
        store = cls.folder / name
        for rendered in cls.render(cls.folder / (name + "-rendered"), *selects):
            run(cls.build_words(rendered, store), cls.tools)
        return store


# safetensors: the length of a JSON header, the header, the bytes.
kinds = {"F32": "f", "F16": "e", "BF16": None, "I32": "i", "BOOL": "?"}


def packed(kind, values):
    if kind == "BF16":  # round to nearest even on the upper half of an f32
        words = [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]
        return struct.pack(f"<{len(words)}H", *[(word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words])
    return struct.pack(f"<{len(values)}{kinds[kind]}", *values)


def unpacked(kind, raw):
    if kind == "BF16":
        return [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
    return list(struct.unpack(f"<{len(raw) // struct.calcsize(kinds[kind])}{kinds[kind]}", raw))


def write_safetensors(path, tensors):
    """tensors: name -> (kind, shape, values). Returns the values as they were stored, by name."""
    header, data, stored = {}, b"", {}
    for name, (kind, shape, values) in tensors.items():
        raw = packed(kind, values)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
        stored[name] = unpacked(kind, raw)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)
    return stored


def read_safetensors(path):
    """name -> (kind, shape, values)"""
    raw = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["dtype"], entry["shape"], unpacked(entry["dtype"], raw[8 + size + begin:8 + size + end]))
    return tensors


def main():
    """TEST.py EJK EJK-GEN SOURCE [unittest's words]"""
    global ejk_built, ejk_gen, source
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} EJK EJK-GEN SOURCE")
    this = sys.modules["program"]
    this.ejk_built, this.ejk_gen, this.source = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[4:]])
