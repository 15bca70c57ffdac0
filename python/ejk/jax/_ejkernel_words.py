"""What the functions for the library ejkernel share: how its arguments become ours, and how what ours cannot do is refused there."""

import jax.numpy as jnp
import numpy


def given(**values):
    return {name: value for name, value in values.items() if value is not None}


def refuse(*reasons):
    """NotImplementedError in the registry's words: it makes its own error of one that says 'not supported'."""
    found = [reason for reason, holds in reasons if holds]
    if found:
        raise NotImplementedError("; ".join(f"{reason} is not supported" for reason in found))


def int32(array):
    return None if array is None else jnp.asarray(array).astype(jnp.int32)


def window(sliding_window):
    """(left, right) of the kernels there that count keys beside the query's own."""
    if sliding_window is None:
        return -1, -1
    return (sliding_window, sliding_window) if isinstance(sliding_window, int) else tuple(sliding_window)


def is_positive(number):
    return isinstance(number, (int, numpy.integer)) and number > 0
