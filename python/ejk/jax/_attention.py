"""jax.nn.dot_product_attention by ejk: the same arguments, shapes and meaning, also where those of the kernels are others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy

from .._call import config_text
from .._errors import InputError
from ._attention_arguments import broadcast, check_operands, lengths, lifted, scaled, window
from ._call import named_call

_NOTHING_SEEN = -0.7 * float(numpy.finfo(numpy.float32).max)  # what jax.nn puts in place of a score that does not count


def _may_see_nothing(inputs, left):
    """Whether some query may see no key at all: by a mask, by lengths, or since the window has left the keys behind."""
    queries, keys = inputs["q"].shape[1], inputs["k"].shape[1]
    given = "attention_mask" in inputs or "key_value_seq_lengths" in inputs
    return keys > 0 and (given or (left >= 0 and queries - 1 - left > keys - 1))


def _averaged(out, lse, inputs):
    """jax.nn's answer for a query that sees no key: its scores are one finite number, so that it gets the mean of all values, those that
    do not count included. Queries past query_seq_lengths get 0, as from the kernel."""
    unseeing = jnp.isneginf(lse).swapaxes(1, 2)[..., None]  # [B, T, N, 1]
    if "query_seq_lengths" in inputs:
        unseeing &= (jnp.arange(out.shape[1])[None] < inputs["query_seq_lengths"][:, None])[..., None, None]
    value = inputs["v"]
    mean = jnp.mean(value, axis=1, dtype=jnp.float32).astype(value.dtype)  # [B, K, H]
    mean = jnp.repeat(mean, out.shape[2] // value.shape[2], axis=1)
    return jnp.where(unseeing, mean[:, None], out)


def _residual(lse, dtype):
    """[B, T, N] in the keys' type, without a gradient."""
    return jax.lax.stop_gradient(jnp.where(jnp.isneginf(lse), _NOTHING_SEEN, lse).swapaxes(1, 2).astype(dtype))


def dot_product_attention(
    query: jax.typing.ArrayLike,
    key: jax.typing.ArrayLike,
    value: jax.typing.ArrayLike,
    bias: jax.typing.ArrayLike | None = None,
    mask: jax.typing.ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: jax.typing.ArrayLike | None = None,
    key_value_seq_lengths: jax.typing.ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
    cfg: dict | str | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Attention as jax.nn.dot_product_attention means it: its arguments, and a config for this call (cfg).

    query [B, T, N, H], key and value [B, S, K, H], or without leading axes; bias and mask broadcast to [B, N, T, S]. Causal masks and
    windows count from the first query and the first key (top-left); ejk.flash_attention itself aligns the last ones. A query that sees no
    key gets the mean of all values, one past query_seq_lengths 0. implementation: None, "xla" or "cudnn", which ejk computes alike.
    Returns query's shape in its type; with return_residual also the log of each row's denominator, [B, T, N] in key's type, which has no
    gradient.
    """
    if implementation not in (None, "xla", "cudnn"):
        raise InputError(f"implementation must be None, 'xla' or 'cudnn'; found {implementation!r:.80}")
    shape = jnp.asarray(query).shape
    q, k, v = (lifted(x) for x in (query, key, value))
    check_operands(q, k, v)
    q, scale = scaled(q, scale)
    left, right, seen = window(local_window_size, q.shape[1], k.shape[1])
    inputs = {"q": q, "k": k, "v": v}
    if bias is not None:
        inputs["bias"] = broadcast("bias", bias, q, k)
    if mask is not None or seen is not None:
        masks = [x for x in (mask if mask is None else broadcast("mask", mask, q, k), seen) if x is not None]
        inputs["attention_mask"] = masks[0] if len(masks) == 1 else masks[0] & masks[1]
    for name, given in (("query_seq_lengths", query_seq_lengths), ("key_value_seq_lengths", key_value_seq_lengths)):
        if given is not None:
            inputs[name] = lengths(name, given, q.shape[0])
    attributes = {"causal": bool(is_causal), "causal_offset": 0, "window_left": left, "window_right": right}
    if scale is not None:
        attributes["softmax_scale"] = scale
    averages, config = _may_see_nothing(inputs, left), config_text(cfg)
    wanted = ("out", "lse") if averages or return_residual else ("out",)
    made = named_call("flash_attention", inputs, attributes, wanted, config and config.decode())
    out = _averaged(made["out"], made["lse"], inputs) if averages else made["out"]
    out = out.reshape(*shape[:-1], out.shape[-1])
    return (out, _residual(made["lse"], k.dtype).reshape(shape[:-1])) if return_residual else out
