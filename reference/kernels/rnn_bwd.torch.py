# What PyTorch has for rnn_bwd: part of tools/peers/peer.py, whose names it uses. On a GPU it is cuDNN. Its forward pass, which keeps what this
# one makes again, is not in the time; the copy that PyTorch makes of that when a graph is kept is.


def layer_gradient(bench, call):
    torch, x = call.torch, call.tensor("x").detach().requires_grad_()
    module = layer_of_call(call, x, 0.5 / call.tensor("w_hh").shape[2] ** 0.5)  # of reference/kernels/rnn.torch.py
    with torch.enable_grad():
        y = module(x)[0]
    leaves, dy = [x, *module.parameters()], call.tensor("dy")
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


PEERS["rnn_bwd"] = [("torch.nn", layer_gradient, contextlib.nullcontext)]
