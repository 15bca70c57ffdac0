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


GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def rnn_step(xp, cell, h, c, into, back):
    """(h, c) after a token, of its products with both matrices; docs/semantics.md, "rnn"."""
    into, back = xp.split(into, GATES[cell], -1), xp.split(back, GATES[cell], -1)
    sigmoid = lambda v: 1 / (1 + xp.exp(-v))  # noqa: E731
    if cell == "lstm":
        i, f, o = (sigmoid(into[g] + back[g]) for g in (0, 1, 3))
        c = f * c + i * xp.tanh(into[2] + back[2])
        return o * xp.tanh(c), c
    if cell == "gru":
        r, z = (sigmoid(into[g] + back[g]) for g in (0, 1))
        n = xp.tanh(into[2] + r * back[2])
        return (1 - z) * n + z * h, c
    total = into[0] + back[0]
    return (xp.tanh(total) if cell == "rnn_tanh" else xp.maximum(total, 0)), c


def rnn_direction(xp, cell, x, weights, h, c, lengths, reverse):
    """(y, h, c) of one direction; weights: w_ih, w_hh, b_ih, b_hh. Token by token, in whatever library xp is."""
    w_ih, w_hh, b_ih, b_hh = weights
    outputs = [None] * x.shape[1]
    for t in reversed(range(x.shape[1])) if reverse else range(x.shape[1]):
        valid = (t < lengths)[:, None]
        stepped = rnn_step(xp, cell, h, c, xp.where(valid, x[:, t], 0) @ w_ih.T + b_ih, h @ w_hh.T + b_hh)
        h, c = xp.where(valid, stepped[0], h), xp.where(valid, stepped[1], c)
        outputs[t] = xp.where(valid, h, 0)
    return xp.stack(outputs, 1), h, c


def rnn_layers(xp, x, state, cell, layers, directions, h0, c0, lengths, between=lambda x, layer: x):
    """(y, h_n, c_n) of weights named as torch.nn does. between: what happens to the input of each layer but the first."""
    hs, cs = [], []
    for layer in range(layers):
        x, ys = between(x, layer) if layer else x, []
        for d in range(directions):
            name = f"l{layer}{'_reverse' if d else ''}"
            h = h0[layer * directions + d]
            zero = xp.zeros((state["weight_ih_" + name].shape[0],), x.dtype)
            weights = [state.get(f"{part}_{name}", zero) for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            y, h, c = rnn_direction(xp, cell, x, weights, h, c0[layer * directions + d], lengths, d == 1)
            ys.append(y), hs.append(h), cs.append(c)
        x = xp.concatenate(ys, -1)
    return x, xp.stack(hs), xp.stack(cs)


def rnn_state(rng, cell, layers, directions, features, hidden, bias=True):
    """Weights named as torch.nn does, f32."""
    state = {}
    for layer in range(layers):
        for suffix in ("", "_reverse")[:directions]:
            rows, width = GATES[cell] * hidden, features if layer == 0 else directions * hidden
            shapes = {"weight_ih": (rows, width), "weight_hh": (rows, hidden), **({"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {})}
            for part, shape in shapes.items():
                state[f"{part}_l{layer}{suffix}"] = rng.standard_normal(shape, dtype="f4") / 2
    return state
