# What ejkernel has for mean_pooling: part of tools/peers/peer.py, whose names it uses.
# Its tiles of (tokens, features, warps): its heuristic's, and the two that its tuner names for wide features.
POOLING_TILES = [(64, 64, 4), (256, 128, 4), (256, 256, 8)]


def triton_pooling(bench, call, tile):
    from ejkernel.kernels._triton.mean_pooling._triton_impl_fwd import fwd_triton_impl
    if call.form not in ("batched", "packed") or call.given("mask"):
        raise CannotDo("for whole sequences without a mask only")
    if len(call.shape("x")) != (2 if call.form == "packed" else 3):
        raise CannotDo("one axis of features only")
    offsets = bench.jax.numpy.array(call.offsets("cum_seqlens"), "int32") if call.form == "packed" else None
    pool = bench.jax.jit(lambda x: fwd_triton_impl(x=x, chunk_size=tile[0], cu_seqlens=offsets, block_dim=tile[1], num_warps=tile[2], num_stages=1))
    x = call.tensor("x")
    return lambda: pool(x)


def triton_pooling_peer(tile):
    return (f"ejkernel Triton {tile[0]}x{tile[1]}", lambda bench, call: triton_pooling(bench, call, tile), contextlib.nullcontext)


PEERS["mean_pooling"] = [triton_pooling_peer(tile) for tile in POOLING_TILES]
