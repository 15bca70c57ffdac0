"""A call but for its operands, and the call itself: batched by vmap, cut by the partitioner, a custom call in the end."""

from dataclasses import dataclass

import jax
from jax.custom_batching import custom_vmap

from . import _trace
from ._batch import batched
from ._partition import partitioned
from ._varying import varying_with


@jax.tree_util.register_static
@dataclass(frozen=True)
class Site:
    kernel: str
    inputs: tuple  # the operands' names
    attributes: tuple  # sorted ((name, value), ...)
    wanted: tuple  # outputs, in the caller's order
    config: "str | None"
    known: tuple  # ((output, (element type, shape)), ...) of outputs whose shapes the operands alone may not tell
    scopes: int  # what else chose configs when the call was made: it keeps programs of other scopes apart

    def named(self, operands):
        return tuple((name, _trace.shape_of(name, x)) for name, x in zip(self.inputs, operands))


def call(site, outputs, operands):
    """The results of one call, in the order of `outputs`: ((name, (element type, shape)), ...)."""
    one = custom_vmap(lambda *xs: varying_with(partitioned(site, outputs, xs), xs))
    one.def_vmap(lambda count, mapped, *xs: batched(call, site, outputs, count, mapped, xs))
    return one(*operands)
