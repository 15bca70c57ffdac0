"""Latent attention under the names of the Python library ejkernel, beside its own XLA functions. Runs where that library is installed."""

import numpy
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("ejkernel")
import jax.numpy as jnp  # noqa: E402
from ejkernel.kernels._xla.deepseek_attn import deepseek_attn as xla_deepseek  # noqa: E402
from ejkernel.kernels._xla.flash_mla import flash_mla as xla_mla  # noqa: E402
from ejkernel.kernels._xla.multi_latent_ragged_page_attention import multi_latent_ragged_page_attention as xla_ragged  # noqa: E402
from ejkernel.kernels._xla.multi_latent_ragged_page_attention_v2 import multi_latent_ragged_page_attention_v2 as xla_ragged_v2  # noqa: E402
from references import error  # noqa: E402

import ejk.jax.ejkernel  # noqa: E402, F401
from ejk.jax import _ejkernel_latent as latent  # noqa: E402

TOKENS, HEADS, LATENT, OWN, ROPE, VALUES = 21, 4, 24, 16, 8, 12


def normal(seed, *shape, dtype="float32"):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype)


def dense(rope, kv_heads=HEADS):
    """Arguments of flash_mla. rope: none; in the queries; or beside them, one for all heads."""
    features = OWN + (ROPE if rope == "queries" else 0)
    weights = [normal(3 + i, LATENT, kv_heads, width) / LATENT**0.5 for i, width in enumerate((OWN, VALUES))]
    ropes = [normal(5 + i, 2, TOKENS, ROPE) for i in range(2)]
    arguments = [normal(1, 2, TOKENS, HEADS, features), normal(2, 2, TOKENS, LATENT), *weights]
    return arguments + ([] if rope == "none" else [None, ropes[1]] if rope == "queries" else ropes)


def slopes(function, arguments):
    given = [i for i, x in enumerate(arguments) if x is not None]

    def of(*some):
        values = list(arguments)
        for i, x in zip(given, some, strict=True):
            values[i] = x
        return (function(*values) ** 2).sum()

    return jax.grad(of, tuple(range(len(given))))(*[arguments[i] for i in given])


CALLS = [
    ("none", {}),
    ("queries", {"causal": True}),
    ("beside", {"causal": True, "sliding_window": 5}),
    ("queries", {"sliding_window": (3, 2), "softmax_scale": 0.3}),
    ("beside", {"logits_soft_cap": 2.0}),
]


@pytest.mark.parametrize("rope, options", CALLS)
def test_flash_mla(rope, options):
    arguments = dense(rope)
    assert error(latent.flash_mla(*arguments, **options), xla_mla(*arguments, **options)) < 1e-5


@pytest.mark.parametrize("rope", ["queries", "beside"])
def test_gradients_of_flash_mla(rope):
    arguments = dense(rope, kv_heads=2)
    found, expected = (slopes(lambda *a, f=f: f(*a, causal=True), arguments) for f in (latent.flash_mla, xla_mla))
    assert max(error(a, b) for a, b in zip(found, expected, strict=True)) < 1e-5


@pytest.mark.parametrize(
    "options",
    [
        {"cu_seqlens": jnp.asarray([0, 5])},
        {"attention_mask": jnp.ones((2, 1, TOKENS, TOKENS), bool)},
        {"bias": jnp.ones((2, 1, TOKENS, TOKENS))},
        {"softmax_aux": jnp.ones(3)},
        {"deterministic": False, "dropout_prob": 0.5},
    ],
    ids=lambda o: list(o)[0],
)
def test_what_flash_mla_refuses(options):
    with pytest.raises(NotImplementedError, match="is not supported"):
        latent.flash_mla(*dense("none"), **options)


def test_odd_shapes_are_told():
    arguments = dense("queries")
    with pytest.raises(ValueError, match="expected those of w_kc"):
        latent.flash_mla(arguments[0][..., :-1], *arguments[1:])
    with pytest.raises(ValueError, match="expected a multiple of the 4"):
        latent.flash_mla(arguments[0][:, :, :3], *arguments[1:])


@pytest.mark.parametrize("rope, causal", [("none", True), ("queries", True), ("beside", False)])
def test_deepseek_attn(rope, causal):
    arguments = dense(rope, kv_heads=2)
    index = [normal(7, 2, TOKENS, 3, 6), normal(8, 2, TOKENS, 6), abs(normal(9, 2, TOKENS, 3))]
    options = {"index_topk": 6, "causal": causal}

    def both(function):
        def of(query, key_value, w_kc, w_vc, b_q=None, b_k=None):
            return function(query, key_value, w_kc, w_vc, *index, b_q=b_q, b_k=b_k, **options)

        return of

    ours, theirs = both(latent.deepseek_attn), both(xla_deepseek)
    assert error(ours(*arguments), theirs(*arguments)) < 1e-5
    found, expected = slopes(ours, arguments), slopes(theirs, arguments)
    assert max(error(a, b) for a, b in zip(found, expected, strict=True)) < 1e-5


def ragged(dtype, width=40, rope=10):
    """Three sequences with 1, 5 and 3 new tokens, and one past the last; two tokens more than they have."""
    lens, starts, page, columns = [13, 9, 3, 1], [0, 1, 6, 9, 11], 4, 5
    packing = 4 // jnp.dtype(dtype).itemsize
    cache = normal(1, 24, page // packing, packing, 256, dtype=dtype)
    table = numpy.random.default_rng(2).permutation(24)[: 4 * columns]
    shapes = [(11, 3, width), (11, 3, rope), (11, width), (11, rope)]
    arrays = [normal(3 + i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
    return [*arrays, cache, *(jnp.asarray(x, jnp.int32) for x in (lens, table, starts, [1, 2, 3]))]


def both_ragged(theirs, arguments, options):
    copied = [jnp.array(x) for x in arguments]  # theirs donates the cache
    ours = latent.multi_latent_ragged_page_attention if theirs is xla_ragged else latent.multi_latent_ragged_page_attention_v2
    return ours(*arguments, **options), theirs(*copied, **options)


@pytest.mark.parametrize(
    "theirs, options",
    [
        (xla_ragged, {"softmax_scale": 0.2, "logits_soft_cap": 3.0}),
        (xla_ragged, {"q_scale": 0.5, "k_scale": 2.0, "v_scale": 3.0}),
        (xla_ragged_v2, {"num_kv_pages_per_block": (1, 2, 2)}),
    ],
    ids=["capped", "scaled", "v2"],
)
def test_ragged_pages(theirs, options):
    (out, cache), (their_out, their_cache) = both_ragged(theirs, ragged("float32"), options)
    assert error(out[:9], their_out[:9]) < 1e-5
    named = ragged("float32")[6][:15]  # the fourth sequence is past the last; what lies in no page stays
    assert (cache[named] == their_cache[named]).all()
    assert (out[9:] == 0).all()


def test_ragged_pages_of_16_bits():
    (out, cache), (their_out, their_cache) = both_ragged(xla_ragged, ragged("bfloat16"), {})
    assert error(out[:9].astype("float32"), their_out[:9].astype("float32")) < 8e-3
    assert (cache == their_cache).all()


def test_what_ragged_pages_refuse():
    arguments = ragged("float32")
    with pytest.raises(NotImplementedError, match="a sliding_window is not supported"):
        latent.multi_latent_ragged_page_attention(*arguments, sliding_window=4)
    arguments[4] = arguments[4].astype("bfloat16")
    with pytest.raises(NotImplementedError, match="a cache that has not the queries' type is not supported"):
        latent.multi_latent_ragged_page_attention(*arguments)
