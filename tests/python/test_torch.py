"""ejk and PyTorch: eager calls, autograd, torch.compile, fake tensors; on the GPU if there is one."""

import ctypes
import subprocess
import sys
import threading

import numpy
import pytest

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import ejk  # noqa: E402
from ejk import _torch_arrays  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
GRADIENT_TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}


def normal(seed, *shape, dtype=torch.float32, grad=False):
    values = torch.from_numpy(numpy.random.default_rng(seed).standard_normal(shape))
    return values.to(DEVICE, dtype).requires_grad_(grad)


def qkv(dtype=torch.float32, grad=False):
    return tuple(normal(i, 2, s, h, 64, dtype=dtype, grad=grad) for i, s, h in ((1, 37, 4), (2, 53, 2), (3, 53, 2)))


def attention(q, k, v, bias=None, causal=False, sinks=None):
    """In float64, from docs/semantics.md."""
    sq, sk, group = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    s = s if bias is None else s + bias
    if causal:
        s = s.masked_fill(torch.ones(sq, sk, dtype=torch.bool, device=s.device).triu(sk - sq + 1), -torch.inf)
    if sinks is not None:
        s = torch.cat([s, sinks[None, :, None].expand(*s.shape[:3], -1)], -1)
    return torch.einsum("bhij,bjhd->bihd", s.softmax(-1)[..., :sk], v)


def wide(*tensors):
    return tuple(t.detach().double().requires_grad_(t.requires_grad) for t in tensors)


def error(found, expected):
    found, expected = found.detach().double(), expected.detach().double()
    assert found.shape == expected.shape
    return float((found - expected).norm() / max(expected.norm(), 1e-2 * expected.numel() ** 0.5))


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_eager(dtype):
    q, k, v = qkv(dtype)
    out = ejk.flash_attention(q, k, v, causal=True)
    assert out.dtype == dtype and out.device == q.device
    assert error(out, attention(*wide(q, k, v), causal=True)) < TOLERANCE[dtype]
    into = torch.full_like(out, torch.nan)
    assert ejk.flash_attention(q, k, v, causal=True, out=into) is into and torch.equal(into, out)


def remembered():
    kernel = sys.modules["ejk._functions.flash_attention"]._kernel
    return sum(len(seen.prepared) for seen in kernel.seen.values())


def strided(tensor):
    """The same values, every other head of a larger tensor."""
    return tensor.repeat_interleave(2, 2)[:, :, ::2]


def calls():
    """Calls that differ from the first in one thing each: (tensors, options)."""
    q, k, v = qkv()
    yield (q, k, v), {}
    yield (q[:, :36], k, v), {}
    yield (q, k[:, 1:], v[:, 1:]), {}
    yield tuple(x.half() for x in (q, k, v)), {}
    yield (strided(q), k, v), {}
    yield (q, k, strided(v)), {}
    yield (q, k, v), {"causal": True}
    yield (q, k, v), {"bias": normal(5, 1, 4, 37, 53)}
    yield (q, k, v), {"bias": normal(6, 2, 1, 37, 53)}
    yield (q, k, v), {"sinks": normal(6, 4, 2)}


def ours(tensors, options, **more):
    options = {{"sinks": "softmax_aux"}.get(name, name): value for name, value in options.items()}
    return ejk.flash_attention(*tensors, **options, **more)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def refuse(*_):
    return -1


@pytest.mark.parametrize("reads", ["objects", "keys", "refused"])
def test_calls_seen_before_notice_what_changed(reads, monkeypatch):
    if reads != "objects":
        monkeypatch.setattr(sys.modules["ejk._functions.flash_attention"]._kernel, "seen", {})
    if reads == "keys":  # as with a PyTorch that has no exchange API
        monkeypatch.setattr(_torch_arrays, "_reader", None)
    if reads == "refused" and _torch_arrays._reader is not None:
        refusing = type(_torch_arrays._reader).from_buffer_copy(_torch_arrays._reader)
        refusing.tensor = ctypes.cast(refuse, ctypes.c_void_p).value
        monkeypatch.setattr(_torch_arrays, "_reader", refusing)
    for turn in range(3):
        before = remembered()
        for tensors, options in calls():
            out = ours(tensors, options)
            into = torch.full_like(out, torch.nan)
            assert ours(tensors, options, out=into) is into and torch.equal(into, out)
            expected = attention(*(x.double() for x in tensors), **options)
            assert error(out, expected) < TOLERANCE[tensors[0].dtype]
            both = ours(tensors, options, return_lse=True)
            assert torch.equal(both.out, out) and both.lse.shape == (2, 4, out.shape[1]) and both.weights is None
        if reads != "objects" or not turn:
            assert (remembered() > before) == (reads == "objects" and _torch_arrays._reader is not None)
        else:
            assert remembered() == before, "a call that was seen was prepared again"


def test_calls_seen_before_notice_gradients():
    q, k, v = qkv()
    plain = ejk.flash_attention(q, k, v)
    assert not plain.requires_grad
    for _ in range(2):
        need = v.clone().requires_grad_()
        out = ejk.flash_attention(q, k, need)
        assert out.requires_grad and torch.equal(out, plain)
        with torch.no_grad():
            assert not ejk.flash_attention(q, k, need).requires_grad
        assert torch.equal(ejk.flash_attention(q, k, torch.nn.Parameter(v)), plain)


def test_calls_seen_before_notice_scopes_and_seeds():
    x = normal(1, 3, 7, 16)
    ejk.mean_pooling(x)
    with ejk.policy(cache_miss_fallback="error"):
        with pytest.raises(ejk.UnsupportedError, match="no tier has a config"):
            ejk.mean_pooling(x)
    assert error(ejk.mean_pooling(x), x.mean(1)) < 1e-6
    with pytest.raises(ejk.InputError, match="no variant 'none'"):
        ejk.mean_pooling(x, cfg={"variant": "none"})
    assert error(ejk.mean_pooling(x, cfg={"variant": "strided" if DEVICE == "cpu" else "gpu_strided"}), x.mean(1)) < 1e-6
    q, k, v = qkv()
    for cfg in ({}, "{}"):
        assert torch.equal(ejk.flash_attention(q, k, v, cfg=cfg), ejk.flash_attention(q, k, v))
    drop = lambda seed: ejk.flash_attention(q, k, v, dropout_prob=0.5, dropout_seed=seed)  # noqa: E731
    assert torch.equal(drop(3), drop(3)) and not torch.equal(drop(3), drop(4)) and torch.equal(drop(None), drop(0))


def test_packed_lengths_are_read_each_time():
    x = normal(1, 10, 8)
    for lengths in ((0, 3, 10), (0, 9, 10), (0, 3, 10)):
        offsets = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
        expected = torch.stack([x[: lengths[1]].mean(0), x[lengths[1] :].mean(0)])
        assert error(ejk.mean_pooling(x, cum_seqlens=offsets), expected) < 1e-6
    offsets = [torch.tensor(each, dtype=torch.int32, device=DEVICE) for each in ((0, 3, 10), (0, 5, 10))]
    chunks = [ejk.mean_pooling(x, cum_seqlens=each, chunk_size=4) for each in offsets]
    assert [each.shape[0] for each in chunks] == [3, 4]


def test_threads_share_calls():
    tensors = [tuple(x * (n + 1) for x in qkv()) for n in range(4)]
    expected = [ejk.flash_attention(*each) for each in tensors]
    wrong = []

    def work(n):
        for _ in range(200):
            if not torch.equal(ejk.flash_attention(*tensors[n]), expected[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def backward(function, tensors, weights):
    return torch.autograd.grad((function(*tensors) * weights).sum(), tensors)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("causal", [False, True])
def test_autograd(dtype, causal):
    tensors, weights = qkv(dtype, grad=True), normal(4, 2, 37, 4, 64, dtype=dtype)
    found = backward(lambda *x: ejk.flash_attention(*x, causal=causal), tensors, weights)
    expected = backward(lambda *x: attention(*x, causal=causal), wide(*tensors), weights.double())
    for mine, truth in zip(found, expected):
        assert mine.dtype == dtype and error(mine, truth) < GRADIENT_TOLERANCE[dtype]


def test_gradients_of_bias_and_sinks_and_of_some_inputs():
    q, k, v = qkv()
    bias, sinks = normal(5, 1, 4, 37, 53, grad=True), normal(6, 4, 2, grad=True)
    weights = normal(4, 2, 37, 4, 64)
    v.requires_grad_()
    ours = lambda v, b, s: ejk.flash_attention(q, k, v, bias=b, softmax_aux=s)  # noqa: E731
    wide_q, wide_k = wide(q, k)
    theirs = lambda v, b, s: attention(wide_q, wide_k, v, bias=b, sinks=s)  # noqa: E731
    found, expected = backward(ours, (v, bias, sinks), weights), backward(theirs, wide(v, bias, sinks), weights.double())
    for mine, truth in zip(found, expected):
        assert error(mine, truth) < 1e-5


def test_cotangents_may_be_strided():
    tensors = qkv(grad=True)
    out = ejk.flash_attention(*tensors)
    weights = normal(4, 2, 64, 4, 37).permute(0, 3, 2, 1)
    found = torch.autograd.grad(out, tensors, weights)
    expected = torch.autograd.grad(ejk.flash_attention(*tensors), tensors, weights.contiguous())
    for mine, other in zip(found, expected):
        assert error(mine, other) < 1e-6


def test_gradient_of_several_calls():
    lhs, rhs, old = normal(1, 30, 16, grad=True), normal(2, 3, 16, 24, grad=True), normal(3, 30, 24, grad=True)
    sizes, weights = torch.tensor([7, 0, 13], dtype=torch.int32, device=DEVICE), normal(4, 30, 24)

    def theirs(lhs, rhs, old):
        return torch.cat([lhs[:7] @ rhs[0], lhs[7:20] @ rhs[2], torch.zeros_like(old[20:])]) + old

    ours = lambda a, b, c: ejk.grouped_matmul(a, b, group_sizes=sizes, existing_out=c)  # noqa: E731
    for mine, truth in zip(backward(ours, (lhs, rhs, old), weights), backward(theirs, wide(lhs, rhs, old), weights.double())):
        assert error(mine, truth) < 1e-5


@pytest.mark.parametrize("compiled", [False, True])
def test_a_result_and_its_gradient_of_another_type_than_the_operands(compiled):
    lhs, rhs = normal(1, 20, 16).bfloat16(), normal(2, 3, 16, 24).bfloat16()
    sizes, weights = torch.tensor([7, 0, 13], dtype=torch.int32, device=DEVICE), normal(4, 20, 24)
    ours = lambda a, b: ejk.grouped_matmul(a, b, group_sizes=sizes, preferred_element_type="f32")  # noqa: E731
    theirs = lambda a, b: torch.cat([a[:7] @ b[0], a[7:] @ b[2]])  # noqa: E731
    given = lhs.requires_grad_(), rhs.requires_grad_()
    found = (torch.compile(ours) if compiled else ours)(*given)
    slopes = torch.autograd.grad((found * weights).sum(), given)
    assert found.dtype == torch.float32 and [each.dtype for each in slopes] == [torch.bfloat16] * 2
    expected = backward(theirs, wide(lhs, rhs), weights.double())
    assert error(found, theirs(*wide(lhs, rhs))) < 1e-5  # of the operands as they are: bf16 would be 100 times as far
    for mine, truth in zip(slopes, expected):
        assert error(mine, truth) < 4e-3  # one rounding to bf16; of dout, too, it would be more


class Watching(TorchDispatchMode):
    """Keeps the calls of ejk's operators that PyTorch shows it."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function.namespace == "ejk":
            self.calls.append((function, arguments))
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"return_lse": True}, {"dropout_prob": 0.5, "dropout_seed": 7}])
def test_autograd_is_the_same_with_and_without_the_operators(options):
    tensors, weights = qkv(grad=True), normal(4, 2, 37, 4, 64)

    def step():
        made = ejk.flash_attention(*tensors, **options)
        out = made.out if "return_lse" in options else made
        return out, *torch.autograd.grad((out * weights).sum(), tensors)

    plain = step()
    with Watching() as watching:
        watched = step()
    assert [function.name() for function, _ in watching.calls] == ["ejk::flash_attention", "ejk::flash_attention_bwd"]
    for mine, other in zip(plain, watched):
        assert error(mine, other) < 1e-6
    assert torch.equal(plain[0], watched[0])


def test_recomputed_forward_passes_and_second_gradients():
    from torch.utils.checkpoint import checkpoint

    tensors, weights = qkv(grad=True), normal(4, 2, 37, 4, 64)
    attend = lambda *x: ejk.flash_attention(*x, causal=True)  # noqa: E731
    expected = backward(attend, tensors, weights)
    again = lambda *x: checkpoint(attend, *x, use_reentrant=False)  # noqa: E731
    for mine, other in zip(backward(again, tensors, weights), expected):
        assert error(mine, other) < 1e-6
    (first,) = torch.autograd.grad(attend(*tensors).sum(), tensors[0], create_graph=True)
    with pytest.raises(ejk.EjkError, match="has no gradient"):
        torch.autograd.grad(first.sum(), tensors[0])


def test_transforms_of_functions():
    q, k, v = qkv()
    attend, weights = lambda q: ejk.flash_attention(q, k, v, causal=True), normal(4, 2, 37, 4, 64)  # noqa: E731
    need = q.clone().requires_grad_()
    (expected,) = torch.autograd.grad((attend(need) * weights).sum(), need)
    slope = torch.func.grad(lambda q: (attend(q) * weights).sum())
    assert error(slope(q), expected) < 1e-6
    out, pull = torch.func.vjp(attend, q)
    assert torch.equal(out, attend(q)) and error(pull(weights)[0], expected) < 1e-6
    several = torch.stack([q, 2 * q, -q])
    assert error(torch.func.vmap(attend)(several), torch.stack([attend(each) for each in several])) < 1e-6
    assert error(torch.func.vmap(slope)(several), torch.stack([slope(each) for each in several])) < 1e-6
    assert torch.func.vmap(attend)(several[:0]).shape == (0, *out.shape)
    both = torch.func.vmap(lambda q: tuple(ejk.flash_attention(q, k, v, return_lse=True))[:2], in_dims=1, out_dims=1)(several.movedim(0, 1))
    assert error(both[1].movedim(1, 0)[1], ejk.flash_attention(2 * q, k, v, return_lse=True).lse) < 1e-6
    with pytest.raises(ejk.EjkError, match="has no gradient"):
        torch.func.grad(lambda q: slope(q).sum())(q)


def test_compiled_transforms_of_functions():
    torch._dynamo.reset()
    q, k, v = qkv()
    attend, several = lambda q: ejk.flash_attention(q, k, v, causal=True), torch.stack([q, 2 * q])  # noqa: E731
    slope = torch.func.grad(lambda q: (attend(q) ** 2).sum())
    for function, x in ((slope, q), (torch.func.vmap(attend), several), (torch.func.vmap(slope), several)):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        assert error(compiled(x), function(x)) < 1e-6
    pool = torch.compile(torch.func.vmap(lambda x: ejk.mean_pooling_bwd(x, tokens=7)), fullgraph=True, backend="aot_eager")
    assert error(pool(torch.ones(3, 2, 16, device=DEVICE)), torch.full((3, 2, 7, 16), 1 / 7, device=DEVICE)) < 1e-6  # a kernel without a gradient


def test_a_forward_mode_derivative_is_refused():
    q, k, v = qkv()
    with pytest.raises(ejk.UnsupportedError, match="flash_attention has no forward-mode derivative"):
        torch.func.jvp(lambda q: ejk.flash_attention(q, k, v), (q,), (q,))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, q)
        for call in range(2):
            with pytest.raises(ejk.UnsupportedError, match="has no forward-mode derivative"):
                ejk.flash_attention(dual, k, v)
        assert torch.equal(ejk.flash_attention(q, k, v), ejk.flash_attention(q.clone(), k, v))


def test_modes_see_calls_without_gradients():
    tensors = qkv()
    plain = ejk.flash_attention(*tensors)
    with Watching() as watching:
        assert torch.equal(ejk.flash_attention(*tensors), plain)
        into = torch.empty_like(plain)
        assert ejk.flash_attention(*tensors, out=into) is into and torch.equal(into, plain)
    assert [function.name() for function, _ in watching.calls] == ["ejk::flash_attention"]


def test_a_kernel_without_gradient_says_so():
    x = normal(1, 2, 7, 16, grad=True)
    first = ejk.mean_pooling(x)
    (dx,) = torch.autograd.grad(first.sum(), x)
    assert error(dx, torch.full_like(x, 1 / 7)) < 1e-5
    with pytest.raises(ejk.UnsupportedError, match="has no gradient"):
        ejk.mean_pooling_bwd(first.detach().requires_grad_(), tokens=7)


def test_torch_compile_keeps_the_operator():
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    q, k, v = qkv()
    compiled = torch.compile(lambda q: ejk.flash_attention(q * 2, k, v, causal=True) + 1, fullgraph=True, backend=backend)
    assert error(compiled(q), ejk.flash_attention(q * 2, k, v, causal=True) + 1) < 1e-6
    assert len(graphs) == 1 and any("ejk.flash_attention" in str(node.target) for node in graphs[0].graph.nodes)


def test_a_compiled_call_may_be_the_first_of_a_process():
    program = f"""
import torch, ejk
q = torch.ones(1, 8, 2, 64, device="{DEVICE}")
compiled = torch.compile(lambda q: ejk.flash_attention(q, q, q), fullgraph=True, backend="aot_eager")
assert torch.equal(compiled(q), ejk.flash_attention(q, q, q))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_training_step(backend):
    torch._dynamo.reset()
    tensors, weights = qkv(grad=True), normal(4, 2, 37, 4, 64)
    step = lambda q, k, v: (ejk.flash_attention(q * 0.5, k, v, causal=True) * weights).sum()  # noqa: E731
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    found, expected = torch.autograd.grad(compiled(*tensors), tensors), torch.autograd.grad(step(*tensors), tensors)
    for mine, eager in zip(found, expected):
        assert error(mine, eager) < 1e-5


def test_seeds_do_not_compile_anew():
    torch._dynamo.reset()
    q, k, v = qkv()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda seed: ejk.flash_attention(q, k, v, dropout_prob=0.5, dropout_seed=seed), backend="aot_eager")
    outs = [compiled(seed) for seed in (3, 4, 5, 6)]
    for seed, out in zip((3, 4, 5, 6), outs):
        assert torch.equal(out, ejk.flash_attention(q, k, v, dropout_prob=0.5, dropout_seed=seed))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2  # one for the first seed, one for any


def test_a_compiler_that_makes_symbols_of_shapes_and_numbers():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    attend = lambda scale, seed, *x: ejk.flash_attention(*x, softmax_scale=scale, dropout_prob=0.5, dropout_seed=seed)  # noqa: E731
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager", dynamic=True)
    for tokens, scale, seed in ((37, 0.5, 2), (37, 0.25, 2), (37, 0.25, 3), (29, 0.25, 4)):
        tensors = tuple(x[:, :tokens].detach().requires_grad_() for x in qkv())
        found, expected = (torch.autograd.grad(f(scale, seed, *tensors).sum(), tensors) for f in (compiled, attend))
        for mine, eager in zip(found, expected):
            assert error(mine, eager) < 1e-5
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3  # none for another seed


def test_seeds_of_all_64_bits():
    torch._dynamo.reset()
    q, k, v = qkv(grad=True)
    call = lambda seed: ejk.flash_attention(q, k, v, dropout_prob=0.5, dropout_seed=seed)  # noqa: E731
    compiled = torch.compile(call, backend="aot_eager")
    for seed in (5, 2**63 - 1, 2**63, 2**64 - 1):
        alike = seed - 2**64 if seed >> 63 else seed
        with torch.no_grad():
            plain = call(seed)
            assert torch.equal(plain, call(alike))
        assert torch.equal(call(seed), plain) and torch.equal(compiled(seed), plain)
        found, expected = (torch.autograd.grad(call(each).sum(), q)[0] for each in (seed, alike))
        assert error(found, expected) < 1e-6
        operated = torch.func.grad(lambda q: ejk.flash_attention(q, k, v, dropout_prob=0.5, dropout_seed=seed).sum())(q)  # noqa: B023
        assert error(operated, expected) < 1e-6
    with pytest.raises(ejk.InputError, match="64 bits"):
        call(2**64)


def test_an_eager_call_reads_offsets_where_the_shape_follows_from_them():
    x = normal(1, 12, 8)
    for bounds, rows in ((0, 12, 12), 3), ((0, 2, 12), 4):
        bounds = torch.tensor(bounds, dtype=torch.int32, device=DEVICE)
        means = ejk.mean_pooling(x, cum_seqlens=bounds, chunk_size=4)
        padded = ejk.mean_pooling(x, cum_seqlens=bounds, chunk_size=4, chunk_count=6)
        assert means.shape == (rows, 8) and torch.equal(padded[:rows], means) and (padded[rows:] == 0).all() and padded.shape == (6, 8)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, c: ejk.mean_pooling(x, cum_seqlens=c, chunk_size=4, chunk_count=6), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, bounds), padded)
    need = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(compiled(need, bounds).sum(), need)
    (eager,) = torch.autograd.grad(ejk.mean_pooling(need, cum_seqlens=bounds, chunk_size=4).sum(), need)
    assert error(slope, eager) < 1e-6


def test_packed_calls_behind_a_mask_of_blocks():
    lengths = [40, 0, 33]
    bounds = torch.tensor([0, 40, 40, 73], dtype=torch.int32, device=DEVICE)
    q, k, v = (normal(seed, 73, heads, 64) for seed, heads in ((1, 4), (2, 2), (3, 2)))
    each = [ejk.block_masks.local(n, n, 1, block_q=16, block_k=16, like=q) & ejk.block_masks.causal(n, n, block_q=16, block_k=16, like=q) for n in lengths]
    mask = ejk.block_masks.packed(each)

    def packed(q, k, v):
        return ejk.blocksparse_attention(q, k, v, cum_seqlens_q=bounds, cum_seqlens_k=bounds, **mask.arguments())

    def alone(q, k, v):
        parts = [x.split(lengths) for x in (q, k, v)]
        return torch.cat([ejk.blocksparse_attention(*(x[n][None] for x in parts), **each[n].arguments())[0] for n in range(3)])

    need = [x.clone().requires_grad_() for x in (q, k, v)]
    assert error(packed(*need), alone(q, k, v)) < 1e-5
    for mine, other in zip(torch.autograd.grad(packed(*need).square().sum(), need), torch.autograd.grad(alone(*need).square().sum(), need)):
        assert error(mine, other) < 1e-5


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        q, k, v = (mode.from_tensor(x) for x in qkv(torch.bfloat16))
        out, lse, weights = ejk.flash_attention(q, k, v, return_lse=True)
    assert out.shape == (2, 37, 4, 64) and out.dtype == torch.bfloat16 and lse.shape == (2, 4, 37) and lse.dtype == torch.float32
    assert weights is None


def test_operators_pass_pytorchs_own_checks():
    tensors = qkv(grad=True)
    with Watching() as watching:
        ejk.flash_attention(*tensors, causal=True)
    ((operator, (_, site, seeds)),) = watching.calls
    assert operator is torch.ops.ejk.flash_attention.default
    told = torch.library.opcheck(operator, (list(tensors), site, seeds))
    assert set(told.values()) == {"SUCCESS"}, told


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
def test_streams_and_graphs():
    q, k, v = qkv(torch.bfloat16)
    expected = ejk.flash_attention(q, k, v)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        assert torch.equal(ejk.flash_attention(q, k, v), expected)
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(expected)
    with torch.cuda.graph(graph):
        ejk.flash_attention(q, k, v, out=out)
    q.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, ejk.flash_attention(q, k, v))
