# What FlashAttention-3 has for flash_attention_bwd: part of tools/peers/peer.py, whose names it uses, after flash_attention.fa3.py.


def fa3_backward(bench, call):
    words = fa3_keywords(call) | fa3_packed(call)
    q, k, v, dout = (call.tensor(name) for name in ("q", "k", "v", "dout"))
    out, lse, *_ = bench.operations.fwd(q, k, v, **words)
    gradients = [call.torch.empty_like(tensor) for tensor in (q, k, v)]
    deterministic = bool(call.get("deterministic", False))
    return lambda: bench.operations.bwd(dout, q, k, v, out, lse, *gradients, **words, deterministic=deterministic)


PEERS["flash_attention_bwd"] = [("FlashAttention-3", fa3_backward, contextlib.nullcontext)]
