"""Arguments of jax.nn.dot_product_attention as the kernel takes them. What is wrong is named as the caller names it."""

import operator

import jax
import jax.numpy as jnp

from .._errors import InputError


def lifted(array):
    """With leading axes of 1, up to four."""
    array = jnp.asarray(array)
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def check_operands(q, k, v):
    for name, x, axes in (("query", q, "[B, T, N, H]"), ("key", k, "[B, S, K, H]"), ("value", v, "[B, S, K, H]")):
        if x.ndim != 4:
            raise InputError(f"{name} must be {axes}, or less its leading axes; found shape {x.shape}")
    if v.shape[:3] != k.shape[:3] or v.dtype != k.dtype:
        raise InputError(f"value must be {k.dtype} of key's shape {k.shape}; found {v.dtype} of shape {v.shape}")
    if (q.shape[0], q.shape[3], q.dtype) != (k.shape[0], k.shape[3], k.dtype):
        raise InputError(f"query must be {k.dtype} [{k.shape[0]}, T, N, {k.shape[3]}], as key is; found {q.dtype} of shape {q.shape}")
    if q.shape[2] % max(k.shape[2], 1):
        raise InputError(f"query must have a multiple of key's {k.shape[2]} heads; found {q.shape[2]}")


def broadcast(name, array, q, k):
    """[B|1, N|1, T, S]: the kernels let only the first two be 1."""
    array, whole = lifted(array), (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    if name == "mask" and array.dtype != bool:
        raise InputError(f"mask must be bool; found {array.dtype}")
    if array.ndim != 4 or any(extent not in (1, full) for extent, full in zip(array.shape, whole)):
        raise InputError(f"{name} must broadcast to [B, N, T, S] = {list(whole)}; found shape {array.shape}")
    if name == "bias" and array.dtype not in (jnp.float32, jnp.float16, jnp.bfloat16):
        array = array.astype(jnp.float32)
    return jnp.broadcast_to(array, (*array.shape[:2], *whole[2:]))


def lengths(name, array, batch):
    array = jnp.asarray(array)
    if array.shape != (batch,) or array.dtype != jnp.int32:
        raise InputError(f"{name} must be int32 of shape ({batch},), a length a row of the batch; found {array.dtype} of shape {array.shape}")
    return array


def scaled(q, scale):
    """(q, the kernel's scale, a Python number that is not negative). A traced scale and a sign go into q."""
    if scale is None:
        return q, None
    if isinstance(scale, jax.core.Tracer):
        return (q.astype(jnp.float32) * scale).astype(q.dtype), 1.0
    try:
        scale = float(scale)
    except (TypeError, ValueError):
        raise InputError(f"scale must be a number; found {scale!r:.80}") from None
    return (-q, -scale) if scale < 0 else (q, scale)


def _whole_number(value):
    """An int, or what is traced and known to be one."""
    return value if isinstance(value, jax.core.Tracer) else operator.index(value)


def _sides(size):
    try:
        return (_whole_number(size),) * 2
    except TypeError:
        pass
    try:
        left, right = size
        return _whole_number(left), _whole_number(right)
    except (TypeError, ValueError):
        raise InputError(f"local_window_size must be an integer or two of them (left, right); found {size!r:.80}") from None


def window(size, queries, keys):
    """(left, right) as the kernel takes them, and None; or both open, and a mask for what it does not take: sides that are traced, or
    negative, where a query does not see its own place."""
    if size is None:
        return -1, -1, None
    left, right = _sides(size)
    if not any(isinstance(side, jax.core.Tracer) or side < 0 for side in (left, right)):
        return min(left, queries + keys), min(right, queries + keys), None
    apart = jnp.arange(keys)[None] - jnp.arange(queries)[:, None]  # [T, S]
    return -1, -1, ((apart >= -left) & (apart <= right))[None, None]
