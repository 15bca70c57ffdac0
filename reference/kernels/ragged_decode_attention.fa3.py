# What FlashAttention-3 has for ragged_decode_attention: part of tools/peers/peer.py, whose names it uses.


def fa3_decode(bench, call):
    if any(call.offsets("sequence_start")):
        raise CannotDo("keys begin at the first")
    if call.get("logits_soft_cap", 0.0) != 0.0 or call.given("softmax_aux"):
        raise CannotDo("no soft cap, no sinks")
    query, keys, values, ends = (call.tensor(name) for name in ("query", "key", "value", "sequence_end"))
    scale = call.get("softmax_scale")
    words = {"softmax_scale": scale if scale is not None else query.shape[-1] ** -0.5, "is_causal": False, "seqused_k": ends,
             "window_size_left": call.get("window_left", -1), "window_size_right": -1}
    return lambda: bench.operations.fwd(query.unsqueeze(1), keys, values, **words)


PEERS["ragged_decode_attention"] = [("FlashAttention-3", fa3_decode, contextlib.nullcontext)]
