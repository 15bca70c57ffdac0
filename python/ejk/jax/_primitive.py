"""One custom call on one device, as a JAX primitive. Its parameters are hashable: kernel; inputs, the operands' names; outputs,
((name, (dtype, shape)), ...); attributes, sorted ((name, value), ...); config, JSON text or None."""

import functools
import json

import jax
import jax.extend
import jax.numpy as jnp
from jax.interpreters import mlir

from .._spec import contract
from . import _ffi, _trace

site_p = jax.extend.core.Primitive("ejk")

_ALIGNMENT = 256  # of a workspace; what XLA allocates may begin between two multiples


def result_types(outputs):
    return [jax.core.ShapedArray(shape, jnp.dtype(_trace.NUMPY_DTYPES[dtype])) for _, (dtype, shape) in outputs]


def _abstract(*operands, outputs, **_):
    return result_types(outputs)


@functools.lru_cache(maxsize=4096)
def _program(parameters):
    return jax.jit(functools.partial(site_p.bind, **dict(parameters)))


def _evaluate(*operands, **parameters):
    """Outside jit: a program of the one call, also where jit is disabled."""
    program = _program(tuple(sorted(parameters.items())))
    if not jax.config.jax_disable_jit:
        return program(*operands)
    with jax.disable_jit(False):
        return program(*operands)


def _updates(kernel, inputs, outputs):
    """{place of a result: place of the operand whose memory it is}. XLA copies an operand that is needed later, or that is not donated."""
    updates = {each.name: each.updates for each in contract(kernel).outputs if each.updates}
    return {result: inputs.index(updates[name]) for result, (name, _) in enumerate(outputs) if name in updates}


def _lower_site(platform, context, *operands, kernel, inputs, outputs, attributes, config):
    """One custom call: the config is chosen here, and its workspace is a result that nothing reads."""
    operand_shapes = tuple((name, _trace.shape_of(name, aval)) for name, aval in zip(inputs, context.avals_in))
    tensors, device = operand_shapes + outputs, _trace.DEVICES[platform]
    choice = _trace.chosen(kernel, tensors, attributes, config, device)
    results, updates = list(context.avals_out), _updates(kernel, inputs, outputs)
    if choice["workspace_bytes"]:
        results.append(jax.core.ShapedArray((choice["workspace_bytes"] + _ALIGNMENT,), jnp.uint8))
    call = {
        "kernel": kernel,
        "attributes": dict(attributes),
        "config": choice["config"],
        "tensors": [[name, dtype, shape] for name, (dtype, shape) in tensors],
    }
    if updates:
        call["updates"] = [[len(inputs) + result, operand] for result, operand in updates.items()]
    text = json.dumps(call, sort_keys=True)
    label = _trace.label(kernel, tensors, attributes, device)
    rule = jax.ffi.ffi_lowering(_ffi.target(), operand_output_aliases={operand: result for result, operand in updates.items()})
    return rule(context.replace(avals_out=results), *operands, call=text, label=label)[: len(outputs)]


site_p.multiple_results = True
site_p.def_abstract_eval(_abstract)
site_p.def_impl(_evaluate)
for _platform in _trace.DEVICES:
    mlir.register_lowering(site_p, functools.partial(_lower_site, _platform), platform=_platform)
