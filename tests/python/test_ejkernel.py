"""The Python library ejkernel with our kernels as its CUDA platform, beside its own XLA ones. Runs where that library is installed."""

import numpy
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("ejkernel")
import jax.numpy as jnp  # noqa: E402
from ejkernel.errors import EjkernelRuntimeError  # noqa: E402
from ejkernel.kernels._registry import Platform, kernel_registry  # noqa: E402
from ejkernel.kernels._xla.flash_attention import flash_attention as xla_attention  # noqa: E402
from ejkernel.kernels._xla.grouped_matmul import grouped_matmul as xla_matmul  # noqa: E402
from ejkernel.kernels._xla.mean_pooling import mean_pooling as xla_pooling  # noqa: E402
from ejkernel.kernels._xla.ragged_decode_attention import ragged_decode_attention as xla_decode  # noqa: E402
from references import error  # noqa: E402

import ejk.jax.ejkernel  # noqa: E402, F401


def ours(algorithm):
    first = kernel_registry.list_implementations(algorithm)[0]
    assert first.platform == Platform.CUDA, first
    return first.implementation


def test_arrays_on_the_cpu_are_served_there_where_no_platform_is_named():
    q = jax.device_put(normal(1, 2, 32, 4, 64), jax.devices("cpu")[0])
    found = kernel_registry.get("flash_attention")(q, q, q)
    assert found.devices() == q.devices() and error(found, xla_attention(q, q, q)) < 1e-5


def test_signatures_are_still_alike():
    for algorithm in sum(ejk.jax.ejkernel.OURS.values(), []):
        assert kernel_registry.validate_signatures(algorithm), algorithm


@pytest.mark.parametrize("out", ["float32", "bfloat16"])
def test_grouped_matmul_with_other_outputs_and_an_offset(out):
    lhs, rhs, sizes = normal(1, 30, 16).astype("bfloat16"), normal(2, 2, 16, 24).astype("bfloat16"), jnp.asarray([7, 10, 13], jnp.int32)
    options = {"preferred_element_type": jnp.dtype(out), "group_offset": jnp.asarray([1], jnp.int32)}
    found = ours("grouped_matmul")(lhs, rhs, sizes, **options)
    wide = [numpy.asarray(x, "float64") for x in (lhs, rhs)]
    right = numpy.concatenate([numpy.zeros((7, 24)), wide[0][7:17] @ wide[1][0], wide[0][17:] @ wide[1][1]])
    assert found.dtype == out and error(found, right) < (1e-5 if out == "float32" else 8e-3)
    slope = jax.grad(lambda rhs: ours("grouped_matmul")(lhs, rhs, sizes, **options).astype("float32").sum())(rhs)
    assert slope.dtype == rhs.dtype and error(slope[0], numpy.repeat(wide[0][7:17].sum(0)[:, None], 24, 1)) < 1.6e-2


def normal(seed, *shape):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), "float32")


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"sliding_window": (5, 2)}, {"softmax_scale": 0.2, "logits_soft_cap": 4.0}, {"causal": True, "sliding_window": 6}],
)
def test_flash_attention(options):
    q, k, v = normal(1, 2, 32, 4, 64), normal(2, 2, 32, 2, 64), normal(3, 2, 32, 2, 64)
    found = [jax.value_and_grad(lambda q: (f(q, k, v, **options) ** 2).sum())(q) for f in (ours("flash_attention"), xla_attention)]
    assert abs(float(found[0][0] / found[1][0]) - 1) < 1e-5
    assert error(found[0][1], found[1][1]) < 1e-5


def test_grouped_matmul_and_mean_pooling():
    lhs, rhs, sizes = normal(1, 30, 16), normal(2, 3, 16, 24), jnp.asarray([7, 10, 13], jnp.int32)
    assert error(ours("grouped_matmul")(lhs, rhs, sizes), xla_matmul(lhs, rhs, sizes)) < 1e-5
    x, ends = normal(3, 25, 32), jnp.asarray([0, 10, 25], jnp.int32)
    assert error(ours("mean_pooling")(x, cu_seqlens=ends), xla_pooling(x, cu_seqlens=ends)) < 1e-5


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sliding_window": (5, 0)},
        {"softmax_scale": 0.2, "logits_soft_cap": 4.0},
        {"softmax_aux": [0.5, -1.0, 2.0]},
        {"softmax_aux": [0.5, -1.0, 2.0, 1.0]},
        {"softmax_aux": [[0.5], [2.0]]},
        {"softmax_aux": [[0.5], [-1.0], [2.0], [1.0]]},
    ],
)
def test_ragged_decode_attention(options):
    options = {name: jnp.asarray(value, "float32") if name == "softmax_aux" else value for name, value in options.items()}
    q, k, v = normal(1, 3, 4, 64), normal(2, 3, 40, 2, 64), normal(3, 3, 40, 2, 64)
    start, end = jnp.asarray([0, 7, 12], jnp.int32), jnp.asarray([40, 8, 33], jnp.int32)
    assert error(ours("ragged_decode_attention")(q, k, v, start, end, **options), xla_decode(q, k, v, start, end, **options)) < 1e-5


def test_what_is_not_ours_is_refused_in_the_librarys_way():
    q = normal(1, 2, 32, 4, 64)
    with pytest.raises(EjkernelRuntimeError, match="normalize_output=False is not supported"):
        ours("flash_attention")(q, q, q, normalize_output=False)
