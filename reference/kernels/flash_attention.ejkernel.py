# What ejkernel has for flash_attention: part of tools/peers/peer.py, whose names it uses.


def triton_attention(call):
    """ejkernel's Triton kernel on q, k and v, for calls without other options, with the config that ejkernel's heuristic gives it."""
    from types import SimpleNamespace
    from ejkernel.kernels._triton.flash_attention import flash_attention
    from ejkernel.modules.operations.flash_attention import FlashAttention
    if call.form == "packed":
        raise CannotDo("sequences of different lengths")
    for name, off in (("window_left", -1), ("window_right", -1), ("logits_soft_cap", 0.0), ("dropout_prob", 0.0), ("deterministic", False)):
        if call.get(name, off) != off:
            raise CannotDo(f"no {name}")
    for name in ("bias", "attention_mask", "q_segment_ids", "kv_segment_ids", "query_seq_lengths", "key_value_seq_lengths", "softmax_aux", "weights"):
        if call.given(name):
            raise CannotDo(f"no {name}")
    if call.get("causal", False) and (call.shape("q")[1] != call.shape("k")[1] or call.get("causal_offset", 0) != 0):
        raise CannotDo("its causal mask is not moved")
    config = FlashAttention().heuristic_cfg_gpu(SimpleNamespace(kwargs={"query": call.tensor("q")}))
    keywords = {"causal": bool(call.get("causal", False)), "softmax_scale": call.get("softmax_scale"), "fwd_params": config.fwd_params, "bwd_params": config.bwd_params}
    return lambda q, k, v: flash_attention(q, k, v, **keywords)


def triton_forward(bench, call):
    attend, tensors = bench.jax.jit(triton_attention(call)), [call.tensor(name) for name in ("q", "k", "v")]
    return lambda: attend(*tensors)


PEERS["flash_attention"] = [("ejkernel Triton", triton_forward, contextlib.nullcontext)]
