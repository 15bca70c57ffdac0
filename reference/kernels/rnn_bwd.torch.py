# What PyTorch has for rnn_bwd: part of tools/peers/peer.py, whose names it uses. On a GPU it is cuDNN. Its forward pass, which keeps what this
# one makes again, is not in the time; the copy that PyTorch makes of that when a graph is kept is.


def layer_gradient(bench, call):
    torch = call.torch
    if call.given("lengths"):
        raise CannotDo("for rows of one length only")
    cell, both, x = call.get("cell_type", "lstm"), call.get("bidirectional", False), call.tensor("x").detach().requires_grad_()
    weights = [call.tensor(name) if call.given(name) else None for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    features, biased = weights[1].shape[2], weights[2] is not None or weights[3] is not None
    make = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(cell, torch.nn.RNN)
    more = {"nonlinearity": cell[4:]} if cell.startswith("rnn_") else {}
    module = make(x.shape[2], features, batch_first=True, bias=biased, bidirectional=both, device=x.device, dtype=x.dtype, **more)
    with torch.no_grad():
        for name, tensor in zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), weights):
            for direction, suffix in enumerate(("", "_reverse")[:1 + both]):
                if hasattr(module, name + suffix):
                    parameter = getattr(module, name + suffix)
                    parameter.zero_() if tensor is None else parameter.copy_(tensor[direction] * 0.5 / features ** 0.5)
    with torch.enable_grad():
        y = module(x)[0]
    leaves, dy = [x, *module.parameters()], call.tensor("dy")
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


PEERS["rnn_bwd"] = [("torch.nn", layer_gradient, contextlib.nullcontext)]
