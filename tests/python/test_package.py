"""The installed package: what an import costs and does, what is in it, and the words when something is missing."""

import importlib.metadata
import inspect
import json
import os
import subprocess
import sys

import pytest

import ejk


def python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True)


def test_an_import_is_quick_and_does_nothing(tmp_path):
    code = """
import os, sys, threading, time
start = time.process_time()
import ejk
taken = time.process_time() - start
maps = open("/proc/self/maps").read()
assert "libejk" not in maps, "the library is loaded"
assert len(os.listdir("/proc/self/task")) == 1, "threads"
for name in ("numpy", "jax", "torch"):
    assert name not in sys.modules, name
print(taken)
"""
    times = []
    for _ in range(5):
        done = python(code, HOME=str(tmp_path), EJKERNEL_CACHE_DIR=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
        times.append(float(done.stdout))
    assert min(times) < 0.1, times
    assert not os.listdir(tmp_path), "an import wrote a file"


def test_functions_are_documented_and_typed():
    for name in ejk._kernels:
        function = getattr(ejk, name)
        parameters = inspect.signature(function).parameters
        assert function.__doc__.partition("\n")[0] and "Raises:" in function.__doc__, name
        for each in ejk._questions.contract(name).tensors:
            if each.for_gradient:  # what the faces of JAX and PyTorch ask for by themselves
                assert each.name not in parameters, (name, each.name)
            else:
                assert each.name in parameters and f"{each.name}: " in function.__doc__, (name, each.name)
        assert {"cfg", "stream"} <= parameters.keys()
        stub = os.path.join(os.path.dirname(ejk.__file__), "_functions", name + ".pyi")
        with open(stub) as file:
            compile(file.read(), stub, "exec")
    assert str(inspect.signature(ejk.flash_attention)).startswith("(q: 'Array', k: 'Array', v: 'Array', *, bias: 'Array | None' = None")


def test_defaults_are_those_of_the_specs():
    for name in ejk._kernels:
        parameters = inspect.signature(getattr(ejk, name)).parameters
        for each in ejk._questions.contract(name).attributes:
            default = parameters[each.name].default
            if default is not None:
                told = each.default.strip("'\"")
                value = told if each.type == "string" else {"true": 1, "false": 0}.get(told)
                assert default == (float(told) if value is None else value), each


def test_the_program_is_there():
    done = subprocess.run([sys.executable, "-m", "ejk", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and ejk.__version__ in done.stdout, done
    assert ejk.info()["version"] == ejk.__version__


def test_the_versions_tested_are_told_alike_everywhere():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(os.path.dirname(ejk.__file__), "tested.json")) as file:
        told = {name: " to ".join(versions) for name, versions in json.load(file).items()}
    assert ejk.info()["tested_with"] == told
    with open(os.path.join(root, "README.md")) as file:
        assert f"Tested with JAX {told['jax']} and PyTorch {told['torch']}" in file.read()
    done = subprocess.run([sys.executable, "-m", "ejk", "info"], capture_output=True, text=True)
    assert f"jax {told['jax']}, torch {told['torch']}" in done.stdout
    try:
        requires = importlib.metadata.requires("ejk")
    except importlib.metadata.PackageNotFoundError:
        return  # a tree, not a wheel
    assert sorted(requires) == [f"{name}>={text.partition(' ')[0]}; extra == '{name}'" for name, text in sorted(told.items())]


def test_nvrtc_of_pip_packages_is_found(tmp_path):
    for name in ("cu13", "cuda_nvrtc", "cudnn"):
        (tmp_path / "nvidia" / name / "lib").mkdir(parents=True)
    for name in ("cu13/lib/libnvrtc.so.13", "cuda_nvrtc/lib/libnvrtc.so.12", "cudnn/lib/libcudnn.so.9"):
        (tmp_path / "nvidia" / name).touch()
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = python("import ejk; print(*ejk._library._pip_toolkits(), sep='\\n'); ejk.info()", PYTHONPATH=path)
    ours = [each for each in done.stdout.split() if each.startswith(str(tmp_path))]  # there may be real ones, too
    assert ours == [str(tmp_path / "nvidia" / name) for name in ("cu13", "cuda_nvrtc")], done


def test_a_missing_library_is_named():
    done = python("import ejk; ejk._library.PATH = '/nowhere/libejk.so'; ejk.info()")
    assert "ImportError: ejk has no library: /nowhere/libejk.so is missing" in done.stderr


def test_a_tree_of_a_build_that_lacks_something_is_not_made(tmp_path):
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    build, tree = tmp_path / "build", tmp_path / "tree"
    functions = build / "generated" / "python" / "ejk" / "_functions"
    for folder in (functions, build / "lib", build / "bin"):
        folder.mkdir(parents=True)
    (build / "lib" / "libejk.so").touch()

    def make():
        command = [sys.executable, os.path.join(root, "tools", "wheel"), "--build", str(build), "--tree", str(tree)]
        return subprocess.run(command, capture_output=True, text=True)

    done = make()
    assert done.returncode == 1 and not tree.exists()
    first = sorted(spec for spec in os.listdir(os.path.join(root, "specs")) if spec.endswith(".json"))[0].replace(".json", "")
    assert f"{build} lacks bin/ejk, the Python functions of {first}, " in done.stderr
    assert "--target ejk_shared ejk ejk_generated" in done.stderr
    (build / "bin" / "ejk").touch()
    for spec in os.listdir(os.path.join(root, "specs")):
        if spec.endswith(".json"):
            (functions / spec.replace(".json", ".py")).touch()
    done = make()
    assert done.returncode == 0 and (tree / "ejk" / "_functions" / "attention.py").exists(), done.stderr
    assert done.stdout.startswith(f"PYTHONPATH={tree} ") and "no ejk.jax in the tree" in done.stderr


def test_a_store_of_another_version_is_named(tmp_path):
    (tmp_path / "specs").mkdir()
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "specs", "mean_pooling.json")) as file:
        spec = json.load(file)
    spec["attributes"].append({"name": "novel", "type": "bool", "default": False, "doc": "Of a later version."})
    (tmp_path / "specs" / "mean_pooling.json").write_text(json.dumps(spec))
    code = "import ejk, numpy; ejk.mean_pooling(numpy.zeros((1, 2, 3), 'f4'))"
    stores = [str(tmp_path), *filter(None, [os.environ.get("EJKERNEL_STORE")])]
    done = python(code, EJKERNEL_STORE=":".join(stores))
    assert "EjkError: mean_pooling: this package was made for a spec with fixed ('chunk_size', 'chunk_count')" in done.stderr, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_the_library_survives_a_fork():
    code = """
import os, numpy, ejk
x = numpy.ones((4, 2000, 64), numpy.float32)
ejk.mean_pooling(x)
child = os.fork()
if child == 0:
    os._exit(0 if (ejk.mean_pooling(x) == 1).all() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
