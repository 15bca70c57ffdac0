"""JAX arrays. With ejk.jax (its library of XLA handlers) every call is one of XLA's, traced or not. Without it, arrays on the CPU are
called as NumPy sees them, and traced ones are refused."""

import functools

from . import _numpy_arrays
from ._errors import InputError, UnsupportedError
from ._tensor import View


def handles(array):
    import jax

    return isinstance(array, jax.Array)


@functools.lru_cache(maxsize=None)
def _bridge():
    """(ejk.jax, None), or (None, why it is not there)."""
    try:
        from . import jax as bridge
    except ImportError as error:
        return None, str(error)
    return bridge, None


def view(array):
    import jax
    import numpy

    if isinstance(array, jax.core.Tracer):
        raise UnsupportedError("is being traced: calls are made of it with ejk.jax, but nothing can be asked of it")
    devices = array.devices()
    if len(devices) > 1:
        raise UnsupportedError(f"is shared by {len(devices)} devices; ask about what one of them has")
    (device,) = devices
    if device.platform == "cpu":
        return _numpy_arrays.view(numpy.asarray(array))
    dtype = _numpy_arrays._NAMES.get(array.dtype.name)
    if dtype is None:
        raise InputError(f"no kernel takes elements of {array.dtype}")
    rocm = "rocm" in device.client.platform_version.lower()
    return View(array.unsafe_buffer_pointer(), array.shape, None, dtype, (10 if rocm else 2, device.local_hardware_id), array)


def empty(shape, dtype, like):
    import jax

    (device,) = like.devices()
    return jax.numpy.empty(shape, _numpy_arrays._DTYPES[dtype], device=device)


def call(*arguments):
    """Only the first: from then on it is the function that serves."""
    global call
    bridge, _ = _bridge()
    call = _on_host if bridge is None else bridge.call
    return call(*arguments)


def _on_host(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream):
    import jax
    import numpy

    if outputs is not None:
        raise UnsupportedError(f"{kernel.name}: JAX arrays cannot be written to: give no outputs")
    for name, array in zip(kernel.inputs, inputs):
        if isinstance(array, jax.core.Tracer):
            raise UnsupportedError(f"{kernel.name}: {name} is being traced, which takes ejk.jax: {_bridge()[1]}")
        if isinstance(array, jax.Array) and any(device.platform != "cpu" for device in array.devices()):
            raise UnsupportedError(f"{kernel.name}: {name} is on {array.devices()}, which takes ejk.jax: {_bridge()[1]}")
    updated = {place for _, place in kernel.updates}  # of a copy: JAX arrays stay what they are
    arrays = tuple(
        None if array is None else numpy.array(array) if place in updated else numpy.asarray(array)
        for place, array in enumerate(inputs)
    )
    result = _numpy_arrays.call(kernel, arrays, fixed, varying, None, wanted, cfg, None)
    if isinstance(result, tuple):
        return type(result)(*(None if each is None else jax.numpy.asarray(each) for each in result))
    return jax.numpy.asarray(result)
