"""blocksparse_attention under the name of the Python library ejkernel, beside its own XLA function. Runs where that library is installed."""

import numpy
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("ejkernel")
import jax.numpy as jnp  # noqa: E402
from ejkernel.errors import EjkernelRuntimeError  # noqa: E402
from ejkernel.kernels._registry import Platform, kernel_registry  # noqa: E402
from ejkernel.kernels._xla.blocksparse_attention import blocksparse_attention as theirs  # noqa: E402
from references import error  # noqa: E402

import ejk.jax.ejkernel  # noqa: E402, F401
from ejk import block_masks, masks  # noqa: E402

B, H, KV, S, D = 2, 4, 2, 300, 32


def ours(*arguments, **options):
    first = kernel_registry.list_implementations("blocksparse_attention")[0]
    assert first.platform == Platform.CUDA, first
    return first.implementation(*arguments, **options)


def normal(seed, *shape):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), "float32")


def qkv(keys=S, value_dim=D):
    return normal(1, B, H, S, D), normal(2, B, KV, keys, D), normal(3, B, KV, keys, value_dim)


IDS = jnp.asarray(numpy.repeat([[0, 0, 1, 1, 1, -1], [2, 1, 1, 1, 0, 0]], 50, axis=1), jnp.int32)
PLACES = jnp.asarray([numpy.concatenate([numpy.arange(n) for n in lengths]) for lengths in ((100, 150, 50), (50, 150, 100))], jnp.int32)
SOME = jnp.asarray(numpy.random.default_rng(4).random((B, S, S)) < 0.3)
ALIKE = {
    "causal": {},
    "all": {"causal": False},
    "window": {"sliding_window": (40, 7), "causal": False},
    "causal window": {"sliding_window": 50, "logits_soft_cap": 5.0, "softmax_scale": 0.3},
    "documents": {"q_segment_ids": IDS},
    "documents of both": {"q_segment_ids": IDS, "kv_segment_ids": IDS[::-1], "causal": False},
    "documents with positions": {"q_segment_ids": IDS, "q_positions": PLACES, "kv_positions": PLACES, "sliding_window": 30},
    "mask": {"attention_mask": SOME[:, None], "causal": False},
    "numbers": {"attention_mask": SOME[:, None].astype(jnp.int32)},
    "shared sinks": {"softmax_aux": jnp.asarray([0.5, -1.0, 2.0])},
    "sinks of kv heads": {"softmax_aux": jnp.asarray([0.5, 3.0])},
    "sinks of heads": {"softmax_aux": jnp.asarray([0.5, 3.0, 1.0, -2.0])},
}


@pytest.mark.parametrize("options", ALIKE.values(), ids=list(ALIKE))
def test_values_and_gradients_are_those_of_xla(options):
    found, right = (jax.jit(lambda *x, f=f: f(*x, **options)) for f in (ours, theirs))
    assert error(found(*qkv()), right(*qkv())) < 1e-5
    slopes = [jax.grad(lambda *x, f=f: (f(*x) ** 2).sum(), (0, 1, 2))(*qkv()) for f in (found, right)]
    for mine, other in zip(*slopes, strict=True):
        assert error(mine, other) < 1e-5


def dense(seen, q, k, v, bias=0.0):
    """seen: bool [B or 1, H or 1, Sq, Sk], of which each row has a key."""
    k, v = (jnp.repeat(x, H // KV, 1) for x in (k, v))
    scores = jnp.einsum("bhid,bhjd->bhij", q, k) / D**0.5 + bias
    return jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1), v)


def test_what_xla_leaves_out():
    """It refuses a bias, takes the first head's mask for all, and leaves out chunk_size and mask_builder."""
    arrays, bias = qkv(value_dim=16), normal(5, B, H, S, S)
    own = (jnp.arange(S)[:, None] == jnp.arange(S)) | (numpy.random.default_rng(6).random((B, H, S, S)) < 0.2)
    assert error(ours(*arrays, attention_mask=own, bias=bias, causal=False), dense(own, *arrays, bias)) < 1e-5
    assert error(ours(*arrays, chunk_size=70), dense(masks.position_mask(S, S, chunk_size=70), *arrays)) < 1e-5
    places = jnp.arange(S, dtype=jnp.int32)[None].repeat(B, 0)
    assert error(ours(*arrays, chunk_size=70, q_positions=places), ours(*arrays, chunk_size=70)) < 1e-6
    local = block_masks.local(S, S, 1, block_q=16, block_k=32, like=arrays[0])
    seen = jnp.repeat(jnp.repeat(local.block_mask, 16, 2), 32, 3)[:, :, :S, :S] & masks.position_mask(S, S, causal=True)
    rows = seen.any(-1)[0, 0]  # block sizes differ, so that late queries have no block on that begins before them
    found = ours(*arrays, mask_builder=lambda: local)
    assert error(found[:, :, rows], dense(seen, *arrays)[:, :, rows]) < 1e-5 and (found[:, :, ~rows] == 0).all()


@pytest.mark.parametrize("keys", [70, 500])
def test_positions_count_from_the_first_query_and_key(keys):
    arrays = qkv(keys)
    for options in ({"causal": True}, {"causal": True, "window_left": 60}, {"window_left": 9, "window_right": 300}):
        sides = (options.get("window_left", -1), options.get("window_right", -1))
        seen = masks.position_mask(S, keys, causal_offset=0, **options)
        found = ours(*arrays, causal=options.get("causal", False), sliding_window=None if sides == (-1, -1) else sides)
        rows = seen.any(-1)[0, 0]
        assert error(found[:, :, rows], dense(seen, *arrays)[:, :, rows]) < 1e-5 and (found[:, :, ~rows] == 0).all()


def test_what_is_not_ours_is_refused():
    refused = {
        "qkv_layouts": {"qkv_layouts": (None,)},
        "sequence_parallelism_mesh_axis_name": {"sequence_parallelism_mesh_axis_name": "x"},
        "a mask_builder that takes arguments": {"mask_builder": lambda a, b, c, d, e: None},
        "a mask_builder that gives no ejk.block_mask": {"mask_builder": lambda: None},
    }
    for words, options in refused.items():
        with pytest.raises(EjkernelRuntimeError, match=f"{words} is not supported"):
            ours(*qkv(), **options)
    with pytest.raises(EjkernelRuntimeError, match="of different lengths, is not supported"):
        ours(*qkv(70), q_segment_ids=IDS)
    with pytest.raises(ValueError, match="attention_mask has shape"):
        ours(*qkv(), attention_mask=SOME[:, :7])
