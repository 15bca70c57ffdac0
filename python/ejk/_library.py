"""libejk behind ctypes: found and loaded when first needed. Importing this module reads and starts nothing.

`library()` is the one loaded library. A function of the C API (ejk.h) is called as `check(library().ejk_call(...))`; functions that
return JSON text are called by `text(name, *arguments)`, which frees the text.
"""

import ctypes
import glob
import importlib.util
import json
import os
import threading

from ._errors import OF_STATUS, EjkError, InputError

FOLDER = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(FOLDER, "lib", "libejk.so")
PROGRAM = os.path.join(FOLDER, "bin", "ejk")


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    """ejk_tensor, which is DLPack's DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("rank", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Argument(ctypes.Structure):
    """ejk_argument: a tensor with its name in the spec."""

    _fields_ = [("name", ctypes.c_char_p), ("tensor", ctypes.POINTER(Tensor))]


class Objects(ctypes.Structure):
    """ejk_objects: how libejk reads Python's."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("item", "type", "release", "tensor", "absent")] + [("types", ctypes.c_void_p * 2)]


# DLPack's code and bits of each element type that a spec may name.
DTYPES = {
    "f32": (2, 32),
    "f16": (2, 16),
    "bf16": (4, 16),
    "f64": (2, 64),
    "i8": (0, 8),
    "i32": (0, 32),
    "i64": (0, 64),
    "u8": (1, 8),
    "bool": (6, 8),
    "f8_e4m3": (10, 8),
}
DTYPE_NAMES = {code: name for name, code in DTYPES.items()}

_TEXT, _POINTER, _SIZE = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
_CALL = [_TEXT, ctypes.POINTER(Argument), _SIZE, _TEXT]  # kernel, tensors, count, attributes
_JSON = [ctypes.POINTER(ctypes.c_void_p)]
_SIGNATURES = {
    "ejk_call": _CALL + [_TEXT, _POINTER],
    "ejk_output": _CALL
    + [_TEXT, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int64)]
    + [ctypes.POINTER(ctypes.c_uint8)] * 2,
    "ejk_explain": _CALL + [_TEXT] + _JSON,
    "ejk_label": _CALL + [_TEXT] + _JSON,
    "ejk_labels_in_hlo": [_TEXT, _SIZE] + _JSON,
    "ejk_record": _CALL,
    "ejk_prepare": _CALL + [_TEXT] + _JSON,
    "ejk_run": [_POINTER, _POINTER, _TEXT, _POINTER],
    "ejk_seen_new": [ctypes.POINTER(Objects), _SIZE, _SIZE] + _JSON,
    "ejk_bind": _CALL + _JSON,
    "ejk_choose": _CALL + [_TEXT] + _JSON,
    "ejk_push_overlay": [_TEXT, _TEXT],
    "ejk_pop_overlay": [],
    "ejk_push_policy": [_TEXT],
    "ejk_pop_policy": [],
    "ejk_keep_scopes": _JSON,
    "ejk_use_scopes": [_POINTER],
    "ejk_tune": _CALL + [_TEXT] + _JSON,
    "ejk_kernels": _JSON,
    "ejk_describe": [_TEXT] + _JSON,
    "ejk_gradient": _CALL + _JSON,
    "ejk_counters": _JSON,
    "ejk_info": _JSON,
    "ejk_add_store": [_TEXT],
    "ejk_add_toolkit": [_TEXT],
    "ejk_set_threads": [ctypes.c_int32],
    "ejk_set_jit": [_TEXT],
    "ejk_expect_gradient": [_POINTER, _TEXT],
    "ejk_build_gradient": _CALL + [_TEXT],
}

_loaded = None
_lock = threading.Lock()


def _in_child():
    """A thread that was loading the library when another forked is not in the child: nor must its lock be."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def _pip_toolkits():
    """Folders of NVIDIA's pip packages that have an NVRTC (nvidia/cu13, nvidia/cuda_nvrtc), the newest first. Nothing is imported."""
    try:
        found = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    toolkits = []
    for root in (found.submodule_search_locations or []) if found else []:
        for library in glob.glob(os.path.join(glob.escape(root), "*", "lib", "libnvrtc.so.[0-9][0-9]*")):
            release = os.path.basename(library).split(".")[2]
            toolkits.append((int(release), os.path.dirname(os.path.dirname(library))))
    return list(dict.fromkeys(folder for _, folder in sorted(toolkits, reverse=True)))


def _load():
    if not os.path.exists(PATH):
        raise ImportError(
            f"ejk has no library: {PATH} is missing. Install the wheel, or make a tree of a build: tools/wheel --tree FOLDER"
        )
    loaded = ctypes.CDLL(PATH)
    for name, arguments in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    for name in ("ejk_last_error", "ejk_version"):
        getattr(loaded, name).restype = ctypes.c_char_p
    loaded.ejk_wait_for_images.argtypes, loaded.ejk_wait_for_images.restype = [ctypes.c_int64], ctypes.c_int32
    loaded.ejk_scopes.argtypes, loaded.ejk_scopes.restype = [], ctypes.c_uint64
    for name in ("ejk_free", "ejk_release", "ejk_release_scopes", "ejk_seen_release"):
        getattr(loaded, name).argtypes, getattr(loaded, name).restype = [ctypes.c_void_p], None
    for toolkit in _pip_toolkits():
        loaded.ejk_add_toolkit(os.fsencode(toolkit))
    return loaded


def library():
    """The loaded library."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def failure(status):
    """The exception for a status, with the words of this thread's last error."""
    return OF_STATUS.get(status, EjkError)(library().ejk_last_error().decode())


def check(status):
    if status:
        raise failure(status)


def text(name, *arguments):
    """The text that a function of the C API returns by its last argument."""
    loaded, out = library(), ctypes.c_void_p()
    check(getattr(loaded, name)(*arguments, ctypes.byref(out)))
    try:
        return ctypes.string_at(out.value).decode()
    finally:
        loaded.ejk_free(out)


def json_text(value, what="a JSON object"):
    """A JSON object as the C API takes it; None stays None. InputError, which begins with `what`, for what JSON cannot hold."""
    if value is None:
        return None
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{what}: {error}; found {value!r:.80}") from None


def c_text(text, what):
    """Text as the C API takes it."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str; found {text!r:.80}")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what}: {error}") from None
    if b"\0" in encoded:
        raise InputError(f"{what} has a NUL character in it: {text!r:.80}")
    return encoded
