"""Attention that JAX can differentiate, in float64: references.py's, for gradients."""

import jax
import jax.numpy as jnp
import numpy


def float64():
    """A scope in which JAX has 64-bit types."""
    return getattr(jax, "enable_x64", None)(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


def attention(q, k, v, bias=None, mask=None, sinks=None, causal=False, offset=None, window=(-1, -1), cap=0.0, scale=None):
    """[B, Sq, Hq, D], [B, Sk, Hkv, D], [B, Sk, Hkv, Dv] to ([B, Sq, Hq, Dv], lse [B, Hq, Sq])."""
    sq, sk, group = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    k, v = jnp.repeat(k, group, 2), jnp.repeat(v, group, 2)
    s = jnp.einsum("bihd,bjhd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = cap * jnp.tanh(s / cap) if cap else s
    s = s if bias is None else s + bias
    at = jnp.arange(sq)[:, None] + (sk - sq if offset is None else offset)
    j = jnp.arange(sk)[None]
    seen = (j <= at) if causal else jnp.ones((sq, sk), bool)
    seen = seen & (j >= at - window[0]) if window[0] >= 0 else seen
    seen = seen & (j <= at + window[1]) if window[1] >= 0 and not causal else seen
    seen = seen[None, None] if mask is None else seen & mask
    top = jnp.where(seen, s, -1e300).max(-1, keepdims=True)
    top = jax.lax.stop_gradient(jnp.where(seen.any(-1, keepdims=True), top, 0.0))
    p = jnp.where(seen, jnp.exp(jnp.where(seen, s, 0.0) - top), 0.0)
    total = p.sum(-1, keepdims=True)
    if sinks is not None:  # [Hq, n]
        total = total + jnp.exp(sinks[None, :, None, :] - top).sum(-1, keepdims=True)
    out = jnp.einsum("bhij,bjhd->bihd", p / jnp.where(total > 0, total, 1.0), v)
    return out, (jnp.log(total) + top)[..., 0]


def in_float64(function, *arrays):
    """function(*arrays) on float64 copies, as NumPy arrays."""
    with float64():
        wide = [None if a is None else jnp.asarray(numpy.asarray(a, dtype=_wide(a))) for a in arrays]
        return jax.tree.map(numpy.asarray, function(*wide))


def _wide(array):
    kind = numpy.asarray(array).dtype
    return kind if kind.kind in "biu" else numpy.float64


def lone_windows_count():
    """Whether jax.nn.dot_product_attention looks at a window that comes without a mask, lengths or is_causal: JAX 0.6.0 forgets it."""
    x = jnp.eye(2)[None, :, None]
    seen, alone = (jax.nn.dot_product_attention(x, x, x, **options) for options in ({}, {"local_window_size": (0, 0)}))
    return bool((seen != alone).any())
