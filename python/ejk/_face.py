"""What `ejk` offers beside the kernels' functions, by name: the package has these, and ejk.jax."""

from . import block_masks, masks, sequences
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
from ._library import PROGRAM
from ._questions import add_store, counters, explain, info, kernel, label, labels_in_hlo, set_jit, set_threads, tune, wait_for_images
from ._rnn_layers import rnn_layers, rnn_weights
from ._scopes import overlay, policy
from ._version import __version__
from .block_masks import block_mask

__all__ = [
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
    "block_mask",
    "block_masks",
    "counters",
    "explain",
    "info",
    "kernel",
    "label",
    "labels_in_hlo",
    "masks",
    "overlay",
    "policy",
    "rnn_layers",
    "rnn_weights",
    "sequences",
    "set_jit",
    "set_threads",
    "tune",
    "wait_for_images",
]
