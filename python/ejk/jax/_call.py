"""A call with its gradient: custom_vjp made from the spec, whether one kernel computes it or several."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy

from .._call import config_text
from .._errors import InputError, UnsupportedError
from .._spec import contract, differentiated, outputs_read
from . import _trace
from ._site import Site
from ._site import call as make
from ._varying import varying_with


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(site, operands):
    outputs = site.known or _trace.output_shapes(site.kernel, site.named(operands), site.attributes, site.wanted)
    return tuple(make(site, outputs, operands))


def _forward(site, primals):
    operands = tuple(primal.value for primal in primals)
    if not contract(site.kernel).gradient:
        raise UnsupportedError(f"{site.kernel} has no gradient")
    read = outputs_read(site.kernel, site.wanted)
    wanted = site.wanted + tuple(name for name in read if name not in site.wanted)
    results = dict(zip(wanted, _differentiable(dataclasses.replace(site, wanted=wanted), operands)))
    kept = {name: results[name] for name in read}
    return tuple(results[name] for name in site.wanted), (operands, kept, _flags(primals))


def _flags(primals):
    """Whose gradient is asked for, as the shape of an empty array. JAX keeps one tree of residuals for a traced call however often it
    is differentiated, so that what is static in the tree may be another differentiation's; shapes are always this one's."""
    return jnp.zeros((0, sum(primal.perturbed << i for i, primal in enumerate(primals))), jnp.int8)


def _instantiated(cotangent):
    if isinstance(cotangent, jax.custom_derivatives.SymbolicZero):
        return jnp.zeros(cotangent.shape, cotangent.dtype)
    return cotangent


def _asked_outputs(site, call, perturbed):
    """The outputs of a gradient's call that somebody needs: required ones always, if there is one at all."""
    of = {name: differentiated(call["tensors"][name], site.inputs) for name in call["outputs"]}
    if not any(x in perturbed for x in of.values()):
        return {}
    optional = {tensor.name for tensor in contract(call["kernel"]).outputs if tensor.optional}
    return {name: x for name, x in of.items() if x in perturbed or name not in optional}


def _run(site, call, known, perturbed):
    """One of the gradient's calls: {input: its gradient}."""
    asked = _asked_outputs(site, call, perturbed)
    if not asked:
        return {}
    inputs = {theirs: known[ours] for theirs, ours in call["tensors"].items() if theirs not in call["outputs"]}
    outputs = tuple((name, _trace.shape_of(x, known[x])) for name, x in asked.items())
    attributes = tuple(sorted(call["attributes"].items()))
    theirs = Site(call["kernel"], tuple(inputs), attributes, tuple(asked), None, outputs, site.scopes)
    results = differentiable(theirs, tuple(inputs.values()))
    return dict(zip(asked.values(), results))


def _backward(site, residuals, cotangents):
    operands, kept, flags = residuals
    perturbed = {name for i, name in enumerate(site.inputs) if flags.shape[1] >> i & 1}
    known = {**dict(zip(site.inputs, operands)), **kept}
    for tensor in contract(site.kernel).outputs:
        if tensor.name in site.wanted:
            known[f"d{tensor.name}"] = _instantiated(cotangents[site.wanted.index(tensor.name)])
    outputs = tuple((name, _trace.shape_of(name, x)) for name, x in kept.items())
    gradient = _trace.gradient(site.kernel, site.named(operands) + outputs, site.attributes)
    found = {}
    for call in gradient["calls"]:
        found.update(_run(site, call, known, perturbed))
    for name, ours in gradient["equal"].items():
        x = differentiated(name, site.inputs)
        (found[x],) = varying_with([known[ours].astype(known[x].dtype)], operands)
    return (tuple(found.get(name) if name in perturbed else None for name in site.inputs),)


_differentiable.defvjp(_forward, _backward, symbolic_zeros=True)


def differentiable(site, operands):
    """The outputs wanted. An operand that all devices of a shard_map share differs from here on, as others do: JAX adds up its gradient."""
    return _differentiable(site, tuple(varying_with(operands, operands)))


@functools.lru_cache(maxsize=4096)
def _program(site):
    return jax.jit(lambda *operands: differentiable(site, operands))


def _site(kernel, names, attributes, wanted, config):
    return Site(kernel, tuple(names), tuple(sorted(attributes.items())), tuple(wanted), config, (), _trace.scopes())


def named_call(kernel, inputs, attributes, wanted, config=None):
    """{output: array} of a call on JAX arrays or tracers. inputs: {name: array}; attributes: those given, Python values."""
    return dict(zip(wanted, _program(_site(kernel, inputs, attributes, wanted, config))(*inputs.values())))


def _check_arrays(kernel, inputs):
    for name, array in zip(kernel.inputs, inputs):
        if array is not None and not isinstance(array, (jax.Array, numpy.ndarray)):
            raise TypeError(f"{kernel.name}: {name} is a {type(array).__qualname__}; expected a JAX array")


def _check_static(kernel, values):
    for name, value in zip(kernel.fixed + kernel.varying, values):
        if isinstance(value, jax.core.Tracer):
            raise InputError(f"{kernel.name}: {name} is being traced; an attribute must be a Python value, which is static under jit")


def _program_of(kernel, fixed, varying, wanted, config):
    """A call but for its arrays, as a program: of all inputs by position, None where not given."""
    _check_static(kernel, tuple(fixed) + tuple(varying))
    attributes, config = kernel.attributes(fixed, varying), config and config.decode()
    names = tuple(name for name, flag in zip(kernel.outputs, wanted) if flag)

    def program(*inputs):
        given = {name: array for name, array in zip(kernel.inputs, inputs) if array is not None}
        made = iter(differentiable(_site(kernel.name, given, attributes, names, config), tuple(given.values())))
        return kernel.returned([next(made) if flag else None for flag in wanted])

    program.__name__ = program.__qualname__ = kernel.name  # in JAX's messages
    return jax.jit(program)


def call(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream):
    """What ejk's functions do with JAX arrays: see _call.Kernel.call of the package. One seen before costs little more than jax.jit."""
    if outputs is not None:
        raise UnsupportedError(f"{kernel.name}: JAX arrays cannot be written to: give no outputs")
    if stream is not None:
        raise InputError(f"{kernel.name}: XLA chooses the stream: give none")
    config = cfg if cfg is None else config_text(cfg)
    try:
        key = fixed, varying, wanted, config, _trace.scopes()
        program = kernel.prepared.get(key)
    except TypeError:  # an attribute of the wrong kind: making the program says which
        key = program = None
    if program is None:
        _check_arrays(kernel, inputs)
        program = _program_of(kernel, fixed, varying, wanted, config)
        if key is not None:
            kernel.remember(key, program)
    try:
        return program(*inputs)
    except TypeError:
        _check_arrays(kernel, inputs)
        raise
