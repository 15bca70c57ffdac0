"""jit with shardings: a call is partitioned along its batch dim; every other dim is gathered first. shard_map cuts as its caller says."""

import functools
import math

import jax
from jax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule, custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from . import _trace
from ._batch import batch_axes
from ._primitive import site_p


def _axes(site, operands, outputs):
    """The batch axis of each operand and of each output, None where it has none or is shared."""
    shapes = [_trace.shape_of(name, x) for name, x in zip(site.inputs, operands)]
    found = batch_axes(site.kernel, site.inputs, shapes, outputs, site.attributes)
    if not found:
        return [None] * len(operands), [None] * len(outputs)
    axes, shared = found
    alone = [axes.get(name) is None or (name in shared and s[1][axes[name]] == 1) for name, s in zip(site.inputs, shapes)]
    return [None if one else axes[name] for name, one in zip(site.inputs, alone)], [axes[name] for name, _ in outputs]


def _rule(operand_axes, operands, output_axes, outputs):
    """One factor for the batch dim; each other dim is a factor of its own that must be whole on every device."""
    whole, mappings = [], []
    for index, (axis, rank) in enumerate(
        [(a, x.ndim) for a, x in zip(operand_axes, operands)] + [(a, len(s)) for a, (_, (_, s)) in zip(output_axes, outputs)]
    ):
        names = []
        for i in range(rank):
            names.append("batch" if i == axis else f"t{index}d{i}")
            if i != axis:
                whole.append(names[-1])
        mappings.append(ArrayMapping(*names))
    cut = len(operands)
    return SdyShardingRule(tuple(mappings[:cut]), tuple(mappings[cut:]), need_replication_factors=tuple(whole))


def _specs(axes, ranks, mesh_axis):
    return [PartitionSpec(*(mesh_axis if i == axis else None for i in range(rank))) for axis, rank in zip(axes, ranks)]


def _local(outputs, output_axes, parts):
    return tuple(
        (name, (dtype, shape if axis is None else shape[:axis] + (shape[axis] // parts,) + shape[axis + 1 :]))
        for (name, (dtype, shape)), axis in zip(outputs, output_axes)
    )


def _mesh_axes(operand_axes, operand_types):
    """What the batch dim is cut along: as it is in the first operand that has it. None: it is whole."""
    for axis, operand in zip(operand_axes, operand_types):
        if axis is not None:
            spec = operand.sharding.spec
            return spec[axis] if axis < len(spec) else None
    return None


def _parts(mesh, cut):
    names = () if cut is None else cut if isinstance(cut, tuple) else (cut,)
    return math.prod(mesh.shape[name] for name in names)


def _shardings(axes, types, mesh, cut):
    return [NamedSharding(mesh, spec) for spec in _specs(axes, [len(each.shape) for each in types], cut)]


def _infer(operand_axes, output_axes, mesh, operand_types, result_types):
    """The results' shardings, for XLA's older partitioner."""
    return _shardings(output_axes, jax.tree.leaves(result_types), mesh, _mesh_axes(operand_axes, operand_types))


def _partition(bind, outputs, operand_axes, output_axes, mesh, operand_types, result_types):
    """What each device does, and how operands and results lie for it."""
    cut = _mesh_axes(operand_axes, operand_types)
    local = functools.partial(bind, _local(outputs, output_axes, _parts(mesh, cut)))
    results = _shardings(output_axes, jax.tree.leaves(result_types), mesh, cut)
    return mesh, local, results, tuple(_shardings(operand_axes, operand_types, mesh, cut))


def partitioned(site, outputs, operands):
    """One call, which XLA's partitioner may cut."""

    def bind(outputs, *local):
        return site_p.bind(
            *local, kernel=site.kernel, inputs=site.inputs, outputs=outputs, attributes=site.attributes, config=site.config
        )

    operand_axes, output_axes = _axes(site, operands, outputs)
    cut = custom_partitioning(lambda *whole: bind(outputs, *whole))
    cut.def_partition(
        partition=functools.partial(_partition, bind, outputs, operand_axes, output_axes),
        infer_sharding_from_operands=functools.partial(_infer, operand_axes, output_axes),
        sharding_rule=_rule(operand_axes, operands, output_axes, outputs),
    )
    return cut(*operands)
