# What FlashAttention-3 has for ragged_page_attention: part of tools/peers/peer.py, whose names it uses. It is given keys and values as views of one page.


def fa3_ragged(bench, call):
    if call.get("logits_soft_cap", 0.0) != 0.0 or call.given("softmax_aux") or call.given("tree_mask"):
        raise CannotDo("no soft cap, no sinks, no tree")
    if call.type("kv_pages") != call.type("queries"):
        raise CannotDo("no quantised keys")
    torch, device = call.torch, bench.device
    count, starts = call.offsets("num_seqs")[0], call.offsets("query_start_loc")
    if count == 0:
        raise CannotDo("no sequence")
    queries, pages = call.tensor("queries")[: starts[count]], call.tensor("kv_pages")
    lengths = call.tensor("context_lens")[:count]
    columns = call.shape("block_tables")[1]
    tables = torch.zeros(count, columns, dtype=torch.int32, device=device)
    order, used = torch.randperm(pages.shape[0], device=device).to(torch.int32), 0
    for row, length in enumerate(call.offsets("context_lens")[:count]):
        wanted = -(-length // pages.shape[1])
        tables[row, :wanted] = order[used : used + wanted]
        used += wanted
    scale = call.get("softmax_scale")
    words = {"softmax_scale": scale if scale is not None else queries.shape[-1] ** -0.5, "is_causal": True, "seqused_k": lengths, "page_table": tables,
             "cu_seqlens_q": torch.tensor(starts[: count + 1], dtype=torch.int32, device=device),
             "max_seqlen_q": max(b - a for a, b in zip(starts[:count], starts[1 : count + 1])),
             "window_size_left": call.get("window_left", -1), "window_size_right": -1 if call.get("window_left", -1) < 0 else 0}
    return lambda: bench.operations.fwd(queries, pages[:, :, 0::2], pages[:, :, 1::2], **words)


PEERS["ragged_page_attention"] = [("FlashAttention-3", fa3_ragged, contextlib.nullcontext)]
