"""DLPack by ctypes: the DLTensor of anything that exports one, and host memory of ours for importers."""

import ctypes

from ._library import DTYPES, DLDataType, DLDevice, Tensor

CPU = 1
python = ctypes.PyDLL(None)  # not ctypes.pythonapi, whose functions get other signatures from other packages
capsule_pointer = python.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_capsule_valid = python.PyCapsule_IsValid
_capsule_valid.restype, _capsule_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_capsule_new = python.PyCapsule_New
_capsule_new.restype, _capsule_new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class _Managed(ctypes.Structure):
    """DLManagedTensor of DLPack before 1.0, which every library still takes."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


def exported(array, stream=None):
    """(the array's Tensor, what must live as long as the Tensor is used). The producer stays the owner."""
    capsule = array.__dlpack__() if stream is None else array.__dlpack__(stream=stream)
    if not _capsule_valid(capsule, b"dltensor"):
        raise TypeError(f"{type(array).__name__}.__dlpack__() gave no 'dltensor' capsule")
    managed = ctypes.cast(capsule_pointer(capsule, b"dltensor"), ctypes.POINTER(_Managed))
    return managed.contents.tensor, capsule


_alive = {}  # address of a _Managed that somebody imported: what it needs


@_Deleter
def _delete(managed):
    _alive.pop(ctypes.addressof(managed.contents), None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _forget_capsule(capsule):
    # A capsule that nobody imported still owns its tensor; an importer renames it and calls the deleter itself.
    borrowed = ctypes.cast(capsule, ctypes.py_object)
    if _capsule_valid(borrowed, b"dltensor"):
        _alive.pop(capsule_pointer(borrowed, b"dltensor"), None)


class HostArray:
    """Contiguous host memory, 64-byte aligned, that DLPack's importers take without a copy."""

    def __init__(self, shape, dtype):
        bits = DTYPES[dtype][1]
        count = 1
        for extent in shape:
            count *= extent
        self._memory = (ctypes.c_uint8 * (count * bits // 8 + 64))()
        start = ctypes.addressof(self._memory)
        self.shape, self.dtype = tuple(shape), dtype
        self.pointer = start + -start % 64

    def __dlpack_device__(self):
        return CPU, 0

    def __dlpack__(self, **_):
        rank = len(self.shape)
        shape = (ctypes.c_int64 * rank)(*self.shape)
        managed = _Managed()
        managed.tensor = Tensor(
            data=self.pointer,
            device=DLDevice(CPU, 0),
            rank=rank,
            dtype=DLDataType(*DTYPES[self.dtype], 1),
            shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
        )
        managed.deleter = _delete
        _alive[ctypes.addressof(managed)] = (managed, shape, self._memory)
        return _capsule_new(ctypes.addressof(managed), b"dltensor", ctypes.cast(_forget_capsule, ctypes.c_void_p))
