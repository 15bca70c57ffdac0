"""A call with its gradient: custom_vjp made from the spec, whether one kernel computes it or several."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy

from .. import _numpy_arrays
from .._call import check_config, config_text, output
from .._errors import InputError, UnsupportedError
from .._spec import calls_needed, contract, differentiated, outputs_read
from .._tensor import View
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
        raise UnsupportedError(
            f"{site.kernel} has no gradient, so that what it computes cannot be differentiated (a second derivative differentiates a"
            " gradient): put jax.lax.stop_gradient around its operands, or take this derivative of the same maths in jax.numpy"
        )
    read = outputs_read(site.kernel, site.wanted)
    wanted = site.wanted + tuple(name for name in read if name not in site.wanted)
    results = dict(zip(wanted, _differentiable(dataclasses.replace(site, wanted=wanted), operands)))
    kept = {name: results[name] for name in read}
    perturbed = tuple(name for name, primal in zip(site.inputs, primals) if primal.perturbed)
    outputs = tuple((name, _trace.shape_of(name, x)) for name, x in results.items())
    _trace.build_gradient(site.kernel, site.named(operands) + outputs, site.attributes, perturbed)
    return tuple(results[name] for name in site.wanted), (operands, kept, _flags(primals))


def _flags(primals):
    """Whose gradient is asked for, as the shape of an empty array. JAX keeps one tree of residuals for a traced call however often it
    is differentiated, so that what is static in the tree may be another differentiation's; shapes are always this one's."""
    return jnp.zeros((0, sum(primal.perturbed << i for i, primal in enumerate(primals))), jnp.int8)


def _instantiated(cotangent):
    if isinstance(cotangent, jax.custom_derivatives.SymbolicZero):
        return jnp.zeros(cotangent.shape, cotangent.dtype)
    return cotangent


def _run(site, call, asked, known):
    """One of the gradient's calls: its results, in the order of `asked`."""
    inputs = {theirs: known[ours] for theirs, ours in call["tensors"].items() if theirs not in call["outputs"]}
    outputs = tuple(
        (name, _trace.shape_of(x, known[x]) if x else (call["shapes"][name][0], tuple(call["shapes"][name][1])))
        for name, (x, _) in asked.items()
    )
    attributes = tuple(sorted(call["attributes"].items()))
    theirs = Site(call["kernel"], tuple(inputs), attributes, tuple(asked), None, outputs, site.scopes)
    return differentiable(theirs, tuple(inputs.values()))


def _add(found, x, gradient):
    """What several calls make of one gradient is its sum."""
    found[x] = found[x] + gradient if x in found else gradient


def _nothing(operand):
    """The gradient that nobody asked for. Before 0.8 JAX insists that a gradient, computed twice of one traced call, has the same tree."""
    return jnp.zeros_like(operand) if jax.__version_info__ < (0, 8) and jnp.issubdtype(operand.dtype, jnp.floating) else None


def _used(site, cotangents, there):
    """((name, (element type, shape)), ...) of the other outputs that something made use of: the gradient takes theirs."""
    pairs = [(name, x) for name, x in zip(site.wanted, cotangents) if name not in there and not isinstance(x, jax.custom_derivatives.SymbolicZero)]
    return tuple((name, _trace.shape_of(name, x)) for name, x in pairs if jnp.issubdtype(x.dtype, jnp.floating))


def _backward(site, residuals, cotangents):
    operands, kept, flags = residuals
    perturbed = {name for i, name in enumerate(site.inputs) if flags.shape[1] >> i & 1}
    known = {**dict(zip(site.inputs, operands)), **kept}
    for tensor in contract(site.kernel).outputs:
        if tensor.name in site.wanted:
            known[f"d{tensor.name}"] = _instantiated(cotangents[site.wanted.index(tensor.name)])
    outputs = tuple((name, _trace.shape_of(name, x)) for name, x in kept.items())
    outputs += tuple(each for each in site.known if each[0] not in kept)
    outputs += _used(site, cotangents, {name for name, _ in outputs})
    gradient = _trace.gradient(site.kernel, site.named(operands) + outputs, site.attributes)
    found = {}
    for call, asked in calls_needed(gradient["calls"], site.inputs, perturbed):
        for (x, name), result in zip(asked.values(), _run(site, call, asked, known)):
            if x:
                _add(found, x, result)
            else:
                known[name] = result
    for name, ours in gradient["equal"].items():
        x = differentiated(name, site.inputs)
        _add(found, x, *varying_with([known[ours].astype(known[x].dtype)], operands))
    return (tuple(found.get(name) if name in perturbed else _nothing(known[name]) for name in site.inputs),)


_differentiable.defvjp(_forward, _backward, symbolic_zeros=True)


def differentiable(site, operands):
    """The outputs wanted. An operand that all devices of a shard_map share differs from here on, as others do: JAX adds up its gradient."""
    return _differentiable(site, tuple(varying_with(operands, operands)))


@functools.lru_cache(maxsize=4096)
def _program(site):
    return jax.jit(lambda *operands: differentiable(site, operands))


def _site(kernel, names, attributes, wanted, config, known=()):
    return Site(kernel, tuple(names), tuple(sorted(attributes.items())), tuple(wanted), config, known, _trace.scopes())


def _refused(kernel, error):
    """What to raise for JAX's own error: of a forward-mode derivative, which a custom_vjp has not, what to do instead."""
    if "forward-mode" not in str(error):
        return error
    return UnsupportedError(
        f"{kernel} has no forward-mode derivative (jax.jvp, jax.jacfwd, jax.hessian): use jax.vjp, jax.grad or jax.jacrev, or take this"
        " derivative of the same maths in jax.numpy"
    )


def named_call(kernel, inputs, attributes, wanted, config=None):
    """{output: array} of a call on JAX arrays or tracers. inputs: {name: array}; attributes: those given, Python values."""
    program = _program(_site(kernel, inputs, attributes, wanted, config))
    try:
        return dict(zip(wanted, program(*inputs.values())))
    except TypeError as error:
        raise _refused(kernel, error) from None


def _check_arrays(kernel, inputs):
    for name, array in zip(kernel.inputs, inputs):
        if array is not None and not isinstance(array, (jax.Array, numpy.ndarray)):
            raise TypeError(f"{kernel.name}: {name} is a {type(array).__qualname__}; expected a JAX array")


def _check_static(kernel, values):
    for name, value in zip(kernel.fixed + kernel.varying, values):
        if isinstance(value, jax.core.Tracer):
            raise InputError(f"{kernel.name}: {name} is being traced; an attribute must be a Python value, which is static under jit")


def _host_view(array, read):
    """Of data on the host, where it is read; else of the shape alone."""
    if read:
        return _numpy_arrays.view(numpy.asarray(array))
    dtype, shape = _trace.shape_of("", array)
    return View(None, shape, None, dtype, (_trace.CPU, 0))


def _shapes_by_data(kernel, inputs, fixed, varying, wanted):
    """((output, (element type, shape)), ...) of a call whose shapes follow from data, which is read; () where that is traced."""
    outputs = [each for each, flag in zip(kernel.contract.outputs, wanted) if flag]
    reads = {name for each in outputs for name in each.shape_reads}
    given = [array for name, array in zip(kernel.inputs, inputs) if array is not None and name in reads]
    if not given or any(isinstance(array, jax.core.Tracer) for array in given):
        return ()
    _check_arrays(kernel, inputs)
    views = {name: _host_view(array, name in reads) for name, array in zip(kernel.inputs, inputs) if array is not None}
    shapes = [(each.name, output(kernel.name, views, kernel.attributes(fixed, varying), each.name)) for each in outputs]
    return tuple((name, (dtype, shape)) for name, (shape, dtype) in shapes)


def _program_of(kernel, fixed, varying, wanted, config, known):
    """A call but for its arrays, as a program: of all inputs by position, None where not given."""
    _check_static(kernel, tuple(fixed) + tuple(varying))
    check_config(kernel.name, config)
    attributes, config = kernel.attributes(fixed, varying), config and config.decode()

    def program(*inputs):
        given = {name: array for name, array in zip(kernel.inputs, inputs) if array is not None}
        flags = list(wanted)
        for output, place in kernel.updates:  # not given, not updated
            flags[output] = inputs[place] is not None
        names = tuple(name for name, flag in zip(kernel.outputs, flags) if flag)
        made = iter(differentiable(_site(kernel.name, given, attributes, names, config, known), tuple(given.values())))
        return kernel.returned([next(made) if flag else None for flag in flags])

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
        known = _shapes_by_data(kernel, inputs, fixed, varying, wanted) if kernel.follows_data else ()
        key = fixed, varying, wanted, config, known, _trace.scopes()
        program = kernel.prepared.get(key)
    except TypeError:  # an attribute of the wrong kind: making the program says which
        known, key, program = (), None, None
    if program is None:
        _check_arrays(kernel, inputs)
        program = _program_of(kernel, fixed, varying, wanted, config, known)
        if key is not None:
            kernel.remember(key, program)
    try:
        return program(*inputs)
    except TypeError as error:
        refused = _refused(kernel.name, error)
        if refused is not error:
            raise refused from None
        _check_arrays(kernel, inputs)
        raise
