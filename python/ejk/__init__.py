"""Deep-learning kernels for NumPy, JAX and PyTorch arrays, and anything with DLPack.

    import ejk
    out = ejk.flash_attention(q, k, v, causal=True)     # arrays of one library, on the CPU or a GPU; the result is of the same kind

Each kernel is a function made from its spec: `help(ejk.flash_attention)`. `ejk.kernel(name)` makes one for a kernel of your own store.
`explain`, `tune`, `overlay` and `policy` are about which config a call gets; `info` tells what was found on this machine. Importing
this package loads, writes and starts nothing; the library comes with the first call.
"""

from . import _array_libraries  # noqa: F401  registers what tells kinds of arrays
from ._face import *  # noqa: F403
from ._face import __all__ as _names
from ._functions import *  # noqa: F403  one function a kernel
from ._functions import __all__ as _kernels

__all__ = [*_kernels, *_names]
