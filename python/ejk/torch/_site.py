"""All of a call but its tensors and seeds, as text: what an operator of PyTorch takes as its one string."""

import functools
import json
from dataclasses import dataclass

import torch
from torch.autograd import forward_ad

from .. import _open_scopes, _torch_tensors
from .._attributes import packed_values
from .._call import output, prepare
from .._errors import InputError, UnsupportedError
from .._spec import contract, updated_and_read
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
    name = _torch_tensors._NAMES.get(dtype)
    if name is None:
        raise InputError(f"no kernel takes elements of {dtype}")
    return name


def view_of(tensor):
    """Shape, strides and type of a tensor that may have no data (a fake one), with sizes as plain integers."""
    dtype = element_type(tensor.dtype)
    device = (_torch_tensors._DEVICES.get(tensor.device.type, 1), tensor.device.index or 0)
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
    return [(_torch_tensors._DTYPES[dtype], tuple(shape)) for dtype, shape in (_shape(site, tensors, *each) for each in site.outputs)]


def _allocate(shapes, device):
    return [torch.empty(shape, dtype=dtype, device=device) for dtype, shape in shapes]


def fake(tensors, text, seeds):
    """The outputs by shape and type alone."""
    return _allocate(_shapes(site_of(text), tensors), tensors[0].device)


@functools.lru_cache(maxsize=None)
def updates(kernel):
    """{output: the input whose memory it is}"""
    return {each.name: each.updates for each in contract(kernel).outputs if each.updates}


def saved(site, tensors, results):
    """The inputs as the gradient is to find them, when the caller's have been updated: one that it does not read, as a tensor of that
    shape."""
    of = {updates(site.kernel)[name]: result for (name, _), result in zip(site.outputs, results) if name in updates(site.kernel)}
    read = updated_and_read(site.kernel) if of else ()
    return [each if name not in of else each.clone() if name in read else of[name] for name, each in zip(site.inputs, tensors)]


class _Pointers:
    """Where the pointers of a call of an operator without side effects come from, among its tensors and results: an input that the kernel
    updates is copied to the result first, and the kernel updates that."""

    def __init__(self, site):
        of, results = updates(site.kernel), [name for name, _ in site.outputs]
        place = {of[name]: len(site.inputs) + result for result, name in enumerate(results) if name in of}
        self.copies = tuple((each - len(site.inputs), site.inputs.index(name)) for name, each in place.items())
        self.names = site.inputs + tuple(name for name in results if name not in of)
        own = [len(site.inputs) + result for result, name in enumerate(results) if name not in of]
        self.sources = tuple([place.get(name, number) for number, name in enumerate(site.inputs)] + own)

    def of(self, tensors, results):
        for result, source in self.copies:
            results[result].copy_(tensors[source])
        every = (*tensors, *results)
        return [every[source].data_ptr() for source in self.sources]


_MOST = 4096  # calls remembered; then all are dropped
_known = {}  # (text, device, type, shape and strides of each tensor): (prepared call, what makes its outputs, its _Pointers or None)


def _prepare(site, tensors, results, pointers=None):
    names = (*site.inputs, *(name for name, _ in site.outputs))
    every = (*tensors, *results)
    if pointers:
        names, every = pointers.names, [every[source] for source in pointers.sources]
    views = {name: _torch_tensors.view(tensor) for name, tensor in zip(names, every)}
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
    if _open_scopes.used:
        _open_scopes.follow()
    site, known = site_of(text), _known.get(key)
    if known is None:
        results = _allocate(_shapes(site, tensors), tensors[0].device)
        makers = [_torch_tensors.maker(each.shape, each.dtype, each.device) for each in results]
        places = _Pointers(site) if any(name in updates(site.kernel) for name, _ in site.outputs) else None
        known = _prepare(site, tensors, results, places), makers, places
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = known
    prepared, makers, places = known
    results = [make() for make in makers]
    pointers = places.of(tensors, results) if places else [tensor.data_ptr() for tensor in (*tensors, *results)]
    prepared.run(pointers, _seed_values(site, seeds), _torch_tensors.stream(tensors[0]))
    return results


def run_updating(tensors, updated, text, seeds):
    """The call that writes to `updated`, the last of its inputs. Its other outputs, new: one, several or none."""
    results = run([*tensors, *updated], text, seeds)
    torch.autograd.graph.increment_version([each for each in updated if not each.is_inference()])
    return results[0] if len(results) == 1 else tuple(results) or None


def fake_updating(tensors, updated, text, seeds):
    results = fake([*tensors, *updated], text, seeds)
    return results[0] if len(results) == 1 else tuple(results) or None


_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_transforms = getattr(torch._C, "_are_functorch_transforms_active", None)


def watched():
    """Whether more than autograd may look at calls: a dispatch mode (fake tensors, tracing to graphs), or a transform of torch.func."""
    return _dispatch_modes is None or _transforms is None or bool(_dispatch_modes()) or _transforms()


def operated(kernel, tensors, text, seeds):
    return getattr(torch.ops.ejk, kernel).default(tensors, text, seeds)


def operated_updating(kernel, tensors, updated, text, seeds, count):
    """By the operator that says which of its arguments it writes to; `count` other outputs."""
    if not torch.compiler.is_compiling() and forward_ad._current_level >= 0:
        refuse_tangents(kernel, [*tensors, *updated])
    results = getattr(getattr(torch.ops.ejk, f"{kernel}_updating"), f"returns{count}")(tensors, updated, text, seeds)
    return [results] if count == 1 else list(results or ())


def refuse_tangents(kernel, tensors):
    """PyTorch would drop them without a word."""
    if any(forward_ad.unpack_dual(each).tangent is not None for each in tensors):
        raise UnsupportedError(f"{kernel} has no forward-mode derivative: use torch.func.vjp or backward(), or torch.autograd.functional.jvp, which takes two of those")
