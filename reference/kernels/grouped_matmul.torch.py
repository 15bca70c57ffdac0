# What PyTorch has for grouped_matmul: part of tools/peers/peer.py, whose names it uses.


def group_ends(call):
    """Of each group of sizes the row after its last, as torch._grouped_mm takes them."""
    sizes, rows = call.offsets("group_sizes"), call.shape("lhs")[0]
    if sum(sizes) != rows:
        raise CannotDo("every row must be in a group")
    return call.tensor("group_sizes").cumsum(0).to(call.torch.int32)


def without_options(call):
    if call.form not in ("ragged", "ragged_transposed"):
        raise CannotDo("for groups of any sizes only")
    if call.given("existing_out") or call.get("group_offset", 0) != 0 or call.shape("rhs")[0] != call.shape("group_sizes")[0]:
        raise CannotDo("no existing_out, no group_offset, all groups")
    if call.type("out") != call.type("lhs") or call.type("rhs") != call.type("lhs"):
        raise CannotDo("one type only")


def grouped_mm(bench, call):
    without_options(call)
    if call.type("lhs") != call.torch.bfloat16:
        raise CannotDo("for bf16 only")
    ends, lhs, rhs = group_ends(call), call.tensor("lhs"), call.tensor("rhs")
    if call.form == "ragged_transposed":
        rhs = rhs.transpose(1, 2)
    return lambda: call.torch._grouped_mm(lhs, rhs, offs=ends)


def loop_of_mm(bench, call):
    """A matrix product a group; the sizes are known to the host, which a grouped operation does without."""
    without_options(call)
    sizes, lhs, rhs = call.offsets("group_sizes"), call.tensor("lhs"), call.tensor("rhs")
    group_ends(call)
    if call.form == "ragged_transposed":
        rhs = rhs.transpose(1, 2)
    out = call.torch.empty(call.shape("out"), dtype=call.type("out"), device=bench.device)
    groups = [(part, matrix, to) for part, matrix, to in zip(lhs.split(sizes), rhs, out.split(sizes)) if len(part)]

    def run():
        for part, matrix, to in groups:
            call.torch.mm(part, matrix, out=to)
    return run


PEERS["grouped_matmul"] = [("torch._grouped_mm", grouped_mm, contextlib.nullcontext), ("a loop of torch.mm", loop_of_mm, contextlib.nullcontext)]
