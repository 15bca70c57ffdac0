"""ejk's handlers in XLA's registry, for the CPU and for GPUs."""

import ctypes
import os

import jax

from .._library import FOLDER, library

TARGET = "ejk"
PATH = os.path.join(FOLDER, "lib", "libejk_jax.so")


def _load():
    if not os.path.exists(PATH):
        raise ImportError(f"ejk.jax has no handlers: {PATH} is missing: make the wheel with tools/wheel --jax PYTHON")
    library()  # what it is linked with
    return ctypes.CDLL(PATH)


def register():
    """Once a process: XLA refuses a second registration."""
    handlers = _load()
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handlers.ejk_xla_cpu), platform="cpu")
    for platform, name in (("CUDA", "ejk_xla_cuda"), ("ROCM", "ejk_xla_rocm")):
        stages = {"initialize": getattr(handlers, name + "_initialize"), "execute": getattr(handlers, name)}
        jax.ffi.register_ffi_target(
            TARGET, {stage: jax.ffi.pycapsule(handler) for stage, handler in stages.items()}, platform=platform
        )
