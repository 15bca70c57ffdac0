"""ejk's handlers in XLA's registry, for the CPU and for GPUs.

XLA takes a handler by the version of its FFI: of its own, and from 0.2 on (jaxlib 0.8) of older ones. One that it does not take ends every
backend that starts after the registration, so the versions are compared first; with a newer XLA than was tested, which may have stopped
to take ours, the registration waits for the first call, when a backend is up and a refusal is an error of that call alone.
"""

import ctypes
import os
import re

import jax

from .._errors import UnsupportedError
from .._library import FOLDER, library

TARGET = "ejk"
PATH = os.path.join(FOLDER, "lib", "libejk_jax.so")
NEWEST_TESTED = 0, 3  # FFI of jaxlib 0.10
_TAKES_OLDER = 0, 2


def _load():
    if not os.path.exists(PATH):
        raise ImportError(f"ejk.jax has no handlers: {PATH} is missing: make the wheel with tools/wheel --jax PYTHON")
    library()  # what it is linked with
    return ctypes.CDLL(PATH)


def ffi_of_library(handlers):
    """The FFI version that libejk_jax.so was made for."""
    version = (ctypes.c_int32 * 2)()
    handlers.ejk_xla_ffi_version(version)
    return tuple(version)


def ffi_of_jaxlib():
    """The FFI version of the installed jaxlib, as its own header says; None if it cannot be read."""
    try:
        with open(os.path.join(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")) as file:
            text = file.read()
        return tuple(int(re.search(rf"#define XLA_FFI_API_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR"))
    except (AttributeError, OSError, TypeError):
        return None


def when(ours, theirs):
    """"now", "at the first call", or "never": when handlers for FFI `ours` may be registered with an XLA of FFI `theirs`."""
    if ours == theirs:
        return "now"
    if theirs is None or theirs > NEWEST_TESTED:
        return "at the first call"
    return "now" if ours[0] == theirs[0] and ours < theirs and theirs >= _TAKES_OLDER else "never"


def _needed(ours, theirs):
    """What to do where the two versions do not go together."""
    return (
        f"ejk.jax: this ejk's handlers are for XLA's FFI {ours[0]}.{ours[1]}, jaxlib {jax.lib.__version__} has"
        f" {'another' if theirs is None else f'{theirs[0]}.{theirs[1]}'}: "
        + ("install an older JAX" if theirs is None or theirs > ours else "install a newer JAX")
        + ", or make the wheel with tools/wheel --jax PYTHON, a python with the oldest JAX that it shall serve"
    )


def _register(handlers):
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handlers.ejk_xla_cpu), platform="cpu")
    for platform, name in (("CUDA", "ejk_xla_cuda"), ("ROCM", "ejk_xla_rocm")):
        stages = {"initialize": getattr(handlers, name + "_initialize"), "execute": getattr(handlers, name)}
        jax.ffi.register_ffi_target(
            TARGET, {stage: jax.ffi.pycapsule(handler) for stage, handler in stages.items()}, platform=platform
        )


_waiting = None  # the handlers, until the first call
_refused = None  # the words, if they were refused then


def register():
    """Once a process: XLA refuses a second registration. ImportError, and nothing registered, if this XLA does not take our handlers."""
    global _waiting
    handlers = _load()
    ours, theirs = ffi_of_library(handlers), ffi_of_jaxlib()
    moment = when(ours, theirs)
    if moment == "never":
        raise ImportError(_needed(ours, theirs))
    if moment == "now":
        _register(handlers)
    else:
        _waiting = handlers


def target():
    """The name of the handlers, which are registered by then. UnsupportedError if XLA refuses them now."""
    global _waiting, _refused
    if _waiting is not None:
        handlers, _waiting = _waiting, None
        jax.local_devices()  # a backend is up: what it refuses is an error here
        try:
            _register(handlers)
        except Exception as error:
            _refused = f"{_needed(ffi_of_library(handlers), ffi_of_jaxlib())}; XLA says: {error}"
    if _refused is not None:
        raise UnsupportedError(_refused)
    return TARGET
