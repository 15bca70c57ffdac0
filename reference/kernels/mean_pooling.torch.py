# What PyTorch has for mean_pooling: part of tools/peers/peer.py, whose names it uses.


def mean(bench, call):
    x = call.tensor("x")
    if call.form == "batched" and call.given("mask"):
        mask = call.tensor("mask").unsqueeze(-1)
        return lambda: (x * mask).sum(1) / mask.sum(1).clamp(min=1)
    if call.form == "batched":
        return lambda: x.mean(1)
    chunk = call.get("chunk_size", 0)
    if call.form == "chunks" and not call.given("mask") and x.shape[1] % chunk == 0:
        return lambda: x.unflatten(1, (-1, chunk)).mean(2)
    raise CannotDo("for sequences of one length, and whole chunks, only")


def segment_reduce(bench, call):
    if call.form not in ("packed", "packed_chunks"):
        raise CannotDo("for packed sequences only")
    bounds = call.offsets("cum_seqlens")
    if call.form == "packed_chunks":
        chunk = call.get("chunk_size")
        bounds = [t for a, b in zip(bounds, bounds[1:]) for t in range(a, b, chunk)] + [bounds[-1]]
    offsets = call.torch.tensor(bounds, dtype=call.torch.int64, device=bench.device)
    x = call.tensor("x")[:bounds[-1]]
    return lambda: call.torch.segment_reduce(x, "mean", offsets=offsets, axis=0, initial=0, unsafe=True)


PEERS["mean_pooling"] = [("torch.mean", mean, contextlib.nullcontext), ("torch.segment_reduce", segment_reduce, contextlib.nullcontext)]
