# What ejkernel has for flash_attention_bwd: part of tools/peers/peer.py, whose names it uses, and of flash_attention.ejkernel.py.


def triton_backward(bench, call):
    tensors, dout = [call.tensor(name) for name in ("q", "k", "v")], call.tensor("dout")
    _, pull = bench.jax.vjp(triton_attention(call), *tensors)  # holds the forward pass's results
    backward = bench.jax.jit(lambda pull, gradient: pull(gradient))
    return lambda: backward(pull, dout)


PEERS["flash_attention_bwd"] = [("ejkernel Triton backward", triton_backward, contextlib.nullcontext)]
