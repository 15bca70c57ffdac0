"""A call in a JAX program is lowered with the config, and so the image, that explain names for the same call: calls and what is in force
while they are traced are drawn at random. EJK_SEED repeats or varies the run."""

import contextlib
import json
import os
import random
import re
import subprocess
import sys

import numpy
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import ejk  # noqa: E402
import ejk.jax  # noqa: E402

CALLS = 60
TYPES = ("float32", "bfloat16", "float16")
# Parts of configs, of the variants for CPUs; some are of no use together, or for a call.
PARTS = {
    "mean_pooling": {"variant": ("rows", "strided"), "block_c": (256, 1024, 4096, 12345)},
    "flash_attention": {"variant": ("plain", "tiled", "few_rows"), "block_n": (32, 64, 128), "vectors": (1, 2, 3), "rows": (1, 8)},
    "grouped_matmul": {"variant": ("plain", "packed"), "panel": (4, 6), "block_m": (48, 96), "block_k": (128, 256)},
}


def array(dice, *shape):
    return jnp.ones(shape, dice.choice(TYPES[:1] * 2 + TYPES))


def pooling(dice):
    x = array(dice, dice.choice((1, 5)), dice.choice((1, 7, 64)), dice.choice((3, 384, 1025)))
    return [x], {"chunk_size": dice.choice((0, 0, 4, 16))}


def attention(dice):
    length, heads, depth = dice.choice((1, 5, 64, 300)), dice.choice((1, 2, 4)), dice.choice((16, 64, 72))
    q, kv = array(dice, 1, length, heads, depth), (1, dice.choice((length, 96)), dice.choice((1, 2)), depth)
    k = jnp.ones(kv, q.dtype)
    options = {"causal": dice.random() < 0.5, "return_lse": dice.random() < 0.2}
    if dice.random() < 0.3:
        options["window_left"] = dice.choice((0, 16))
    return [q, k, k], options


def products(dice):
    groups, rows, depth, columns = dice.choice((1, 3)), dice.choice((1, 48, 130)), dice.choice((32, 100)), dice.choice((16, 240))
    lhs = array(dice, rows, depth)
    sizes = numpy.bincount(numpy.arange(rows) % groups, minlength=groups).astype(numpy.int32)
    return [lhs, jnp.ones((groups, depth, columns), lhs.dtype)], {"group_sizes": jnp.asarray(sizes)}


def partial_config(dice, kernel):
    parts = PARTS[kernel]
    config = {name: dice.choice(parts[name]) for name in parts if dice.random() < (0.8 if name == "variant" else 0.3)}
    if dice.random() < 0.3:
        config["arch"] = dice.choice(("generic", "avx2"))
    return config or {"variant": parts["variant"][0]}


def in_force(dice, kernel, scopes):
    """Opens what is in force while the call is traced and explained. Returns its cfg, or None."""
    kind = dice.randrange(6)
    if kind == 1:
        return partial_config(dice, kernel)
    if kind in (2, 3):
        scopes.enter_context(ejk.overlay(partial_config(dice, kernel), dice.choice((kernel, None))))
    if kind == 3:
        scopes.enter_context(ejk.overlay(partial_config(dice, kernel), kernel))
    if kind == 4:
        scopes.enter_context(ejk.policy(cache_miss_fallback=dice.choice(("heuristics", "error"))))
    return None


def lowered(function, arrays, options):
    """The call of a lowered program, as its custom call has it."""
    named = {name: value for name, value in options.items() if isinstance(value, jax.Array)}
    rest = {name: value for name, value in options.items() if name not in named}
    program = jax.jit(lambda arrays, named: function(*arrays, **named, **rest)).lower(arrays, named).as_text()
    calls = re.findall(r'custom_call @ejk\(.*?call = "((?:[^"\\]|\\.)*)"', program)
    assert len(calls) == 1, program
    return json.loads(re.sub(r"\\([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), calls[0]))


def answer(ask):
    try:
        return ask()
    except ejk.EjkError as error:
        return f"refused as {type(error).__name__}"


def compare(dice):
    """One drawn call. Returns the image, or how it is refused."""
    kernel, draw = dice.choice((("mean_pooling", pooling), ("flash_attention", attention), ("grouped_matmul", products)))
    function = getattr(ejk, kernel)
    arrays, options = draw(dice)
    with contextlib.ExitStack() as scopes:
        config = in_force(dice, kernel, scopes)
        asked = {**options, **({"cfg": config} if config else {})}
        told = answer(lambda: ejk.explain(function, *arrays, **asked))
        call = answer(lambda: lowered(function, arrays, asked))
    what = f"{kernel} {[(a.shape, str(a.dtype)) for a in arrays]} {asked}"
    if isinstance(told, str) or isinstance(call, str):
        assert told == call, what
        return told
    assert call["config"] == told["config"], what
    # Nothing is in force when the program runs: the config that it holds decides alone.
    assert ejk.explain(function, *arrays, **{**options, "cfg": call["config"]})["image"]["id"] == told["image"]["id"], what
    return told["image"]["id"]


def main():
    dice = random.Random(int(os.environ.get("EJK_SEED", "1")))
    print(json.dumps([compare(dice) for _ in range(CALLS)]))


# In a process whose compiler makes haste: which config is chosen does not depend on how well it is compiled.
def test_a_lowered_call_has_the_config_that_explain_names(tmp_path):
    (tmp_path / "cache").mkdir(mode=0o700)
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\nexec {os.environ.get("CXX", "c++")} "$@" -O0\n')
    compiler.chmod(0o700)
    environment = {**os.environ, "CXX": str(compiler), "EJKERNEL_CACHE_DIR": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout)
    images = {each for each in answers if not each.startswith("refused")}
    kernels_and_variants = {tuple(each.split(".")[:2]) for each in images}
    assert len([each for each in answers if each in images]) > CALLS / 3, answers
    assert len(images) > 8 and len(kernels_and_variants) > 4, answers


if __name__ == "__main__":
    main()
