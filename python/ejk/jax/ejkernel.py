"""ejk's kernels as the CUDA platform of the Python library ejkernel: `import ejk.jax.ejkernel` registers them in its registry.

They come before what that library itself has there. Written for ejkernel 0.0.80; what its arguments can say and ours cannot is refused with
its own EjkernelRuntimeError, so that its dispatch goes on to another platform.
"""

import importlib
import inspect

import jax
import jax.numpy as jnp
import numpy
from ejkernel.kernels._registry import Backend, Platform, kernel_registry
from jax import lax

from ._call import named_call

PRIORITY = 1000
_OUTPUTS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def _given(**values):
    return {name: value for name, value in values.items() if value is not None}


def _refuse(*reasons):
    """NotImplementedError in the registry's words: it makes its own error of one that says 'not supported'."""
    found = [reason for reason, holds in reasons if holds]
    if found:
        raise NotImplementedError("; ".join(f"{reason} is not supported" for reason in found))


def _window(sliding_window):
    if sliding_window is None:
        return -1, -1
    return (sliding_window, sliding_window) if isinstance(sliding_window, int) else tuple(sliding_window)


def _int32(array):
    return None if array is None else array.astype(jnp.int32)


def _mask(mask, q, k):
    if mask is None:
        return None
    mask = mask[:, None] if mask.ndim == 3 else mask
    return jnp.broadcast_to(mask.astype(bool), (*mask.shape[:2], q.shape[1], k.shape[1]))


def flash_attention(
    query,
    key,
    value,
    attention_mask=None,
    bias=None,
    softmax_scale=None,
    dropout_prob=0.0,
    causal=False,
    dropout_seed=None,
    cum_seqlens_q=None,
    cum_seqlens_k=None,
    sliding_window=None,
    fwd_params=None,
    bwd_params=None,
    logits_soft_cap=None,
    softmax_aux=None,
    normalize_output=True,
    precision=lax.Precision.DEFAULT,
    logits_dtype=jnp.float32,
    *,
    q_segment_ids=None,
    kv_segment_ids=None,
    block_tables=None,
):
    _refuse(
        ("block_tables", block_tables is not None),
        ("normalize_output=False", not normalize_output),
        ("a bias that is not [B|1, H|1, Sq, Sk]", bias is not None and bias.ndim != 4),
        ("logits_dtype other than float32", jnp.dtype(logits_dtype) != jnp.float32),
    )
    inputs = _given(
        q=query,
        k=key,
        v=value,
        bias=bias,
        attention_mask=_mask(attention_mask, query, key),
        q_segment_ids=_int32(q_segment_ids),
        kv_segment_ids=_int32(kv_segment_ids),
        softmax_aux=softmax_aux,
        cum_seqlens_q=_int32(cum_seqlens_q),
        cum_seqlens_k=_int32(cum_seqlens_k),
    )
    left, right = _window(sliding_window)
    attributes = _given(
        causal=bool(causal),
        softmax_scale=softmax_scale,
        window_left=left,
        window_right=right,
        logits_soft_cap=logits_soft_cap,
        dropout_prob=float(dropout_prob),
        dropout_seed=dropout_seed,
    )
    return named_call("flash_attention", inputs, attributes, ("out",))["out"]


def mean_pooling(x, chunk_size=32, cu_seqlens=None, *, block_dim=128, block_size=256, num_warps=4, num_stages=1):
    """chunk_size is that library's hint for a backward pass, not our chunks."""
    return named_call("mean_pooling", _given(x=x, cum_seqlens=_int32(cu_seqlens)), {}, ("out",))["out"]


def grouped_matmul(
    lhs,
    rhs,
    group_sizes,
    preferred_element_type=jnp.float32,
    tiling=(128, 128, 128),
    group_offset=None,
    existing_out=None,
    transpose_rhs=False,
    interpret=False,
    precision=lax.Precision.DEFAULT,
):
    """Sums are f32, and rounded once to preferred_element_type; existing_out is taken in that type."""
    _refuse(
        ("a traced group_offset", isinstance(group_offset, jax.core.Tracer)),
        ("a group_offset of several values", group_offset is not None and numpy.size(group_offset) != 1),
        ("preferred_element_type other than float32, float16, bfloat16", jnp.dtype(preferred_element_type).name not in _OUTPUTS),
    )
    out = jnp.dtype(preferred_element_type)
    existing_out = None if existing_out is None else existing_out.astype(out)
    inputs = _given(lhs=lhs, rhs=rhs, group_sizes=_int32(group_sizes), existing_out=existing_out)
    attributes = {"transpose_rhs": bool(transpose_rhs), "preferred_element_type": _OUTPUTS[out.name]}
    if group_offset is not None:
        attributes["group_offset"] = int(numpy.reshape(group_offset, ()))
    return named_call("grouped_matmul", inputs, attributes, ("out",))["out"]


def ragged_decode_attention(
    query,
    key,
    value,
    sequence_start,
    sequence_end,
    softmax_scale=None,
    fwd_params=None,
    sliding_window=None,
    logits_soft_cap=None,
    softmax_aux=None,
):
    left, right = _window(sliding_window)
    attributes = _given(softmax_scale=softmax_scale, window_left=left, window_right=right, logits_soft_cap=logits_soft_cap)
    inputs = _given(
        query=query,
        key=key,
        value=value,
        sequence_start=_int32(sequence_start),
        sequence_end=_int32(sequence_end),
        softmax_aux=_sinks_of_heads(softmax_aux, query.shape[1], key.shape[2]),
    )
    return named_call("ragged_decode_attention", inputs, attributes, ("out",))["out"]


def _sinks_of_heads(sinks, heads, kv_heads):
    """[heads, sinks]. There a vector is always shared by all heads, and rows may be of kv heads."""
    if sinks is None:
        return None
    if sinks.ndim == 1:
        return jnp.broadcast_to(sinks, (heads, sinks.shape[0]))
    if sinks.shape[0] == kv_heads and kv_heads > 0:
        return jnp.repeat(sinks, heads // kv_heads, axis=0)
    return sinks


def _as_annotated(function):
    """With the signature of that library's own XLA function, annotations included, which its validate_signatures compares."""
    theirs = getattr(importlib.import_module(f"ejkernel.kernels._xla.{function.__name__}"), function.__name__)
    signature = inspect.signature(theirs)
    if list(signature.parameters) == list(inspect.signature(function).parameters):
        function.__signature__ = signature
    return function


def register(registry=kernel_registry):
    """First of all. Who names no platform gets them for arrays on the CPU, too: a call runs where its arrays are, there by the CPU's kernels."""
    for function in (flash_attention, mean_pooling, grouped_matmul, ragged_decode_attention):
        registry.register(function.__name__, Platform.CUDA, Backend.GPU, priority=PRIORITY)(_as_annotated(function))


register()
