# What PyTorch has for page_attention: part of tools/peers/peer.py, whose names it uses. It reads no page tables: it is given the same
# number of keys in one piece, which is less work.


def paged_sdpa(bench, call):
    lengths = call.offsets("context_lens")
    if len(set(lengths)) != 1 or lengths[0] == 0:
        raise CannotDo("sequences of different lengths")
    if call.get("window_left", -1) != -1 or call.get("logits_soft_cap", 0.0) != 0.0 or call.given("softmax_aux"):
        raise CannotDo("no window, no soft cap, no sinks")
    if call.type("key_cache") != call.type("query"):
        raise CannotDo("no quantised keys")
    q = call.tensor("query").unsqueeze(2)
    kv_heads = call.shape("key_cache")[2 if call.form == "nhd" else 1]
    shape = (q.shape[0], kv_heads, lengths[0], q.shape[3])
    k, v = (call.torch.randn(shape, device=bench.device, dtype=q.dtype) for _ in range(2))
    keywords = {"scale": call.get("softmax_scale"), "enable_gqa": q.shape[1] != kv_heads}
    attend = call.torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v, **keywords)


def paged_only(backend):
    """The scope in which scaled_dot_product_attention has that backend and no other."""
    def choose():
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel([getattr(SDPBackend, backend)])
    return choose


PEERS["page_attention"] = [("SDPA cuDNN, keys in one piece", paged_sdpa, paged_only("CUDNN_ATTENTION")),
                           ("SDPA FLASH, keys in one piece", paged_sdpa, paged_only("FLASH_ATTENTION"))]
