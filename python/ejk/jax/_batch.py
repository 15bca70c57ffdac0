"""vmap: calls along a mapped axis are one call of a larger batch dim where the spec says that they are independent, else a loop."""

import jax
import jax.numpy as jnp

from . import _trace


def batch_axes(kernel, inputs, shapes, outputs, attributes):
    """({tensor: its axis of the batch dim or None}, the tensors that may have one entry there for all); None: calls are not independent.

    An output without the batch dim (a gradient summed over it) makes calls dependent."""
    batch = _trace.bound(kernel, tuple(zip(inputs, shapes)) + outputs, attributes)["batch"]
    if batch is None or any(batch["axes"].get(name) is None for name, _ in outputs):
        return None
    return batch["axes"], set(batch["or_one"])


def _merged(operand, axis):
    """Axis 0, the calls, goes into the batch axis, outside what is there."""
    operand = jnp.moveaxis(operand, 0, axis)
    shape = operand.shape
    return operand.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


def _split(result, axis, count):
    shape = result.shape
    return jnp.moveaxis(result.reshape(*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :]), axis, 0)


def _folded(found, inputs, operands, mapped, shapes, count):
    """The operands of the one call; None if there is none."""
    if found is None or count == 0:
        return None
    axes, shared = found
    folded = []
    for name, operand, is_mapped, (_, shape) in zip(inputs, operands, mapped, shapes):
        axis = axes.get(name)
        one_for_all = axis is not None and name in shared and shape[axis] == 1
        if is_mapped and (axis is None or one_for_all):
            return None  # no batch dim, or one entry for all of a call and another for the next
        if axis is None or one_for_all:
            folded.append(operand)
        else:
            folded.append(_merged(operand if is_mapped else jnp.broadcast_to(operand[None], (count, *operand.shape)), axis))
    return folded


def batched(call, site, outputs, count, mapped, operands):
    """The rule of custom_vmap: mapped operands have the calls in axis 0. call(site, outputs, operands) makes one call."""
    shapes = [_trace.shape_of(name, x, 1 if is_mapped else 0) for name, x, is_mapped in zip(site.inputs, operands, mapped)]
    found = batch_axes(site.kernel, site.inputs, shapes, outputs, site.attributes)
    folded = _folded(found, site.inputs, operands, mapped, shapes, count)
    if folded is None:
        return _looped(call, site, outputs, mapped, operands), [True] * len(outputs)
    axes = [found[0][name] for name, _ in outputs]
    larger = tuple(
        (name, (dtype, shape[:axis] + (shape[axis] * count,) + shape[axis + 1 :]))
        for (name, (dtype, shape)), axis in zip(outputs, axes)
    )
    results = call(site, larger, folded)
    return [_split(result, axis, count) for result, axis in zip(results, axes)], [True] * len(outputs)


def _looped(call, site, outputs, mapped, operands):
    def one(entries):
        entries = iter(entries)
        return call(site, outputs, [next(entries) if m else x for x, m in zip(operands, mapped)])

    return jax.lax.map(one, [x for x, m in zip(operands, mapped) if m])
