"""ejk in the Python library ejkernel: attention over paged caches, beside its own XLA kernels. Runs where that library is installed."""

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("ejkernel")
import importlib  # noqa: E402

import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from ejkernel.errors import EjkernelRuntimeError  # noqa: E402
from ejkernel.kernels._registry import Platform, kernel_registry  # noqa: E402
from references import error  # noqa: E402

import ejk.jax.ejkernel  # noqa: E402, F401

# Sequences of 12, 1 and 7 new tokens, of which the queries also have one more that belongs to none.
LENGTHS = jnp.asarray([40, 9, 17], jnp.int32)
TABLES = jnp.asarray([[3, 0, 5], [1, 2, 7], [4, 6, 8]], jnp.int32)
STARTS = jnp.asarray([0, 12, 13, 20], jnp.int32)
ONE_EACH = jnp.asarray([0, 1, 2, 3], jnp.int32)
OPTIONS = [{}, {"sliding_window": 30}, {"softmax_scale": 0.2, "logits_soft_cap": 4.0}, {"softmax_aux": [0.5, -1.0, 2.0, 1.0]}]


def ours(algorithm):
    first = kernel_registry.list_implementations(algorithm)[0]
    assert first.platform == Platform.CUDA, first
    return first.implementation


def theirs(algorithm):
    return getattr(importlib.import_module(f"ejkernel.kernels._xla.{algorithm}"), algorithm)


def normal(seed, *shape):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), "float32")


def as_arrays(options):
    return {name: jnp.asarray(value, "float32") if name == "softmax_aux" else value for name, value in options.items()}


def compare(algorithm, *arguments, **options):
    found, expected = ours(algorithm)(*arguments, **options), theirs(algorithm)(*arguments, **options)
    assert error(found, expected) < 1e-5


@pytest.mark.parametrize("options", OPTIONS)
def test_ragged_page_attention_v2(options):
    arguments = (normal(1, 21, 4, 128), normal(2, 9, 16, 4, 128), LENGTHS, TABLES, STARTS, jnp.asarray([3], jnp.int32))
    compare("ragged_page_attention_v2", *arguments, compute_dtype=jnp.float32, **as_arrays(options))


def compare_v3(queries, keys, values, cache, starts, **options):
    """There v3 takes the cache away (it is donated), and in a window loses keys that the first of several new tokens sees."""
    arguments = (LENGTHS, TABLES.reshape(-1), starts, jnp.asarray([0, 0, 3], jnp.int32))
    mine, written = ours("ragged_page_attention_v3")(queries, keys, values, cache, *arguments, **options)
    expected, their_cache = theirs("ragged_page_attention_v3")(queries, keys, values, jnp.array(cache), *arguments, **options)
    assert error(mine, expected) < 1e-5 and (written == their_cache).all()


@pytest.mark.parametrize("options", [*OPTIONS, {"softmax_scale": 0.1, "q_scale": 0.5, "k_scale": 1.5, "v_scale": 0.75}])
def test_ragged_page_attention_v3(options):
    cache = normal(2, 9, 16, 4, 1, 128)
    compare_v3(normal(1, 21, 4, 128), normal(3, 21, 2, 128), normal(4, 21, 2, 128), cache, STARTS, **as_arrays(options))


def test_ragged_page_attention_v3_with_a_window_that_cuts_each_decode():
    cache = normal(2, 9, 16, 4, 1, 128)
    compare_v3(normal(1, 3, 4, 128), normal(3, 3, 2, 128), normal(4, 3, 2, 128), cache, ONE_EACH, sliding_window=6)


def test_ragged_page_attention_v3_in_padded_features():
    cache = normal(2, 9, 16, 4, 1, 128).at[..., 64:].set(0)
    compare_v3(normal(1, 21, 4, 64), normal(3, 21, 2, 64), normal(4, 21, 2, 64), cache, STARTS, softmax_scale=0.125)


def test_ragged_page_attention_v3_in_eight_bits_is_that_of_the_same_numbers():
    """Three heads: rows of words of four bytes have a fourth. Its XLA kernel cannot read such a cache."""
    small = jnp.float8_e4m3fn
    cache = normal(2, 9, 16, 2, 4, 128).at[:, :, 1, 2:].set(0).astype(small)
    keys, values = (normal(seed, 21, 3, 128).astype(small) for seed in (3, 4))
    sinks, queries = normal(5, 6), normal(1, 21, 6, 128)
    arguments = (LENGTHS, TABLES.reshape(-1), STARTS, jnp.asarray([0, 0, 3], jnp.int32), sinks)
    mine, written = ours("ragged_page_attention_v3")(queries, keys, values, cache, *arguments, softmax_scale=0.1)
    wide = cache.astype("float32").reshape(9, 16, 8, 1, 128)[:, :, :6]
    rows = [x.astype("float32") for x in (keys, values)]
    expected, their_cache = theirs("ragged_page_attention_v3")(queries, *rows, wide, *arguments, softmax_scale=0.1)
    assert written.dtype == small and error(mine, expected) < 1e-5
    assert (written.astype("float32").reshape(9, 16, 8, 1, 128)[:, :, :6] == their_cache).all()


def apart(seed, dtype="float32"):
    return [normal(seed + each, 9, 16, 2, 64).astype(dtype) for each in (0, 1)]


# The few tokens of a decode read the caches in place. Of more, the 9 pages are copied, or the 6 that two columns of the tables name.
@pytest.mark.parametrize("starts", [[0, 12, 13, 20], [0, 1, 2, 3], [0, 4, 4, 9]])
@pytest.mark.parametrize("columns", [2, 3])
def test_unified_attention_of_few_tokens_and_of_many(starts, columns):
    lengths, tables = jnp.minimum(LENGTHS, 16 * columns), TABLES[:, :columns]
    compare("unified_attention", normal(1, starts[-1] + 1, 4, 64), *apart(2), lengths, tables, jnp.asarray(starts, jnp.int32))


@pytest.mark.parametrize("starts", [STARTS, ONE_EACH], ids=["many", "few"])
@pytest.mark.parametrize("options", [*OPTIONS[1:], {"sliding_window": 6}, {"sliding_window": 0}])
def test_unified_attention(starts, options):
    compare("unified_attention", normal(1, int(starts[-1]) + 1, 4, 64), *apart(2), LENGTHS, TABLES, starts, **as_arrays(options))


def test_unified_attention_in_eight_bits():
    arguments = (LENGTHS, TABLES, STARTS)
    compare("unified_attention", normal(1, 21, 4, 64), *apart(2, jnp.float8_e4m3fn), *arguments)


@pytest.mark.parametrize("starts", [STARTS, ONE_EACH], ids=["many", "few"])
@pytest.mark.parametrize("options", OPTIONS[2:])
def test_chunked_prefill_paged_decode(starts, options):
    tokens = int(starts[-1]) + 1
    new, arguments = [normal(seed, tokens, 2, 64) for seed in (4, 5)], (LENGTHS, TABLES, starts)
    found, expected = (
        each("chunked_prefill_paged_decode")(normal(1, tokens, 4, 64), *new, *apart(2), *arguments, **as_arrays(options)) for each in (ours, theirs)
    )
    assert error(found[0], expected[0]) < 1e-5
    assert all((mine == other).all() for mine, other in zip(found[1:], expected[1:], strict=True))


def test_the_caches_of_a_chunked_prefill_are_written_in_place_where_they_are_donated():
    function = jax.jit(ours("chunked_prefill_paged_decode"), donate_argnums=(3, 4))
    new, caches = [normal(seed, 21, 2, 64) for seed in (4, 5)], apart(2)
    places = [cache.unsafe_buffer_pointer() for cache in caches]
    _, *written = function(normal(1, 21, 4, 64), *new, *caches, LENGTHS, TABLES, STARTS)
    assert [cache.unsafe_buffer_pointer() for cache in written] == places


def heads_first(seed):
    return [cache.transpose(2, 0, 1, 3) for cache in apart(seed)]


@pytest.mark.parametrize("options", [{}, {"sliding_window": 6}, {"softmax_scale": 0.2, "attn_logits_soft_cap": 4.0}])
def test_prefill_page_attention(options):
    compare("prefill_page_attention", normal(1, 12, 4, 64), *heads_first(2), LENGTHS[:1], TABLES[0], **options)


@pytest.mark.parametrize("options", [{}, {"softmax_scale": 0.2, "logits_soft_cap": 4.0}])
def test_decode_attention(options):
    query, keys, values = normal(1, 3, 4, 64), normal(2, 144, 2, 64), normal(3, 144, 2, 64)
    found, expected = (each("decode_attention")(query, keys, values, TABLES, LENGTHS, page_size=16, **options) for each in (ours, theirs))
    for mine, other in zip(found, expected, strict=True):
        assert error(mine, other) < 1e-5


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (1, 0, 2, 3)])
def test_page_attention_with_heads_before_pages_and_after(axes):
    caches = [cache.transpose(axes) for cache in heads_first(2)]
    compare("page_attention", normal(1, 3, 4, 64), *caches, LENGTHS, TABLES, attn_scale=0.2)


@pytest.mark.parametrize("options", [{"sliding_window": 6}, {"attn_logits_soft_cap": 4.0}])
def test_page_attention_has_the_options_that_its_xla_kernel_lacks(options):
    """prefill_page_attention there has them, for one sequence of one new token."""
    query, caches = normal(1, 3, 4, 64), heads_first(2)
    found = ours("page_attention")(query, *caches, LENGTHS, TABLES, **options)
    for n in range(3):
        expected = theirs("prefill_page_attention")(query[n : n + 1], *caches, LENGTHS[n : n + 1], TABLES[n], **options)
        assert error(found[n], expected[0]) < 1e-5


def test_what_is_not_ours_is_refused_in_the_librarys_way():
    queries, arguments = normal(1, 21, 4, 64), (*apart(2), LENGTHS, TABLES, STARTS)
    for words, options in [
        ("causal=False", {"causal": False}),
        ("alibi_slopes", {"alibi_slopes": normal(6, 4)}),
        ("qq_bias", {"qq_bias": normal(6, 21, 21)}),
    ]:
        with pytest.raises(EjkernelRuntimeError, match=f"{words} is not supported"):
            ours("unified_attention")(queries, *arguments, **options)
    with pytest.raises(EjkernelRuntimeError, match="neither the queries' type nor float8_e4m3fn is not supported"):
        ours("unified_attention")(queries.astype("bfloat16"), *arguments)
    with pytest.raises(EjkernelRuntimeError, match="a sliding_window that is not one number above 0 is not supported"):
        ours("ragged_page_attention_v2")(queries, normal(2, 9, 16, 4, 64), LENGTHS, TABLES, STARTS, 3, sliding_window=(6, 0))
