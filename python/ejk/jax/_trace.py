"""What a traced call is, without data: its contract, its choice, its gradient, its label. All asked of the library at trace time."""

import ctypes
import functools
import json

from .. import _open_scopes
from .._call import Arguments
from .._errors import InputError
from .._library import PATH, check, json_text, library, text
from .._numpy_arrays import _DTYPES as NUMPY_DTYPES
from .._numpy_arrays import _NAMES as JAX_DTYPES
from .._tensor import View

CPU, CUDA, ROCM = 1, 2, 10  # DLPack's
DEVICES = {"cpu": CPU, "cuda": CUDA, "rocm": ROCM}


def shape_of(name, array, leading=0):
    """(element type, shape) of an array or tracer, without its `leading` axes."""
    dtype = JAX_DTYPES.get(str(array.dtype))
    if dtype is None:
        raise InputError(f"{name} has elements of {array.dtype}; kernels take {', '.join(JAX_DTYPES)}")
    shape = tuple(array.shape[leading:])
    if not all(isinstance(extent, int) for extent in shape):
        raise InputError(f"{name} has shape {shape}; a kernel is chosen for numbers: export a program for each shape")
    return dtype, shape


def _ask(function, kernel, tensors, attributes, device, *rest):
    views = {name: View(None, shape, None, dtype, (device, 0)) for name, (dtype, shape) in tensors}
    arguments = Arguments(views)
    return text(function, kernel.encode(), arguments.array, arguments.count, json_text(dict(attributes)), *rest)


@functools.lru_cache(maxsize=1024)
def bound(kernel, tensors, attributes):
    """{"form", "dims", "batch", "outputs"} of a call: ejk_bind. The caller does not change it."""
    return json.loads(_ask("ejk_bind", kernel, tensors, attributes, CPU))


@functools.lru_cache(maxsize=1024)
def gradient(kernel, tensors, attributes):
    """{"calls", "equal"}: ejk_gradient."""
    return json.loads(_ask("ejk_gradient", kernel, tensors, attributes, CPU))


def _default_device():
    """Where a program that is being traced will most likely run; None: on nothing of ours."""
    import jax

    if jax.default_backend() == "cpu":
        return CPU
    version = jax.local_devices()[0].client.platform_version.lower()
    return ROCM if "rocm" in version else CUDA if "cuda" in version else None


@functools.lru_cache(maxsize=1024)
def build_gradient(kernel, tensors, attributes, inputs):
    """Begins to build the images of the gradient of a call that is being traced, for the device that it will most likely run on: ejk_build_gradient."""
    device = _default_device()
    if device is None:
        return
    views = {name: View(None, shape, None, dtype, (device, 0)) for name, (dtype, shape) in tensors}
    arguments = Arguments(views)
    check(library().ejk_build_gradient(kernel.encode(), arguments.array, arguments.count, json_text(dict(attributes)), ",".join(inputs).encode()))


def chosen(kernel, tensors, attributes, config, device):
    """{"config", "image", "workspace_bytes"} on this device, image ready: ejk_choose. Open overlays and policies count."""
    _open_scopes.follow()
    return json.loads(_ask("ejk_choose", kernel, tensors, attributes, device, config.encode() if config else None))


def label(kernel, tensors, attributes, device):
    """The name of a call in a lowered or compiled program, as ejk_label gives it."""
    return _ask("ejk_label", kernel, tensors, attributes, device, b"hash")


def output_shapes(kernel, tensors, attributes, wanted):
    """((name, (dtype, shape)), ...) of the outputs wanted."""
    outputs = bound(kernel, tensors, attributes)["outputs"]
    shapes = []
    for name in wanted:
        told = outputs[name]
        if "unknown" in told:
            raise InputError(
                f"{kernel}: the shape of {name} depends on data, which a traced call has not: {told['unknown']}; call it outside jit, or say"
                " the size by an attribute, as mean_pooling's chunk_count does"
            )
        shapes.append((name, (told["type"], tuple(told["shape"]))))
    return tuple(shapes)


def labels_in(hlo):
    """The labels in the text of a program, in order of first appearance."""
    encoded = hlo.encode()
    return json.loads(text("ejk_labels_in_hlo", encoded, len(encoded)))


def _scopes_function():
    function = ctypes.PyDLL(PATH).ejk_scopes  # keeps Python's lock: it waits for nothing
    function.argtypes, function.restype = [], ctypes.c_uint64
    return function


_scopes = _scopes_function()


def scopes():
    """A number that is another wherever open overlays and policies, or remembered configs, may choose another config."""
    if _open_scopes.used:
        _open_scopes.follow()
    return _scopes()
