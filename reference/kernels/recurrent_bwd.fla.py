# What flash-linear-attention has for recurrent_bwd: part of tools/peers/peer.py, whose names it uses, after recurrent.fla.py.


def fla_recurrent_backward(bench, call):
    if call.given("dfinal_state"):
        raise CannotDo("measured without a gradient of the last state")
    run, tensors = fla_recurrence(call)
    return fla_gradients(run, tensors, lambda result: (result[0], call.tensor("dout")))


PEERS["recurrent_bwd"] = [("FLA backward", fla_recurrent_backward, fla_recorded)]
