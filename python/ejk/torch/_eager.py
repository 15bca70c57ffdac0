"""Eager calls under autograd: a torch.autograd.Function around the eager call. The operators, which all that traces a call needs, take
five times as long to dispatch in Python."""

import dataclasses
import functools

import torch

from .._call import Kernel, config_text
from . import _sites
from ._gradient import backward
from ._site import watched  # noqa: F401  by whom a call must be seen as an operator
from ._transforms import called


class _Recorded(Kernel):
    """A kernel whose calls autograd records: outputs for the gradient alone are outputs like any other."""

    def __init__(self, kernel):
        told = kernel.contract
        saved = tuple([each.name for each in told.saved])
        super().__init__(kernel.name, kernel.inputs, kernel.outputs + saved, kernel.fixed, kernel.varying)
        self._contract = dataclasses.replace(told, outputs=told.outputs + told.saved)

    def differentiated(self, inputs):
        return [name for name, tensor in zip(self.inputs, inputs) if tensor is not None and tensor.requires_grad]


@functools.lru_cache(maxsize=None)
def _recorded(kernel):
    return _Recorded(kernel)


class _Plan:
    """A call but for its tensors and seeds. run: the eager call. kernel's outputs: wanted by the caller, or kept for the gradient."""

    def __init__(self, run, kernel, given, fixed, shown, wanted, config):
        names = tuple([name for name, flag in zip(kernel.outputs, wanted) if flag])
        kept = _sites.kept(kernel.name, names)
        kernel = _recorded(kernel)
        self.run, self.kernel, self.fixed, self.config = run, kernel, fixed, config
        self.made = tuple([name in names or name in kept for name in kernel.outputs])
        self.places = [place for place, flag in enumerate(given) if flag]
        inputs = tuple([kernel.inputs[place] for place in self.places])
        outputs = tuple([name for name, flag in zip(kernel.outputs, self.made) if flag])
        self.site = _sites.site(kernel.name, inputs, fixed, shown, outputs, config and config.decode())


_plan = functools.lru_cache(maxsize=4096)(_Plan)


_BEFORE = 3  # arguments of _Call that are no inputs


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan, varying, seeds, *inputs):
        results = plan.run(plan.kernel, inputs, plan.fixed, varying, None, plan.made, plan.config, None)
        results = tuple([each for each in results if each is not None]) if isinstance(results, tuple) else (results,)
        ctx.plan, ctx.seeds = plan, seeds
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*[inputs[place] for place in plan.places], *results)
        return results

    @staticmethod
    def backward(ctx, *cotangents):
        plan, saved = ctx.plan, ctx.saved_tensors
        count, needed = len(plan.places), ctx.needs_input_grad
        flags = [needed[_BEFORE + place] for place in plan.places]
        found = backward(plan.site, saved[:count], saved[count:], cotangents, flags, ctx.seeds, called)
        gradients = [None] * len(needed)
        for place, gradient in zip(plan.places, found):
            gradients[_BEFORE + place] = gradient
        return tuple(gradients)


_apply = super(torch.autograd.Function, _Call).apply  # Function's own looks for transforms of torch.func, which is done here: 2 of 6 us


def call(run, kernel, inputs, fixed, varying, wanted, cfg):
    """See _call.Kernel.call of the package. run: such a call, of which autograd knows nothing (_torch_arrays.call)."""
    seeds, shown = _sites.seeds_apart(_sites.seed_places(kernel.name), varying)
    plan = _plan(run, kernel, tuple([each is not None for each in inputs]), fixed, shown, wanted, config_text(cfg))
    made = iter(_apply(plan, varying, seeds, *inputs))
    outputs = [next(made) if flag else None for flag in plan.made]
    return kernel.returned([output if flag else None for output, flag in zip(outputs, wanted)])
