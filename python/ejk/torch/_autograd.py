"""A call by operators: what ejk's functions do where PyTorch must see the call itself."""

import torch

from .._call import config_text
from .._errors import InputError, UnsupportedError
from . import _site
from ._sites import kept, kernel_of, seed_places, seeds_apart, site
from ._transforms import called


# torch.compile does not look into these three; what they say for constants is a constant of the graph.
@torch.compiler.assume_constant_result
def _site_text(name, inputs, fixed, varying, wanted, cfg):
    """The text of a call; integers that vary from call to call, its seeds, stay out of it."""
    config = config_text(cfg)
    return site(name, inputs, fixed, varying, wanted, config and config.decode()).text()


@torch.compiler.assume_constant_result
def _kept(name, wanted, recorded):
    return kept(name, wanted) if recorded or kernel_of(name).contract.gradient else ()


@torch.compiler.assume_constant_result
def _integers(name):
    return seed_places(name)


_transforms = getattr(torch._C, "_are_functorch_transforms_active", bool)


@torch.compiler.allow_in_graph  # as it stands: the compiler's next stage runs it
def _in_graph(name, tensors, text, seeds):
    return called(name, tensors, text, seeds)


def _constants(values):
    """The same values: constants of the graph also where a compiler makes symbols of numbers, which keys of a dict never are to it."""
    return tuple([next(iter({value: None})) if isinstance(value, (int, float)) else value for value in values])


def _check_leaves(kernel, updated):
    for _, name, tensor in updated:
        if tensor.requires_grad and tensor.is_leaf:
            raise InputError(
                f"{kernel}: {name} is a leaf that requires grad, and the call updates it in place: give a clone of it, or detach it"
            )


def _update(kernel, given, updated, names, fixed, varying, cfg):
    """{output: tensor} of a call that writes to the caller's tensors: what autograd does not record."""
    written = {name: tensor for _, name, tensor in updated}
    read = [(name, tensor) for name, tensor in given if name not in written]
    made = {output: tensor for output, _, tensor in updated}
    own = [name for name in names if name not in made]
    seeds, shown = seeds_apart(_integers(kernel.name), varying)
    inputs = tuple([name for name, _ in read] + list(written))
    text = _site_text(kernel.name, inputs, _constants(fixed), _constants(shown), tuple(own), cfg)
    results = _site.operated_updating(kernel.name, [tensor for _, tensor in read], list(written.values()), text, seeds, len(own))
    made.update(zip(own, results))
    return made


def call(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream):
    """See _call.Kernel.call of the package. This function itself is traced by torch.compile: it only moves arguments about."""
    if outputs is not None and any(each is not None for each in outputs):
        raise UnsupportedError(f"{kernel.name}: outputs cannot be given under autograd or torch.compile; use torch.no_grad()")
    if stream is not None:
        raise InputError(f"{kernel.name}: an operator goes to PyTorch's current stream: give none")
    given = [(name, tensor) for name, tensor in zip(kernel.inputs, inputs) if tensor is not None]
    for name, tensor in given:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{kernel.name}: {name} is a {type(tensor).__qualname__}; expected a torch.Tensor")
    updated = [(kernel.outputs[output], kernel.inputs[place], inputs[place]) for output, place in kernel.updates if inputs[place] is not None]
    absent = [kernel.outputs[output] for output, place in kernel.updates if inputs[place] is None]
    names = [name for name, flag in zip(kernel.outputs, wanted) if flag and name not in absent]
    recorded = torch.is_grad_enabled() and any([tensor.requires_grad for _, tensor in given])
    if updated and not recorded and not _transforms():
        made = _update(kernel, given, updated, names, fixed, varying, cfg)
        return kernel.returned([made.get(name) for name in kernel.outputs])
    if recorded:
        _check_leaves(kernel.name, updated)
    transformed = torch.compiler.is_compiling() and _transforms()  # of which nobody says whether grad is one
    if recorded or transformed:
        names += [name for name in _kept(kernel.name, tuple(names), recorded) if name not in names]
    seeds, shown = seeds_apart(_integers(kernel.name), varying)
    text = _site_text(kernel.name, tuple([name for name, _ in given]), _constants(fixed), _constants(shown), tuple(names), cfg)
    carried_out = _in_graph if transformed else _site.operated if torch.compiler.is_compiling() else called
    results = carried_out(kernel.name, [tensor for _, tensor in given], text, seeds)
    made = dict(zip(names, results))
    for output, _, tensor in updated:  # the call ran on copies
        made[output] = tensor.copy_(made[output])
    return kernel.returned([made.get(name) if flag else None for name, flag in zip(kernel.outputs, wanted)])
