"""Which libraries' arrays are known: the kind of an array (_tensor.py) by its type. Imports nothing that the caller has not imported."""

import sys

from . import _tensor
from ._tensor import _kinds


def find(array):
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


_tensor._finder = find
