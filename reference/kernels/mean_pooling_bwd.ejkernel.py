# What ejkernel has for mean_pooling_bwd: part of tools/peers/peer.py, whose names it uses, and of mean_pooling.ejkernel.py.


def triton_pooling_gradient(bench, call, tile):
    from ejkernel.kernels._triton.mean_pooling._triton_impl_bwd import bwd_triton_impl
    if call.form not in ("batched", "packed") or call.given("mask"):
        raise CannotDo("for whole sequences without a mask only")
    if len(call.shape("dx")) != (2 if call.form == "packed" else 3):
        raise CannotDo("one axis of features only")
    offsets = bench.jax.numpy.array(call.offsets("cum_seqlens"), "int32") if call.form == "packed" else None
    first, second = call.shape("dx")[:2]
    spread = bench.jax.jit(lambda dout: bwd_triton_impl(
        do=dout, batch_size=first, seq_len=second, chunk_size=tile[0], cu_seqlens=offsets, block_dim=tile[1], num_warps=tile[2], num_stages=1))
    dout = call.tensor("dout")
    return lambda: spread(dout)


def triton_gradient_peer(tile):
    return (f"ejkernel Triton {tile[0]}x{tile[1]}", lambda bench, call: triton_pooling_gradient(bench, call, tile), contextlib.nullcontext)


PEERS["mean_pooling_bwd"] = [triton_gradient_peer(tile) for tile in POOLING_TILES]
