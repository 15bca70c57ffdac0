"""With which JAX ejk.jax works, and that an import never breaks one with which it does not."""

import os
import subprocess
import sys

import pytest

jax = pytest.importorskip("jax")

from ejk.jax import _ffi  # noqa: E402


@pytest.mark.parametrize(
    "ours, theirs, moment",
    [
        ((0, 1), (0, 1), "now"),
        ((0, 1), (0, 2), "now"),
        ((0, 1), (0, 3), "now"),
        ((0, 3), (0, 3), "now"),
        ((0, 3), (0, 2), "never"),
        ((0, 2), (0, 1), "never"),  # before 0.2 XLA takes no version but its own
        ((0, 1), (0, 9), "at the first call"),
        ((0, 1), (1, 0), "at the first call"),
        ((0, 1), None, "at the first call"),
    ],
)
def test_when_handlers_are_registered(ours, theirs, moment):
    assert _ffi.when(ours, theirs) == moment


def test_the_versions_are_those_of_the_files():
    assert _ffi.ffi_of_jaxlib() >= _ffi.ffi_of_library(_ffi._load()) >= (0, 1)


def python(code):
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True)


# A header in place of jaxlib's, which says another version, before ejk.jax is imported.
OTHER_HEADER = """
import os, tempfile
import jax
folder = tempfile.mkdtemp()
os.makedirs(folder + "/xla/ffi/api")
with open(folder + "/xla/ffi/api/c_api.h", "w") as file:
    file.write("#define XLA_FFI_API_MAJOR 0\\n#define XLA_FFI_API_MINOR {minor}\\n")
jax.ffi.include_dir = lambda: folder
"""


def test_an_older_xla_is_refused_in_words_and_left_alone():
    code = """
try:
    import ejk.jax
except ImportError as error:
    print(error)
import ejk
q = jax.numpy.ones((1, 4, 2, 16))
assert (ejk.flash_attention(q, q, q) == 1).all() and type(ejk.flash_attention(q, q, q)) is type(q)  # on the host
try:
    jax.jit(ejk.flash_attention)(q, q, q)
except ejk.UnsupportedError as error:
    print(error)
"""
    done = python(OTHER_HEADER.format(minor=0) + code)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert "handlers are for XLA's FFI" in first and "has 0.0: install a newer JAX" in first
    assert second.startswith("flash_attention: q is being traced, which takes ejk.jax: ejk.jax: this ejk's handlers")


@pytest.mark.parametrize("refuses", [False, True])
def test_an_xla_newer_than_any_tested_is_asked_at_the_first_call(refuses):
    code = f"""
register, calls = jax.ffi.register_ffi_target, []

def recorded(*arguments, **options):
    calls.append(arguments)
    if {refuses}:
        raise RuntimeError("too old")
    register(*arguments, **options)

jax.ffi.register_ffi_target = recorded
import ejk, ejk.jax
assert not calls
q = jax.numpy.ones((1, 4, 2, 16))
for _ in range(2):
    try:
        print((jax.jit(ejk.flash_attention)(q, q, q) == 1).all())
    except ejk.UnsupportedError as error:
        print(error)
assert calls and jax.numpy.zeros(3).sum() == 0
"""
    done = python(OTHER_HEADER.format(minor=99) + code)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line == "True" if not refuses else "0.99: install an older JAX" in line and line.endswith("XLA says: too old"), line
