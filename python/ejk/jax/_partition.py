"""jit with shardings: a call is partitioned along its batch dim; every other dim is gathered first. shard_map cuts as its caller says.

A batch that does not divide over the devices is padded by XLA, with anything: each device computes its rows of padding, and nothing reads
them. Where a rule of the kernel is about the data of such rows (page numbers, lengths), the batch is gathered instead."""

import functools
import inspect
import itertools
import math

import jax
import numpy
from jax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule, custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from .._spec import contract
from . import _trace
from ._batch import batch_axes
from ._primitive import site_p

# Before JAX 0.7 a rule could not say which dims must be whole; _partition says it again.
_HAS_REPLICATION = "need_replication_factors" in inspect.signature(SdyShardingRule).parameters


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
    options = {"need_replication_factors": tuple(whole)} if _HAS_REPLICATION else {}
    return SdyShardingRule(tuple(mappings[:cut]), tuple(mappings[cut:]), **options)


def _specs(axes, ranks, mesh_axis):
    return [PartitionSpec(*(mesh_axis if i == axis else None for i in range(rank))) for axis, rank in zip(axes, ranks)]


def _local(outputs, output_axes, parts):
    """The outputs as one device has them: XLA pads a batch to a multiple of the devices."""
    return tuple(
        (name, (dtype, shape if axis is None else shape[:axis] + (-(-shape[axis] // parts),) + shape[axis + 1 :]))
        for (name, (dtype, shape)), axis in zip(outputs, output_axes)
    )


def _may_pad(site, operand_axes):
    """Whether rows of anything may stand in the batch: not where a rule reads their data."""
    read = {name for rule in contract(site.kernel).requires for name in rule["reads"]}
    return not any(axis is not None and name in read for name, axis in zip(site.inputs, operand_axes))


def _parts(mesh, cut):
    return math.prod(mesh.shape[name] for name in cut or ())


def _axes_that_cut(operand, axis, mesh):
    """The axes of the mesh that an operand's dim is cut along, None if it is whole, or cut as no axes are (a reshape may leave it so)."""
    if operand.sharding is None or mesh.empty:
        return None
    tiles = operand.sharding._to_xla_hlo_sharding(len(operand.shape))
    parts = tiles.tile_assignment_dimensions()[axis] if tiles.is_tiled() else 1
    if parts == 1:
        return None
    order = numpy.asarray(tiles.tile_assignment_devices()).reshape(tiles.tile_assignment_dimensions())
    part_of = numpy.empty(mesh.size, int)  # by device
    part_of[order] = numpy.arange(parts).reshape(-1, *(1,) * (order.ndim - axis - 1))
    places = dict(zip(mesh.axis_names, numpy.indices(mesh.devices.shape).reshape(mesh.devices.ndim, -1)))
    for count in range(1, len(mesh.axis_names) + 1):
        for names in itertools.permutations(mesh.axis_names, count):
            sizes = [mesh.shape[name] for name in names]
            if math.prod(sizes) == parts and (numpy.ravel_multi_index([places[name] for name in names], sizes) == part_of).all():
                return names
    return None


def _mesh_axes(may_pad, operand_axes, operand_types, mesh):
    """What the batch dim is cut along: as it is in the first operand where it is cut. None: it is whole."""
    for axis, operand in zip(operand_axes, operand_types):
        cut = None if axis is None else _axes_that_cut(operand, axis, mesh)
        if cut is not None:
            return cut if may_pad or operand.shape[axis] % _parts(mesh, cut) == 0 else None
    return None


def _shardings(axes, types, mesh, cut):
    return [NamedSharding(mesh, spec) for spec in _specs(axes, [len(each.shape) for each in types], cut)]


def _infer(may_pad, operand_axes, output_axes, mesh, operand_types, result_types):
    """The results' shardings, for XLA's older partitioner."""
    return _shardings(output_axes, jax.tree.leaves(result_types), mesh, _mesh_axes(may_pad, operand_axes, operand_types, mesh))


def _partition(bind, outputs, may_pad, operand_axes, output_axes, mesh, operand_types, result_types):
    """What each device does, and how operands and results lie for it."""
    cut = _mesh_axes(may_pad, operand_axes, operand_types, mesh)
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
    may_pad = _may_pad(site, operand_axes)
    cut = custom_partitioning(lambda *whole: bind(outputs, *whole))
    cut.def_partition(
        partition=functools.partial(_partition, bind, outputs, may_pad, operand_axes, output_axes),
        infer_sharding_from_operands=functools.partial(_infer, may_pad, operand_axes, output_axes),
        sharding_rule=_rule(operand_axes, operands, output_axes, outputs),
        decode_shardings=False,  # JAX's own way ends the program where a sharding is along no axes of the mesh
    )
    return cut(*operands)
