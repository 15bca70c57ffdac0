# What FlashAttention-3 has for mla_decode: part of tools/peers/peer.py, whose names it uses. Rope features are its queries and keys, latent ones its `q_v`
# and values.


def fa3_latent(bench, call):
    if call.form == "sparse":
        raise CannotDo("no lists of slots")
    keys = "cache" if call.form == "paged" else "kv_latent"
    if call.type(keys) != call.type("q_latent"):
        raise CannotDo("no caches of bytes")
    q_latent, q_rope = call.tensor("q_latent"), call.tensor("q_rope")
    latent_features, queries = q_latent.shape[3], q_latent.shape[1]
    words = {"q_v": q_latent, "softmax_scale": call.get("softmax_scale"), "softcap": call.get("logits_soft_cap", 0.0), "is_causal": queries > 1}
    if call.given("context_lens"):
        words["seqused_k"] = call.tensor("context_lens")
    if call.form == "paged":
        cache = call.tensor("cache").unsqueeze(2)
        rows, columns = call.shape("block_tables")
        pages = cache.shape[0]
        order = call.torch.randperm(pages, device=bench.device) if rows * columns <= pages else call.torch.randint(pages, (rows * columns,), device=bench.device)
        words["page_table"] = order[: rows * columns].reshape(rows, columns).to(call.torch.int32)
        latents, ropes = cache[..., :latent_features], cache[..., latent_features:]
    else:
        latents, ropes = call.tensor("kv_latent").unsqueeze(2), call.tensor("k_rope").unsqueeze(2)
    return lambda: bench.operations.fwd(q_rope, ropes, latents, **words)


PEERS["mla_decode"] = [("FlashAttention-3 q_v", fa3_latent, contextlib.nullcontext)]
