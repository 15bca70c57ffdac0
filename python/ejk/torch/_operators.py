"""torch.library operators, one a kernel: (Tensor[] tensors, str site, SymInt[] seeds) -> Tensor[]. An input that the kernel updates is copied,
and the copy is a result. Beside it, for a kernel that updates inputs, <kernel>_updating writes to them; its schema says so."""

import torch

from .._spec import contract, kernel_names
from . import _site
from ._gradient import backward
from ._transforms import called, looped

_library = torch.library.Library("ejk", "FRAGMENT")
_defined = set()


def _keep(ctx, inputs, output):
    tensors, ctx.site, ctx.seeds = inputs
    ctx.inputs = len(tensors)
    ctx.save_for_backward(*_site.saved(_site.site_of(ctx.site), tensors, output), *output)


def _grad(ctx, cotangents):
    saved = ctx.saved_tensors
    site, needed = _site.site_of(ctx.site), ctx.needs_input_grad[0]
    found = backward(site, saved[: ctx.inputs], saved[ctx.inputs :], cotangents, needed, ctx.seeds, called)
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


    if contract(kernel).updates:
        _define_updating(kernel)


def _define_updating(kernel):
    """An overload for each number of other outputs: what PyTorch's compiler makes functional has results that are tensors, not lists."""
    own = sum(not each.updates for each in contract(kernel).outputs)
    for count in range(own + 1):
        name = f"{kernel}_updating.returns{count}"
        results = "(" + ", ".join(["Tensor"] * count) + ")" if count != 1 else "Tensor"
        _library.define(f"{name}(Tensor[] tensors, Tensor(a!)[] updated, str site, SymInt[] seeds) -> {results}",
                        tags=(torch.Tag.pt2_compliant_tag,))  # fmt: skip
        _library.impl(name, _site.run_updating, "CompositeExplicitAutograd")
        torch.library.register_fake(f"ejk::{name}", _site.fake_updating, lib=_library)


def define_all():
    """Those of the stores. A compiler that traces a call finds them made."""
    for kernel in kernel_names():
        define(kernel)
