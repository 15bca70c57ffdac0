# What PyTorch has for flash_attention: part of tools/peers/peer.py, whose names it uses.


def sdpa_arguments(call):
    """q, k, v as scaled_dot_product_attention takes them, and its keywords."""
    if call.form == "packed":
        raise CannotDo("sequences of different lengths")
    for name, off in (("window_left", -1), ("window_right", -1), ("logits_soft_cap", 0.0), ("dropout_prob", 0.0)):
        if call.get(name, off) != off:
            raise CannotDo(f"no {name}")
    for name in ("q_segment_ids", "kv_segment_ids", "softmax_aux"):
        if call.given(name):
            raise CannotDo(f"no {name}")
    queries, keys = call.shape("q")[1], call.shape("k")[1]
    if call.get("causal", False) and (queries != keys or call.get("causal_offset", 0) != 0):
        raise CannotDo("its causal mask starts at the first key")
    if call.given("bias") and call.given("attention_mask"):
        raise CannotDo("takes a mask or a bias, not both")
    q, k, v = (call.tensor(name).transpose(1, 2) for name in ("q", "k", "v"))
    keywords = {"is_causal": bool(call.get("causal", False)), "scale": call.get("softmax_scale")}
    for name in ("bias", "attention_mask"):
        if call.given(name):
            keywords["attn_mask"] = call.tensor(name) if name == "attention_mask" else call.tensor(name).to(q.dtype)
    if q.shape[1] != k.shape[1]:
        keywords["enable_gqa"] = True
    return (q, k, v), keywords


def only(backend):
    """The scope in which scaled_dot_product_attention has that backend and no other."""
    def choose():
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel([getattr(SDPBackend, backend)])
    return choose


def sdpa(bench, call):
    tensors, keywords = sdpa_arguments(call)
    attend = bench.torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(*tensors, **keywords)


def sdpa_masked(bench, call):
    if not call.given("bias") and not call.given("attention_mask"):
        raise CannotDo("measured with a mask or a bias only")
    return sdpa(bench, call)


def flash_varlen(bench, call):
    if call.form != "packed":
        raise CannotDo("for packed sequences only")
    if call.get("window_left", -1) != -1 or call.get("window_right", -1) != -1 or call.get("logits_soft_cap", 0.0) != 0.0:
        raise CannotDo("no window, no soft cap")
    q, k, v = (call.tensor(name) for name in ("q", "k", "v"))
    cum_q, cum_k = call.tensor("cum_seqlens_q"), call.tensor("cum_seqlens_k")
    longest = [max((b - a for a, b in zip(o, o[1:])), default=0) for o in (call.offsets("cum_seqlens_q"), call.offsets("cum_seqlens_k"))]
    forward = call.torch.ops.aten._flash_attention_forward
    causal, scale = bool(call.get("causal", False)), call.get("softmax_scale")
    return lambda: forward(q, k, v, cum_q, cum_k, longest[0], longest[1], 0.0, causal, False, scale=scale)


PEERS["flash_attention"] = [
    ("SDPA FLASH", sdpa, only("FLASH_ATTENTION")), ("SDPA cuDNN", sdpa, only("CUDNN_ATTENTION")),
    ("SDPA EFFICIENT", sdpa_masked, only("EFFICIENT_ATTENTION")), ("FLASH varlen", flash_varlen, contextlib.nullcontext)]
