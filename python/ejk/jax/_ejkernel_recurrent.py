"""ejkernel's functions of linear recurrences, by recurrent, gated_delta_rule and ssd.

States are f32 in ours and come back in the type that each has there; the results have the queries' type.
"""

import jax
import jax.numpy as jnp

from ._call import named_call
from ._ejkernel_words import given, int32, refuse


def _types(*arrays):
    return "queries, keys and values of different types", len({array.dtype for array in arrays}) > 1


def _states(initial_state):
    """Packed, that library also takes [1, N, H, K, V]."""
    if initial_state is None:
        return None
    return (initial_state[0] if initial_state.ndim == 5 else initial_state).astype(jnp.float32)


def _sum(*gates):
    """Decays of one shape, which multiply: their logs in f32."""
    given_ones = [gate for gate in gates if gate is not None]
    return given_ones[0] if len(given_ones) == 1 else sum(gate.astype(jnp.float32) for gate in given_ones) if given_ones else None


def _of_tokens(g_gamma, tokens, cu_seqlens):
    """[1 or B, T, H] of a g_gamma [B or N, H]."""
    if cu_seqlens is None:
        return jnp.broadcast_to(g_gamma[:, None], (g_gamma.shape[0], tokens, g_gamma.shape[1]))
    return g_gamma.at[_sequences(cu_seqlens, tokens)].get(mode="clip")[None]


def _sequences(cu_seqlens, tokens):
    """Of each token its sequence; as many as there are sequences for those past the last one."""
    return jnp.searchsorted(cu_seqlens[1:], jnp.arange(tokens, dtype=jnp.int32), side="right")


def recurrent(
    query,
    key,
    value,
    g=None,
    g_gamma=None,
    gk=None,
    gv=None,
    softmax_scale=None,
    initial_state=None,
    reverse=False,
    cu_seqlens=None,
    block_k=64,
    block_v=64,
    num_warps=4,
    num_stages=1,
):
    """g there is a gate of key features, as gk is; a g_gamma of each row or sequence is ours of each token. Packed arrays may lack the batch."""
    refuse(_types(query, key, value))
    if query.ndim == 3 and cu_seqlens is not None:
        one = [None if x is None else x[None] for x in (query, key, value, g, gk, gv)]
        out, state = recurrent(*one[:4], g_gamma, *one[4:], softmax_scale, initial_state, reverse, cu_seqlens)
        return out[0], state
    tokens, cu_seqlens, of_tokens = query.shape[1], int32(cu_seqlens), None
    if g_gamma is not None and g_gamma.ndim == 2:
        of_tokens, g_gamma = (None, g_gamma[0]) if g_gamma.shape[0] == 1 else (_of_tokens(g_gamma, tokens, cu_seqlens), None)
    inputs = given(q=query, k=key, v=value, g=of_tokens, g_gamma=g_gamma, gk=_sum(g, gk), gv=gv, cum_seqlens=cu_seqlens)
    inputs |= given(initial_state=_states(initial_state))
    attributes = given(softmax_scale=softmax_scale, reverse=bool(reverse))
    found = named_call("recurrent", inputs, attributes, ("out", "final_state"))
    return found["out"], found["final_state"]


def recurrent_gla(
    query,
    key,
    value,
    g=None,
    g_gamma=None,
    softmax_scale=None,
    initial_state=None,
    reverse=False,
    cu_seqlens=None,
    block_k=64,
    block_v=64,
    num_warps=4,
    num_stages=1,
):
    return recurrent(query, key, value, g, g_gamma, None, None, softmax_scale, initial_state, reverse, cu_seqlens)


def lightning_attn(
    query,
    key,
    value,
    layer_idx,
    num_layers,
    softmax_scale=None,
    initial_state=None,
    reverse=False,
    cu_seqlens=None,
    block_k=64,
    block_v=64,
    num_warps=4,
    num_stages=1,
):
    refuse(
        _types(query, key, value),
        ("a traced layer_idx", isinstance(layer_idx, jax.core.Tracer)),
        ("a layer_idx that is not from 0 to num_layers", not isinstance(layer_idx, jax.core.Tracer) and not 0 <= layer_idx <= num_layers > 0),
    )
    inputs = given(q=query, k=key, v=value, initial_state=_states(initial_state), cum_seqlens=int32(cu_seqlens))
    attributes = given(softmax_scale=softmax_scale, reverse=bool(reverse), layer_idx=int(layer_idx), num_layers=int(num_layers))
    found = named_call("lightning_attn", inputs, attributes, ("out", "final_state"))
    return found["out"], found["final_state"]


def _delta_rule(query, key, value, beta, decay, initial_state, l2_norm, softmax_scale=None, cum_seqlens=None):
    inputs = given(q=query, k=key, v=value, beta=beta, g=decay, initial_state=_states(initial_state), cum_seqlens=cum_seqlens)
    attributes = given(softmax_scale=softmax_scale, l2_norm=bool(l2_norm))
    found = named_call("gated_delta_rule", inputs, attributes, ("out", "final_state"))
    return found["out"], found["final_state"]


def _forgetting(decay, seg_ids, like):
    """A gate of minus infinity where another document begins leaves nothing of the one before it."""
    begins = jnp.pad(seg_ids[:, 1:] != seg_ids[:, :-1], ((0, 0), (1, 0)))
    return jnp.where(begins[..., None], -jnp.inf, jnp.zeros_like(like) if decay is None else decay)


def gated_delta_rule(
    query,
    key,
    value,
    beta,
    decay=None,
    *,
    chunk_size=256,
    initial_state=None,
    use_qk_l2norm=True,
    use_chunked=True,
    seg_ids=None,
):
    """A document is a run of equal seg_ids; one token that continues a state belongs to that state's."""
    refuse(_types(query, key, value))
    if seg_ids is not None:
        decay = _forgetting(decay, seg_ids, beta)
    out, state = _delta_rule(query, key, value, beta, decay, initial_state, use_qk_l2norm)
    return out, state.astype(query.dtype)


def ragged_gated_delta_rule(
    query,
    key,
    value,
    beta,
    decay,
    recurrent_state,
    query_start_loc,
    state_indices,
    *,
    chunk_size=64,
    use_qk_l2norm=True,
):
    """States are gathered from their slots and put back there by XLA. A request without tokens leaves its slot as it is; other tokens give 0."""
    refuse(_types(query, key, value))
    packed = [None if x is None else x[None] for x in (query, key, value, beta, decay)]
    starts, slots = int32(query_start_loc), int32(state_indices)
    states = recurrent_state.at[slots].get(mode="clip")
    out, final = _delta_rule(*packed, states, use_qk_l2norm, cum_seqlens=starts)
    slots = jnp.where((starts[1:] > starts[:-1]) & (slots >= 0), slots, recurrent_state.shape[0])
    return out[0], recurrent_state.at[slots].set(final.astype(recurrent_state.dtype), mode="drop")


def kernel_delta_attention(
    query,
    key,
    value,
    beta,
    decay=None,
    *,
    softmax_scale=None,
    chunk_size=64,
    initial_state=None,
    use_qk_l2norm=True,
    use_chunked=True,
):
    """There a gate of heads, so this is gated_delta_rule with a scale."""
    refuse(_types(query, key, value))
    return _delta_rule(query, key, value, beta, decay, initial_state, use_qk_l2norm, softmax_scale)


def _gated(output, gate, act_fn, use_gated_rmsnorm, rmsnorm_eps):
    act_fn = jax.nn.silu if act_fn is None else act_fn
    if not use_gated_rmsnorm:
        return output * act_fn(gate)
    wide = output.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + rmsnorm_eps)
    return (wide * scale * act_fn(gate.astype(jnp.float32))).astype(output.dtype)


def state_space_v2(
    x,
    A,
    B,
    C,
    D,
    dt,
    gate=None,
    initial_state=None,
    conv_state=None,
    n_groups=1,
    act_fn=None,
    use_gated_rmsnorm=False,
    rmsnorm_eps=1e-5,
    precision=None,
    *,
    block_e=128,
):
    """The gate and the norm are XLA's."""
    refuse(_types(x, B, C), ("an n_groups that is not B's", n_groups != B.shape[2]))
    inputs = {"x": x, "dt": dt, "A": A, "Bm": B, "C": C, "D": D, **given(initial_state=_states(initial_state))}
    found = named_call("ssd", inputs, {}, ("out", "final_state"))
    output = found["out"].reshape(*x.shape[:2], -1)
    if gate is not None:
        output = _gated(output, gate, act_fn, use_gated_rmsnorm, rmsnorm_eps)
    return output.astype(x.dtype), found["final_state"].astype(x.dtype), conv_state


def _shifted(array, by):
    """[B, T, ...] with tokens moved along, and zeros before or after them."""
    edges = (max(by, 0), max(-by, 0))
    padded = jnp.pad(array, ((0, 0), edges) + ((0, 0),) * (array.ndim - 2))
    return padded[:, edges[1] : edges[1] + array.shape[1]]


def _at_first(out, read, cu_seqlens, reverse):
    """out with what each sequence's first token (reverse: its last) reads: read, of [sequences], which gets (row, token)."""
    rows, tokens = out.shape[:2]
    if cu_seqlens is None:
        place = (jnp.arange(rows), jnp.full((rows,), tokens - 1 if reverse else 0))
    else:
        start, end = cu_seqlens[:-1], cu_seqlens[1:]
        place = (jnp.zeros_like(start), jnp.where(start < end, end - 1 if reverse else start, tokens))
    return out.at[place].set(read(place).astype(out.dtype), mode="drop")


def rwkv6(r, k, v, w, u, *, softmax_scale=None, initial_state=None, reverse=False, cu_seqlens=None):
    """There a token reads the state before it, and itself by u: here the token before it reads for it, and the first of a sequence the initial state."""
    refuse(_types(r, k, v))
    scale = r.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    cu_seqlens, step = int32(cu_seqlens), -1 if reverse else 1
    out, state = recurrent(_shifted(r, -step), k, v, w, None, None, None, scale, initial_state, reverse, cu_seqlens)

    def read(place):
        if initial_state is None:
            return jnp.zeros((place[0].shape[0], *v.shape[2:]), jnp.float32)
        first = r.at[place].get(mode="clip").astype(jnp.float32) * scale
        return jnp.einsum("nhk,nhkv->nhv", first, _states(initial_state), precision=jax.lax.Precision.HIGHEST)

    out = _at_first(_shifted(out, step).astype(jnp.float32), read, cu_seqlens, reverse)
    itself = scale * jnp.einsum("bthk,hk,bthk->bth", *(x.astype(jnp.float32) for x in (r, u, k)), precision=jax.lax.Precision.HIGHEST)
    if cu_seqlens is not None:  # tokens past the last sequence give 0
        itself = jnp.where(jnp.arange(r.shape[1])[None, :, None] < cu_seqlens[-1], itself, 0)
    return (out + itself[..., None] * v.astype(jnp.float32)).astype(v.dtype), state
