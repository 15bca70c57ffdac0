"""recurrent on a sequence whose tokens lie over the devices of a shard_map: states go from device to device by ppermute."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._errors import InputError
from ._call import named_call

_PRECISE = jax.lax.Precision.HIGHEST
_RESULTS = ("out", "final_state")


def _given(**values):
    return {name: value for name, value in values.items() if value is not None}


def _heads(q, k, v):
    return max(x.shape[2] for x in (q, k, v))


def _total(gates, v, heads):
    """What the device's tokens leave of a state where there is no delta rule, [B, H, K or 1, V or 1]."""
    log = jnp.zeros((v.shape[0], heads, 1, 1), jnp.float32)
    add = lambda name, over: jnp.sum(gates[name].astype(jnp.float32), 1)[over]  # noqa: E731
    if "g" in gates:
        log += add("g", (..., None, None))
    if "g_gamma" in gates:
        log += v.shape[1] * gates["g_gamma"].astype(jnp.float32)[None, :, None, None]
    if "gk" in gates:
        log += add("gk", (..., None))
    if "gv" in gates:
        log += add("gv", (..., None, slice(None)))
    return jnp.exp(log)


def _own(inputs, gates, attributes):
    """(left, made) of the device's tokens: they make of a state S left S + made, a product of matrices where the delta rule is, else of elements."""
    v, key_dim, heads = inputs["v"], inputs["k"].shape[3], _heads(*(inputs[name] for name in "qkv"))
    if "beta" not in inputs:
        return _total(gates, v, heads), named_call("recurrent", inputs | gates, attributes, _RESULTS)["final_state"]
    # Columns of the state do not meet: beside v's, those of the identity, to which nothing is written.
    zeros = jnp.zeros((*v.shape[:3], key_dim), v.dtype)
    identity = jnp.broadcast_to(jnp.eye(key_dim, dtype=jnp.float32), (v.shape[0], heads, key_dim, key_dim))
    both = inputs | gates | {"v": jnp.concatenate([v, zeros], 3)}
    if "gv" in gates:
        gv = gates["gv"]
        both["gv"] = jnp.concatenate([gv, jnp.zeros((*gv.shape[:3], key_dim), gv.dtype)], 3)
    both["initial_state"] = jnp.concatenate([jnp.zeros((v.shape[0], heads, key_dim, v.shape[3]), jnp.float32), identity], 3)
    state = named_call("recurrent", both, attributes, _RESULTS)["final_state"]
    made, left = state[..., : v.shape[3]], state[..., v.shape[3] :]
    return left, made


def _apply(left, values, state, matrices):
    """left S, with what gates of value features leave."""
    return (jnp.einsum("bhij,bhjv->bhiv", left, state, precision=_PRECISE) if matrices else left * state) * values


def _received(left, made, values, first, axis, back, matrices):
    """(the state before the device's tokens, that after all): the devices' maps composed, twice as many at each of log2 exchanges."""
    size, place = jax.lax.psum(1, axis), jax.lax.axis_index(axis)
    place = size - 1 - place if back else place
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
    last = jax.lax.psum(jnp.where(place == size - 1, after, 0), axis)
    return jnp.where(place == 0, start, before), last


def sequence_sharded_recurrent(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    axis_name: str,
    beta: jax.Array | None = None,
    g: jax.Array | None = None,
    g_gamma: jax.Array | None = None,
    gk: jax.Array | None = None,
    gv: jax.Array | None = None,
    initial_state: jax.Array | None = None,
    softmax_scale: float | None = None,
    reverse: bool = False,
    l2_norm: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """ejk.recurrent in a shard_map whose axis `axis_name` cuts the tokens: device d has part d of the sequence.

    Arrays are the device's own tokens, as recurrent takes them; initial_state, that before the whole sequence, and g_gamma are the same on all
    devices. Gives the device's part of out, and the state after the whole sequence, the same on all. Each device computes its tokens twice,
    all at once: from the state 0, for what it hands on, and from the state that it then receives; between the two are log2(devices) exchanges
    of states by ppermute. With beta also of a K by K matrix a head. Differentiable. Packed sequences are not taken.
    """
    if not isinstance(axis_name, str):
        raise InputError(f"axis_name must be the name of an axis of the shard_map, a string; found {axis_name!r:.80}")
    inputs, gates = {"q": q, "k": k, "v": v, **_given(beta=beta)}, _given(g=g, g_gamma=g_gamma, gk=gk, gv=gv)
    attributes = {"reverse": bool(reverse), "l2_norm": bool(l2_norm), **_given(softmax_scale=softmax_scale)}
    matrices = beta is not None
    left, made = _own(inputs, gates, attributes)
    heads = _heads(q, k, v)
    values = _total(_given(gv=gv), v, heads) if matrices else jnp.ones((v.shape[0], heads, 1, 1), jnp.float32)
    first = None if initial_state is None else initial_state.astype(jnp.float32)
    left, values = (x + jnp.zeros_like(made[:, :, :1, :1]) for x in (left, values))  # differ from device to device, as made does
    state, last = _received(left, made, values, first, axis_name, bool(reverse), matrices)
    out = named_call("recurrent", inputs | gates | {"initial_state": state}, attributes, _RESULTS)["out"]
    return out, last
