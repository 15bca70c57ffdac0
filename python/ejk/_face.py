"""What `ejk` offers, by name: the package has these, and ejk.jax."""

from . import masks, sequences
from ._errors import (
    CompileError,
    DeviceError,
    EjkError,
    InputError,
    InternalError,
    MissingImageError,
    StoreError,
    UnsupportedError,
)
from ._functions import *  # noqa: F403  one function a kernel
from ._functions import __all__ as _kernels
from ._library import PROGRAM
from ._questions import add_store, counters, explain, info, kernel, label, labels_in_hlo, set_threads, tune
from ._scopes import overlay, policy
from ._version import __version__

__all__ = [
    *_kernels,
    "CompileError",
    "DeviceError",
    "EjkError",
    "InputError",
    "InternalError",
    "MissingImageError",
    "PROGRAM",
    "StoreError",
    "UnsupportedError",
    "__version__",
    "add_store",
    "counters",
    "explain",
    "info",
    "kernel",
    "label",
    "labels_in_hlo",
    "masks",
    "overlay",
    "policy",
    "sequences",
    "set_threads",
    "tune",
]
