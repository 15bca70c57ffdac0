# What flash-linear-attention has for recurrent: part of tools/peers/peer.py, whose names it uses. Each set of gates is an operation of its own there.


def fla_recurrence(call):
    """Its operation on the tensors that the call gives, in their order, and their names; it gives out and the last state."""
    import fla.ops as ops
    if call.form == "packed":
        raise CannotDo("measured in batches")
    if call.get("reverse", False):
        raise CannotDo("no reverse order")
    if call.get("num_layers", 0):
        raise CannotDo("measured with a decay a head")
    if len({call.shape(name)[2] for name in "qkv"}) > 1:
        raise CannotDo("measured with as many heads of queries, keys and values")
    few = call.shape("q")[1] <= 16
    gates = tuple(name for name in ("g", "g_gamma", "gk", "gv", "beta") if call.given(name))
    known = {("g_gamma",): (ops.chunk_simple_gla, ops.fused_recurrent_simple_gla, {"g_gamma": "g_gamma"}),
             ("g",): (ops.chunk_simple_gla, ops.fused_recurrent_simple_gla, {"g": "g"}),
             ("gk",): (ops.chunk_gla, ops.fused_recurrent_gla, {"gk": "gk" if few else "g"}),
             ("g", "beta"): (ops.chunk_gated_delta_rule, ops.fused_recurrent_gated_delta_rule, {"g": "g", "beta": "beta"}),
             ("gk", "beta"): (ops.chunk_kda, ops.fused_recurrent_kda, {"gk": "g", "beta": "beta"})}
    if gates not in known:
        raise CannotDo(f"no operation with {' and '.join(gates) or 'no gate'}")
    chunked, stepped, words = known[gates]
    options = {"use_qk_l2norm_in_kernel": bool(call.get("l2_norm", False))} if "beta" in gates else {}
    if "beta" not in gates and call.get("l2_norm", False):
        raise CannotDo("no norm of its own")
    words = {"q": "q", "k": "k", "v": "v"} | words | ({"initial_state": "initial_state"} if call.given("initial_state") else {})
    operation = stepped if few else chunked
    scale = call.get("softmax_scale")

    def run(*tensors):
        return operation(**dict(zip(words.values(), tensors)), scale=scale, output_final_state=True, **options)
    return run, [call.values(name) for name in words]


def fla_recurrent_forward(bench, call):
    run, tensors = fla_recurrence(call)
    return lambda: run(*tensors)


PEERS["recurrent"] = [("FLA", fla_recurrent_forward, contextlib.nullcontext)]
