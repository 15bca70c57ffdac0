# What FlashAttention-3 has for page_attention: part of tools/peers/peer.py, whose names it uses.


def fa3_paged(bench, call):
    if call.form != "nhd":
        raise CannotDo("a page holds its tokens, each with all its heads (layout NHD)")
    if call.get("logits_soft_cap", 0.0) != 0.0 or call.given("softmax_aux"):
        raise CannotDo("no soft cap, no sinks")
    if call.type("key_cache") != call.type("query"):
        raise CannotDo("no quantised keys")
    query, keys, values, lengths = (call.tensor(name) for name in ("query", "key_cache", "value_cache", "context_lens"))
    rows, columns = call.shape("block_tables")
    pages = keys.shape[0]
    order = call.torch.randperm(pages, device=bench.device) if rows * columns <= pages else call.torch.randint(pages, (rows * columns,), device=bench.device)
    tables = order[: rows * columns].reshape(rows, columns).to(call.torch.int32)
    scale = call.get("softmax_scale")
    words = {"softmax_scale": scale if scale is not None else query.shape[-1] ** -0.5, "is_causal": False, "seqused_k": lengths, "page_table": tables,
             "window_size_left": call.get("window_left", -1), "window_size_right": -1}
    return lambda: bench.operations.fwd(query.unsqueeze(1), keys, values, **words)


PEERS["page_attention"] = [("FlashAttention-3", fa3_paged, contextlib.nullcontext)]
