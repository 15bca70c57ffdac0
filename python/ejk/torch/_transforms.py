"""How a call with a site is carried out: by its operator, directly while no dispatch mode is active, or under torch.func's transforms (grad, vmap, vjp
and their like), which torch.library's own autograd does not know."""

import torch
from torch.autograd import forward_ad

from .. import _torch_tensors
from . import _site
from ._gradient import backward

_transforms = getattr(torch._C, "_are_functorch_transforms_active", None)
_BEFORE = 3  # arguments of _Call that are no tensors


class _Call(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(kernel, text, seeds, *tensors):
        return tuple(_site.operated(kernel, list(tensors), text, seeds))

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.text, ctx.seeds, *tensors = inputs
        ctx.inputs = len(tensors)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*_site.saved(_site.site_of(ctx.text), tensors, output), *output)

    @staticmethod
    def backward(ctx, *cotangents):
        saved, needed = ctx.saved_tensors, ctx.needs_input_grad[_BEFORE:]
        found = backward(_site.site_of(ctx.text), saved[: ctx.inputs], saved[ctx.inputs :], cotangents, needed, ctx.seeds, called)
        return (None,) * _BEFORE + tuple(found)


def called(kernel, tensors, text, seeds):
    """The call's outputs: by the operator, or directly where neither autograd, a dispatch mode nor a tensor subclass needs it."""
    if forward_ad._current_level >= 0:
        _site.refuse_tangents(kernel, tensors)
    if _transforms is not None and _transforms():
        return list(_Call.apply(kernel, text, seeds, *tensors))
    alone = not torch.is_grad_enabled() and not _site.watched() and all([type(each) in _torch_tensors._PLAIN for each in tensors])
    return _site.run(tensors, text, seeds) if alone else _site.operated(kernel, tensors, text, seeds)


def looped(kernel):
    """The operator's rule for vmap: a call an entry."""

    def rule(info, in_dims, tensors, text, seeds):
        if info.batch_size == 0:
            one = [x if dim is None else x.new_empty(x.shape[:dim] + x.shape[dim + 1 :]) for x, dim in zip(tensors, in_dims[0])]
            made = [x.new_empty((0, *x.shape)) for x in _site.fake(one, text, seeds)]
        else:
            entries = [[x] * info.batch_size if dim is None else x.unbind(dim) for x, dim in zip(tensors, in_dims[0])]
            made = [torch.stack(each) for each in zip(*[_site.operated(kernel, list(each), text, seeds) for each in zip(*entries)])]
        return made, [0] * len(made)

    return rule
