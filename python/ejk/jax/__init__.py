"""ejk in JAX: kernels under jit, grad, vmap and shard_map, on the CPU and on GPUs. Importing this registers them with XLA.

    import ejk.jax
    out = ejk.jax.flash_attention(q, k, v, causal=True)      # a function a kernel, made from its spec
    out = ejk.jax.dot_product_attention(q, k, v, is_causal=True)   # jax.nn's arguments and meaning

Gradients are the spec's; vmap makes one call of a larger batch where the spec says so; jit cuts calls along the batch dim if the operands
are sharded there, shard_map as its caller says; recurrences also along the tokens (axis_name). The config is chosen when a program is
lowered, so that overlays and policies count there; to execute is only to launch, with scratch from XLA. Attributes are Python values: under jit they are static.
"""

from .. import _face, _functions
from . import _ffi
from ._attention import dot_product_attention
from ._call import call
from ._eager import eager as _eager
from ._labels import find_labels_in_lowered
from ._sequence import cut_along_tokens as _cut_along_tokens
from ._sequence import is_recurrence as _is_recurrence

__all__ = ["call", "dot_product_attention", "find_labels_in_lowered"]

_ffi.register()
_face.masks._register()


def __getattr__(name):
    kernel = name in _functions.__all__
    if kernel or name in _face.__all__:
        found = getattr(_functions, name) if kernel else getattr(_face, name)
        if kernel and _is_recurrence(found):
            found = _cut_along_tokens(found)
        globals()[name] = found = _eager(found) if kernel else found
        return found
    raise AttributeError(f"ejk.jax has no '{name}'; it has {', '.join(__all__)} and the kernels' functions of ejk")
