# What flash-linear-attention has for native_sparse_attention: part of tools/peers/peer.py, whose names it uses. It selects block 0 and the query's last two
# blocks always, where we select block 0 and its own; the work is the same.


def fla_native(call):
    """Its operation on q, k, v and the gates given, and these."""
    from fla.ops.nsa import parallel_nsa
    if not call.given("g_slc") or not call.given("g_cmp"):
        raise CannotDo("it has the branches of means and of blocks together")
    if call.given("g_swa") or call.given("block_indices"):
        raise CannotDo("measured with the branches of means and of blocks")
    count, size, scale = call.get("block_count", 16), call.get("block_size", 64), call.get("softmax_scale")

    def run(q, k, v, g_cmp, g_slc):
        return parallel_nsa(q, k, v, g_cmp=g_cmp, g_slc=g_slc, block_counts=count, block_size=size, scale=scale)
    return run, [call.tensor(name) for name in ("q", "k", "v", "g_cmp", "g_slc")]


def fla_native_forward(bench, call):
    run, tensors = fla_native(call)
    return lambda: run(*tensors)


PEERS["native_sparse_attention"] = [("FLA parallel_nsa", fla_native_forward, contextlib.nullcontext)]
