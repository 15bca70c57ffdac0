"""NumPy or jax.numpy, whichever an array is of: what ejk.sequences and ejk.masks compute with. Neither is imported before it is needed."""

import sys

from ._errors import InputError


def _jax_of(arrays):
    jax = sys.modules.get("jax")
    return jax if jax is not None and any(isinstance(each, jax.Array) for each in arrays) else None


def namespace(*arrays):
    """jax.numpy if one of the arrays is JAX's, numpy for NumPy's and for lists. TypeError for arrays of other libraries."""
    if _jax_of(arrays):
        import jax.numpy

        return jax.numpy
    import numpy

    for each in arrays:
        if not isinstance(each, (numpy.ndarray, numpy.generic, list, tuple, int, float, bool, type(None))):
            raise TypeError(f"expected an array of NumPy or JAX, found {type(each).__module__}.{type(each).__qualname__}")
    return numpy


def is_traced(array):
    """Whether the array stands for values that are not there yet (inside jax.jit and its like)."""
    jax = _jax_of((array,))
    return jax is not None and isinstance(array, jax.core.Tracer)


def known(array):
    """The values of an array as NumPy's: of one on a device, after a wait for it; None inside jax.jit."""
    import numpy

    return None if is_traced(array) else numpy.asarray(array)


def integers(xp, array, name, rank):
    """The argument as an int32 array of that rank."""
    array = xp.asarray(array)
    if array.ndim != rank:
        raise InputError(f"{name} has shape {list(array.shape)}; expected {rank} dimension{'s' if rank > 1 else ''}")
    if array.size and not xp.issubdtype(array.dtype, xp.integer):
        raise InputError(f"{name} has elements of {array.dtype}; expected integers")
    if xp.__name__ == "numpy" and array.size and (array.max() > 0x7FFFFFFF or array.min() < -0x80000000):
        raise InputError(f"{name} has {array.max() if array.max() > 0x7FFFFFFF else array.min()}; expected numbers of 32 bits")
    return array.astype(xp.int32)


def size(value, name, least=0):
    """A static size as an int. InputError for an array inside jax.jit: shapes are static there."""
    if is_traced(value):
        raise InputError(f"{name} is being traced, and a shape depends on it; expected a number that is known before jax.jit runs")
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        raise InputError(f"{name} is {value!r:.80}; expected an integer") from None
    if not least <= number <= 0x7FFFFFFF:
        raise InputError(f"{name} is {number}; expected {least} to 2^31 - 1")
    return number
