# What PyTorch has for mean_pooling_bwd: part of tools/peers/peer.py, whose names it uses.


def mean_backward(bench, call):
    dout = call.tensor("dout")
    if call.form == "batched" and not call.given("mask"):
        tokens = call.shape("dx")[1]
        return lambda: (dout / tokens).unsqueeze(1).expand(-1, tokens, *dout.shape[1:]).contiguous()
    if call.form == "packed":
        lengths = call.tensor("cum_seqlens").diff().long()
        tokens = call.offsets("cum_seqlens")[-1]
        scaled = lengths.clamp(min=1).to(dout.dtype).reshape(-1, *[1] * (dout.dim() - 1))
        return lambda: call.torch.repeat_interleave(dout / scaled, lengths, dim=0, output_size=tokens)
    raise CannotDo("for whole sequences without a mask only")


PEERS["mean_pooling_bwd"] = [("expand or repeat", mean_backward, contextlib.nullcontext)]
