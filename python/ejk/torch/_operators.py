"""torch.library operators, one a kernel: (Tensor[] tensors, str site, SymInt[] seeds) -> Tensor[]."""

import torch

from .._spec import kernel_names
from . import _site
from ._gradient import backward
from ._transforms import looped

_library = torch.library.Library("ejk", "FRAGMENT")
_defined = set()


def _keep(ctx, inputs, output):
    tensors, ctx.site, ctx.seeds = inputs
    ctx.inputs = len(tensors)
    ctx.save_for_backward(*tensors, *output)


def _grad(ctx, cotangents):
    saved = ctx.saved_tensors
    site, needed = _site.site_of(ctx.site), ctx.needs_input_grad[0]
    found = backward(site, saved[: ctx.inputs], saved[ctx.inputs :], cotangents, needed, ctx.seeds)
    return found, None, None if ctx.seeds else []


def define(kernel):
    """torch.ops.ejk.<kernel>, if it is not there yet."""
    if kernel in _defined:
        return
    _defined.add(kernel)
    _library.define(f"{kernel}(Tensor[] tensors, str site, SymInt[] seeds) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(kernel, _site.run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"ejk::{kernel}", _site.fake, lib=_library)
    torch.library.register_autograd(f"ejk::{kernel}", _grad, setup_context=_keep, lib=_library)
    torch.library.register_vmap(f"ejk::{kernel}", looped(kernel), lib=_library)


def define_all():
    """Those of the stores. A compiler that traces a call finds them made."""
    for kernel in kernel_names():
        define(kernel)
