"""ejk in PyTorch: an operator a kernel (torch.ops.ejk.flash_attention), with autograd and fake tensors, so that torch.compile keeps it.

ejk's functions come here by themselves where PyTorch needs it: under autograd (_eager.py: without the operators, while no dispatch mode or functorch transform is active),
in torch.compile, under torch.func's transforms (_transforms.py), for subclasses of Tensor. Nothing has to be imported. Shapes and attributes are fixed in a compiled graph, except integers
that vary from call to call (dropout_seed).
"""

from ._operators import define_all

__all__ = ["call"]

define_all()


def __getattr__(name):
    """`call` imports torch._dynamo, which takes seconds: an eager call does without."""
    if name != "call":
        raise AttributeError(f"ejk.torch has no '{name}'; it has call")
    from ._autograd import call

    globals()["call"] = call
    return call
