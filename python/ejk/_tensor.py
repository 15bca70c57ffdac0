"""What kind of array an argument is, and what a call needs of it: address, shape, strides, element type, device.

A kind is a module-like object with
    call(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream)   a whole call; see _call.py
    view(array)             View: everything a call needs to know
    empty(shape, dtype, like)   an output of this kind beside `like`
    host_view(view)         View of a copy on the host, of one on a device; a kind may lack it
    stream(like)            the address of the stream that calls of this kind go to, 0 on the host
`kind_of(array)` finds it by the array's type, and imports nothing that the caller has not imported.
"""

import sys
from collections import namedtuple

# pointer: of the first element. strides: in elements. dtype: the spec's name ("bf16"). device: (DLPack's type, index).
# keep: whatever must live until the call has returned.
View = namedtuple("View", "pointer shape strides dtype device keep", defaults=[None])

_kinds = {}  # type: kind


def kind_of(array):
    kind = _kinds.get(type(array))
    return kind if kind is not None else _find(array)


def _find(array):
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):  # first, in words that torch.compile can trace
        from . import _torch_arrays

        _kinds[type(array)] = _torch_arrays
        return _torch_arrays
    root = type(array).__module__.partition(".")[0]
    names = {base.__module__.partition(".")[0] for base in type(array).__mro__}
    if root == "numpy" or "numpy" in names:
        from . import _numpy_arrays as kind
    elif names & {"jax", "jaxlib"}:
        from . import _jax_arrays as kind
    elif hasattr(array, "__dlpack__") and not isinstance(array, type):
        from . import _dlpack_arrays as kind
    else:
        raise TypeError(
            f"expected an array (NumPy, JAX, PyTorch, or anything with __dlpack__), found {type(array).__module__}."
            f"{type(array).__qualname__}"
        )
    if not kind.handles(array):
        raise TypeError(f"{type(array).__module__}.{type(array).__qualname__} is no array; found {array!r:.80}")
    _kinds[type(array)] = kind
    return kind
