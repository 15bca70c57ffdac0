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

from . import _ejkernel_blocks as blocks
from . import _ejkernel_latent as latent
from . import _ejkernel_paged as paged
from . import _ejkernel_recurrent as recurrences
from . import _ejkernel_sparse as sparse
from ._call import named_call
from ._ejkernel_words import given, int32, refuse, window

PRIORITY = 1000
_OUTPUTS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


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
    refuse(
        ("block_tables", block_tables is not None),
        ("normalize_output=False", not normalize_output),
        ("a bias that is not [B|1, H|1, Sq, Sk]", bias is not None and bias.ndim != 4),
        ("logits_dtype other than float32", jnp.dtype(logits_dtype) != jnp.float32),
    )
    inputs = given(
        q=query,
        k=key,
        v=value,
        bias=bias,
        attention_mask=_mask(attention_mask, query, key),
        q_segment_ids=int32(q_segment_ids),
        kv_segment_ids=int32(kv_segment_ids),
        softmax_aux=softmax_aux,
        cum_seqlens_q=int32(cum_seqlens_q),
        cum_seqlens_k=int32(cum_seqlens_k),
    )
    left, right = window(sliding_window)
    attributes = given(
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
    return named_call("mean_pooling", given(x=x, cum_seqlens=int32(cu_seqlens)), {}, ("out",))["out"]


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
    refuse(
        ("a traced group_offset", isinstance(group_offset, jax.core.Tracer)),
        ("a group_offset of several values", group_offset is not None and numpy.size(group_offset) != 1),
        ("preferred_element_type other than float32, float16, bfloat16", jnp.dtype(preferred_element_type).name not in _OUTPUTS),
    )
    out = jnp.dtype(preferred_element_type)
    existing_out = None if existing_out is None else existing_out.astype(out)
    inputs = given(lhs=lhs, rhs=rhs, group_sizes=int32(group_sizes), existing_out=existing_out)
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
    left, right = window(sliding_window)
    attributes = given(softmax_scale=softmax_scale, window_left=left, window_right=right, logits_soft_cap=logits_soft_cap)
    inputs = given(
        query=query,
        key=key,
        value=value,
        sequence_start=int32(sequence_start),
        sequence_end=int32(sequence_end),
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


def _as_annotated(function, name):
    """With the signature of that library's own XLA function, annotations included, which its validate_signatures compares."""
    theirs = getattr(importlib.import_module(f"ejkernel.kernels._xla.{name.removeprefix('apply_')}"), function.__name__)
    signature = inspect.signature(theirs)
    if list(signature.parameters) == list(inspect.signature(function).parameters):
        function.__signature__ = signature
    return function


# Their names there; a function may have several.
OURS = {
    flash_attention: ["flash_attention"],
    mean_pooling: ["mean_pooling"],
    grouped_matmul: ["grouped_matmul"],
    ragged_decode_attention: ["ragged_decode_attention"],
    paged.ragged_page_attention_v2: ["ragged_page_attention_v2"],
    paged.ragged_page_attention_v3: ["ragged_page_attention_v3"],
    paged.unified_attention: ["unified_attention"],
    paged.chunked_prefill_paged_decode: ["chunked_prefill_paged_decode"],
    paged.prefill_page_attention: ["prefill_page_attention"],
    paged.decode_attention: ["decode_attention"],
    paged.page_attention: ["page_attention"],
    recurrences.recurrent: ["recurrent"],
    recurrences.recurrent_gla: ["gla"],
    recurrences.lightning_attn: ["lightning_attn"],
    recurrences.gated_delta_rule: ["gated_delta_rule"],
    recurrences.ragged_gated_delta_rule: ["ragged_gated_delta_rule"],
    recurrences.kernel_delta_attention: ["kernel_delta_attention", "kda"],
    recurrences.state_space_v2: ["state_space_v2", "ssm2", "mamba2"],
    recurrences.rwkv6: ["rwkv6"],
    blocks.blocksparse_attention: ["blocksparse_attention"],
    sparse.native_sparse_attention: ["native_sparse_attention"],
    sparse.apply_native_sparse_attention: ["apply_native_sparse_attention"],
    latent.flash_mla: ["flash_mla"],
    latent.deepseek_attn: ["deepseek_attn"],
    latent.multi_latent_ragged_page_attention: ["multi_latent_ragged_page_attention"],
    latent.multi_latent_ragged_page_attention_v2: ["multi_latent_ragged_page_attention_v2"],
}


def register(registry=kernel_registry):
    """First of all. Who names no platform gets them for arrays on the CPU, too: a call runs where its arrays are, there by the CPU's kernels."""
    for function, names in OURS.items():
        annotated = _as_annotated(function, names[0])
        for name in names:
            registry.register(name, Platform.CUDA, Backend.GPU, priority=PRIORITY)(annotated)


register()
