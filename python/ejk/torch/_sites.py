"""What a call is but for its tensors: its site, what its gradient reads, its seeds. Apart from _autograd.py, whose marks for torch.compile import
torch._dynamo, which takes seconds: an eager call under autograd needs none of it."""

import functools

from .._attributes import as_int64
from .._call import Kernel
from .._errors import UnsupportedError
from .._spec import outputs_read
from . import _site
from ._operators import define


@functools.lru_cache(maxsize=4096)
def site(name, inputs, fixed, varying, wanted, config):
    """The Site of a call: names of its inputs and outputs, its attributes by position, its config as text."""
    kernel = kernel_of(name)
    integers = {each.name for each in kernel.contract.varying if each.type == "int"}
    attributes = kernel.attributes(fixed, varying)
    seeds = tuple(each for each in attributes if each in integers)
    rest = tuple(sorted((each, value) for each, value in attributes.items() if each not in integers))
    return _site.Site(name, inputs, tuple((each, None) for each in wanted), rest, seeds, config)


@functools.lru_cache(maxsize=None)
def kernel_of(name):
    define(name)
    return Kernel.of(name)


@functools.lru_cache(maxsize=None)
def seed_places(name):
    """Of each varying attribute, whether it is an integer: those are a call's seeds."""
    return tuple(each.type == "int" for each in kernel_of(name).contract.varying)


def kept(name, wanted):
    """Outputs that the gradient reads, if those are wanted."""
    told = kernel_of(name).contract
    if not told.gradient:
        updated = [told.inputs[place].name for _, place in told.updates]
        more = f" ({', '.join(updated)}, which it updates in place, too)" if updated else ""
        raise UnsupportedError(f"{name} has no gradient (a second derivative differentiates a gradient); detach its inputs{more}, or call it under torch.no_grad()")
    return outputs_read(name, wanted)


def seeds_apart(places, varying):
    """(values of the seeds given, the varying attributes without them). A compiled graph serves all seeds: 0 stands for any."""
    seeds = [as_int64(value) for value, integer in zip(varying, places) if integer and value is not None]
    return seeds, tuple([0 if integer and value is not None else value for value, integer in zip(varying, places)])
