"""Eager calls with JAX arrays and PyTorch tensors, where those libraries are installed: results of the same kind, on the same device."""

import numpy as np
import pytest
from references import attention, error

import ejk


def arrays(dtype=np.float32):
    rng = np.random.default_rng(5)
    return [rng.standard_normal((2, n, h, 64)).astype(dtype) for n, h in ((33, 4), (47, 2), (47, 2))]


def test_jax():
    jax = pytest.importorskip("jax")
    q, k, v = (jax.device_put(x, jax.devices("cpu")[0]) for x in arrays())
    out = ejk.flash_attention(q, k, v, causal=True)
    assert isinstance(out, jax.Array) and out.dtype == q.dtype and out.devices() == q.devices()
    assert error(out, attention(*arrays(), causal=True)[0]) < 1e-5
    both = ejk.flash_attention(*(x.astype(jax.numpy.bfloat16) for x in (q, k, v)), return_lse=True)
    assert both.out.dtype == jax.numpy.bfloat16 and both.lse.shape == (2, 4, 33)


def devices():
    torch = pytest.importorskip("torch")
    return ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def test_torch():
    torch = pytest.importorskip("torch")
    for device in devices():
        q, k, v = (torch.from_numpy(x).to(device) for x in arrays())
        for causal in (False, True, False):
            out = ejk.flash_attention(q, k, v, causal=causal)
            assert type(out) is torch.Tensor and out.dtype == q.dtype and out.device == q.device
            assert error(out.cpu(), attention(*arrays(), causal=causal)[0]) < 1e-5
        given = torch.full_like(q, float("nan"))
        assert ejk.flash_attention(q, k, v, out=given) is given and torch.equal(given, ejk.flash_attention(q, k, v))
        half = ejk.flash_attention(*(x.bfloat16() for x in (q, k, v)), return_lse=True)
        assert half.out.dtype == torch.bfloat16 and half.lse.dtype == torch.float32
        with pytest.raises(TypeError, match="v is a numpy.ndarray, q a torch.Tensor"):
            ejk.flash_attention(q, k, v.cpu().numpy())
        with pytest.raises(ejk.InputError, match="k has type"):
            ejk.flash_attention(q, k.half(), v)


def test_torch_streams():
    torch = pytest.importorskip("torch")
    if "cuda" not in devices():
        pytest.skip("no GPU")
    q, k, v = (torch.from_numpy(x).cuda() for x in arrays())
    expected = ejk.flash_attention(q, k, v)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        assert torch.equal(ejk.flash_attention(q, k, v), expected)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = ejk.flash_attention(q, k, v)
    q.copy_(2 * q)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, ejk.flash_attention(q, k, v))
