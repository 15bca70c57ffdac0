# What FlashAttention-3 has for flash_attention: part of tools/peers/peer.py, whose names it uses.


def fa3_keywords(call):
    """What its operations take beside the tensors."""
    for name, off in (("logits_soft_cap", 0.0), ("dropout_prob", 0.0), ("causal_offset", 0)):
        if call.get(name, off) != off:
            raise CannotDo(f"no {name}")
    for name in ("q_segment_ids", "kv_segment_ids", "softmax_aux", "bias", "attention_mask"):
        if call.given(name):
            raise CannotDo(f"no {name}")
    if call.form != "packed" and call.get("causal", False) and call.shape("q")[1] != call.shape("k")[1]:
        raise CannotDo("its causal mask ends at the last key")
    scale = call.get("softmax_scale")
    return {"softmax_scale": scale if scale is not None else call.shape("q")[-1] ** -0.5, "is_causal": bool(call.get("causal", False)),
            "window_size_left": call.get("window_left", -1), "window_size_right": call.get("window_right", -1)}


def fa3_packed(call):
    """Offsets and longest lengths, or nothing where all sequences have one length."""
    if call.form != "packed":
        return {}
    words = {}
    for side in "qk":
        offsets = call.offsets(f"cum_seqlens_{side}")
        words |= {f"cu_seqlens_{side}": call.tensor(f"cum_seqlens_{side}"), f"max_seqlen_{side}": max(b - a for a, b in zip(offsets, offsets[1:]))}
    return words


def fa3_forward(bench, call):
    words = fa3_keywords(call) | fa3_packed(call)
    q, k, v = (call.tensor(name) for name in "qkv")
    return lambda: bench.operations.fwd(q, k, v, **words)


PEERS["flash_attention"] = [("FlashAttention-3", fa3_forward, contextlib.nullcontext)]
