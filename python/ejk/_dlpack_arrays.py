"""Anything else with __dlpack__ (CuPy, TensorFlow, ...). Its arrays are exported anew for each call."""

import importlib
import sys

from ._call import by_views
from ._dlpack import CPU, HostArray, exported
from ._errors import InputError
from ._library import DTYPE_NAMES
from ._tensor import View

_DEFAULT_STREAM = 1  # the legacy default stream in the protocol's words


def handles(array):
    return hasattr(array, "__dlpack__")


def _on_host(array):
    return array.__dlpack_device__()[0] == CPU


def view(array):
    if isinstance(array, HostArray):
        return View(array.pointer, array.shape, None, array.dtype, (CPU, 0), array)
    tensor, capsule = exported(array, None if _on_host(array) else _DEFAULT_STREAM)
    dtype = DTYPE_NAMES.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        raise InputError(f"no kernel takes elements of DLPack type (code {tensor.dtype.code}, {tensor.dtype.bits} bits)")
    return View(
        (tensor.data or 0) + tensor.byte_offset,
        tuple(tensor.shape[: tensor.rank]),
        tuple(tensor.strides[: tensor.rank]) if tensor.strides else None,
        dtype,
        (tensor.device.type, tensor.device.index),
        capsule,
    )


def writable(array):
    return True  # DLPack of before 1.0 does not tell


def _library_of(array):
    """The module whose from_dlpack makes such arrays."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    name = type(array).__module__.partition(".")[0]
    return sys.modules.get(name) or importlib.import_module(name)


def empty(shape, dtype, like):
    if _on_host(like):
        return HostArray(shape, dtype)
    library = _library_of(like)
    if not hasattr(library, "empty") or not hasattr(like, "device"):
        raise TypeError(f"{library.__name__} cannot be asked for an array on {like.__dlpack_device__()}: give the output (out=...)")
    names = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "bool": "bool", "i32": "int32", "i64": "int64"}
    return library.empty(shape, dtype=getattr(library, names[dtype]), device=like.device)


def finished(array, like):
    if not isinstance(array, HostArray):
        return array
    library = _library_of(like)
    if not hasattr(library, "from_dlpack"):
        raise TypeError(f"{library.__name__} has no from_dlpack to make its arrays by: give the output (out=...)")
    return library.from_dlpack(array)


def stream(like):
    return 0


def call(*arguments):
    return by_views(sys.modules[__name__], *arguments)
