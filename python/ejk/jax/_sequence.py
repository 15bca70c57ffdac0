"""Recurrences on sequences whose tokens lie over the devices of a shard_map: states go from device to device by ppermute."""

from __future__ import annotations

import functools
import inspect
import sys

import jax
import jax.numpy as jnp

from .._errors import InputError

_PRECISE = jax.lax.Precision.HIGHEST
_DOC = """
    In a shard_map, with axis_name the name of its axis that cuts the tokens, arrays are the device's own tokens; initial_state, g_gamma and
    cum_seqlens, which counts the tokens of all devices, are the same on all. Gives the device's part of out, and final_state after all tokens,
    the same on all. See docs/helpers.md, "Sequences on several devices".
"""


def _heads(inputs):
    return max(inputs[name].shape[2] for name in "qkv")


def _layer_decay(inputs, num_layers, layer_idx):
    heads = _heads(inputs)
    return -(8 / heads) * (1 - layer_idx / num_layers) * jnp.arange(heads, dtype=jnp.float32)


def _total(inputs, layers, counted):
    """What gates leave of a state over the device's tokens if `counted`, else all of it: [B, H, K or 1, V or 1]. layers: the attributes
    num_layers and layer_idx, of kernels that have them."""
    v = inputs["v"]
    log = jnp.zeros((v.shape[0], _heads(inputs), 1, 1), jnp.float32)
    spread = {"g": (..., None, None), "gk": (..., None), "gv": (..., None, slice(None))}
    for name, over in spread.items():
        if name in inputs:
            log += jnp.sum(jnp.where(counted, inputs[name].astype(jnp.float32), 0), 1)[over]
    for decay in (inputs.get("g_gamma"), _layer_decay(inputs, **layers) if layers.get("num_layers") else None):
        if decay is not None:
            log += jnp.where(counted, v.shape[1] * decay.astype(jnp.float32), 0)[None, :, None, None]
    return jnp.exp(log)


def _left(call, inputs, counted, layers):
    """(by keys, by value features): of a state S the device's tokens leave the product of the first, S and the second. With the delta rule the
    first is a matrix of K by K, the final state of an identity to which nothing is written; else both multiply element by element."""
    v, key_dim = inputs["v"], inputs["k"].shape[3]
    if "beta" not in inputs:
        return _total(inputs, layers, counted), jnp.ones((v.shape[0], _heads(inputs), 1, 1), jnp.float32)
    own = {name: x for name, x in inputs.items() if name not in ("gv", "cum_seqlens")}
    own["v"] = jnp.zeros((*v.shape[:3], key_dim), v.dtype)
    own["initial_state"] = jnp.broadcast_to(jnp.eye(key_dim, dtype=jnp.float32), (v.shape[0], _heads(inputs), key_dim, key_dim))
    if "cum_seqlens" in inputs:
        own["cum_seqlens"] = jnp.stack([0, jnp.where(counted, v.shape[1], 0)]).astype(jnp.int32)
    features = {name: inputs[name] for name in ("q", "k", "v", "gv") if name in inputs}
    return call(own).final_state, _total(features, {}, counted)


def _apply(left, values, state, matrices):
    return (jnp.einsum("bhij,bhjv->bhiv", left, state, precision=_PRECISE) if matrices else left * state) * values


def _received(left, made, values, first, axis, back, matrices):
    """(the state before the device's tokens, that after them): the devices' maps composed, twice as many at each of log2 exchanges."""
    size, place = _place(axis, back)
    at = lambda i: size - 1 - i if back else i  # noqa: E731
    one = jnp.ones_like(values)
    neutral = (jnp.eye(left.shape[-1]) if matrices else jnp.ones(())) + jnp.zeros_like(left)
    send = lambda tree, by: jax.tree.map(lambda x: jax.lax.ppermute(x, axis, [(at(i), at(i + by)) for i in range(size - by)]), tree)  # noqa: E731
    by = 1
    while by < size:
        earlier = send((left, made, values), by)
        has = place >= by
        before_left, before_made, before_values = (jnp.where(has, x, y) for x, y in zip(earlier, (neutral, jnp.zeros_like(made), one)))
        made = _apply(left, values, before_made, matrices) + made
        left = jnp.einsum("bhij,bhjk->bhik", left, before_left, precision=_PRECISE) if matrices else left * before_left
        values = values * before_values
        by *= 2
    after = made if first is None else _apply(left, values, first, matrices) + made
    before = send(after, 1)
    start = jnp.zeros_like(before) if first is None else first + jnp.zeros_like(before)
    return jnp.where(place == 0, start, before), after


def _place(axis, back):
    """(devices, how many of them come before this one)."""
    size, place = jax.lax.psum(1, axis), jax.lax.axis_index(axis)
    return size, size - 1 - place if back else place


def _batched(call, inputs, layers, axis, back):
    first = inputs.pop("initial_state", None)
    matrices = "beta" in inputs
    made = call(inputs).final_state
    left, values = (x + jnp.zeros_like(made[:, :, :1, :1]) for x in _left(call, inputs, True, layers))  # differ from device to device, as made does
    state, after = _received(left, made, values, first, axis, back, matrices)
    size, place = _place(axis, back)
    last = jax.lax.psum(jnp.where(place == size - 1, after, 0), axis)
    return call(inputs | {"initial_state": state}).out, last


def _packed(call, inputs, layers, axis, back):
    """A device hands on the state of the one sequence that its last token and the next device's first share; sequences that begin on a device
    begin from their own initial states."""
    cum, first = inputs["cum_seqlens"].astype(jnp.int32), inputs.pop("initial_state", None)
    tokens = inputs["v"].shape[1]
    begin = jax.lax.axis_index(axis) * tokens
    end = begin + tokens
    inputs["cum_seqlens"] = jnp.clip(cum - begin, 0, tokens)
    across = lambda token: (cum[:-1] < token) & (cum[1:] > token)  # noqa: E731  whether a sequence has tokens on both sides
    enters, leaves = (across(end), across(begin)) if back else (across(begin), across(end))
    ends = (cum[:-1] < cum[1:]) & ((cum[:-1] >= begin) & (cum[:-1] < end) if back else (cum[1:] > begin) & (cum[1:] <= end))
    of_sequences = lambda mask: mask[:, None, None, None]  # noqa: E731
    if first is None:
        first = jnp.zeros((cum.shape[0] - 1, _heads(inputs), inputs["k"].shape[3], inputs["v"].shape[3]), jnp.float32)

    states = call(inputs | {"initial_state": jnp.where(of_sequences(enters), 0, first)}).final_state
    made = jnp.sum(jnp.where(of_sequences(leaves), states, 0), 0, keepdims=True)
    whole = jnp.any(enters & leaves)
    left, values = (x + jnp.zeros_like(made[:, :, :1, :1]) for x in _left(call, inputs, whole, layers))
    before, _ = _received(jnp.where(whole, left, 0), made, values, None, axis, back, "beta" in inputs)
    out, states = call(inputs | {"initial_state": jnp.where(of_sequences(enters), before, first)})
    last = jax.lax.psum(jnp.where(of_sequences(ends), states, 0), axis)
    return out, last + jnp.where(of_sequences(cum[:-1] == cum[1:]), first, 0)


def _cut(function, arrays, options, axis):
    """`function` where the axis `axis` cuts the tokens."""
    kernel = sys.modules[function.__module__]._kernel
    if not isinstance(axis, str):
        raise InputError(f"{kernel.name}: axis_name must be the name of an axis of the shard_map, a string; found {axis!r:.80}")
    given = {name: x for name, x in inspect.signature(function).bind(*arrays, **options).arguments.items() if x is not None}
    for name in kernel.outputs:
        if name in given:
            raise InputError(f"{kernel.name}: {name}: with axis_name outputs are new arrays; found an array of the caller's")
    inputs = {name: given.pop(name) for name in kernel.inputs if name in given}
    if inputs["q"].ndim != 4:  # the call's own error
        function(*arrays, **options)
    layers = {each.name: given.get(each.name, int(each.default)) for each in kernel.contract.varying if each.name in ("num_layers", "layer_idx")}
    results = _packed if "cum_seqlens" in inputs else _batched
    out, last = results(lambda own: function(**own, **given), inputs, layers, axis, bool(given.get("reverse")))
    return kernel.result(out, last)


def is_recurrence(function):
    """Whether a kernel's function carries a state along the tokens of q, k and v, from initial_state to final_state."""
    kernel = sys.modules[function.__module__]._kernel
    return {"q", "k", "v", "initial_state"} <= set(kernel.inputs) and kernel.outputs == ("out", "final_state")


def cut_along_tokens(function):
    """A recurrence's function that takes axis_name, too."""

    @functools.wraps(function)
    def spelled(*arrays, axis_name=None, **options):
        return function(*arrays, **options) if axis_name is None else _cut(function, arrays, options, axis_name)

    signature = inspect.signature(function)
    axis = inspect.Parameter("axis_name", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None")
    spelled.__signature__ = signature.replace(parameters=[*signature.parameters.values(), axis])
    spelled.__doc__ = f"{(function.__doc__ or '').rstrip()}\n{_DOC}"
    return spelled
