"""ejk in the Python library ejkernel: linear recurrences, beside its own XLA kernels. Runs where that library is installed."""

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("ejkernel")
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from ejkernel.errors import EjkernelRuntimeError  # noqa: E402
from ejkernel.kernels._registry import Platform, kernel_registry  # noqa: E402
from references import error  # noqa: E402

import ejk.jax.ejkernel  # noqa: E402, F401

B, T, H, K, V = 2, 20, 4, 16, 24
STARTS = jnp.asarray([0, 12, 12, 13, 20], jnp.int32)  # 12, 0, 1 and 7 tokens


def ours(algorithm):
    first = kernel_registry.list_implementations(algorithm)[0]
    assert first.platform == Platform.CUDA, first
    return first.implementation


def theirs(algorithm):
    return next(each.implementation for each in kernel_registry.list_implementations(algorithm) if each.platform == Platform.XLA)


def normal(seed, *shape):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), "float32")


def gate(seed, *shape):
    return -abs(normal(seed, *shape))


def qkv(rows=B, value_dim=V):
    return normal(1, rows, T, H, K), normal(2, rows, T, H, K), normal(3, rows, T, H, value_dim)


def compare(algorithm, *arguments, **options):
    found, expected = ours(algorithm)(*arguments, **options), theirs(algorithm)(*arguments, **options)
    for mine, other in zip(found, expected, strict=True):
        assert mine is other is None or (mine.shape == other.shape and error(mine, other) < 1e-5)


GATES = {
    "none": {},
    "g": {"g": gate(4, B, T, H, K)},
    "a head": {"g_gamma": gate(5, H)},
    "rows": {"g_gamma": gate(5, B, H)},
    "all": {"g": gate(4, B, T, H, K), "gk": gate(6, B, T, H, K), "gv": gate(7, B, T, H, V), "g_gamma": gate(5, 1, H)},
}


@pytest.mark.parametrize("gates", GATES)
def test_recurrent(gates):
    compare("recurrent", *qkv(), **GATES[gates], initial_state=normal(8, B, H, K, V), reverse=gates == "all", softmax_scale=0.3)


def test_recurrent_packed():
    gates = {"g": gate(4, 1, T, H, K), "g_gamma": gate(5, 4, H), "gv": gate(7, 1, T, H, V)}
    for reverse in (False, True):
        compare("recurrent", *qkv(1), **gates, initial_state=normal(8, 4, H, K, V), cu_seqlens=STARTS, reverse=reverse)


def test_packed_arrays_without_a_batch_give_the_same():
    packed = {"g": gate(4, 1, T, H, K), "initial_state": normal(8, 4, H, K, V)}
    out, state = ours("recurrent")(*qkv(1), **packed, cu_seqlens=STARTS)
    flat, again = ours("recurrent")(*(x[0] for x in qkv(1)), g=packed["g"][0], initial_state=packed["initial_state"][None], cu_seqlens=STARTS)
    assert (flat == out[0]).all() and (again == state).all()


def test_gradients_of_recurrent():
    """There values have as many features as keys in a gradient, and where no state is given; gates have none that JAX takes, and that of keys is wrong.

    test_jax_recurrent.py compares those of keys and gates with a scan's.
    """
    arguments = (*qkv(B, K), normal(8, B, H, K, K))

    def loss(function):
        return lambda *x: (function(*x[:3], initial_state=x[3])[0] ** 2).sum()

    found, expected = (jax.grad(loss(each("recurrent")), argnums=(0, 2, 3))(*arguments) for each in (ours, theirs))
    for mine, other in zip(found, expected, strict=True):
        assert error(mine, other) < 1e-5


def test_gla_and_lightning_attn():
    compare("gla", *qkv(B, K), g=gate(4, B, T, H, K))
    compare("lightning_attn", *qkv(), layer_idx=3, num_layers=12, initial_state=normal(8, B, H, K, V))
    compare("lightning_attn", *qkv(1), layer_idx=0, num_layers=12, cu_seqlens=STARTS, reverse=True)


def beta(rows=B):
    return jax.nn.sigmoid(normal(9, rows, T, H))


SEGMENTS = jnp.asarray([[0] * 7 + [1] * 9 + [2] * 4, [5] * 16 + [3] * 4], jnp.int32)


@pytest.mark.parametrize("options", [{}, {"seg_ids": SEGMENTS}, {"initial_state": normal(8, B, H, K, V)}, {"use_qk_l2norm": False}])
def test_gated_delta_rule(options):
    """Small decays: there a chunk's sum below -20 is cut off. Chunks of 10, since the state of documents is lost there in a last chunk that is not full."""
    q, k, v = qkv()
    k = k if options.get("use_qk_l2norm", True) else k / 8
    for decay in (None, 0.1 * gate(4, B, T, H)):
        compare("gated_delta_rule", q, k, v, beta(), decay, **options, chunk_size=10)


@pytest.mark.parametrize("algorithm", ["kernel_delta_attention", "kda"])
def test_kernel_delta_attention(algorithm):
    compare(algorithm, *qkv(), beta(), 0.1 * gate(4, B, T, H), softmax_scale=0.3, initial_state=normal(8, B, H, K, V), use_chunked=False)
    compare(algorithm, *qkv(), beta(), use_chunked=False)


def ragged(function, starts, tokens, decay):
    slots = jnp.asarray([5, 2, 0, 3], jnp.int32)
    arrays = [x[0, :tokens] for x in (*qkv(1), beta(1))]
    return function(*arrays, None if decay is None else decay[:tokens], normal(8, 7, H, K, V), jnp.asarray(starts, jnp.int32), slots)


@pytest.mark.parametrize("decay", [None, gate(4, T, H)], ids=["stays", "decays"])
def test_ragged_gated_delta_rule(decay):
    one_each = [0, 1, 2, 3, 4]
    for mine, other in zip(*(ragged(each("ragged_gated_delta_rule"), one_each, 4, decay) for each in (ours, theirs)), strict=True):
        assert error(mine, other) < 1e-5
    # Its form for several tokens rounds to bf16 when it is called by its name, and gives a slot without tokens another's state: here in f32.
    from ejkernel.kernels._xla.ragged_gated_delta_rule._xla_impl_fwd import _ragged_gdr_chunked_prefill as prefill

    def in_f32(*arguments):
        filled = [jnp.zeros((T, H)) if x is None else x for x in arguments]
        return prefill(*filled, chunk_size=8, use_qk_l2norm=True, compute_dtype=jnp.float32)[::-1]

    for mine, other in zip(*(ragged(each, [0, 9, 12, 13, 20], T, decay) for each in (ours("ragged_gated_delta_rule"), in_f32)), strict=True):
        assert error(mine, other) < 1e-5


def test_a_request_without_tokens_leaves_its_slot():
    pool = normal(8, 7, H, K, V)
    arrays = [x[0] for x in (*qkv(1), beta(1))]
    _, found = ours("ragged_gated_delta_rule")(*arrays, None, pool, STARTS, jnp.asarray([5, 5, 0, 3], jnp.int32))
    _, alone = ours("ragged_gated_delta_rule")(*(x[:12] for x in arrays), None, pool, STARTS[:2], jnp.asarray([5], jnp.int32))
    assert (found[5] == alone[5]).all() and all((found[slot] == pool[slot]).all() for slot in (1, 2, 4, 6))


SPACE = {"plain": {}, "gate": {"gate": normal(5, B, T, H * V)}, "norm": {"gate": normal(5, B, T, H * V), "use_gated_rmsnorm": True}}


@pytest.mark.parametrize("options", SPACE)
@pytest.mark.parametrize("algorithm", ["state_space_v2", "ssm2", "mamba2"])
def test_state_space_v2(options, algorithm):
    if algorithm != "state_space_v2" and options != "plain":
        return
    x, groups = normal(1, B, T, H, V), [normal(seed, B, T, 2, K) for seed in (2, 3)]
    arguments = (x, gate(4, H), *groups, normal(6, H), jax.nn.softplus(normal(7, B, T, H)))
    compare(algorithm, *arguments, n_groups=2, initial_state=normal(8, B, H, V, K), **SPACE[options])


@pytest.mark.parametrize("reverse", [False, True])
def test_rwkv6(reverse):
    options = {"u": normal(5, H, K), "reverse": reverse}
    compare("rwkv6", *qkv(), gate(4, B, T, H, K), **options, initial_state=normal(8, B, H, K, V), softmax_scale=0.3)
    starts = jnp.asarray([0, 12, 13, 20], jnp.int32)
    compare("rwkv6", *qkv(1), gate(4, 1, T, H, K), **options, cu_seqlens=starts, initial_state=normal(8, 3, H, K, V))
    compare("rwkv6", *qkv(1), gate(4, 1, T, H, K), **options, cu_seqlens=starts)


def test_gradients_of_rwkv6():
    arguments = (*qkv(), gate(4, B, T, H, K), normal(5, H, K))

    def loss(function):
        return lambda *x: (function(*x)[0] ** 2).sum()

    found, expected = (jax.grad(loss(each("rwkv6")), argnums=(0, 1, 2, 3, 4))(*arguments) for each in (ours, theirs))
    for mine, other in zip(found, expected, strict=True):
        assert error(mine, other) < 1e-5


@pytest.mark.parametrize("algorithm", ["recurrent", "gated_delta_rule", "kernel_delta_attention", "state_space_v2", "rwkv6"])
def test_states_have_the_types_that_they_have_there(algorithm):
    small = [x.astype("bfloat16") for x in (*qkv(), beta(), gate(4, B, T, H))]
    q, k, v, b, decay = small
    v = v[..., :K]
    arguments = {
        "recurrent": (q, k, v),
        "gated_delta_rule": (q, k, v, b, decay),
        "kernel_delta_attention": (q, k, v, b, decay),
        "state_space_v2": (v, decay[0, 0], k[:, :, :1], q[:, :, :1], b[0, 0], b),
        "rwkv6": (q, k, v, k, k[0, 0]),
    }[algorithm]
    assert ours(algorithm)(*arguments)[1].dtype == theirs(algorithm)(*arguments)[1].dtype


def test_what_is_not_ours_is_refused_in_the_librarys_way():
    q, k, v = qkv()
    with pytest.raises(EjkernelRuntimeError, match="queries, keys and values of different types is not supported"):
        ours("recurrent")(q, k, v.astype("bfloat16"))
    with pytest.raises(EjkernelRuntimeError, match="a layer_idx that is not from 0 to num_layers is not supported"):
        ours("lightning_attn")(q, k, v, 13, 12)
    with pytest.raises(EjkernelRuntimeError, match="an n_groups that is not B's is not supported"):
        ours("state_space_v2")(v, gate(4, H), k, q, gate(6, H), beta(), n_groups=2)
