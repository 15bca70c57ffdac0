"""All of a call but its tensors and seeds, as text: what an operator of PyTorch takes as its one string."""

import functools
import json
from dataclasses import dataclass

import torch
from torch.autograd import forward_ad

from .. import _torch_arrays
from .._call import output, packed_values, prepare
from .._errors import InputError, UnsupportedError
from .._spec import contract
from .._tensor import View


@dataclass(frozen=True, eq=False)  # found by itself: few are made, and each is looked up with every gradient
class Site:
    kernel: str
    inputs: tuple  # names of the tensors
    outputs: tuple  # ((name, (element type, shape), or None: as the call tells), ...)
    attributes: tuple  # sorted ((name, value), ...), without seeds
    seeds: tuple  # names of the varying integers that are given with each call
    cfg: "str | None"

    def text(self):
        return json.dumps([self.kernel, self.inputs, self.outputs, self.attributes, self.seeds, self.cfg])


def _tuples(value):
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value


@functools.lru_cache(maxsize=4096)
def site_of(text):
    return Site(*_tuples(json.loads(text)))


def element_type(dtype):
    name = _torch_arrays._NAMES.get(dtype)
    if name is None:
        raise InputError(f"no kernel takes elements of {dtype}")
    return name


def view_of(tensor):
    """Shape, strides and type of a tensor that may have no data (a fake one), with sizes as plain integers."""
    dtype = element_type(tensor.dtype)
    device = (_torch_arrays._DEVICES.get(tensor.device.type, 1), tensor.device.index or 0)
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    return View(None, shape, strides, dtype, device, tensor)


def unit_stride(tensor):
    """The tensor as kernels take it: innermost stride 1."""
    return tensor if tensor.ndim == 0 or tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def _shape(site, tensors, name, told):
    """(element type, shape) of an output: as told, or as the library says for these tensors."""
    if told is not None:
        return told
    views = {each: view_of(tensor) for each, tensor in zip(site.inputs, tensors)}
    shape, dtype = output(site.kernel, views, dict(site.attributes), name)
    return dtype, shape


def _shapes(site, tensors):
    return [(_torch_arrays._DTYPES[dtype], tuple(shape)) for dtype, shape in (_shape(site, tensors, *each) for each in site.outputs)]


def _allocate(shapes, device):
    return [torch.empty(shape, dtype=dtype, device=device) for dtype, shape in shapes]


def fake(tensors, text, seeds):
    """The outputs by shape and type alone."""
    return _allocate(_shapes(site_of(text), tensors), tensors[0].device)


_MOST = 4096  # calls remembered; then all are dropped
_known = {}  # (text, device, type, shape and strides of each tensor): (prepared call, what makes its outputs)


def _prepare(site, tensors, results):
    names = (*site.inputs, *(name for name, _ in site.outputs))
    views = {name: _torch_arrays.view(tensor) for name, tensor in zip(names, (*tensors, *results))}
    return prepare(site.kernel, views, dict(site.attributes), json.loads(site.cfg) if site.cfg else None)


def _seed_values(site, seeds):
    if not seeds:
        return None
    given = {**dict(site.attributes), **dict(zip(site.seeds, seeds))}
    specs = contract(site.kernel).varying
    return packed_values(specs, [given.get(spec.name) for spec in specs])


def run(tensors, text, seeds):
    """The call, on real tensors: its outputs, new."""
    key = (text, tensors[0].device, tuple([(tensor.dtype, tensor.shape, tensor.stride()) for tensor in tensors]))
    site, known = site_of(text), _known.get(key)
    if known is None:
        results = _allocate(_shapes(site, tensors), tensors[0].device)
        makers = [_torch_arrays.maker(each.shape, each.dtype, each.device) for each in results]
        known = _prepare(site, tensors, results), makers
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = known
    prepared, makers = known
    results = [make() for make in makers]
    pointers = [tensor.data_ptr() for tensor in (*tensors, *results)]
    prepared.run(pointers, _seed_values(site, seeds), _torch_arrays.stream(tensors[0]))
    return results


_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_transforms = getattr(torch._C, "_are_functorch_transforms_active", None)


def watched():
    """Whether more than autograd may look at calls: a dispatch mode (fake tensors, tracing to graphs), or a transform of torch.func."""
    return _dispatch_modes is None or _transforms is None or bool(_dispatch_modes()) or _transforms()


def operated(kernel, tensors, text, seeds):
    return getattr(torch.ops.ejk, kernel).default(tensors, text, seeds)


def _refuse_tangents(kernel, tensors):
    """PyTorch would drop them without a word."""
    if any(forward_ad.unpack_dual(each).tangent is not None for each in tensors):
        raise UnsupportedError(f"{kernel} has no forward-mode derivative")


def called(kernel, tensors, text, seeds):
    """The call's outputs: by the operator, unless nobody would notice it."""
    if forward_ad._current_level >= 0:
        _refuse_tangents(kernel, tensors)
    if _transforms is not None and _transforms():
        from ._transforms import call

        return call(kernel, tensors, text, seeds)
    alone = not torch.is_grad_enabled() and not watched() and all([type(each) in _torch_arrays._PLAIN for each in tensors])
    return run(tensors, text, seeds) if alone else operated(kernel, tensors, text, seeds)
