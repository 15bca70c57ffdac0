# What flash-linear-attention has for native_sparse_attention_bwd: part of tools/peers/peer.py, whose names it uses, after native_sparse_attention.fla.py.


def fla_native_backward(bench, call):
    run, tensors = fla_native(call)
    return fla_gradients(run, tensors, lambda out: (out, call.tensor("dout")))


PEERS["native_sparse_attention_bwd"] = [("FLA parallel_nsa backward", fla_native_backward, fla_recorded)]
