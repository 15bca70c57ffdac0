# What PyTorch has for ragged_decode_attention: part of tools/peers/peer.py, whose names it uses. It has no bounds a row: all rows' must be equal,
# and it is given the views between them.


def bounded_sdpa(bench, call):
    starts, ends = call.offsets("sequence_start"), call.offsets("sequence_end")
    if len(set(starts)) != 1 or len(set(ends)) != 1 or starts[0] >= ends[0]:
        raise CannotDo("sequences of different lengths")
    if call.get("window_left", -1) != -1 or call.get("logits_soft_cap", 0.0) != 0.0 or call.given("softmax_aux"):
        raise CannotDo("no window, no soft cap, no sinks")
    q = call.tensor("query").unsqueeze(2)
    k, v = (call.tensor(name)[:, starts[0] : ends[0]].transpose(1, 2) for name in ("key", "value"))
    keywords = {"scale": call.get("softmax_scale"), "enable_gqa": q.shape[1] != k.shape[1]}
    attend = call.torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v, **keywords).squeeze(2)


def decode_only(backend):
    """The scope in which scaled_dot_product_attention has that backend and no other."""
    def choose():
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel([getattr(SDPBackend, backend)])
    return choose


PEERS["ragged_decode_attention"] = [("SDPA cuDNN", bounded_sdpa, decode_only("CUDNN_ATTENTION")),
                                    ("SDPA FLASH", bounded_sdpa, decode_only("FLASH_ATTENTION"))]
