"""Multi-head latent attention under the names and arguments of the library ejkernel."""

import inspect

import jax
import jax.numpy as jnp
from jax import lax

from ._call import named_call
from ._ejkernel_words import given, int32, refuse, window


def _of_query_heads(weights, heads):
    """[R, kv heads, D] for each query head."""
    if heads % weights.shape[1]:
        raise ValueError(f"query: found {heads} heads, expected a multiple of the {weights.shape[1]} that w_kc and w_vc have")
    return jnp.repeat(weights, heads // weights.shape[1], axis=1)


def _query_parts(query, w_kc, b_q, b_k):
    """(q_nope, q_rope, k_rope): without b_k there are no rope features, and b_q is one for all heads."""
    own, (batch, tokens, heads, features) = w_kc.shape[2], query.shape
    if b_k is None:
        rope = 0
    elif b_q is None:
        rope = features - own
    else:
        rope = b_q.shape[2]
    if features != own + (rope if b_q is None else 0) or (b_k is not None and b_k.shape[2] != rope):
        raise ValueError(f"query: found {features} features beside w_kc's {own} and rope features of b_q and b_k; expected those of w_kc, and b_k's where b_q is not given")
    if b_k is None:
        return query, jnp.zeros((batch, tokens, heads, 0), query.dtype), jnp.zeros((batch, tokens, 0), query.dtype)
    q_rope = query[..., own:] if b_q is None else jnp.broadcast_to(b_q[:, :, None], (batch, tokens, heads, rope))
    return query[..., :own], q_rope.astype(query.dtype), b_k


def flash_mla(
    query,
    key_value,
    w_kc,
    w_vc,
    b_q=None,
    b_k=None,
    softmax_scale=None,
    causal=False,
    cu_seqlens=None,
    attention_mask=None,
    bias=None,
    softmax_aux=None,
    logits_soft_cap=None,
    deterministic=True,
    dropout_rng=None,
    dropout_prob=0.0,
    sliding_window=None,
    softmax_dtype=None,
):
    """By mla_attention, whose sums are f32 whatever softmax_dtype says."""
    refuse(
        ("cu_seqlens", cu_seqlens is not None),
        ("attention_mask", attention_mask is not None),
        ("bias", bias is not None),
        ("softmax_aux", softmax_aux is not None),
        ("dropout", not deterministic and dropout_prob > 0),
    )
    heads = query.shape[2]
    q_nope, q_rope, k_rope = _query_parts(query, w_kc, b_q, b_k)
    inputs = {"q_nope": q_nope, "q_rope": q_rope, "kv_latent": key_value, "k_rope": k_rope}
    inputs |= {"w_kc": _of_query_heads(w_kc, heads), "w_vc": _of_query_heads(w_vc, heads)}
    left, right = window(sliding_window)
    attributes = given(causal=bool(causal), softmax_scale=softmax_scale, window_left=left, window_right=right, logits_soft_cap=logits_soft_cap)
    return named_call("mla_attention", {name: x.astype(query.dtype) for name, x in inputs.items()}, attributes, ("out",))["out"]


def _selected(query_index, key_index, index_weights, topk, scale, causal):
    """[B, 1, T, T]: the keys of a query that the indexer selects, and its own."""
    tokens = jnp.arange(query_index.shape[1])
    scores = jax.nn.relu(jnp.einsum("bthd,bsd->bths", query_index, key_index) * scale)
    scores = jnp.einsum("bths,bth->bts", scores, index_weights)
    past = tokens <= tokens[:, None]
    _, chosen = lax.top_k(jnp.where(past, scores, -jnp.inf) if causal else scores, min(topk, len(tokens)))
    rows = jnp.arange(scores.shape[0])[:, None, None]
    seen = jnp.zeros(scores.shape, bool).at[rows, tokens[None, :, None], chosen].set(True)
    return ((seen & past if causal else seen) | (tokens == tokens[:, None]))[:, None]


def deepseek_attn(
    query,
    key_value,
    w_kc,
    w_vc,
    query_index,
    key_index,
    index_weights,
    index_topk=2048,
    softmax_scale=None,
    index_softmax_scale=None,
    b_q=None,
    b_k=None,
    causal=True,
):
    """The indexer and the keys of each head are XLA's; attention to what is selected is flash_attention's, by a mask."""
    if index_softmax_scale is None:
        index_softmax_scale = query_index.shape[-1] ** -0.5
    seen = lax.stop_gradient(_selected(query_index, key_index, index_weights, index_topk, index_softmax_scale, causal))
    q_nope, q_rope, k_rope = _query_parts(query, w_kc, b_q, b_k)
    keys, values = (jnp.einsum("btr,rhd->bthd", key_value, weights).astype(query.dtype) for weights in (w_kc, w_vc))
    rope = jnp.broadcast_to(k_rope[:, :, None], (*keys.shape[:3], k_rope.shape[2])).astype(query.dtype)
    inputs = {"q": jnp.concatenate([q_nope, q_rope], -1), "k": jnp.concatenate([keys, rope], -1), "v": values, "attention_mask": seen}
    return named_call("flash_attention", inputs, given(softmax_scale=softmax_scale), ("out",))["out"]


def _slots(kv_lens, block_tables, query_start_loc, sequences, tokens, page):
    """Of each token its sequence, its position there (below 0: it is of none) and its slot of the cache."""
    token = jnp.arange(tokens, dtype=jnp.int32)
    sequence = jnp.searchsorted(query_start_loc[1:], token, side="right").astype(jnp.int32)
    position = kv_lens.at[sequence].get(mode="clip") - query_start_loc.at[sequence + 1].get(mode="clip") + token
    position = jnp.where(sequence < sequences, position, -1)
    return sequence, position, block_tables.at[sequence, position // page].get(mode="clip") * page + position % page


def multi_latent_ragged_page_attention(
    queries_nope,
    queries_pe,
    keys_values,
    keys_pe,
    kv_cache,
    kv_lens,
    block_tables,
    query_start_loc,
    distribution,
    *,
    softmax_scale=None,
    sliding_window=None,
    logits_soft_cap=None,
    mask_value=None,
    q_scale=None,
    k_scale=None,
    v_scale=None,
    chunk_prefill_size=None,
    num_kv_pages_per_block=None,
    num_queries_per_block=None,
    vmem_limit_bytes=None,
    debug_mode=False,
):
    """Each token is a sequence of mla_decode, up to itself; kv_lens count the new tokens, which XLA writes, in place where jax.jit donates the cache.

    A cache's rows have both parts padded to multiples of 128 features: so have ours.
    """
    refuse(
        ("a sliding_window", sliding_window is not None),
        ("a cache that has not the queries' type", kv_cache.dtype != queries_nope.dtype),
        ("a cache of other rows than the latent and the rope features, each padded to a multiple of 128,", kv_cache.shape[3] != _wide(queries_nope) + _wide(queries_pe)),
    )
    if softmax_scale is None:
        softmax_scale = (queries_nope.shape[-1] + queries_pe.shape[-1]) ** -0.5
    pages, rows, in_word, width = kv_cache.shape
    page, tokens, latent = rows * in_word, queries_nope.shape[0], queries_nope.shape[2]
    tables = jnp.reshape(int32(block_tables), (kv_lens.shape[0], -1))
    sequence, position, slot = _slots(int32(kv_lens), tables, int32(query_start_loc), distribution[2], tokens, page)
    new = jnp.concatenate([_padded(keys_values), _padded(keys_pe)], -1).astype(kv_cache.dtype)
    cache = kv_cache.reshape(pages * page, width).at[jnp.where(position < 0, pages * page, slot)].set(new, mode="drop")
    for factor in (q_scale, k_scale):
        softmax_scale = softmax_scale if factor is None else softmax_scale * factor
    inputs = {"q_latent": _padded(queries_nope)[:, None], "q_rope": _padded(queries_pe).astype(queries_nope.dtype)[:, None], "cache": cache.reshape(pages, page, width)}
    inputs |= {"context_lens": jnp.maximum(position + 1, 0), "block_tables": tables.at[sequence].get(mode="clip")}
    attributes = given(softmax_scale=softmax_scale, logits_soft_cap=logits_soft_cap)
    out = named_call("mla_decode", inputs, attributes, ("out",))["out"][:, 0, :, :latent]
    return out if v_scale is None else out * v_scale, cache.reshape(kv_cache.shape)


def _wide(array):
    return -(-array.shape[-1] // 128) * 128


def _padded(array):
    """The last dimension up to a multiple of 128, by zeros."""
    return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, _wide(array) - array.shape[-1])])


def multi_latent_ragged_page_attention_v2(*arguments, **options):
    """There block sizes may be three numbers."""
    return multi_latent_ragged_page_attention(*arguments, **options)


multi_latent_ragged_page_attention_v2.__signature__ = inspect.signature(multi_latent_ragged_page_attention)
