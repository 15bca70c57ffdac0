"""ejk.block_mask and ejk.block_masks against dense masks by plain loops, with NumPy, JAX and PyTorch; and blocksparse_attention behind them."""

import pathlib
import pickle
import re

import numpy as np
import pytest
from references import TOLERANCE, attention, error, normal

import ejk
from ejk import block_masks, masks

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None
try:
    import torch
except ImportError:
    torch = None

needs_jax = pytest.mark.skipif(jax is None, reason="needs JAX")
needs_torch = pytest.mark.skipif(torch is None, reason="needs PyTorch")
LIBRARIES = ["numpy", pytest.param("jax", marks=needs_jax), pytest.param("torch", marks=needs_torch)]
SIZES = [(70, 90, 16, 32), (64, 64, 32, 16), (33, 17, 16, 16), (17, 200, 48, 16)]
sizes = pytest.mark.parametrize("queries, keys, block_q, block_k", SIZES)


def of(library, array):
    return {"numpy": lambda: array, "jax": lambda: jnp.asarray(array), "torch": lambda: torch.from_numpy(np.array(array))}[library]()


def blocks_of(dense, block_q, block_k):
    """By the definition: whether any element of each block is true."""
    rows, columns = -(-dense.shape[-2] // block_q), -(-dense.shape[-1] // block_k)
    on = np.zeros((*dense.shape[:-2], rows, columns), bool)
    for r in range(rows):
        for c in range(columns):
            on[..., r, c] = dense[..., r * block_q : (r + 1) * block_q, c * block_k : (c + 1) * block_k].any((-1, -2))
    return on


def loops(rule, rows, columns):
    return np.array([[rule(i, j) for j in range(columns)] for i in range(rows)], bool)


BUILDERS = [
    ("local", (2, 1), lambda i, j: i - 2 <= j <= i + 1),
    ("local", (0,), lambda i, j: i == j),
    ("strided", (3,), lambda i, j: i - 3 < j <= i or (i - j) % 3 == 0),
    ("fixed", (3, 1), lambda i, j: i // 3 == j // 3 or j % 3 >= 2),
    ("global_local", (1, 1, 0), lambda i, j: j < 1 or i < 1 or i - 1 <= j <= i),
]


@sizes
@pytest.mark.parametrize("name, arguments, rule", BUILDERS, ids=lambda each: str(each) if not callable(each) else "")
def test_builders_of_block_numbers(name, arguments, rule, queries, keys, block_q, block_k):
    mask = getattr(block_masks, name)(queries, keys, *arguments, block_q=block_q, block_k=block_k)
    assert (mask.block_mask[0, 0] == loops(rule, -(-queries // block_q), -(-keys // block_k))).all()
    assert mask.arguments().keys() == {"block_mask", "block_q", "block_k"}


POSITIONS = [
    ("causal", (), {"causal": True}, {"causal": True}),
    ("window", (20, 3), {"window_left": 20, "window_right": 3}, {"window_left": 20, "window_right": 3}),
    ("window", (-1, 0), {"window_left": -1, "window_right": 0}, {"window_left": -1, "window_right": 0}),
    ("chunk", (37,), {"chunk_size": 37}, {"chunk_size": 37}),
]


@sizes
@pytest.mark.parametrize("offset", [None, 0, -25, 60])
@pytest.mark.parametrize("name, arguments, options, rule", POSITIONS, ids=str)
def test_builders_of_positions(name, arguments, options, rule, offset, queries, keys, block_q, block_k):
    mask = getattr(block_masks, name)(queries, keys, *arguments, causal_offset=offset, block_q=block_q, block_k=block_k)
    dense = masks.position_mask(queries, keys, causal_offset=offset, **rule)
    assert (mask.block_mask == blocks_of(dense, block_q, block_k)).all()
    assert mask.options == ({**options} if offset is None else {**options, "causal_offset": offset})


@sizes
@pytest.mark.parametrize("library", LIBRARIES)
def test_dense_masks_and_predicates(library, queries, keys, block_q, block_k):
    dense = np.random.default_rng(3).random((2, 3, queries, keys)) < 0.004
    mask = ejk.block_mask(of(library, dense), block_q=block_q, block_k=block_k)
    assert type(mask.block_mask) is type(of(library, dense))
    assert (np.asarray(mask.block_mask) == blocks_of(dense, block_q, block_k)).all()
    assert (np.asarray(mask.options["attention_mask"]) == dense).all()
    like = of(library, np.zeros(1))
    by_rule = ejk.block_mask(lambda b, h, i, j: (i + b) % 50 == j + h, q_len=queries, kv_len=keys, batch=2, heads=2, block_q=block_q, block_k=block_k, like=like)
    b, h, i, j = np.ogrid[:2, :2, :queries, :keys]
    assert (np.asarray(by_rule.block_mask) == blocks_of((i + b) % 50 == j + h, block_q, block_k)).all()


def test_a_dense_mask_that_is_blocks_needs_no_mask_inside():
    dense = np.repeat(np.repeat(np.eye(3, dtype=bool), 16, 0), 32, 1)[:40, :90]
    mask = ejk.block_mask(dense, block_q=16, block_k=32)
    assert mask.options == {} and (mask.block_mask[0, 0] == np.eye(3, dtype=bool)).all()
    assert ejk.block_mask(mask) is mask and mask.density() == pytest.approx(1 / 3)


@pytest.mark.parametrize("library", LIBRARIES)
def test_documents(library):
    q = np.array([[0] * 20 + [1] * 30 + [2] * 14 + [-1] * 6, [5] * 16 + [6] * 54], np.int32)
    mask = block_masks.document(of(library, q), block_q=16, block_k=32)
    assert (np.asarray(mask.block_mask) == blocks_of(masks.segment_mask(q), 16, 32)).all()
    apart = block_masks.document(of(library, q), of(library, q[:, ::-1].copy()), block_q=16, block_k=32)
    dense = blocks_of(masks.segment_mask(q, q[:, ::-1]), 16, 32)
    assert (np.asarray(apart.block_mask) | ~dense).all()  # never less than the ids say


def test_both_and_either():
    local, causal = block_masks.local(256, 256, 0, 1), block_masks.causal(256, 256)
    both = local & causal
    assert (both.block_mask[0, 0] == np.eye(2, dtype=bool)).all() and both.options == {"causal": True}
    either = local | block_masks.strided(256, 256, 1)
    assert either.block_mask.all() and either.options == {}
    windows = block_masks.window(256, 256, 9)
    assert (windows & causal).options == {"window_left": 9, "window_right": -1, "causal": True}
    for wrong, words in [
        (lambda: windows & block_masks.window(256, 256, 8), "both masks have window_left"),
        (lambda: causal & block_masks.window(256, 256, 8, causal_offset=3), "different values of causal_offset"),
        (lambda: local | causal, "causal decide inside blocks"),
        (lambda: local & block_masks.local(256, 256, 0, block_k=64), "expected the same"),
        (lambda: block_masks.local(256, 256, 0, block_q=24), "expected a multiple of 16"),
        (lambda: ejk.block_mask(np.zeros((3, 3))), "expected bool"),
        (lambda: ejk.block_mask(lambda b, h, i, j: i == j), "needs q_len and kv_len"),
    ]:
        with pytest.raises(ejk.InputError, match=re.escape(words)):
            wrong()
    again = pickle.loads(pickle.dumps(both))
    assert (again.block_mask == both.block_mask).all() and again.options == both.options
    with pytest.raises(AttributeError, match="not changed"):
        again.block_q = 16


DENSE = [
    lambda q, k: (block_masks.local(q, k, 1, 1, block_q=16, block_k=32), {}),
    lambda q, k: (block_masks.strided(q, k, 2, block_q=16, block_k=32) & block_masks.causal(q, k, block_q=16, block_k=32), {"causal": True}),
    lambda q, k: (block_masks.window(q, k, 20, 3, block_q=16, block_k=32), {"window_left": 20, "window_right": 3}),
    lambda q, k: (block_masks.chunk(q, k, 30, block_q=16, block_k=32), {"chunk_size": 30}),
    lambda q, k: (ejk.block_mask(np.random.default_rng(5).random((2, 4, q, k)) < 0.01, block_q=16, block_k=32), {}),
]


def as_dense(mask, queries, keys, rule):
    dense = np.repeat(np.repeat(mask.block_mask, mask.block_q, 2), mask.block_k, 3)[:, :, :queries, :keys]
    dense = dense & masks.position_mask(queries, keys, **rule)
    return dense & mask.options.get("attention_mask", True)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("make", DENSE)
def test_attention_behind_the_mask(make, name):
    rng = np.random.default_rng(11)
    q, k, v = (normal(rng, (2, n, h, 32), name) for n, h in ((70, 4), (150, 2), (150, 2)))
    mask, rule = make(70, 150)
    found = ejk.blocksparse_attention(q, k, v, return_lse=True, **mask.arguments())
    out, lse = attention(q, k, v, attention_mask=as_dense(mask, 70, 150, rule))
    assert error(found.out, out) < TOLERANCE[name]
    assert error(np.where(np.isfinite(lse), found.lse, 0), np.where(np.isfinite(lse), lse, 0)) < 1e-5
    assert (np.isfinite(found.lse) == np.isfinite(lse)).all() and (found.out[~np.isfinite(lse).transpose(0, 2, 1)] == 0).all()


@needs_torch
def test_attention_of_torch_tensors():
    q, k, v = (torch.randn(1, 64, 2, 16) for _ in range(3))
    mask = block_masks.local(64, 64, 1, block_q=16, block_k=16, like=q)
    found = ejk.blocksparse_attention(q, k, v, **mask.arguments())
    dense = as_dense(block_masks.local(64, 64, 1, block_q=16, block_k=16), 64, 64, {})
    assert error(found.numpy(), attention(q.numpy(), k.numpy(), v.numpy(), attention_mask=dense)[0]) < 1e-5


@needs_jax
def test_jit_takes_and_makes_masks():
    mask = block_masks.causal(70, 90, block_q=16, block_k=32, like=jnp.zeros(1)) & block_masks.local(70, 90, 1, block_q=16, block_k=32)
    leaves = jax.tree_util.tree_leaves(mask)
    assert len(leaves) == 1 and isinstance(mask.block_mask, jax.Array)
    again = jax.jit(lambda each: each)(mask)
    assert again.options == {"causal": True} and (again.block_mask == mask.block_mask).all()
    dense = jnp.asarray(np.random.default_rng(3).random((1, 1, 70, 90)) < 0.01)
    made = jax.jit(lambda each: ejk.block_mask(each, block_q=16, block_k=32))(dense)
    assert (np.asarray(made.block_mask) == blocks_of(np.asarray(dense), 16, 32)).all() and "attention_mask" in made.options
    kept = jax.jit(lambda: ejk.block_mask(dense, block_q=16, block_k=32))()  # of a mask that is known where the function is traced
    assert (kept.block_mask == made.block_mask).all() and "attention_mask" in kept.options
    with pytest.raises(ejk.InputError, match="cannot be told"):
        jax.jit(lambda each: each.density())(made)


def test_the_pages_example_runs(capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs/helpers.md").read_text()
    code = next(each for each in re.findall(r"```python\n(.*?)```", page, re.S) if "block_masks" in each)
    exec(code, {"ejk": ejk})
    assert capsys.readouterr().out.split() == re.findall(r"print\(.*\)\s*# (.*)", code)


LENGTHS = [(40, 17), (0, 5), (33, 70), (7, 0)]  # queries and keys of packed sequences


@pytest.mark.parametrize("library", LIBRARIES)
def test_packed_masks_are_those_of_each_sequence(library):
    like = of(library, np.zeros(1, np.float32))
    each = [block_masks.causal(queries, keys, block_q=16, block_k=32, like=like) for queries, keys in LENGTHS]
    mask = block_masks.packed(each)
    assert mask.options == {"causal": True} and tuple(mask.block_mask.shape) == (4, 1, 3, 3)
    found = np.asarray(mask.block_mask)
    for number, one in enumerate(each):
        rows, columns = one.block_mask.shape[2:]
        assert (found[number, :, :rows, :columns] == np.asarray(one.block_mask)[0]).all()
        assert not found[number, :, rows:].any() and not found[number, :, :, columns:].any()


def test_packed_masks_of_different_rules_are_refused():
    local = block_masks.local(40, 40, 1)
    for others, what in (
        ([], "a mask each"),
        ([local, block_masks.causal(40, 40)], "different options"),
        ([local, block_masks.local(40, 40, 1, block_q=64)], "expected the same"),
        ([block_masks.document(np.zeros((1, 40), np.int32))], "q_segment_ids, which packed calls do not take"),
        ([block_masks.BlockMask(np.ones((1, heads, 1, 1), bool)) for heads in (2, 3)], "heads"),
        ([block_masks.BlockMask(np.ones((2, 1, 1, 1), bool))], "of each sequence"),
    ):
        with pytest.raises(ejk.InputError, match=what):
            block_masks.packed(others)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_packed_calls_are_as_calls_of_each_sequence(dtype):
    rng = np.random.default_rng(11)
    heads, kv_heads, width, spare = 4, 2, 64, 3
    ends_q, ends_k = (np.cumsum([0, *lengths]).astype(np.int32) for lengths in zip(*LENGTHS))
    draw = lambda tokens, count: rng.standard_normal((tokens, count, width)).astype(dtype)
    q, dout = draw(ends_q[-1] + spare, heads), draw(ends_q[-1] + spare, heads)
    k, v = draw(ends_k[-1] + spare, kv_heads), draw(ends_k[-1] + spare, kv_heads)
    for tensor, end in ((q, ends_q[-1]), (dout, ends_q[-1]), (k, ends_k[-1]), (v, ends_k[-1])):
        tensor[end:] = np.nan  # of no sequence
    blocks = rng.random((4, heads, 3, 3)) < 0.6
    options = {"block_q": 16, "block_k": 32, "causal": True}
    packed = {"cum_seqlens_q": ends_q, "cum_seqlens_k": ends_k, "block_mask": blocks, **options}
    out, lse = ejk.blocksparse_attention(q, k, v, return_lse=True, **packed)[:2]
    grads = ejk.blocksparse_attention_bwd(q, k, v, out, lse, dout, **packed)
    assert (out[ends_q[-1] :] == 0).all() and (lse[:, ends_q[-1] :] == -np.inf).all()
    for gradient, end in ((grads.dq, ends_q[-1]), (grads.dk, ends_k[-1]), (grads.dv, ends_k[-1])):
        assert (gradient[end:] == 0).all()
    for number, (queries, keys) in enumerate(LENGTHS):
        of_q, of_k = (slice(ends[number], ends[number + 1]) for ends in (ends_q, ends_k))
        own = {"block_mask": blocks[number : number + 1, :, : -(-queries // 16), : -(-keys // 32)].copy(), **options}
        one = q[None, of_q], k[None, of_k], v[None, of_k]
        alone = ejk.blocksparse_attention(*one, return_lse=True, **own)
        back = ejk.blocksparse_attention_bwd(*one, alone.out, alone.lse, dout[None, of_q], **own)
        for mine, other in ((out[of_q], alone.out), (grads.dq[of_q], back.dq), (grads.dk[of_k], back.dk), (grads.dv[of_k], back.dv)):
            assert mine.size == 0 or error(mine, other[0]) < 2 * TOLERANCE[dtype]
        assert np.allclose(lse[:, of_q], alone.lse[0], atol=1e-3)
