# What PyTorch has for blocksparse_attention, FlexAttention compiled: part of tools/peers/peer.py, whose names it uses.


def flex_arguments(call):
    """q, k, v with heads before tokens, and the keywords of flex_attention: blocks that are on, of which it masks those that causality cuts."""
    for name, off in (("window_left", -1), ("window_right", -1), ("logits_soft_cap", 0.0), ("dropout_prob", 0.0), ("chunk_size", 0), ("deterministic", False)):
        if call.get(name, off) != off:
            raise CannotDo(f"no {name}")
    for name in ("bias", "attention_mask", "q_segment_ids", "softmax_aux", "query_seq_lengths", "key_value_seq_lengths"):
        if call.given(name):
            raise CannotDo(f"not measured with {name}")
    torch, causal, size = call.torch, bool(call.get("causal", False)), (call.get("block_q", 128), call.get("block_k", 128))
    q, k, v = (call.tensor(name).transpose(1, 2) for name in ("q", "k", "v"))
    if causal and q.shape[2] != k.shape[2]:
        raise CannotDo("measured with as many keys as queries")
    if any(extent % block for extent, block in zip((q.shape[2], k.shape[2]), size)):
        raise CannotDo("measured with whole blocks")
    on = call.tensor("block_mask")
    query, key = (torch.arange(on.shape[i], device=on.device) * size[i - 2] for i in (2, 3))  # the first of each block
    whole = on & ((key[None, :] + size[1] - 1 <= query[:, None]) if causal else True)
    seen = on & ((key[None, :] <= query[:, None] + size[0] - 1) if causal else True)
    return (q, k, v), {"block_mask": flex_mask(on, seen & ~whole, whole, size, causal), "scale": call.get("softmax_scale"),
                       "enable_gqa": q.shape[1] != k.shape[1], "kernel_options": flex_tiles(size)}


def flex_mask(on, partial, whole, size, causal):
    from torch.nn.attention.flex_attention import BlockMask

    def listed(blocks):
        order = (~blocks).int().argsort(dim=-1, stable=True)
        return blocks.sum(dim=-1).int(), order.int()

    def sees(batch, head, query, key):
        return query >= key
    return BlockMask.from_kv_blocks(*listed(partial), *listed(whole), BLOCK_SIZE=size, mask_mod=sees if causal else None)


def flex_tiles(size):
    """Tiles that fit in blocks; its own choice where any does."""
    least = min(size)
    if least >= 128:
        return None
    return {name: least for name in ("BLOCK_M", "BLOCK_N", "BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2")}


def flex(bench, call):
    from torch.nn.attention.flex_attention import flex_attention
    tensors, keywords = flex_arguments(call)
    attend = call.torch.compile(flex_attention, dynamic=False)
    return lambda: attend(*tensors, **keywords)


PEERS["blocksparse_attention"] = [("FlexAttention", flex, contextlib.nullcontext)]
