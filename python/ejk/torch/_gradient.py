"""The gradient of a call, from the spec: by one kernel or several, each an operator again."""

import functools
import json
from dataclasses import dataclass

import torch

from .._call import Arguments
from .._library import json_text, text
from .._spec import contract, differentiated
from .._tensor import View
from . import _site


def _shape(tensor):
    view = _site.view_of(tensor)
    return view.dtype, view.shape


@dataclass(frozen=True)
class _Step:
    """A call of the gradient: its kernel, what its tensors are to the call itself, its text and seeds, and whose gradients it gives."""

    kernel: str
    tensors: tuple
    text: str
    seeds: tuple
    gives: tuple


def _step(call, shapes, needed, seeds):
    """None if nobody needs what it gives."""
    of = {name: differentiated(call["tensors"][name], shapes) for name in call["outputs"]}
    if not any(x in needed for x in of.values()):
        return None
    told = contract(call["kernel"])
    optional = {each.name for each in told.outputs if each.optional}
    asked = {name: x for name, x in of.items() if x in needed or name not in optional}
    tensors = {theirs: ours for theirs, ours in call["tensors"].items() if theirs not in of}
    varying = {each.name for each in told.varying}
    kept = tuple(name for name in seeds if name in varying)
    outputs = tuple((name, shapes[x]) for name, x in asked.items())
    site = _site.Site(call["kernel"], tuple(tensors), outputs, tuple(sorted(call["attributes"].items())), kept, None)
    return _Step(site.kernel, tuple(tensors.values()), site.text(), kept, tuple(asked.values()))


@functools.lru_cache(maxsize=4096)
def _steps(site, shapes, needed):
    """(the gradient's calls, {input: the tensor that its gradient is}) for inputs of these shapes."""
    views = {name: View(None, shape, None, dtype, (1, 0)) for name, (dtype, shape) in zip(site.inputs, shapes)}
    arguments, attributes = Arguments(views), json_text(dict(site.attributes))
    told = json.loads(text("ejk_gradient", site.kernel.encode(), arguments.array, arguments.count, attributes))
    known = dict(zip(site.inputs, shapes))
    steps = [_step(call, known, needed, site.seeds) for call in told["calls"]]
    equal = {differentiated(name, site.inputs): ours for name, ours in told["equal"].items()}
    return [step for step in steps if step], equal


def backward(site, tensors, results, cotangents, needed, seeds):
    """Gradients of the tensors, None where none is needed."""
    known = dict(zip(site.inputs, tensors))
    for (name, _), result, cotangent in zip(site.outputs, results, cotangents):
        known[name] = result
        known[f"d{name}"] = torch.zeros_like(result) if cotangent is None else cotangent
    needed = frozenset(name for name, flag in zip(site.inputs, needed) if flag)
    steps, equal = _steps(site, tuple(_shape(tensor) for tensor in tensors), needed)
    given, found = dict(zip(site.seeds, seeds)), {}
    for step in steps:
        operator = getattr(torch.ops.ejk, step.kernel).default
        operands = [_site.unit_stride(known[name]) for name in step.tensors]
        found.update(zip(step.gives, operator(operands, step.text, [given[name] for name in step.seeds])))
    for x, ours in equal.items():
        found[x] = known[ours].to(known[x].dtype)
    return [found.get(name) if name in needed else None for name in site.inputs]
