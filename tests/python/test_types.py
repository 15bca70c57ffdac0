"""The stubs, as a type checker sees them."""

import os
import re
import subprocess
import sys

import pytest

import ejk

pytest.importorskip("mypy")

PROGRAM = """
import ejk
import numpy as np
from numpy.typing import NDArray

q: NDArray[np.float32] = np.zeros((1, 4, 2, 8), np.float32)
rows: NDArray[np.float32] = np.zeros((4, 2, 8), np.float32)
starts: NDArray[np.int32] = np.array([0, 4], np.int32)
out: NDArray[np.float32] = ejk.flash_attention(q, q, q, causal=True, cfg={"variant": "plain"})
flag = bool(q.any())
either = ejk.flash_attention(q, q, q, return_lse=flag)
out = either if not isinstance(either, tuple) else either.out
both = ejk.flash_attention(q, q, q, return_lse=True)
out = both.out
print(both.lse.mean(), ejk.flash_attention(q, q, q, lse=both.lse).lse.mean())
out = ejk.mean_pooling(rows, cum_seqlens=starts, out=out)
with ejk.overlay({"variant": "plain"}, ejk.flash_attention), ejk.policy(cache_miss_fallback="error"):
    names = [each["name"] for each in ejk.explain(ejk.flash_attention, q, q, q, causal=True)["variants"]]
print(ejk.label("mean_pooling", rows).upper(), ejk.info(), ejk.kernel("mean_pooling")(rows))
counts: NDArray[np.int64] = ejk.mean_pooling(rows)  # wrong
ejk.flash_attention(q, q)  # wrong
ejk.flash_attention(q, q, q, causal="yes")  # wrong
ejk.flash_attention(q, q, q).lse  # wrong
both.sums  # wrong
out = ejk.flash_attention(q, q, q, return_lse=flag)  # wrong
ejk.label("mean_pooling", rows) + 1  # wrong
"""


def test_a_type_checker_finds_what_is_wrong_and_nothing_else(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "MYPYPATH": os.path.dirname(os.path.dirname(ejk.__file__))}
    if "site-packages" in environment["MYPYPATH"]:  # mypy finds it there by itself, and refuses such a path
        del environment["MYPYPATH"]
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300).stdout
    found = {int(line) for line in re.findall(r"^program\.py:(\d+): error", told, re.M)}
    assert found == {number for number, line in enumerate(PROGRAM.split("\n"), 1) if "# wrong" in line}, told
