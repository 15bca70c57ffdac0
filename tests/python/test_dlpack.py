"""Arrays that only speak DLPack: calls on them, results of their library, and whose memory is whose."""

import sys
import types

import numpy as np
import pytest

import ejk

library = types.ModuleType("some_arrays")


class SomeArray:
    """NumPy behind DLPack alone."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


SomeArray.__module__ = "some_arrays"
library.from_dlpack = lambda exporter: SomeArray(np.from_dlpack(exporter))


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "some_arrays", library)


def test_the_result_is_of_the_same_library():
    x = np.random.default_rng(2).standard_normal((3, 6, 8)).astype(np.float32)
    found = ejk.mean_pooling(SomeArray(x))
    assert type(found) is SomeArray and np.allclose(found._array, x.mean(1), atol=1e-6)
    assert found._array.ctypes.data % 64 == 0


def test_outputs_and_strides():
    x = np.random.default_rng(3).standard_normal((6, 3, 8)).astype(np.float32).transpose(1, 0, 2)
    out = SomeArray(np.full((3, 8), np.nan, np.float32))
    assert ejk.mean_pooling(SomeArray(x), out=out) is out
    assert np.allclose(out._array, x.mean(1), atol=1e-6)


def test_memory_is_given_back():
    from ejk import _dlpack

    x = SomeArray(np.ones((2, 3, 4), np.float32))
    held = sys.getrefcount(x._array)
    results = [ejk.mean_pooling(x) for _ in range(20)]
    still_held = sys.getrefcount(x._array)
    assert still_held == held, "a capsule of an input is still alive"
    assert len(_dlpack._alive) >= 20
    results.clear()
    assert not _dlpack._alive, "an output's memory is still alive"
    _dlpack.HostArray((4,), "f32").__dlpack__()
    assert not _dlpack._alive, "a capsule that nobody imported keeps its memory"


def test_kinds_are_not_mixed():
    x = np.ones((2, 3, 4), np.float32)
    with pytest.raises(TypeError, match="mean_pooling: mask is a numpy.ndarray, x a some_arrays.SomeArray"):
        ejk.mean_pooling(SomeArray(x), mask=np.ones((2, 3), bool))
