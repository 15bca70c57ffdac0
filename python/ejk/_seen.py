"""Calls seen before, found by their arrays without a Python object for any shape, stride or device: libejk reads the arrays by the C
functions of DLPack's exchange API, where their library has one (PyTorch 2.11 does).

Everything here holds Python's lock while it runs; libejk has its own for Pythons without."""

import ctypes

from ._dlpack import capsule_pointer, python
from ._library import PATH, Objects, check, library

_MAJOR = 1  # of DLPack, whose table we know


class _ExchangeApi(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("before", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("object_from_managed", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    ]


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def reader(array_type, *subtypes):
    """How libejk reads objects of exactly these types, or None if their library does not say."""
    capsule = getattr(array_type, "__dlpack_c_exchange_api__", None)
    if capsule is None or len(subtypes) > 1:
        return None
    api = _ExchangeApi.from_address(capsule_pointer(capsule, b"dlpack_exchange_api"))
    if api.major != _MAJOR or not api.tensor_from_object:
        return None
    functions = (_address(each) for each in (python.PyTuple_GetItem, python.PyObject_Type, python.Py_DecRef))
    types = (ctypes.c_void_p * 2)(*map(id, (array_type, *(subtypes or (array_type,)))))
    return Objects(*functions, api.tensor_from_object, id(None), types)


def _functions():
    loaded = ctypes.PyDLL(PATH)  # keeps Python's lock
    for function in (loaded.ejk_seen_find, loaded.ejk_seen_add):
        function.restype = ctypes.c_int64
        function.argtypes = [ctypes.c_void_p] * 3  # ids of tuples: as py_object they would take longer
    loaded.ejk_seen_find.argtypes += [ctypes.c_void_p]
    return loaded.ejk_seen_find, loaded.ejk_seen_add


class Seen:
    """The calls of one kernel with the same fixed attributes, wanted outputs and config. Threads may share it."""

    find = add = None

    def __init__(self, objects, inputs, outputs):
        if Seen.find is None:
            Seen.find, Seen.add = map(staticmethod, _functions())
        self._address = ctypes.c_void_p()
        check(library().ejk_seen_new(objects, inputs, outputs, ctypes.byref(self._address)))
        self.address = self._address.value
        self.prepared = {}  # by number
        self.blocks = []  # arrays of pointers that no call is using, with their addresses
        self._block = ctypes.c_void_p * (inputs + outputs)

    def __del__(self):
        if self._address:
            library().ejk_seen_release(self._address)

    def block(self):
        array = self._block()
        return array, ctypes.addressof(array)
