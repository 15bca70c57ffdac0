"""jax.nn.dot_product_attention by ejk: the same arguments, shapes and meaning."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._call import config_text
from .._errors import InputError
from ._call import named_call


def _window(local_window_size):
    if local_window_size is None:
        return -1, -1
    if isinstance(local_window_size, int):
        return local_window_size, local_window_size
    return tuple(local_window_size)


def _whole(name, array, q, k):
    """Broadcast to [B|1, N|1, T, S]; JAX lets T and S be 1, the kernels do not."""
    if array.ndim != 4:
        raise InputError(f"{name} must have 4 dimensions [B, N, T, S]; found shape {array.shape}")
    return jnp.broadcast_to(array, (*array.shape[:2], q.shape[1], k.shape[1]))


def _segments(lengths, tokens, batch):
    """0 where a token counts, -1 past its sequence's length."""
    if lengths is None:
        return jnp.zeros((batch, tokens), jnp.int32)
    return jnp.where(jnp.arange(tokens)[None] < lengths[:, None], 0, -1).astype(jnp.int32)


def dot_product_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array | None = None,
    mask: jax.Array | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: jax.Array | None = None,
    key_value_seq_lengths: jax.Array | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    cfg: dict | str | None = None,
) -> jax.Array:
    """Attention as jax.nn.dot_product_attention means it.

    query [B, T, N, H], key and value [B, S, K, H], or all without B; bias and mask [B|1, N|1, T|1, S|1]. Causal masks and windows count
    from the first query and the first key (top-left); ejk.flash_attention itself aligns the last ones. scale is a Python number.
    A query that sees no key gives 0; jax.nn gives it the mean of all values. Returns [B, T, N, H] in query's type.
    """
    single = query.ndim == 3
    q, k, v = (x[None] if single else x for x in (query, key, value))
    inputs = {"q": q, "k": k, "v": v}
    if bias is not None:
        inputs["bias"] = _whole("bias", bias, q, k)
    if mask is not None:
        inputs["attention_mask"] = _whole("mask", mask, q, k)
    if query_seq_lengths is not None or key_value_seq_lengths is not None:
        inputs["q_segment_ids"] = _segments(query_seq_lengths, q.shape[1], q.shape[0])
        inputs["kv_segment_ids"] = _segments(key_value_seq_lengths, k.shape[1], q.shape[0])
    left, right = _window(local_window_size)
    attributes = {"causal": bool(is_causal), "causal_offset": 0, "window_left": left, "window_right": right}
    if scale is not None:
        attributes["softmax_scale"] = float(scale)
    config = config_text(cfg)
    out = named_call("flash_attention", inputs, attributes, ("out",), config and config.decode())["out"]
    return out[0] if single else out
