"""ejk.jax.dot_product_attention beside jax.nn's: whatever that takes, it means the same here, values and gradients."""

import inspect

import numpy
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from attention_reference import lone_windows_count  # noqa: E402

import ejk  # noqa: E402
import ejk.jax  # noqa: E402

OURS, THEIRS = ejk.jax.dot_product_attention, jax.nn.dot_product_attention
LONE_WINDOWS = lone_windows_count()
RESIDUALS = "return_residual" in inspect.signature(THEIRS).parameters
LONE_LENGTHS = RESIDUALS  # JAX 0.6.0 has no residuals, and leaves rows past query_seq_lengths as they are where no other lengths are given


def normal(seed, *shape, dtype="float32"):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype)


def flags(seed, *shape, share=0.6):
    return jnp.asarray(numpy.random.default_rng(seed).random(shape) < share)


def qkv(t=13, s=17, n=4, k=2, dtype="float32"):
    return normal(1, 3, t, n, 16, dtype=dtype), normal(2, 3, s, k, 16, dtype=dtype), normal(3, 3, s, k, 16, dtype=dtype)


def same(ours, theirs, tolerance=2e-5):
    """Of two results in f32, each of which may be 1e-5 from the truth."""
    for mine, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert mine.shape == right.shape and mine.dtype == right.dtype
        mine, right = (numpy.asarray(x, "float64") for x in (mine, right))
        apart = numpy.linalg.norm(mine - right) / max(numpy.linalg.norm(right), 0.1 * right.size**0.5)  # some gradients are sums that cancel
        assert apart < tolerance


def check(*arrays, tolerance=2e-5, **options):
    """Values and the gradients of all floating operands."""
    weights = normal(9, *arrays[0].shape)
    floats = tuple(i for i, x in enumerate(arrays) if x is not None and jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating))

    def both(attend):
        with jax.default_matmul_precision("highest"):
            loss = lambda *x: (attend(*x, **options).astype("float32") * weights).sum()  # noqa: E731
            return attend(*arrays, **options), jax.grad(loss, argnums=floats)(*map(jnp.asarray, arrays[:3]), *arrays[3:])

    same(both(OURS), both(THEIRS), tolerance)


@pytest.mark.parametrize("shape", [(3, 4, 13, 17), (1, 1, 1, 17), (3, 1, 13, 1), (4, 13, 17), (4, 1, 17), (13, 17), (17,)], ids=str)
def test_bias_and_mask_of_any_rank(shape):
    check(*qkv(), normal(4, *shape))
    check(*qkv(), None, flags(5, *shape))
    check(*qkv(), normal(4, *shape), flags(5, *shape), is_causal=True)


@pytest.mark.parametrize("shape", [(1, 4, 13, 17), (4, 13, 17), (13, 17), (17,)], ids=str)
def test_without_a_batch(shape):
    check(*(x[0] for x in qkv()), normal(4, *shape), flags(5, *shape))


def test_vmap_without_a_batch():
    bias, mask = normal(4, 3, 4, 13, 17), flags(5, 3, 13, 17)
    for axes in ((0, 0, 0, 0, 0), (0, 0, 0, None, 0), (0, None, None, 0, None)):
        arrays = [x if axis == 0 else x[0] for x, axis in zip((*qkv(), bias, mask), axes)]
        mapped = [jax.vmap(f, axes)(*arrays) for f in (OURS, THEIRS)]
        same(*mapped)
    losses = [lambda *x, f=f: (jax.vmap(f)(*x) ** 2).sum() for f in (OURS, THEIRS)]
    same(*(jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(*qkv(), bias, mask) for loss in losses))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [3, (5, 2), (0, 0), numpy.int32(4), (numpy.int64(1), numpy.int8(3)), [2, 1], (-2, 6), (7, -3)], ids=str)
def test_windows(size, causal):
    if not causal and not LONE_WINDOWS:
        pytest.skip("this JAX forgets a window that comes alone")
    theirs = tuple(map(int, size)) if isinstance(size, (tuple, list)) else (int(size),) * 2
    arrays = qkv(t=30)  # the last queries are past all keys
    same(OURS(*arrays, local_window_size=size, is_causal=causal), THEIRS(*arrays, local_window_size=theirs, is_causal=causal))
    check(*arrays, local_window_size=theirs, is_causal=causal)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"local_window_size": (3, 1)}], ids=str)
def test_lengths_and_rows_that_see_nothing(options):
    queries, keys = jnp.asarray([13, 5, 0], jnp.int32), jnp.asarray([0, 17, 4], jnp.int32)
    for more in ({"query_seq_lengths": queries}, {"key_value_seq_lengths": keys}, {"query_seq_lengths": queries, "key_value_seq_lengths": keys}):
        if LONE_LENGTHS or len(more) == 2 or "key_value_seq_lengths" in more:
            check(*qkv(), **options, **more)
    dark = flags(5, 3, 1, 13, 17).at[:, :, 4:7].set(False)
    if LONE_LENGTHS:
        check(*qkv(), None, dark, query_seq_lengths=queries, **options)


@pytest.mark.skipif(not RESIDUALS, reason="this JAX has no residuals")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_residuals(dtype):
    lengths = jnp.asarray([0, 17, 4], jnp.int32)
    tolerance = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}[dtype]
    for options in ({}, {"is_causal": True}, {"key_value_seq_lengths": lengths}):
        ours, theirs = (f(*qkv(dtype=dtype), return_residual=True, **options) for f in (OURS, THEIRS))
        assert isinstance(ours, tuple) and ours[1].shape == (3, 13, 4) and ours[1].dtype == theirs[1].dtype
        seen = jnp.isfinite(theirs[1]) & (theirs[1] > -1e30)
        assert (ours[1] == theirs[1])[~seen].all()
        same((ours[0], ours[1][seen]), (theirs[0], theirs[1][seen]), tolerance)
    assert OURS(*(x[0] for x in qkv()), return_residual=True)[1].shape == (13, 4)
    gradient = jax.grad(lambda q: OURS(q, *qkv()[1:], return_residual=True)[1].sum())(qkv()[0])
    assert (gradient == 0).all()


@pytest.mark.parametrize("scale", [0.3, 2, numpy.float32(0.5), jnp.float32(0.25), -0.4, 0])
def test_scales(scale):
    check(*qkv(), scale=scale)


def test_what_is_traced():
    arrays = qkv()
    loss = lambda f: lambda scale: (f(*arrays, scale=scale) ** 2).sum()  # noqa: E731
    with jax.default_matmul_precision("highest"):
        same(*(jax.jit(jax.value_and_grad(loss(f)))(0.3) for f in (OURS, THEIRS)))
        for causal in (False, True) if LONE_WINDOWS else (True,):
            same(*(jax.jit(lambda size, f=f: f(*arrays, local_window_size=(size, 2), is_causal=causal))(3) for f in (OURS, THEIRS)))  # noqa: B023


def test_lists_and_numpy():
    small = [[[[0.5, -1.0] * 4], [[1.0, 2.0] * 4]]]
    same(OURS(small, small, small), THEIRS(small, small, small))
    same(OURS(small, small, small, 0.5, [[True, False], [True, True]]), THEIRS(small, small, small, 0.5, [[True, False], [True, True]]))
    if LONE_LENGTHS:
        same(OURS(small, small, small, query_seq_lengths=[1]), THEIRS(small, small, small, query_seq_lengths=[1]))
    arrays = [numpy.asarray(x) for x in qkv()]
    same(OURS(*arrays), THEIRS(*arrays))
    assert isinstance(OURS(*arrays), jax.Array)
    check(*qkv(), jnp.ones((13, 17), "int32"))  # a bias of integers is added, too


@pytest.mark.parametrize("implementation", [None, "xla", "cudnn"])
def test_implementations_are_taken(implementation):
    same(OURS(*qkv(), implementation=implementation), OURS(*qkv()))


@pytest.mark.parametrize(
    "words, change",
    [
        ("implementation must be None, 'xla' or 'cudnn'; found 'flash'", {"implementation": "flash"}),
        (r"query_seq_lengths must be int32 of shape \(3,\).*found int32 of shape \(2,\)", {"query_seq_lengths": [1, 2]}),
        (r"key_value_seq_lengths must be int32 of shape \(3,\).*found float32", {"key_value_seq_lengths": [1.0, 2.0, 3.0]}),
        ("mask must be bool; found float32", {"mask": numpy.ones((13, 17), "float32")}),
        (r"bias must broadcast to \[B, N, T, S\] = \[3, 4, 13, 17\]; found shape \(1, 3, 13, 17\)", {"bias": numpy.ones((3, 13, 17))}),
        ("local_window_size must be an integer or two of them", {"local_window_size": (1, 2, 3)}),
        ("local_window_size must be an integer or two of them", {"local_window_size": 1.5}),
        ("scale must be a number; found 'big'", {"scale": "big"}),
        (r"value must be float32 of key's shape \(3, 17, 2, 16\); found float32 of shape \(3, 16, 2, 16\)", {"value": numpy.ones((3, 16, 2, 16), "f")}),
        (r"query must be float32 \[3, T, N, 16\], as key is; found float32 of shape \(2, 13, 4, 16\)", {"query": numpy.ones((2, 13, 4, 16), "f")}),
        ("query must have a multiple of key's 2 heads; found 3", {"query": numpy.ones((3, 13, 3, 16), "f")}),
        (r"query must be \[B, T, N, H\], or less its leading axes; found shape \(1, 3, 13, 4, 16\)", {"query": numpy.ones((1, 3, 13, 4, 16), "f")}),
    ],
)
def test_words(words, change):
    arguments = {**dict(zip(("query", "key", "value"), qkv())), **change}
    with pytest.raises(ejk.InputError, match=words):
        OURS(**arguments)
    with pytest.raises(ValueError):
        OURS(**arguments)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("heads", [(4, 4), (4, 1)], ids=str)
def test_other_types_and_heads(dtype, heads):
    n, k = heads
    check(*qkv(n=n, k=k, dtype=dtype), normal(4, 4, 13, 17, dtype=dtype), flags(5, 13, 17), is_causal=True, tolerance=3e-2)
