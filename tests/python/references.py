"""float64 references of the kernels, in NumPy, from what the specs say; and data for them."""

import numpy as np


def attention(q, k, v, causal=False, causal_offset=None, softmax_scale=None, window_left=-1, window_right=-1, logits_soft_cap=0.0,
              bias=None, attention_mask=None, softmax_aux=None):
    """(out, lse) of flash_attention's batched form."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    groups = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, groups, 2), np.repeat(v, groups, 2)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * (q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale)
    if logits_soft_cap:
        scores = logits_soft_cap * np.tanh(scores / logits_soft_cap)
    if bias is not None:
        scores = scores + np.asarray(bias, np.float64)
    position = np.arange(q.shape[1])[:, None] + (k.shape[1] - q.shape[1] if causal_offset is None else causal_offset)
    key = np.arange(k.shape[1])[None]
    visible = np.ones((q.shape[1], k.shape[1]), bool)
    if causal:
        visible &= key <= position
    if window_left >= 0:
        visible &= key >= position - window_left
    if window_right >= 0:
        visible &= key <= position + window_right
    visible = visible[None, None] if attention_mask is None else visible[None, None] & attention_mask
    scores = np.where(visible, scores, -np.inf)
    sinks = np.zeros(scores.shape[:3] + (0,))
    if softmax_aux is not None:
        sinks = np.broadcast_to(np.asarray(softmax_aux, np.float64)[None, :, None, :], scores.shape[:3] + (softmax_aux.shape[-1],))
    logits = np.concatenate([scores, sinks], -1)
    top = logits.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    total = np.exp(logits - top).sum(-1, keepdims=True)
    weights = np.exp(scores - top) / np.where(total, total, 1)
    with np.errstate(divide="ignore"):
        return np.einsum("bhqk,bkhd->bqhd", weights, v), (np.log(total) + top)[..., 0]


def error(found, expected):
    """Relative Frobenius error, as docs/semantics.md, "Accuracy", measures it."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    return np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-2 * max(expected.size, 1) ** 0.5)


TOLERANCE = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}


def dtype(name):
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(name)


def normal(rng, shape, name="float32"):
    return rng.standard_normal(shape).astype(dtype(name))
