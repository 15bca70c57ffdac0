"""The gradient of a call, from the spec: by one kernel or several, each an operator again."""

import functools
import json

import torch

from .._call import Arguments
from .._library import json_text, text
from .._spec import contract, differentiated
from .._tensor import View
from . import _site


@functools.lru_cache(maxsize=1024)
def _asked(kernel, shapes, attributes):
    views = {name: View(None, shape, None, dtype, (1, 0)) for name, (dtype, shape) in shapes}
    arguments = Arguments(views)
    return json.loads(text("ejk_gradient", kernel.encode(), arguments.array, arguments.count, json_text(dict(attributes))))


def _shape(tensor):
    view = _site.view_of(tensor)
    return view.dtype, view.shape


def _call(call, known, needed, inputs, seeds):
    """One of the gradient's calls: {input: its gradient}; nothing if nobody needs any."""
    of = {name: differentiated(call["tensors"][name], inputs) for name in call["outputs"]}
    if not any(x in needed for x in of.values()):
        return {}
    told = contract(call["kernel"])
    optional = {each.name for each in told.outputs if each.optional}
    asked = {name: x for name, x in of.items() if x in needed or name not in optional}
    tensors = {theirs: known[ours] for theirs, ours in call["tensors"].items() if theirs not in of}
    varying = {each.name for each in told.varying}
    kept = {name: value for name, value in seeds.items() if name in varying}
    site = _site.Site(
        call["kernel"],
        tuple(tensors),
        tuple((name, _shape(known[x])) for name, x in asked.items()),
        tuple(sorted(call["attributes"].items())),
        tuple(kept),
        None,
    )
    given = [_site.unit_stride(tensor) for tensor in tensors.values()]
    return dict(zip(asked.values(), getattr(torch.ops.ejk, site.kernel).default(given, site.text(), list(kept.values()))))


def backward(site, tensors, results, cotangents, needed, seeds):
    """Gradients of the tensors, None where none is needed."""
    known = dict(zip(site.inputs, tensors))
    for (name, _), result, cotangent in zip(site.outputs, results, cotangents):
        known[name] = result
        known[f"d{name}"] = torch.zeros_like(result) if cotangent is None else cotangent
    needed = {name for name, flag in zip(site.inputs, needed) if flag}
    given = site.inputs + tuple(name for name, _ in site.outputs)
    gradient = _asked(site.kernel, tuple((name, _shape(known[name])) for name in given), site.attributes)
    found = {}
    for call in gradient["calls"]:
        found.update(_call(call, known, needed, site.inputs, dict(zip(site.seeds, seeds))))
    for name, ours in gradient["equal"].items():
        x = differentiated(name, site.inputs)
        found[x] = known[ours].to(known[x].dtype)
    return [found.get(name) if name in needed else None for name in site.inputs]
