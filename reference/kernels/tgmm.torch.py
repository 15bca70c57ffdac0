# What PyTorch has for tgmm: part of tools/peers/peer.py, whose names it uses, and of grouped_matmul.torch.py.


def grouped_mm_of_rows(bench, call):
    if call.form not in ("ragged", "ragged_transposed"):
        raise CannotDo("for groups of any sizes only")
    if call.get("group_offset", 0) != 0 or call.get("groups", -1) != -1:
        raise CannotDo("no group_offset, all groups")
    if {call.type(name) for name in ("lhs", "dout", "out")} != {call.torch.bfloat16}:
        raise CannotDo("for bf16 only")
    ends, lhs, dout = group_ends(call), call.tensor("lhs"), call.tensor("dout")
    if call.form == "ragged_transposed":
        return lambda: call.torch._grouped_mm(dout.t(), lhs, offs=ends)
    return lambda: call.torch._grouped_mm(lhs.t(), dout, offs=ends)


PEERS["tgmm"] = [("torch._grouped_mm", grouped_mm_of_rows, contextlib.nullcontext)]
