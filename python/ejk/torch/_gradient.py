"""The gradient of a call, from the spec: by one kernel or several, each an operator again while a dispatch mode or functorch transform is active."""

import functools
import json
from dataclasses import dataclass

import torch

from .._call import Arguments
from .._library import json_text, text
from .._spec import calls_needed, contract, differentiated
from .._tensor import View
from . import _site


def _asked(kernel, shapes, attributes):
    """{"calls", "equal"}: ejk_gradient."""
    views = {name: View(None, shape, None, dtype, (1, 0)) for name, (dtype, shape) in shapes}
    arguments = Arguments(views)
    return json.loads(text("ejk_gradient", kernel.encode(), arguments.array, arguments.count, json_text(dict(attributes))))


@dataclass(frozen=True)
class _Step:
    """One of the gradient's calls."""

    kernel: str
    tensors: tuple  # what it is given, by the names of the differentiated call: inputs, outputs, d<output>
    found: tuple  # of each of its outputs: (the input whose gradient it is or None, the name that later steps take it by)
    seeds: tuple
    site: str


def _shapes_known(site, shapes):
    """{name: (element type, shape)} of inputs, outputs and the outputs' cotangents."""
    known = dict(zip(site.inputs + tuple(name for name, _ in site.outputs), shapes))
    return {**known, **{f"d{name}": known[name] for name, _ in site.outputs}}


def _step(call, asked, known, site):
    told = contract(call["kernel"])
    tensors = {theirs: ours for theirs, ours in call["tensors"].items() if theirs not in call["outputs"]}
    seeds = tuple(each for each in site.seeds if each in {each.name for each in told.varying})
    shapes = {name: (dtype, tuple(shape)) for name, (dtype, shape) in call["shapes"].items()}
    outputs = tuple((name, known[x] if x else shapes[name]) for name, (x, _) in asked.items())
    attributes = tuple(sorted(call["attributes"].items()))
    theirs = _site.Site(call["kernel"], tuple(tensors), outputs, attributes, seeds, None)
    return _Step(call["kernel"], tuple(tensors.values()), tuple(asked.values()), seeds, theirs.text())


@functools.lru_cache(maxsize=1024)
def _plan(site, shapes, needed):
    """(steps, {input: the tensor that its gradient equals})."""
    known = _shapes_known(site, [(_site.element_type(dtype), tuple(shape)) for dtype, shape in shapes])
    given = tuple((name, known[name]) for name in site.inputs + tuple(name for name, _ in site.outputs))
    gradient = _asked(site.kernel, given, site.attributes)
    steps = [_step(call, asked, known, site) for call, asked in calls_needed(gradient["calls"], site.inputs, needed)]
    equal = {differentiated(name, site.inputs): ours for name, ours in gradient["equal"].items()}
    return tuple(steps), equal


def _shape(tensor):
    """(element type, shape), as they come where they can be hashed."""
    return tensor.dtype, tensor.shape if type(tensor) is torch.Tensor else tuple(map(int, tensor.shape))


class _Known(dict):
    """Tensors by name. The cotangent of an output that nobody used is made when a call takes it."""

    def __missing__(self, name):
        if name[1:] not in self:
            raise KeyError(name)
        self[name] = torch.zeros_like(self[name[1:]])
        return self[name]


def _run(step, known, seeds, called):
    """((input or None, name), result) of each of its outputs"""
    given = [_site.unit_stride(known[name]) for name in step.tensors]
    results = called(step.kernel, given, step.site, [seeds[name] for name in step.seeds])
    return zip(step.found, results)


def backward(site, tensors, results, cotangents, needed, seeds, called):
    """Gradients of the tensors, None where none is needed. called: how each of the calls is carried out (_transforms.called)."""
    names = [name for name, _ in site.outputs]
    known = _Known(zip((*site.inputs, *names), (*tensors, *results)))
    known.update((f"d{name}", each) for name, each in zip(names, cotangents) if each is not None)
    needed = frozenset(name for name, flag in zip(site.inputs, needed) if flag)
    steps, equal = _plan(site, tuple([_shape(each) for each in (*tensors, *results)]), needed)
    found, given = {}, dict(zip(site.seeds, seeds))
    for step in steps:
        for (x, name), result in _run(step, known, given, called):
            if x is None:
                known[name] = result
            else:
                found[x] = found[x] + result if x in found else result
    for x, ours in equal.items():
        result = known[ours].to(known[x].dtype)
        found[x] = found[x] + result if x in found else result
    return [found.get(name) if name in needed else None for name in site.inputs]
