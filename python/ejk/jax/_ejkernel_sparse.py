"""Native sparse attention under the names and arguments of the library ejkernel."""

import numpy
from jax import numpy as jnp

from ._call import named_call
from ._ejkernel_words import given, int32, refuse


def _a_token(array, query, key, block_size, packed, name):
    """Of tokens [B, T, Hkv, ...]: as it is, or of blocks of queries [B, Hkv, blocks, ...], which packed sequences do not have."""
    array = int32(array)
    tokens, heads = query.shape[1], key.shape[2]
    if array.shape[1:3] == (tokens, heads):
        return array
    if packed:
        raise ValueError(f"{name}: found the shape {list(array.shape)}, with cu_seqlens expected [1, {tokens}, {heads}, ...]")
    blocks = -(-tokens // block_size)
    if array.shape[1:3] == (heads, blocks):
        return jnp.moveaxis(array, 1, 2)[:, jnp.arange(tokens) // block_size]
    expected = f"[batch, {tokens}, {heads}, ...] or [batch, {heads}, {blocks}, ...]"
    raise ValueError(f"{name}: found the shape {list(array.shape)}, expected {expected}")


def _named(query, key, block_indices, block_counts, block_size, packed):
    """(block_indices, block_counts) as ours take them."""
    indices = _a_token(block_indices, query, key, block_size, packed, "block_indices")
    if isinstance(block_counts, (int, numpy.integer)):
        return indices[..., : max(int(block_counts), 0)], None
    return indices, _a_token(block_counts, query, key, block_size, packed, "block_counts")


def apply_native_sparse_attention(
    query,
    key,
    value,
    block_indices,
    block_counts=16,
    block_size=64,
    softmax_scale=None,
    cu_seqlens=None,
    token_indices=None,
    block_k=128,
    block_v=128,
    num_warps=4,
    num_stages=1,
):
    """token_indices, a sequence and a place of each token, follow from cu_seqlens, and are not looked at."""
    refuse(("token_indices without cu_seqlens", token_indices is not None and cu_seqlens is None))
    indices, counts = _named(query, key, block_indices, block_counts, block_size, cu_seqlens is not None)
    inputs = given(q=query, k=key, v=value, block_indices=indices, block_counts=counts, cum_seqlens=int32(cu_seqlens))
    return named_call("apply_native_sparse_attention", inputs, given(block_size=block_size, softmax_scale=softmax_scale), ("out",))["out"]


def native_sparse_attention(
    query,
    key,
    value,
    g_cmp=None,
    g_slc=None,
    block_indices=None,
    block_counts=16,
    block_size=64,
    softmax_scale=None,
    cu_seqlens=None,
    block_k=128,
    block_v=128,
    num_warps=4,
    num_stages=1,
):
    """With g_cmp blocks are selected, whatever block_indices say, as there; block 0 always, which that library counts by its weight. Without g_slc its gate is 1."""
    counted = isinstance(block_counts, (int, numpy.integer))
    refuse(("block_counts that are no one number, with g_cmp,", g_cmp is not None and not counted))
    if g_cmp is None and block_indices is None:
        raise ValueError("native_sparse_attention: found neither g_cmp nor block_indices, expected one of them")
    attributes = given(block_size=block_size, softmax_scale=softmax_scale)
    if g_slc is None:
        g_slc = jnp.ones(query.shape[:3], query.dtype)
    inputs = given(q=query, k=key, v=value, g_cmp=g_cmp, g_slc=g_slc, cum_seqlens=int32(cu_seqlens))
    if g_cmp is None:
        indices, counts = _named(query, key, block_indices, block_counts, block_size, cu_seqlens is not None)
        inputs |= given(block_indices=indices, block_counts=counts)
        attributes["block_count"] = indices.shape[3]
    else:
        attributes["block_count"] = int(block_counts)
    return named_call("native_sparse_attention", inputs, attributes, ("out",))["out"]
