# What PyTorch has for flash_attention_bwd: part of tools/peers/peer.py, whose names it uses.


def backward_arguments(call):
    """q, k, v, out, lse and dout as PyTorch's backward operations take them: heads before tokens."""
    if call.form == "packed":
        raise CannotDo("sequences of different lengths")
    for name, off in (("window_left", -1), ("window_right", -1), ("logits_soft_cap", 0.0), ("dropout_prob", 0.0), ("deterministic", False)):
        if call.get(name, off) != off:
            raise CannotDo(f"no {name}")
    for name in ("q_segment_ids", "kv_segment_ids", "softmax_aux", "bias", "attention_mask"):
        if call.given(name):
            raise CannotDo(f"no {name}")
    queries, keys = call.shape("q")[1], call.shape("k")[1]
    if call.get("causal", False) and (queries != keys or call.get("causal_offset", 0) != 0):
        raise CannotDo("its causal mask starts at the first key")
    if call.shape("q")[2] != call.shape("k")[2]:
        raise CannotDo("as many key heads as query heads only")
    return [call.tensor(name).transpose(1, 2) for name in ("q", "k", "v", "dout")], bool(call.get("causal", False)), call.get("softmax_scale")


def flash_backward(bench, call):
    (q, k, v, dout), causal, scale = backward_arguments(call)
    forward, backward = call.torch.ops.aten._scaled_dot_product_flash_attention, call.torch.ops.aten._scaled_dot_product_flash_attention_backward
    out, lse, cum_q, cum_k, longest_q, longest_k, seed, offset, _ = forward(q, k, v, 0.0, causal, False, scale=scale)
    return lambda: backward(dout, q, k, v, out, lse, cum_q, cum_k, longest_q, longest_k, 0.0, causal, seed, offset, scale=scale)


def cudnn_backward(bench, call):
    (q, k, v, dout), causal, scale = backward_arguments(call)
    forward, backward = call.torch.ops.aten._scaled_dot_product_cudnn_attention, call.torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    out, lse, cum_q, cum_k, longest_q, longest_k, seed, offset, _ = forward(q, k, v, None, True, 0.0, causal, False, scale=scale)
    return lambda: backward(dout, q, k, v, out, lse, seed, offset, None, cum_q, cum_k, longest_q, longest_k, 0.0, causal, scale=scale)


PEERS["flash_attention_bwd"] = [("FLASH backward", flash_backward, contextlib.nullcontext), ("cuDNN backward", cudnn_backward, contextlib.nullcontext)]
