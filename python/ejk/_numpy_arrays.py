"""NumPy arrays: strided views of host memory, with the element types of ml_dtypes where that is installed."""

import ctypes
import functools
import sys

import numpy

from ._call import through
from ._dlpack import capsule_pointer
from ._errors import ElementError, InputError
from ._tensor import View

_HOST = (1, 0)
_NAMES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float64": "f64",
    "int8": "i8",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "bool": "bool",
    "float8_e4m3fn": "f8_e4m3",
}
_DTYPES = {ours: theirs for theirs, ours in _NAMES.items()}


def handles(array):
    if type(array) is numpy.ndarray:
        return True
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError("a masked array, whose mask no kernel knows: give array.filled(...), and the kernel's own mask if it has one")
    return isinstance(array, numpy.ndarray)  # a scalar of NumPy's has no memory that stays


def key(array):
    return type(array), array.shape, array.strides, array.dtype


class _Interface(ctypes.Structure):
    """PyArrayInterface of NumPy's array protocol: what array.__array_struct__ points to."""

    _fields_ = [
        ("two", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("kind", ctypes.c_char),
        ("size", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    ]


def pointer(array):
    capsule = array.__array_struct__  # half the time of __array_interface__
    return _Interface.from_address(capsule_pointer(capsule, None)).data or 0


def view(array):
    array = numpy.asarray(array)
    dtype = _NAMES.get(array.dtype.name)
    if dtype is None or not array.dtype.isnative:
        raise ElementError(f"no kernel takes NumPy elements of {array.dtype!r}")
    size = array.dtype.itemsize
    if any(stride % size for stride in array.strides):
        raise InputError(f"strides of {array.strides} bytes are no whole elements of {size}; make a copy of the array")
    return View(pointer(array), array.shape, tuple(stride // size for stride in array.strides), dtype, _HOST, array)


def writable(array):
    return array.flags.writeable


@functools.lru_cache(maxsize=None)
def _numpy_dtype(dtype):
    name = _DTYPES[dtype]
    if dtype in ("bf16", "f8_e4m3"):
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.dtype(name)


def empty(shape, dtype, like=None):
    return numpy.empty(shape, _numpy_dtype(dtype))


def stream(like):
    return 0


def call(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream):
    if stream is not None:
        raise InputError(f"{kernel.name}: stream is {stream}; NumPy arrays are on the host, which has no streams: give none")
    return through(sys.modules[__name__], kernel, inputs, fixed, varying, outputs, wanted, cfg, stream)
