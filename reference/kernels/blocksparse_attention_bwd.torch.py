# What PyTorch has for blocksparse_attention_bwd, the gradient of FlexAttention compiled: part of tools/peers/peer.py, whose names it uses.


def with_gradients():
    import torch
    return torch.enable_grad()


def flex_backward(bench, call):
    from torch.nn.attention.flex_attention import flex_attention
    tensors, keywords = flex_arguments(call)
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    out = call.torch.compile(flex_attention, dynamic=False)(*tensors, **keywords)
    dout = call.tensor("dout").transpose(1, 2)
    return lambda: call.torch.autograd.grad(out, tensors, dout, retain_graph=True)


def flex_backward_recorded(bench, call):
    with call.torch.enable_grad():
        return flex_backward(bench, call)


PEERS["blocksparse_attention_bwd"] = [("FlexAttention backward", flex_backward_recorded, with_gradients)]
