"""The kernels' functions as ejk.jax has them: an eager call is jax.jit of it, which finds the program by all arguments, in C++. The functions of
ejk take every kind of array and fill in some twenty defaults before they know that it is JAX's."""

import functools
import sys

import jax

from . import _trace

_concrete = set()  # types of JAX arrays that are no tracers


def _is_concrete(array):
    found = isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)
    if found:
        _concrete.add(type(array))
    return found


def _program(kernel, spelled):
    """jax.jit of a function of ejk: of an object of its own, since programs of one object share what was traced, whatever the scopes."""
    flags = tuple("return_" + each.name for each in kernel.contract.outputs if each.optional and not each.updates)
    return jax.jit(functools.partial(spelled), static_argnames=kernel.fixed + kernel.varying + flags + ("cfg", "stream"))


@functools.lru_cache(maxsize=None)
def eager(spelled):
    """A function of ejk, whose eager calls on JAX arrays take the least time."""
    kernel = sys.modules[spelled.__module__]._kernel
    prepared, scopes = kernel.prepared, _trace.scopes

    @functools.wraps(spelled)
    def function(*arrays, **options):
        if not arrays or (type(arrays[0]) not in _concrete and not _is_concrete(arrays[0])):
            return spelled(*arrays, **options)
        here = scopes()
        program = prepared.get(here)
        if program is None:
            program = _program(kernel, spelled)
            kernel.remember(here, program)
        try:
            return program(*arrays, **options) if options else program(*arrays)
        except (TypeError, ValueError):  # jax.jit's: an argument is no array, or an attribute cannot be hashed; or the call's own
            pass
        return spelled(*arrays, **options)

    function.__module__ = "ejk.jax"  # where pickle finds it
    return function
