# What PyTorch has for rnn: part of tools/peers/peer.py, whose names it uses. On a GPU it is cuDNN.


def layer_of_call(call, x, scale=1):
    """A layer of torch.nn that takes x and has the call's weights, times scale."""
    torch = call.torch
    torch.backends.cudnn.allow_tf32 = False  # by default cuDNN multiplies f32 as tf32, with 10 bits of mantissa
    if call.given("lengths"):
        raise CannotDo("for rows of one length only")
    cell, both = call.get("cell_type", "lstm"), call.get("bidirectional", False)
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
                    parameter.zero_() if tensor is None else parameter.copy_(tensor[direction] * scale)
    return module


def layer(bench, call):
    torch, x = call.torch, call.tensor("x")
    module, cell, both = layer_of_call(call, x), call.get("cell_type", "lstm"), call.get("bidirectional", False)
    features = module.hidden_size
    states = [call.tensor(name).to(x.dtype) if call.given(name) else x.new_zeros(1 + both, x.shape[0], features) for name in ("h0", "c0")]
    start = tuple(states) if cell == "lstm" else states[0]

    def run():
        with torch.no_grad():
            return module(x, start)[0]

    return run


PEERS["rnn"] = [("torch.nn", layer, contextlib.nullcontext)]
