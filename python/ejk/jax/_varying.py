"""shard_map's types: along which axes of the mesh an array may differ. JAX has had two names for that and two for changing it."""

import jax


def _axes(array):
    told = jax.typeof(array)
    manual = getattr(told, "manual_axis_type", None)
    return getattr(told, "vma", frozenset()) if manual is None else manual.varying


def _cast(array, axes):
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, axes, to="varying")
    return jax.lax.pvary(array, axes)


def varying_with(results, operands):
    """The results of a call, which differ wherever an operand does. Outside shard_map, and where it does not check, nothing does."""
    if not hasattr(jax, "typeof"):
        return list(results)
    axes = frozenset().union(*map(_axes, operands))
    missing = [axes - _axes(result) for result in results]
    return [_cast(result, tuple(each)) if each else result for result, each in zip(results, missing)]
