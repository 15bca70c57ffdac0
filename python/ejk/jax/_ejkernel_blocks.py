"""Attention behind a mask of blocks under the name and arguments of the library ejkernel."""

import inspect

import jax.numpy as jnp

from .. import block_masks
from .._errors import InputError
from ._call import named_call
from ._ejkernel_words import given, int32, refuse, window


def blocksparse_attention(
    query,
    key,
    value,
    q_segment_ids=None,
    kv_segment_ids=None,
    q_positions=None,
    kv_positions=None,
    softmax_aux=None,
    bias=None,
    attention_mask=None,
    sequence_parallelism_mesh_axis_name=None,
    logits_soft_cap=None,
    qkv_layouts=None,
    softmax_scale=None,
    fwd_params=None,
    bwd_params=None,
    mask_builder=None,
    sliding_window=None,
    chunk_size=None,
    causal=True,
    fused_backward=False,
):
    """Arrays are [B, H, S, D]. The mask of blocks is what the rules leave, and what mask_builder() gives, an ejk.block_mask; causal counts from the first key."""
    refuse(
        ("sequence_parallelism_mesh_axis_name", sequence_parallelism_mesh_axis_name is not None),
        ("qkv_layouts", qkv_layouts is not None),
        ("a mask_builder that takes arguments", mask_builder is not None and _takes_arguments(mask_builder)),
    )
    rules = _Rules(query.shape[2], key.shape[2], query, mask_builder)
    rules.positions(q_positions, kv_positions, causal, window(sliding_window), chunk_size)
    rules.segments(int32(q_segment_ids), int32(kv_segment_ids))
    rules.dense(attention_mask)
    inputs = given(bias=bias, softmax_aux=_sinks(softmax_aux, query.shape[1], key.shape[1]))
    inputs |= {name: jnp.swapaxes(array, 1, 2) for name, array in (("q", query), ("k", key), ("v", value))}
    attributes = given(softmax_scale=softmax_scale, logits_soft_cap=logits_soft_cap)
    for name, option in rules.mask.arguments().items():
        (inputs if hasattr(option, "dtype") else attributes)[name] = option
    return jnp.swapaxes(named_call("blocksparse_attention", inputs, attributes, ("out",))["out"], 1, 2)


class _Rules:
    """The mask, from which each rule takes away."""

    def __init__(self, q_len, kv_len, like, builder):
        self.sizes, self.like = (q_len, kv_len), like
        self.mask = block_masks.from_blocks(lambda bi, bj: True, q_len, kv_len, like=like) if builder is None else builder()
        if not isinstance(self.mask, block_masks.BlockMask):
            refuse(("a mask_builder that gives no ejk.block_mask", True))
        self.blocks = {"block_q": self.mask.block_q, "block_k": self.mask.block_k}

    def positions(self, q_positions, kv_positions, causal, sides, chunk_size):
        left, right = sides
        options = given(causal=bool(causal), window_left=left, window_right=right, chunk_size=chunk_size or None)
        if q_positions is not None or kv_positions is not None:
            return self.dense(_by_positions(*self._given_positions(q_positions, kv_positions), **options))
        # Queries and keys are counted from their first ones there.
        offset = None if self.sizes[0] == self.sizes[1] else 0
        how = {"causal_offset": offset, "like": self.like, **self.blocks}
        if causal:
            self.mask &= block_masks.causal(*self.sizes, **how)
        if left >= 0 or right >= 0:
            self.mask &= block_masks.window(*self.sizes, left, right, **how)
        if chunk_size:
            self.mask &= block_masks.chunk(*self.sizes, chunk_size, **how)

    def _given_positions(self, *arrays):
        return [jnp.arange(length, dtype="int32")[None] if array is None else int32(array) for length, array in zip(self.sizes, arrays)]

    def segments(self, q_ids, kv_ids):
        if q_ids is None and kv_ids is None:
            return
        refuse(("segment ids of queries or keys alone, of different lengths,", self.sizes[0] != self.sizes[1] and (q_ids is None or kv_ids is None)))
        q_ids, kv_ids = (kv_ids if q_ids is None else q_ids), (q_ids if kv_ids is None else kv_ids)
        self.mask &= block_masks.document(q_ids, kv_ids, **self.blocks)

    def dense(self, mask):
        if mask is None:
            return
        mask = mask if mask.dtype == bool else mask != 0
        if mask.ndim == 2:  # [B, Sk] of keys
            mask = mask[:, None]
        mask = mask[:, None] if mask.ndim == 3 else mask
        if mask.ndim != 4 or mask.shape[2] not in (1, self.sizes[0]) or mask.shape[3] != self.sizes[1]:
            raise InputError(f"attention_mask has shape {list(mask.shape)}; expected [B, H or 1, {self.sizes[0]}, {self.sizes[1]}], or fewer dimensions")
        whole = jnp.broadcast_to(mask, (*mask.shape[:2], *self.sizes))
        self.mask &= block_masks.block_mask(whole, **self.blocks)


def _takes_arguments(function):
    return any(each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in inspect.signature(function).parameters.values())


def _by_positions(q, k, causal, window_left, window_right, chunk_size=None):
    """bool [B or 1, Sq, Sk] of positions [B or 1, Sq] and [B or 1, Sk], which may be any numbers."""
    q, k = q[:, :, None], k[:, None, :]
    seen = (k <= q) if causal or chunk_size else jnp.ones(jnp.broadcast_shapes(q.shape, k.shape), bool)
    if window_left >= 0:
        seen &= k >= q - window_left
    if window_right >= 0:
        seen &= k <= q + window_right
    return seen & (q // chunk_size == k // chunk_size) if chunk_size else seen


def _sinks(sinks, heads, kv_heads):
    """There a vector of as many numbers as kv heads is one of each."""
    if sinks is None or sinks.shape[0] == heads or sinks.shape[0] != kv_heads:
        return sinks
    return jnp.repeat(sinks, heads // kv_heads, axis=0)
