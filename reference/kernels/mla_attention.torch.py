# The products of mla_attention's absorbed form in PyTorch: part of tools/peers/peer.py, whose names it uses. With mla_decode, timed beside them
# (`--beside mla_decode:CASE`), they do what a decoding call does in three steps.


def heads_first(tensor):
    """Of [..., heads, features] the rows of each head, as a view: [heads, rows, features]."""
    return tensor.reshape(-1, *tensor.shape[-2:]).transpose(0, 1)


def product(call, rows, weights):
    """A product a head into rows that lie as mla_decode and its caller have them: [rows, heads, features]."""
    heads, count, _ = rows.shape
    out = call.torch.empty(count, heads, weights.shape[2], dtype=rows.dtype, device=rows.device).transpose(0, 1)
    return lambda: call.torch.bmm(rows, weights, out=out)


def latent_queries(bench, call):
    return product(call, heads_first(call.tensor("q_nope")), call.tensor("w_kc").permute(1, 2, 0))


def head_values(bench, call):
    q_nope, w_vc = call.tensor("q_nope"), call.tensor("w_vc")
    latents = call.torch.randn(*q_nope.shape[:-1], w_vc.shape[0], device=q_nope.device).to(q_nope.dtype)
    return product(call, heads_first(latents), w_vc.permute(1, 0, 2))


PEERS["mla_attention"] = [("torch.bmm with w_kc alone", latent_queries, contextlib.nullcontext),
                          ("torch.bmm with w_vc alone", head_values, contextlib.nullcontext)]
