#!/usr/bin/env python3
"""Errors of attention and its gradients on a GPU, ejk's beside cuDNN's (through PyTorch), on the same random inputs.

usage: attention_errors.py [TOKENS ...]        with ejk on PYTHONPATH; default: 1024 4096
Of two heads of eight, all elements, relative: the root mean square of what differs from float64, by that of float64. Gradients are made of
each library's own forward pass. Fails where ours are above 1.2 times cuDNN's.
"""
import sys

import torch

import ejk

HEADS, SOME, LIMIT = 8, (0, 5), 1.2
NAMES = ("out", "dq", "dk", "dv")


def reference(q, k, v, dout, causal):
    """Of one head, in float64."""
    q, k, v, dout = (x.double() for x in (q, k, v, dout))
    scale = q.shape[-1] ** -0.5
    scores = q @ k.T * scale
    if causal:
        scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -float("inf"))
    weights = scores.softmax(-1)
    out = weights @ v
    slopes = weights * (dout @ v.T - (out * dout).sum(-1, keepdim=True))
    return out, slopes @ k * scale, slopes.T @ q * scale, weights.T @ dout


def ours(q, k, v, dout, causal):
    made = ejk.flash_attention(q, k, v, causal=causal, return_lse=True)
    gradients = ejk.flash_attention_bwd(q, k, v, made.out, made.lse, dout, causal=causal)
    return made.out, gradients.dq, gradients.dk, gradients.dv


def cudnn(q, k, v, dout, causal):
    q, k, v, dout = (x.transpose(1, 2) for x in (q, k, v, dout))
    aten = torch.ops.aten
    out, lse, cum_q, cum_k, longest_q, longest_k, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)
    gradients = aten._scaled_dot_product_cudnn_attention_backward(
        dout, q, k, v, out, lse, seed, offset, None, cum_q, cum_k, longest_q, longest_k, 0.0, causal)
    return [x.transpose(1, 2) for x in (out, *gradients)]


def errors_of(found, expected):
    """By output; expected: of each head of SOME."""
    heads = [[x[0, :, head].double() for x in found] for head in SOME]
    square = lambda tensors: sum(x.square().sum().item() for x in tensors)
    return [(square(head[i] - true[i] for head, true in zip(heads, expected)) / square(true[i] for true in expected)) ** 0.5 for i in range(len(NAMES))]


def compare(tokens, dim, dtype, causal):
    """The ratios of one cell, whose row it prints."""
    q, k, v, dout = (torch.randn(1, tokens, HEADS, dim, device="cuda", dtype=dtype) for _ in range(4))
    expected = [reference(*(x[0, :, head] for x in (q, k, v, dout)), causal) for head in SOME]
    mine, peer = (errors_of(run(q, k, v, dout, causal), expected) for run in (ours, cudnn))
    ratios = [x / y for x, y in zip(mine, peer)]
    cells = [f"{x:.2e} / {y:.2e} / {ratio:.2f}" for x, y, ratio in zip(mine, peer, ratios)]
    print("| " + " | ".join([f"{dim}", str(dtype).replace("torch.", ""), f"{tokens}{' causal' if causal else ''}", *cells]) + " |", flush=True)
    return ratios


def main():
    torch.manual_seed(1)
    print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}; errors of ejk / cuDNN / ratio\n")
    print("| D | type | tokens | " + " | ".join(NAMES) + " |\n|---:|---|---:|" + "---|" * len(NAMES))
    lengths = [int(text) for text in sys.argv[1:]] or [1024, 4096]
    ratios = [compare(tokens, dim, dtype, causal) for dim in (64, 128, 256) for dtype in (torch.bfloat16, torch.float16)
              for tokens in lengths for causal in (False, True)]
    worst = [max(column) for column in zip(*ratios)]
    print(f"\n{len(ratios)} cells; the largest ratio of " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in zip(NAMES, worst)))
    return max(worst) > LIMIT


if __name__ == "__main__":
    sys.exit(main())
