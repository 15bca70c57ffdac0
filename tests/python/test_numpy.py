"""Kernels called with NumPy arrays, against float64 references: options, element types, views, outputs of the caller's."""

import numpy as np
import pytest
from references import TOLERANCE, attention, error, normal

import ejk


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def qkv(rng, name="float32", queries=37, keys=53, heads=4, kv_heads=2, width=64):
    return [normal(rng, (2, n, h, width), name) for n, h in ((queries, heads), (keys, kv_heads), (keys, kv_heads))]


OPTIONS = [
    {},
    {"causal": True},
    {"causal": True, "causal_offset": 3},
    {"window_left": 9, "window_right": 4},
    {"softmax_scale": 0.3},
    {"logits_soft_cap": 5.0, "causal": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_attention(rng, name, options):
    q, k, v = qkv(rng, name)
    found = ejk.flash_attention(q, k, v, return_lse=True, **options)
    out, lse = attention(q, k, v, **options)
    assert found.out.dtype == q.dtype and found.lse.dtype == np.float32
    assert error(found.out, out) < TOLERANCE[name]
    visible = np.isfinite(lse)
    assert (np.isfinite(found.lse) == visible).all()
    assert error(found.lse[visible], lse[visible]) < 1e-4


def test_optional_inputs(rng):
    q, k, v = qkv(rng)
    bias, sinks = normal(rng, (1, 4, 37, 53)), normal(rng, (4, 2))
    mask = rng.random((2, 1, 37, 53)) < 0.7
    out, _ = attention(q, k, v, bias=bias, attention_mask=mask, softmax_aux=sinks)
    assert error(ejk.flash_attention(q, k, v, bias=bias, attention_mask=mask, softmax_aux=sinks), out) < 1e-5


def test_no_keys_and_empty_batches(rng):
    q, k, v = qkv(rng, keys=0)
    assert (ejk.flash_attention(q, k, v) == 0).all()
    assert ejk.flash_attention(*(x[:0] for x in (q, k, v))).shape == (0, 37, 4, 64)


def test_recurrent_layers_of_nothing(rng):
    for batch, tokens, inputs, features in ((0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)):
        x, w_ih, w_hh = (normal(rng, shape) for shape in ((batch, tokens, inputs), (1, features, inputs), (1, features, features)))
        y, h_n = ejk.rnn(x, w_ih, w_hh, cell_type="rnn_tanh")[:2]
        assert y.shape == (batch, tokens, features) and (y == 0).all() and (h_n == 0).all()


def test_varying_attributes_are_read_anew(rng):
    q, k, v = qkv(rng)
    for scale in (0.1, 0.2, None):
        assert error(ejk.flash_attention(q, k, v, softmax_scale=scale), attention(q, k, v, softmax_scale=scale)[0]) < 1e-5
    drawn = [ejk.flash_attention(q, k, v, dropout_prob=0.5, dropout_seed=seed) for seed in (1, 2, 1)]
    assert (drawn[0] == drawn[2]).all() and not (drawn[0] == drawn[1]).all()


def test_views_and_outputs(rng):
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (normal(rng, (2, h, 40, 64)) for h in (4, 2, 2)))
    memory = np.full((2, 40, 4, 128), np.nan, np.float32)
    out = memory[..., :64]
    assert ejk.flash_attention(q, k, v, out=out) is out
    assert error(out, attention(q, k, v)[0]) < 1e-5
    assert np.isnan(memory[..., 64:]).all()
    out[:] = np.nan
    lse = np.full((2, 4, 40), np.nan, np.float32)
    both = ejk.flash_attention(q, k, v, out=out, lse=lse)
    assert both.out is out and both.lse is lse and np.isfinite(lse).all()


def test_gradients_come_as_a_named_tuple(rng):
    q, k, v = qkv(rng, queries=9, keys=11, width=32)
    out, lse, _ = ejk.flash_attention(q, k, v, return_lse=True)
    dout = normal(rng, out.shape)
    grads = ejk.flash_attention_bwd(q, k, v, out, lse, dout)
    assert grads._fields == ("dq", "dk", "dv", "dbias", "dsoftmax_aux") and grads.dbias is None
    step = 1e-6
    for name, array, gradient in (("q", q, grads.dq), ("k", k, grads.dk), ("v", v, grads.dv)):
        direction = normal(rng, array.shape, "float32").astype(np.float64)
        values = {"q": q, "k": k, "v": v}
        ahead, behind = (attention(**{**values, name: array + sign * step * direction})[0] for sign in (1, -1))
        numeric = ((ahead - behind) * dout).sum() / (2 * step)
        assert abs(numeric - (gradient * direction).sum()) < 1e-3 * max(abs(numeric), 1), name


@pytest.mark.parametrize("sinks", [(4,), (3,), (4, 2)])
def test_the_gradient_of_sinks_has_their_shape(rng, sinks):
    q, k, v = qkv(rng, queries=16, keys=16, heads=4, kv_heads=2, width=16)
    aux = normal(rng, sinks, "float32")
    blocks = {"block_mask": np.ones((1, 1, 1, 1), bool), "block_q": 16, "block_k": 16}
    found = []
    for name, mask in (("flash_attention", {}), ("blocksparse_attention", blocks)):
        forward = getattr(ejk, name)(q, k, v, softmax_aux=aux, return_lse=True, **mask)
        out, lse = forward.out, forward.lse
        found.append(getattr(ejk, name + "_bwd")(q, k, v, out, lse, out, softmax_aux=aux, return_dsoftmax_aux=True, **mask).dsoftmax_aux)
        assert found[-1].shape == aux.shape
    of_heads = aux if len(sinks) == 2 else aux[:, None] if sinks == (4,) else np.broadcast_to(aux, (4, 3))
    weights = np.exp(of_heads[None, :, None] - lse[..., None].astype("f8"))  # of sinks, which have no value: -weight * (out . dout)
    each = -(weights * (out.astype("f8") ** 2).sum(-1).transpose(0, 2, 1)[..., None]).sum((0, 2))
    expected = each if len(sinks) == 2 else each[:, 0] if sinks == (4,) else each.sum(0)
    assert max(error(each, expected) for each in found) < 1e-5



def test_pooling(rng):
    x = normal(rng, (3, 10, 5, 7))
    assert error(ejk.mean_pooling(x), x.astype(np.float64).mean(1)) < 1e-6
    mask = rng.random((3, 10)) < 0.5
    expected = (x * mask[:, :, None, None]).astype(np.float64).sum(1) / np.maximum(mask.sum(1), 1)[:, None, None]
    assert error(ejk.mean_pooling(x, mask=mask), expected) < 1e-6


def test_an_output_shaped_by_data_follows_the_data(rng):
    x = normal(rng, (12, 8))
    for bounds, rows in (((0, 12, 12), 3), ((0, 2, 12), 4), ((0, 4, 12), 3)):
        assert ejk.mean_pooling(x, cum_seqlens=np.array(bounds, np.int32), chunk_size=4).shape == (rows, 8)


def test_grouped_products(rng):
    lhs, rhs, sizes = normal(rng, (20, 16)), normal(rng, (3, 16, 24)), np.array([5, 0, 13], np.int32)
    expected = np.zeros((20, 24))
    expected[:5], expected[5:18] = lhs[:5].astype(np.float64) @ rhs[0], lhs[5:18].astype(np.float64) @ rhs[2]
    assert error(ejk.grouped_matmul(lhs, rhs, group_sizes=sizes), expected) < 1e-5


def test_an_attribute_chooses_the_type_of_the_result(rng):
    lhs, rhs = normal(rng, (2, 2, 20, 16)).astype(np.float16), normal(rng, (2, 2, 16, 24)).astype(np.float16)
    expected = lhs.astype(np.float64) @ rhs.astype(np.float64)
    assert ejk.grouped_matmul(lhs, rhs).dtype == np.float16
    found = ejk.grouped_matmul(lhs, rhs, preferred_element_type="f32")
    assert found.dtype == np.float32 and error(found, expected) < 1e-5
    with pytest.raises(ejk.InputError, match=r"out has type f16, expected f32 \(which preferred_element_type chooses\)"):
        ejk.grouped_matmul(lhs, rhs, preferred_element_type="f32", out=np.empty((2, 2, 20, 24), np.float16))
    with pytest.raises(ejk.InputError, match="preferred_element_type is 'i32', expected one of f32, f16, bf16"):
        ejk.grouped_matmul(lhs, rhs, preferred_element_type="i32")


def test_many_threads_share_prepared_calls(rng):
    from concurrent.futures import ThreadPoolExecutor

    data = [normal(rng, (1, 4, 8)) for _ in range(64)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ejk.mean_pooling, data * 4))
    for x, mean in zip(data * 4, found):
        assert error(mean, x.astype(np.float64).mean(1)) < 1e-6


def test_seeds_of_all_64_bits():
    q = np.random.default_rng(1).standard_normal((1, 16, 2, 16)).astype(np.float32)
    call = lambda seed: ejk.flash_attention(q, q, q, dropout_prob=0.5, dropout_seed=seed)  # noqa: E731
    for seed in (0, 2**63 - 1, 2**63, 2**64 - 1):
        assert (call(seed) == call(seed - 2**64 if seed >> 63 else seed)).all()
    assert (call(2**63) != call(0)).any()


def test_seeds_of_all_64_bits_in_the_c_interfaces_json():
    from ejk._call import prepare
    from ejk._numpy_arrays import view

    q = np.random.default_rng(1).standard_normal((1, 16, 2, 16)).astype(np.float32)
    for seed in (7, 2**63, 2**64 - 1):
        out = np.empty_like(q)
        call = prepare("flash_attention", {"q": view(q), "k": view(q), "v": view(q), "out": view(out)}, {"dropout_prob": 0.5, "dropout_seed": seed})
        call.run([q.ctypes.data] * 3 + [out.ctypes.data])
        assert (out == ejk.flash_attention(q, q, q, dropout_prob=0.5, dropout_seed=seed)).all()
    with pytest.raises(ejk.InputError, match="attribute 'window_left': the integer 18446744073709551615 does not fit 64 bits"):
        prepare("flash_attention", {"q": view(q), "k": view(q), "v": view(q), "out": view(out)}, {"window_left": 2**64 - 1})


def test_scales_of_rank_0(rng):
    cache = rng.integers(-127, 128, (3, 2, 16, 64)).astype(np.int8)
    query, lengths, table = normal(rng, (2, 4, 64)), np.array([20, 5], np.int32), np.array([[0, 1], [2, 0]], np.int32)
    for cfg in (None, {"variant": "plain"}):
        shaped, scalar = (
            ejk.page_attention(query, cache, cache, lengths, table, k_scale=np.full(shape, 0.01, "f4"), v_scale=np.full(shape, 0.02, "f4"), cfg=cfg)
            for shape in ((1,), ())
        )
        assert (scalar == shaped).all() and scalar.any()


@pytest.mark.parametrize("cfg", [None, {"variant": "strided"}], ids=str)
def test_the_number_of_chunks_may_be_said(rng, cfg):
    x = normal(rng, (12, 8))
    for bounds in ((0, 12, 12), (0, 2, 12), (0, 5, 9), (0,)):
        bounds = np.array(bounds, np.int32)
        means = ejk.mean_pooling(x, cum_seqlens=bounds, chunk_size=4, cfg=cfg)
        more = ejk.mean_pooling(x, cum_seqlens=bounds, chunk_size=4, chunk_count=7, cfg=cfg)
        assert more.shape == (7, 8) and (more[: len(means)] == means).all() and (more[len(means) :] == 0).all()
        dout = normal(rng, (7, 8))
        backward = [ejk.mean_pooling_bwd(each, cum_seqlens=bounds, chunk_size=4, tokens=12) for each in (dout, dout[: len(means)])]
        assert (backward[0] == backward[1]).all()
    with pytest.raises(ejk.InputError, match="chunk_count must be at least one for each of cum_seqlens' 4 chunks; found 3"):
        ejk.mean_pooling(x, cum_seqlens=np.array([0, 2, 12], np.int32), chunk_size=4, chunk_count=3)
    with pytest.raises(ejk.InputError, match="chunk_count is for chunks of packed sequences"):
        ejk.mean_pooling(x, chunk_count=3)
