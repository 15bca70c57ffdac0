"""The cases of JAX's own tests of jax.nn.dot_product_attention, written anew: ejk's in its place, without an adapter, beside jax.nn's own."""

import functools
import inspect

import numpy
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from attention_reference import lone_windows_count  # noqa: E402

import ejk.jax  # noqa: E402

OURS, THEIRS = ejk.jax.dot_product_attention, jax.nn.dot_product_attention
RESIDUALS = "return_residual" in inspect.signature(THEIRS).parameters
TOKENS, HEADS, FEATURES = 128, 4, 32


def normal(seed, *shape, dtype):
    return jax.random.normal(jax.random.PRNGKey(seed), shape, dtype)


def close(ours, theirs, tolerance):
    """Element by element, as JAX's tests compare; cotangents of integers and flags have no elements to compare."""
    for mine, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert mine.shape == right.shape and mine.dtype == right.dtype
        if right.dtype != jax.dtypes.float0:
            numpy.testing.assert_allclose(numpy.asarray(mine, "float64"), numpy.asarray(right, "float64"), atol=tolerance, rtol=tolerance)


def near(ours, theirs, tolerance):
    """By norms."""
    for mine, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert mine.shape == right.shape and mine.dtype == right.dtype
        if right.dtype != jax.dtypes.float0:
            mine, right = (numpy.asarray(x, "float64") for x in (mine, right))
            assert numpy.linalg.norm(mine - right) < tolerance * max(numpy.linalg.norm(right), 1)


def pulled(function, arguments, cotangent):
    """(value, cotangents of all arguments that are given)"""
    value, pullback = jax.vjp(function, *arguments)
    return value, pullback(cotangent)


@pytest.mark.parametrize("implementation", [None, "xla", "cudnn"])
@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "vmap"])
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_groups_of_heads(dtype, group, mapped, implementation):
    q, slope = (normal(seed, 2, TOKENS, HEADS, FEATURES, dtype=dtype) for seed in (0, 1))
    k, v = (normal(seed, 2, TOKENS, HEADS // group, FEATURES, dtype=dtype) for seed in (2, 3))
    ours = functools.partial(OURS, implementation=implementation)
    if mapped:
        ours = jax.vmap(ours, in_axes=(0, 0, 0, None, None), out_axes=0)
    found, slopes = pulled(ours, (q, k, v, None, None), slope)
    expected, (dq, dk, dv, *_) = pulled(THEIRS, (q, jnp.repeat(k, group, 2), jnp.repeat(v, group, 2), None, None), slope)
    dk, dv = (x.reshape(2, TOKENS, HEADS // group, group, FEATURES).sum(3) for x in (dk, dv))
    close((found, *slopes[:3]), (expected, dq, dk, dv), 0.02)
    assert slopes[3:] == (None, None)


MODES = ("bias", "causal", "padding", "custom", "causal padding", "custom padding", "bias causal", "causal window", "window", "bias custom padding window")


@pytest.mark.parametrize("mode", MODES)
def test_masks(mode):
    if mode == "window" and not lone_windows_count():
        pytest.skip("this JAX forgets a window that comes alone")
    mode, dtype = mode.split(), "bfloat16"
    q, k, v, slope = (normal(seed, 2, TOKENS, HEADS, FEATURES, dtype=dtype) for seed in range(4))
    bias = normal(4, 1, HEADS, TOKENS, TOKENS, dtype=dtype) if "bias" in mode else None
    mask = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))[None, None] if "custom" in mode else None
    queries, keys = (jnp.asarray(each, jnp.int32) if "padding" in mode else None for each in ((64, 32), (32, 64)))
    options = {"is_causal": "causal" in mode}
    if "window" in mode:
        options["local_window_size"] = (3, 2) if "causal" in mode else (3, 0)

    def all_by_position(attend):
        return lambda q, k, v, bias, mask, queries, keys: attend(
            q, k, v, bias, mask, query_seq_lengths=queries, key_value_seq_lengths=keys, **options
        )

    arguments = (q, k, v, bias, mask, queries, keys)
    found, expected = (pulled(all_by_position(attend), arguments, slope) for attend in (OURS, THEIRS))
    close(found, expected, 0.03)


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "vmap"])
@pytest.mark.parametrize("batch", [1, 16])
def test_the_gradient_of_a_bias(batch, mapped):
    x, bias = normal(0, batch, TOKENS, HEADS, FEATURES, dtype="bfloat16"), normal(1, batch, HEADS, TOKENS, TOKENS, dtype="bfloat16")
    mask = jnp.ones((1, 1, TOKENS), bool)  # lifted to four dimensions, whether x has three or four

    def attention(attend):
        one = lambda x, bias, mask: attend(query=x, key=x, value=x, bias=bias, mask=mask, is_causal=False)  # noqa: E731
        return jax.vmap(one, in_axes=(0, 0, None)) if mapped else one

    def both(attend):
        function = attention(attend)
        return jax.jit(function)(x, bias, mask), jax.jit(lambda x, bias, mask: jax.vjp(function, x, bias, mask)[1](x))(x, bias, mask)

    (found, slopes), (expected, truths) = both(OURS), both(THEIRS)
    close(found, expected, 0.03)
    if batch == 1:  # JAX's tests compare no other gradient than this one
        close(slopes, truths, 0.1)
    # Of a key whose weight is nearly 1, the bias's gradient is the difference of two large numbers, one of which comes from the rounded output.
    near(slopes, truths, 1.6e-2)


@pytest.mark.skipif(not RESIDUALS, reason="this JAX has no return_residual")
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_residuals_and_what_flows_through_them(dtype, rank):
    """The residual is the log of the denominator, and jax.nn lets no gradient through it: what is made of it is a constant."""
    arrays = [normal(seed, 2, 24, HEADS, FEATURES, dtype=dtype) for seed in range(3)]
    arrays = [x[0] for x in arrays] if rank == 3 else arrays
    bias, tolerance = normal(4, HEADS, 24, 24, dtype=dtype), 1e-4 if dtype == "float32" else 0.05

    def loss(attend):
        def function(q, k, v, bias):
            out, residual = attend(q, k, v, bias, is_causal=True, return_residual=True)
            return (out.astype("float32") ** 2 * residual.astype("float32")[..., None]).sum(), (out, residual)

        return function

    with jax.default_matmul_precision("highest"):
        found, expected = (jax.value_and_grad(loss(attend), (0, 1, 2, 3), has_aux=True)(*arrays, bias) for attend in (OURS, THEIRS))
        close(found[0][1], expected[0][1], tolerance)
        assert found[0][1][1].shape == arrays[0].shape[:-1]
        near(found[1], expected[1], tolerance)
        mapped = [jax.vmap(functools.partial(attend, return_residual=True))(*(jnp.stack([x, 2 * x]) for x in arrays)) for attend in (OURS, THEIRS)]
        close(mapped[0], mapped[1], tolerance)
