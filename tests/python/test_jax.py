"""ejk.jax: kernels in JAX programs, on JAX's default device, against float64."""

import inspect
import pickle

import numpy
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from attention_reference import attention, in_float64  # noqa: E402
import references  # noqa: E402
from references import TOLERANCE, error  # noqa: E402

import ejk  # noqa: E402
import ejk.jax  # noqa: E402
from ejk.jax import _trace  # noqa: E402

GRADIENT_TOLERANCE = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 1.6e-2}
DTYPES = list(TOLERANCE)


def normal(seed, *shape, dtype="float32"):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype)


def qkv(dtype="float32", b=2, sq=37, sk=53, hq=4, hkv=2, d=64):
    return normal(1, b, sq, hq, d, dtype=dtype), normal(2, b, sk, hkv, d, dtype=dtype), normal(3, b, sk, hkv, d, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eager_and_jit_give_the_same_attention(dtype):
    q, k, v = qkv(dtype)
    eager = ejk.flash_attention(q, k, v, causal=True)
    assert eager.dtype == q.dtype and isinstance(eager, jax.Array)
    jitted = jax.jit(lambda *x: ejk.flash_attention(*x, causal=True))(q, k, v)
    assert (eager == jitted).all()
    expected, _ = in_float64(lambda *x: attention(*x, causal=True), q, k, v)
    assert error(eager, expected) < TOLERANCE[dtype]


def test_a_call_is_explained():
    q, k, v = qkv("bfloat16")
    told = ejk.explain(ejk.flash_attention, q, k, v, causal=True)
    assert told["launches"] and ".bf16." in told["image"]["id"]


def test_optional_outputs():
    q, k, v = qkv()
    out, lse, weights = jax.jit(lambda *x: tuple(ejk.flash_attention(*x, return_lse=True)))(q, k, v)
    assert weights is None
    expected, expected_lse = in_float64(attention, q, k, v)
    assert error(out, expected) < 1e-5 and error(lse, expected_lse) < 1e-5


def gradients(function, arrays, weights):
    return jax.grad(lambda *x: (function(*x).astype(jnp.float32) * weights).sum(), argnums=tuple(range(len(arrays))))(*arrays)


def test_weights_have_a_gradient():
    q, k, v = qkv()
    ours, theirs = normal(4, 2, 37, 4, 64), normal(5, 2, 4, 37, 53)

    def loss(q, k, v, of):
        out, weights = of(q, k, v)
        return (out * ours).sum() + (weights * theirs).sum()

    def reference(q, k, v):
        p = jax.nn.softmax(jnp.einsum("bihd,bjhd->bhij", q, jnp.repeat(k, 2, 2)) / 8.0, -1)
        return jnp.einsum("bhij,bjhd->bihd", p, jnp.repeat(v, 2, 2)), p

    def mine(q, k, v):
        found = ejk.flash_attention(q, k, v, return_weights=True)
        return found.out, found.weights

    expected = in_float64(jax.grad(lambda *x: loss(*x, reference), argnums=(0, 1, 2)), q, k, v)
    for found, right in zip(jax.grad(lambda *x: loss(*x, mine), argnums=(0, 1, 2))(q, k, v), expected):
        assert error(found, right) < 1e-5


OPTIONS = {
    "plain": ({}, {}),
    "causal": ({"causal": True}, {"causal": True}),
    "window": ({"window_left": 9, "window_right": 4}, {"window": (9, 4)}),
    "cap": ({"logits_soft_cap": 3.0}, {"cap": 3.0}),
    "scale": ({"softmax_scale": 0.3}, {"scale": 0.3}),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", list(OPTIONS))
def test_gradients(option, dtype):
    ours, theirs = OPTIONS[option]
    arrays = qkv(dtype)
    weights = normal(4, 2, 37, 4, 64)
    found = jax.jit(lambda *x: gradients(lambda *y: ejk.flash_attention(*y, **ours), x, weights))(*arrays)

    def expected(q, k, v, w):
        return jax.grad(lambda *x: (attention(*x, **theirs)[0] * w).sum(), argnums=(0, 1, 2))(q, k, v)

    for mine, truth, array in zip(found, in_float64(expected, *arrays, weights.astype(dtype)), arrays):
        assert mine.dtype == array.dtype and error(mine, truth) < GRADIENT_TOLERANCE[dtype]


@pytest.mark.parametrize("bias_shape", [(2, 4, 37, 53), (1, 4, 37, 53), (2, 1, 37, 53)])
def test_gradients_of_bias_and_sinks(bias_shape):
    q, k, v = qkv()
    bias, sinks, weights = normal(5, *bias_shape), normal(6, 4, 3), normal(4, 2, 37, 4, 64)
    arrays = (q, k, v, bias, sinks)
    found = gradients(lambda q, k, v, b, s: ejk.flash_attention(q, k, v, bias=b, softmax_aux=s), arrays, weights)

    def expected(*x):
        *x, w = x
        return jax.grad(lambda q, k, v, b, s: (attention(q, k, v, b, sinks=s)[0] * w).sum(), argnums=(0, 1, 2, 3, 4))(*x)

    for mine, truth in zip(found, in_float64(expected, *arrays, weights)):
        assert error(mine, truth) < 1e-5


def test_a_gradient_nobody_asks_for_is_not_computed():
    q, k, v = qkv()
    bias = normal(5, 2, 4, 37, 53)
    both = jax.jit(jax.grad(lambda q, b: ejk.flash_attention(q, k, v, bias=b).sum(), argnums=(0, 1))).lower(q, bias).as_text()
    one = jax.jit(jax.grad(lambda q, b: ejk.flash_attention(q, k, v, bias=b).sum())).lower(q, bias).as_text()
    assert "dbias" in both and "dbias" not in one


def test_masks_and_segments():
    q, k, v = qkv(sq=40, sk=40)
    mask = jnp.asarray(numpy.random.default_rng(7).random((2, 1, 40, 40)) < 0.5)
    expected, _ = in_float64(lambda q, k, v, m: attention(q, k, v, mask=m), q, k, v, mask)
    assert error(ejk.flash_attention(q, k, v, attention_mask=mask), expected) < 1e-5
    ids = jnp.asarray([[0] * 15 + [1] * 20 + [-1] * 5] * 2, jnp.int32)
    together = (ids[:, :, None] == ids[:, None, :]) & (ids >= 0)[:, :, None]
    expected, _ = in_float64(lambda q, k, v, m: attention(q, k, v, mask=m), q, k, v, together[:, None])
    assert error(ejk.flash_attention(q, k, v, q_segment_ids=ids, kv_segment_ids=ids), expected) < 1e-5


def test_packed_sequences_with_gradients():
    lengths = [5, 0, 17, 9]
    q, k, v = (normal(i, sum(lengths), 2, 64) for i in (1, 2, 3))
    ends = jnp.asarray(numpy.cumsum([0, *lengths]), jnp.int32)
    weights = normal(4, sum(lengths), 2, 64)
    found = jax.jit(
        lambda *x: gradients(lambda *y: ejk.flash_attention(*y, cum_seqlens_q=ends, cum_seqlens_k=ends, causal=True), x, weights)
    )(q, k, v)
    for n, length in enumerate(lengths):
        if not length:
            continue
        part = slice(int(ends[n]), int(ends[n + 1]))

        def expected(q, k, v, w):
            one = lambda *x: (attention(*(y[None] for y in x), causal=True)[0][0] * w).sum()  # noqa: E731
            return jax.grad(one, argnums=(0, 1, 2))(q, k, v)

        for mine, truth in zip(found, in_float64(expected, q[part], k[part], v[part], weights[part])):
            assert error(mine[part], truth) < 1e-5


def test_gradient_of_several_calls():
    lhs, rhs, old = normal(1, 30, 16), normal(2, 4, 16, 24), normal(3, 30, 24)
    sizes = jnp.asarray([7, 0, 13, 6], jnp.int32)
    weights = normal(4, 30, 24)

    def truth(lhs, rhs, old):
        group = jnp.repeat(jnp.arange(5), jnp.asarray([7, 0, 13, 6, 4]), total_repeat_length=30)
        product = jnp.einsum("mk,mkn->mn", lhs, jnp.concatenate([rhs, jnp.zeros_like(rhs[:1])])[group])
        return product + old

    for transposed in (False, True):
        stored = rhs.swapaxes(1, 2) if transposed else rhs
        ours = lambda a, b, c: ejk.grouped_matmul(  # noqa: E731
            a, b, group_sizes=sizes, existing_out=c, transpose_rhs=transposed
        )
        found = (ours(lhs, stored, old), *jax.jit(lambda *x: gradients(ours, x, weights))(lhs, stored, old))

        def expected(a, b, c, w):
            plain = lambda x, y, z: truth(x, y.swapaxes(1, 2) if transposed else y, z)  # noqa: E731
            return plain(a, b, c), *jax.grad(lambda *x: (plain(*x) * w).sum(), argnums=(0, 1, 2))(a, b, c)

        for mine, right in zip(found, in_float64(expected, lhs, stored, old, weights)):
            assert error(mine, right) < 1e-5


def test_a_result_of_another_type_than_the_operands():
    lhs, rhs = normal(1, 20, 16).astype(jnp.bfloat16), normal(2, 2, 16, 24).astype(jnp.bfloat16)
    sizes, weights = jnp.asarray([7, 13], jnp.int32), normal(4, 20, 24)
    ours = jax.jit(lambda a, b: ejk.grouped_matmul(a, b, group_sizes=sizes, preferred_element_type="f32"))
    found, pullback = jax.vjp(ours, lhs, rhs)
    slopes = pullback(weights)
    assert found.dtype == jnp.float32 and [each.dtype for each in slopes] == [jnp.bfloat16] * 2
    theirs = lambda a, b, w: jnp.concatenate([a[:7] @ b[0], a[7:] @ b[1]])  # noqa: E731
    expected = lambda a, b, w: (theirs(a, b, w), *jax.grad(lambda a, b: (theirs(a, b, w) * w).sum(), (0, 1))(a, b))  # noqa: E731
    right, *truths = in_float64(expected, lhs, rhs, weights)
    assert error(found, right) < 1e-5
    for mine, truth in zip(slopes, truths):
        assert error(mine, truth) < 4e-3


def test_mean_pooling_and_its_gradient():
    x = normal(1, 3, 11, 20)
    mask = jnp.asarray(numpy.random.default_rng(2).random((3, 11)) < 0.6).at[1].set(False)
    found, pullback = jax.vjp(lambda x: ejk.mean_pooling(x, mask=mask), x)
    wide = numpy.asarray(x, numpy.float64) * numpy.asarray(mask)[..., None]
    count = numpy.maximum(numpy.asarray(mask).sum(1), 1)[:, None]
    assert error(found, wide.sum(1) / count) < 1e-5
    weights = normal(3, 3, 20)
    expected = numpy.asarray(mask)[..., None] * (numpy.asarray(weights) / count)[:, None]
    assert error(pullback(weights)[0], expected) < 1e-5


def calls_in(function, *arrays):
    return jax.jit(function).lower(*arrays).as_text().count("stablehlo.custom_call @ejk")


def test_vmap_is_one_call_of_a_larger_batch():
    q, k, v = (jnp.stack([x, x * 0.5, x + 1.0]) for x in qkv())
    mapped = jax.vmap(lambda q, k, v: ejk.flash_attention(q, k, v, causal=True))
    alone = jnp.stack([ejk.flash_attention(*x, causal=True) for x in zip(q, k, v)])
    assert error(mapped(q, k, v), alone) < 1e-6
    assert "tensor<6x37x4x64xf32>" in jax.jit(mapped).lower(q, k, v).as_text()
    twice = jax.vmap(mapped, in_axes=(None, None, 1))(q, k, jnp.stack([v, -v], 1))
    assert error(twice[1], -alone) < 1e-6


def test_vmap_with_shared_and_moved_operands():
    q, k, v = qkv()
    bias = normal(5, 1, 4, 37, 53)
    mapped = jax.vmap(lambda q, v: ejk.flash_attention(q, k, v, bias=bias), in_axes=(2, 0), out_axes=1)
    many_q, many_v = jnp.stack([q, 2 * q], 2), jnp.stack([v, v + 1])
    found = mapped(many_q, many_v)
    for i in range(2):
        assert error(found[:, i], ejk.flash_attention(many_q[:, :, i], k, many_v[i], bias=bias)) < 1e-6


def test_vmap_of_a_gradient():
    q, k, v = qkv()
    sinks = normal(6, 4, 3)
    many = jnp.stack([q, q * 0.5])
    gradient = jax.grad(lambda q, s: (ejk.flash_attention(q, k, v, softmax_aux=s) ** 2).sum(), argnums=(0, 1))
    found = jax.jit(jax.vmap(gradient, in_axes=(0, None)))(many, sinks)  # dsoftmax_aux is summed over a batch: a loop
    for i in range(2):
        for mine, alone in zip(found, gradient(many[i], sinks)):
            assert error(mine[i], alone) < 1e-5


def test_labels_are_found_in_programs():
    q, k, v = qkv()
    program = jax.jit(jax.grad(lambda q: ejk.flash_attention(q, k, v).sum())).lower(q)
    labels = ejk.jax.find_labels_in_lowered(program)
    assert {label.split(":")[1] for label in labels} == {"flash_attention", "flash_attention_bwd"}
    assert ejk.label("flash_attention", q, k, v, return_lse=True) in labels
    assert set(ejk.jax.find_labels_in_lowered(program.compile())) == set(labels)
    with pytest.raises(TypeError, match="expected a lowered or compiled program, or the text of one; found 5"):
        ejk.jax.find_labels_in_lowered(5)


OTHER = "plain" if jax.default_backend() == "cpu" else "gpu_plain"  # a variant that calls in bfloat16 do not get by themselves


def test_cfg_and_overlays_count_when_a_program_is_lowered():
    arrays, words = qkv("bfloat16"), rf"\22variant\22: \22{OTHER}\22"
    lowered = lambda **options: jax.jit(lambda *x: ejk.flash_attention(*x, **options)).lower(*arrays).as_text()  # noqa: E731
    assert words in lowered(cfg={"variant": OTHER})
    with ejk.overlay({"variant": OTHER}, "flash_attention"):
        assert words in lowered()
    assert words not in lowered()


LENGTHS = jnp.asarray([53, 30], jnp.int32)


@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"softmax_scale": 0.5}, {"return_lse": True}, {"key_value_seq_lengths": LENGTHS}, {"cfg": {"variant": OTHER}}]
)
def test_functions_of_ejk_jax_are_those_of_ejk(options):
    arrays = qkv()
    expected = ejk.flash_attention(*arrays, **options)
    for _ in range(2):
        found = ejk.jax.flash_attention(*arrays, **options)
        assert type(found) is type(expected)
        assert all((a == b).all() for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))


def test_functions_of_ejk_jax_take_what_ejk_takes():
    f, (q, k, v) = ejk.jax.flash_attention, qkv()
    assert inspect.signature(f) == inspect.signature(ejk.flash_attention) and pickle.loads(pickle.dumps(f)) is f
    assert isinstance(f(*(numpy.asarray(x) for x in (q, k, v))), numpy.ndarray)
    assert (f(q=q, k=k, v=v) == f(q, k, v)).all()
    weights = normal(4, *q.shape)
    for mine, theirs in zip(gradients(f, (q, k, v), weights), gradients(ejk.flash_attention, (q, k, v), weights)):
        assert (mine == theirs).all()
    with jax.disable_jit():
        assert error(f(q, k, v), ejk.flash_attention(q, k, v)) < 1e-5


def test_errors_of_functions_of_ejk_jax():
    f, (q, k, v) = ejk.jax.flash_attention, qkv()
    f(q, k, v)
    for kind, words, call in (
        (ejk.UnsupportedError, "cannot be written to", lambda: f(q, k, v, out=q)),
        (ejk.InputError, "XLA chooses the stream", lambda: f(q, k, v, stream=5)),
        (ejk.InputError, "causal must be bool", lambda: f(q, k, v, causal=2)),
        (ejk.InputError, "causal is being traced", lambda: jax.jit(lambda c: f(q, k, v, causal=c))(True)),
        (ejk.InputError, "finite", lambda: f(q, k, v, softmax_scale=float("nan"))),
        (ejk.InputError, "Hq must be a multiple", lambda: f(q[:, :, :3], k, v)),
        (TypeError, "k is a str; expected a JAX array", lambda: f(q, "k", v)),
        (TypeError, "missing 1 required positional argument", lambda: f(q, k)),
        (TypeError, "takes 3 positional arguments", lambda: f(q, k, v, q)),
        (TypeError, "unexpected keyword argument 'casual'", lambda: f(q, k, v, casual=True)),
    ):
        with pytest.raises(kind, match=words):
            call()


def test_overlays_count_in_eager_calls_of_ejk_jax(monkeypatch):
    chosen, variants = _trace.chosen, []

    def recorded(*arguments):
        choice = chosen(*arguments)
        variants.append(choice["config"]["variant"])
        return choice

    monkeypatch.setattr(_trace, "chosen", recorded)
    q, k, v = qkv("bfloat16", sq=38)
    ejk.jax.flash_attention(q, k, v)
    with ejk.overlay({"variant": OTHER}, "flash_attention"):
        for _ in range(2):
            ejk.jax.flash_attention(q, k, v)
    ejk.jax.flash_attention(q, k, v)
    assert len(variants) == 2 and variants[0] != OTHER and variants[1] == OTHER


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"local_window_size": (5, 3)}, {"scale": 0.2}])
def test_dot_product_attention_means_what_jax_means(options, lengths):
    q, k, v = qkv(sq=37, sk=53)
    bias = normal(5, 2, 1, 1, 53)
    mask = jnp.asarray(numpy.random.default_rng(7).random((1, 4, 37, 53)) < 0.8) | jnp.eye(37, 53, dtype=bool)  # every query sees a key
    more = {"query_seq_lengths": jnp.asarray([37, 20]), "key_value_seq_lengths": jnp.asarray([53, 30])} if lengths else {}
    ours = ejk.jax.dot_product_attention(q, k, v, bias, mask, **options, **more)
    with jax.default_matmul_precision("highest"):
        theirs = jax.nn.dot_product_attention(q, k, v, bias, mask, **options, **more)
    rows = numpy.ones((2, 37), bool)
    if lengths:
        rows[1, 20:] = False
    assert error(ours[rows], theirs[rows]) < 1e-5
    with jax.default_matmul_precision("highest"):
        grads = [
            jax.grad(lambda q, b: (f(q, k, v, b, mask, **options, **more) * rows[..., None, None]).sum(), argnums=(0, 1))(q, bias)
            for f in (ejk.jax.dot_product_attention, jax.nn.dot_product_attention)
        ]
    for mine, other in zip(*grads):
        assert error(mine, other) < 2e-5


def test_dot_product_attention_without_a_batch():
    q, k, v = (x[0] for x in qkv())
    with jax.default_matmul_precision("highest"):
        assert error(ejk.jax.dot_product_attention(q, k, v), jax.nn.dot_product_attention(q, k, v)) < 1e-5


def test_errors_come_when_a_call_is_traced():
    q, k, v = qkv()
    with pytest.raises(ejk.InputError, match="Hq must be a multiple of Hkv"):
        jax.jit(ejk.flash_attention)(q[:, :, :3], k, v)
    with pytest.raises(ejk.InputError, match="softmax_scale is being traced"):
        jax.jit(lambda s: ejk.flash_attention(q, k, v, softmax_scale=s))(0.5)
    with pytest.raises(ejk.UnsupportedError, match="cannot be written to"):
        ejk.flash_attention(q, k, v, out=q)
    with pytest.raises(TypeError, match="k"):
        ejk.flash_attention(q, "k", v)
    with pytest.raises(ejk.InputError, match="depends on data"):
        jax.jit(lambda x, c: ejk.mean_pooling(x, cum_seqlens=c, chunk_size=2))(normal(1, 6, 8), jnp.asarray([0, 2, 6], jnp.int32))


def test_shapes_that_follow_from_data():
    x, bounds = normal(1, 12, 8), jnp.asarray([0, 2, 12], jnp.int32)
    means = ejk.mean_pooling(x, cum_seqlens=bounds, chunk_size=4)  # eager: the offsets are read
    assert means.shape == (4, 8) and (ejk.jax.mean_pooling(x, cum_seqlens=bounds, chunk_size=4) == means).all()
    assert ejk.mean_pooling(x, cum_seqlens=jnp.asarray([0, 12], jnp.int32), chunk_size=4).shape == (3, 8)
    padded = jax.jit(lambda x, c: ejk.mean_pooling(x, cum_seqlens=c, chunk_size=4, chunk_count=6))
    assert padded(x, bounds).shape == (6, 8) and (padded(x, bounds)[:4] == means).all() and (padded(x, bounds)[4:] == 0).all()
    weights = normal(2, 6, 8)
    slope = jax.grad(lambda x: (padded(x, bounds) * weights).sum())(x)
    assert error(slope, jax.grad(lambda x: (ejk.mean_pooling(x, cum_seqlens=bounds, chunk_size=4) * weights[:4]).sum())(x)) < 1e-6


def test_a_forward_mode_derivative_is_refused():
    q, k, v = (normal(seed, 1, 3, 2, 8) for seed in range(3))  # a derivative by each element in turn
    x, lhs, rhs = normal(1, 2, 3, 8), normal(2, 1, 2, 3, 4), normal(3, 1, 2, 4, 3)
    calls = (
        ("flash_attention", lambda q: ejk.flash_attention(q, k, v), q),
        ("flash_attention", lambda q: ejk.jax.flash_attention(q, k, v), q),
        ("flash_attention", lambda q: ejk.jax.dot_product_attention(q, k, v), q),
        ("mean_pooling", ejk.mean_pooling, x),
        ("grouped_matmul", lambda lhs: ejk.grouped_matmul(lhs, rhs), lhs),
    )
    for kernel, function, primal in calls:
        words = f"{kernel}(_bwd)? has no forward-mode derivative .*: use jax.vjp, jax.grad or jax.jacrev, or take this derivative of the same maths"
        loss = lambda x: (function(x) ** 2).sum()  # noqa: B023, E731
        for derivative in (lambda: jax.jvp(function, (primal,), (primal,)), lambda: jax.jacfwd(function)(primal), lambda: jax.hessian(loss)(primal)):  # noqa: B023
            with pytest.raises(ejk.UnsupportedError, match=words):
                derivative()
    with pytest.raises(TypeError, match="forward-mode"):  # JAX's own words, where it has traced the program before it differentiates it
        jax.jvp(jax.jit(lambda q: ejk.flash_attention(q, k, v)), (q,), (q,))


def test_a_second_derivative_is_refused():
    q, k, v = qkv()
    x = normal(1, 2, 7, 16)
    calls = (
        ("flash_attention_bwd", lambda q: ejk.flash_attention(q, k, v), q),
        ("flash_attention_bwd", lambda q: ejk.jax.dot_product_attention(q, k, v), q),
        ("mean_pooling_bwd", ejk.mean_pooling, x),
    )
    for kernel, function, primal in calls:
        first = jax.grad(lambda x: (function(x) ** 2).sum())  # noqa: B023
        for slope in (first, jax.jit(first)):
            words = f"{kernel} has no gradient, .*put jax.lax.stop_gradient around its operands, or take this derivative of the same maths in jax.numpy"
            with pytest.raises(ejk.UnsupportedError, match=words):
                jax.grad(lambda x: (slope(x) ** 2).sum())(primal)  # noqa: B023


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("values", [64, 40])
def test_ragged_decode_attention_eager_in_jit_and_in_vmap(dtype, values):
    arrays = normal(1, 3, 4, 64, dtype=dtype), normal(2, 3, 70, 2, 64, dtype=dtype), normal(3, 3, 70, 2, values, dtype=dtype)
    start, end = numpy.asarray([0, 20, 9], "int32"), numpy.asarray([70, 37, 9], "int32")
    token = numpy.arange(70)
    seen = (token >= start[:, None]) & (token < end[:, None]) & (token >= end[:, None] - 31)
    expected, expected_lse = references.attention(arrays[0][:, None], *arrays[1:], attention_mask=seen[:, None, None])
    arrays = *arrays, jnp.asarray(start), jnp.asarray(end)

    def decode(*arrays):
        return ejk.ragged_decode_attention(*arrays, window_left=30, return_lse=True)

    one_by_one = jax.vmap(decode)(*(x[:, None] for x in arrays))
    for out, lse in decode(*arrays), jax.jit(decode)(*arrays), (x[:, 0] for x in one_by_one):
        assert out.dtype == arrays[0].dtype and error(out, expected[:, 0]) < TOLERANCE[dtype]
        assert error(lse[:2], expected_lse[:2, :, 0]) < 1e-5 and (lse[2] == -numpy.inf).all()


def test_a_kernel_without_gradient_says_so():
    cache = normal(1, 3, 2, 16, 64)
    query, lengths, table = normal(2, 2, 4, 64), jnp.asarray([20, 5], jnp.int32), jnp.asarray([[0, 1], [2, 0]], jnp.int32)
    out = ejk.page_attention(query, cache, cache, lengths, table)
    assert out.shape == query.shape
    with pytest.raises(ejk.UnsupportedError, match="page_attention has no gradient"):
        jax.grad(lambda q: ejk.page_attention(q, cache, cache, lengths, table).sum())(query)


def test_empty_batches():
    q, k, v = qkv(b=0)
    assert jax.jit(ejk.flash_attention)(q, k, v).shape == (0, 37, 4, 64)
    assert jax.vmap(ejk.flash_attention)(*(jnp.zeros((0, *x.shape)) for x in qkv())).shape == (0, 2, 37, 4, 64)
