"""ejk.sequences and ejk.masks against plain loops, with NumPy and JAX arrays, eagerly and inside jax.jit."""

import functools
import pathlib
import pickle
import re

import numpy
import pytest

import ejk
from ejk import masks, sequences

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None

needs_jax = pytest.mark.skipif(jax is None, reason="needs JAX")
LIBRARIES = ["numpy", pytest.param("jax", marks=needs_jax), pytest.param("jit", marks=needs_jax)]
# Of sequences: the example of docs/semantics.md, none, one without tokens, empty ones first, last and between, odd lengths.
OFFSETS = [[0, 3, 4, 8, 10], [0], [0, 0], [0, 0, 0, 5, 5, 5, 12, 12], [0, 1], [0, 7, 7, 8, 37, 37], [0, 64, 65, 128]]
CHUNKS = [1, 2, 3, 7, 64, 2**31 - 1]
COMPUTED = ["numpy", pytest.param("jit", marks=needs_jax)]  # where many sizes are met: eager JAX would compile each operation for each
ids = functools.partial(pytest.mark.parametrize, "offsets", OFFSETS, ids=str)


def run(library, function, *arrays, **options):
    """function's result as NumPy arrays, computed by that library."""
    if library == "numpy":
        result = function(*[each if each is None else numpy.asarray(each) for each in arrays], **options)
        leaves = result if isinstance(result, tuple) else (result,)
        assert all(type(each) is numpy.ndarray for each in leaves)
        return result
    given = [each if each is None else jnp.asarray(each) for each in arrays]
    called = functools.partial(function, **options)
    result = (jax.jit(called) if library == "jit" else called)(*given)
    assert all(isinstance(each, jax.Array) for each in jax.tree.leaves(result))
    return jax.tree.map(numpy.asarray, result)


def parts(offsets, chunk=0):
    """[(sequence, chunk in it, first token, end)] in order."""
    found = []
    for n, (begin, end) in enumerate(zip(offsets, offsets[1:])):
        step = chunk or max(end - begin, 1)
        found += [(n, c, b, min(b + step, end)) for c, b in enumerate(range(begin, end, step))]
    return found


def same(found, expected):
    assert found.dtype == numpy.int32
    numpy.testing.assert_array_equal(found, numpy.asarray(expected, numpy.int32).reshape(found.shape))


@pytest.mark.parametrize("library", LIBRARIES)
@ids()
def test_tokens(library, offsets, more=5):
    total = offsets[-1] + more
    sequence, place = [-1] * total, [-1] * total
    for n, _, begin, end in parts(offsets):
        for t in range(begin, end):
            sequence[t], place[t] = n, t - begin
    same(run(library, sequences.lens, offsets), [b - a for a, b in zip(offsets, offsets[1:])])
    same(run(library, sequences.sequence_ids, offsets, total=total), sequence)
    same(run(library, sequences.position_ids, offsets, total=total), place)
    pairs = run(library, sequences.token_indices, offsets, total=total)
    assert pairs.shape == (total, 2)
    same(pairs, list(zip(sequence, place)))
    if library != "jit":  # the size follows from the offsets
        same(run(library, sequences.position_ids, offsets), place[: offsets[-1]])


@pytest.mark.parametrize("library", COMPUTED)
@ids()
@pytest.mark.parametrize("chunk", CHUNKS)
def test_chunks(library, offsets, chunk, more=3):
    cut = [(n, c) for n, c, _, _ in parts(offsets, chunk)]
    counts = [sum(n == each for each, _ in cut) for n in range(len(offsets) - 1)]
    same(run(library, sequences.chunk_offsets, offsets, chunk_size=chunk), numpy.cumsum([0, *counts]))
    rows = run(library, sequences.chunk_indices, offsets, chunk_size=chunk, count=len(cut) + more)
    same(rows, cut + [(-1, -1)] * more)
    enough = offsets[-1] // chunk + len(offsets) - 1
    assert enough >= len(cut)
    if library != "jit":
        assert run(library, sequences.chunk_indices, offsets, chunk_size=chunk).shape == (len(cut), 2)


def test_the_example_of_the_semantics():
    offsets = numpy.array([0, 3, 4, 8, 10])
    assert sequences.lens(offsets).tolist() == [3, 1, 4, 2]
    assert sequences.position_ids(offsets).tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 0, 1]
    assert sequences.sequence_ids(offsets).tolist() == [0, 0, 0, 1, 2, 2, 2, 2, 3, 3]
    assert sequences.chunk_indices(offsets, 2).tolist() == [[0, 0], [0, 1], [1, 0], [2, 0], [2, 1], [3, 0]]
    assert sequences.chunk_offsets(offsets, 2).tolist() == [0, 2, 3, 5, 6]


@pytest.mark.parametrize("library", LIBRARIES)
def test_offsets_of_lengths_and_masks(library):
    mask = numpy.array([[1, 1, 0], [0, 0, 0], [1, 0, 1]], bool)
    same(run(library, sequences.lens_from_mask, mask), [2, 0, 2])
    same(run(library, sequences.cum_seqlens_from_mask, mask), [0, 2, 2, 4])
    same(run(library, sequences.cum_seqlens_from_mask, numpy.zeros((0, 4), bool)), [0])
    same(run(library, sequences.cum_seqlens_from_lens, numpy.array([0, 5, 0, 1], numpy.int32)), [0, 0, 5, 5, 6])


def summed(x, tokens, reverse):
    """Of x [T, ...] along these tokens, in float64."""
    total, out = 0, {}
    for t in reversed(tokens) if reverse else tokens:
        with numpy.errstate(invalid="ignore"):
            total = total + x[t]
        out[t] = total
    return out


def cumsum_reference(x, offsets, chunk, reverse):
    out = numpy.zeros(x.shape)
    for _, _, begin, end in parts(offsets, chunk):
        for t, value in summed(x.astype(numpy.float64), range(begin, end), reverse).items():
            out[t] = value
    return out


SHAPES = [(0, ()), (0, (2,)), (1, (3,)), (-2, (2, 3))]  # the tokens' axis and the other dimensions


@pytest.mark.parametrize("library", COMPUTED)
@ids()
@pytest.mark.parametrize("chunk", [0, 1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum_of_packed_sequences(library, offsets, chunk, reverse):
    for axis, shape in SHAPES if library == "numpy" else SHAPES[OFFSETS.index(offsets) % 4 :][:1]:
        check_cumsum(library, offsets, chunk, reverse, axis, shape)


def check_cumsum(library, offsets, chunk, reverse, axis, shape):
    total = offsets[-1] + 2
    x = numpy.random.default_rng(1).standard_normal((total, *shape)).astype(numpy.float32)
    expected = cumsum_reference(x, offsets, chunk, reverse)
    found = run(library, lambda x, o: sequences.cumsum(x, chunk_size=chunk, cum_seqlens=o, reverse=reverse, axis=axis),
                numpy.moveaxis(x, 0, axis), offsets)  # fmt: skip
    assert found.dtype == numpy.float32
    numpy.testing.assert_allclose(numpy.moveaxis(found, axis, 0), expected, rtol=1e-5, atol=1e-5)
    assert not numpy.moveaxis(found, axis, 0)[offsets[-1] :].any()


@pytest.mark.parametrize("library", COMPUTED)
@pytest.mark.parametrize("tokens", [0, 1, 13])
@pytest.mark.parametrize("chunk", [0, 1, 4, 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum_of_a_batch(library, tokens, chunk, reverse):
    x = numpy.random.default_rng(2).integers(-9, 9, (2, tokens, 3)).astype(numpy.int32)
    expected = cumsum_reference(numpy.moveaxis(x, 1, 0), [0, tokens], chunk, reverse)
    found = run(library, lambda x: sequences.cumsum(x, chunk_size=chunk, reverse=reverse), x)
    same(found, numpy.moveaxis(expected, 0, 1))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("reverse", [False, True])
def test_nothing_of_a_sequence_reaches_the_next(library, reverse):
    """Log gates may be -inf; large sums of one sequence take no digits from another."""
    x = numpy.array([[-numpy.inf, 1, 1, 3e38, 3e38, 0.125, numpy.nan, 2]], numpy.float32)
    found = run(library, lambda x, o: sequences.cumsum(x, cum_seqlens=o, reverse=reverse), x, [0, 1, 3, 5, 6, 7, 8])
    with numpy.errstate(over="ignore"):
        infinite = numpy.float32(3e38) + numpy.float32(3e38)
    middle = [2, 1, infinite, 3e38] if reverse else [1, 2, 3e38, infinite]
    numpy.testing.assert_array_equal(found, numpy.array([[-numpy.inf, *middle, 0.125, numpy.nan, 2]], numpy.float32))


@pytest.mark.parametrize("library", LIBRARIES)
def test_16_bit_sums_are_rounded_once(library):
    x = numpy.full((1, 3000), 1, numpy.float16)  # 2048 + 1 is 2048 in float16
    found = run(library, sequences.cumsum, x)
    assert found.dtype == numpy.float16 and found[0, -1] == 3000


@needs_jax
def test_cumsum_has_a_gradient():
    offsets, weights = jnp.array([0, 2, 2, 5]), jnp.arange(1.0, 7.0)
    slope = jax.grad(lambda x: (sequences.cumsum(x, cum_seqlens=offsets, axis=0) * weights).sum())(jnp.ones(6))
    numpy.testing.assert_array_equal(slope, [3, 2, 12, 9, 5, 0])  # the sum over later weights of the sequence; 0 behind the last


@pytest.mark.parametrize("call, words", [
    (lambda: sequences.lens(numpy.array([1, 2])), "begins with 1"),
    (lambda: sequences.lens(numpy.array([0, 4, 3])), r"falls from 4 to 3 at \[2\]"),
    (lambda: sequences.lens(numpy.array([], numpy.int32)), "is empty"),
    (lambda: sequences.lens(numpy.array([[0, 1]])), "expected 1 dimension"),
    (lambda: sequences.lens(numpy.array([0.0, 1.0])), "expected integers"),
    (lambda: sequences.lens(numpy.array([0, 2**31])), "32 bits"),
    (lambda: sequences.position_ids(numpy.array([0, 4]), 3), "total is 3; expected at least 4"),
    (lambda: sequences.position_ids(numpy.array([0, 4]), -1), "total is -1"),
    (lambda: sequences.chunk_indices(numpy.array([0, 4]), 0), "chunk_size is 0; expected 1"),
    (lambda: sequences.chunk_indices(numpy.array([0, 4]), 2.5), "expected an integer"),
    (lambda: sequences.chunk_indices(numpy.array([0, 4]), 2, 1), "count is 1; expected at least 2"),
    (lambda: sequences.cum_seqlens_from_lens(numpy.array([1, -1])), r"-1 at \[1\]"),
    (lambda: sequences.cum_seqlens_from_lens(numpy.array([2**30] * 2)), "in all"),
    (lambda: sequences.lens_from_mask(numpy.ones((2, 3))), "expected bool"),
    (lambda: sequences.cumsum(numpy.ones(3)), "axis is 1"),
    (lambda: sequences.cumsum(numpy.ones((1, 3)), cum_seqlens=numpy.array([0, 4])), "tokens' axis of x is 3; expected at least 4"),
])  # fmt: skip
def test_what_is_wrong_is_named(call, words):
    with pytest.raises(ejk.InputError, match=words):
        call()


def test_arrays_of_others_are_refused():
    class Other:
        pass

    with pytest.raises(TypeError, match="NumPy or JAX"):
        sequences.lens(Other())


@needs_jax
def test_sizes_must_be_known_inside_jit():
    for function in (sequences.position_ids, sequences.sequence_ids, sequences.token_indices):
        with pytest.raises(ejk.InputError, match="give total"):
            jax.jit(function)(jnp.array([0, 4]))
    with pytest.raises(ejk.InputError, match="give count"):
        jax.jit(lambda o: sequences.chunk_indices(o, 2))(jnp.array([0, 4]))
    with pytest.raises(ejk.InputError, match="being traced"):
        jax.jit(lambda o, total: sequences.position_ids(o, total))(jnp.array([0, 4]), 4)
    with pytest.raises(ejk.InputError, match="falls"):
        sequences.position_ids(jnp.array([0, 4, 2]))


# Masks


def dense(q, k, allows):
    return numpy.array([[[[allows(b, i, j) for j in range(k)] for i in range(q)]] for b in range(2)], bool).reshape(2, 1, q, k)


@pytest.mark.parametrize("library", COMPUTED)
@pytest.mark.parametrize("q_len, kv_len", [(5, 5), (3, 7), (7, 3), (0, 3), (3, 0)])
@pytest.mark.parametrize("rule", [
    {"causal": True}, {"causal": True, "causal_offset": 0}, {"causal": True, "causal_offset": -2}, {"window_left": 0, "window_right": 0},
    {"window_left": 1}, {"window_right": 2}, {"causal": True, "window_left": 2, "window_right": 5}, {"chunk_size": 2},
    {"chunk_size": 3, "causal_offset": 1}, {"causal": True, "causal_offset": 2**30, "window_left": 2**31 - 1}, {},
])  # fmt: skip
def test_masks_by_position(library, q_len, kv_len, rule):
    offset = rule.get("causal_offset", kv_len - q_len)
    left, right, chunk = rule.get("window_left", -1), rule.get("window_right", -1), rule.get("chunk_size", 0)

    def allows(b, i, j):
        at = i + offset
        return ((not (rule.get("causal") or chunk) or j <= at) and (left < 0 or j >= at - left) and (right < 0 or j <= at + right)
                and (not chunk or at // chunk == j // chunk))  # fmt: skip

    found = run(library, lambda like: masks.position_mask(q_len, kv_len, like=like, **rule), numpy.zeros(1))
    assert found.shape == (1, 1, q_len, kv_len) and found.dtype == bool
    numpy.testing.assert_array_equal(numpy.repeat(found, 2, 0), dense(q_len, kv_len, allows))


@pytest.mark.parametrize("library", LIBRARIES)
def test_masks_by_position_with_an_offset_a_row(library):
    offsets = numpy.array([-1, 3], numpy.int32)
    found = run(library, lambda o: masks.position_mask(4, 6, causal=True, window_left=2, causal_offset=o), offsets)
    numpy.testing.assert_array_equal(found, dense(4, 6, lambda b, i, j: i + offsets[b] - 2 <= j <= i + offsets[b]))


@pytest.mark.parametrize("library", LIBRARIES)
def test_masks_of_segments_types_and_lengths(library):
    q, k = numpy.array([[0, 0, 1, -1], [2, -3, 2, 0]]), numpy.array([[0, 1, 1, -1, 7], [2, 2, -3, 0, 0]])
    numpy.testing.assert_array_equal(run(library, masks.segment_mask, q, k), dense(4, 5, lambda b, i, j: q[b, i] == k[b, j] and q[b, i] >= 0))
    numpy.testing.assert_array_equal(run(library, masks.segment_mask, q), dense(4, 4, lambda b, i, j: q[b, i] == q[b, j] and q[b, i] >= 0))
    for policy in ("q", "kv", "both", "none"):
        found = run(library, masks.token_type_mask, q, k, zero_policy=policy)
        numpy.testing.assert_array_equal(found, dense(4, 5, lambda b, i, j: q[b, i] == k[b, j] and (policy == "none" or q[b, i] != 0)))
    lengths = numpy.array([0, 4])
    found = run(library, masks.kv_length_mask, lengths, q_len=3, kv_len=5)
    numpy.testing.assert_array_equal(found, dense(3, 5, lambda b, i, j: j < lengths[b]))


@pytest.mark.parametrize("library", COMPUTED)
@pytest.mark.parametrize("q_len, kv_len", [(6, 6), (5, 9), (9, 4), (1, 1), (0, 3), (3, 0)])
def test_segments_to_dense_and_back(library, q_len, kv_len):
    random = numpy.random.default_rng(q_len * 16 + kv_len)
    for _ in range(8 if library == "numpy" else 1):
        mask = masks.segment_mask(random.integers(-1, 4, (2, q_len)), random.integers(-1, 4, (2, kv_len)))
        q, k = run(library, masks.segments_from_mask, mask, check=library != "jit")
        assert q.dtype == k.dtype == numpy.int32 and q.shape == (2, q_len) and k.shape == (2, kv_len)
        numpy.testing.assert_array_equal(masks.segment_mask(q, k), mask)
        for each in k:  # ids count up by the first key, and padding is -1
            seen = [number for number in dict.fromkeys(each.tolist()) if number >= 0]
            assert seen == list(range(len(seen))) and each.min(initial=-1) >= -1


@pytest.mark.parametrize("library", ["numpy", pytest.param("jax", marks=needs_jax)])
def test_masks_that_segments_cannot_say(library):
    causal = numpy.tri(4, dtype=bool)
    overlapping = numpy.array([[1, 1, 0], [0, 1, 1], [0, 1, 1]], bool)
    per_head = numpy.stack([numpy.eye(3, dtype=bool), numpy.ones((3, 3), bool)])[None]
    for mask in (causal, overlapping, per_head):
        with pytest.raises(ejk.InputError, match="no union of rectangles"):
            run(library, masks.segments_from_mask, mask)
    same_heads = numpy.repeat(numpy.eye(3, dtype=bool)[None, None], 2, 1)
    assert run(library, masks.segments_from_mask, same_heads)[0].tolist() == [[0, 1, 2]]


@needs_jax
def test_segments_of_a_traced_mask_must_be_asked_for_unchecked():
    whole = jnp.ones((1, 1, 2, 2), bool)
    for traced in (lambda: jax.jit(masks.segments_from_mask)(whole), lambda: jax.jit(lambda: masks.segments_from_mask(whole))()):
        with pytest.raises(ejk.InputError, match="check=False"):
            traced()


@pytest.mark.parametrize("library", LIBRARIES)
def test_mask_info(library):
    ids_, types = numpy.array([[0, 0, 0, 1, 1, -1]]), numpy.array([[0, 5, 5, 0, 5, 5]])
    lengths = numpy.array([4])

    def build(ids_, types, lengths):
        info = masks.MaskInfo.from_segments(ids_)
        each = [info.apply_causal(), info.apply_sliding_window(1, 0), info.apply_chunked(2), info.apply_kv_lengths(lengths),
                info.apply_token_type_ids(types), info.apply_token_type_ids(types, combine="intersect"),
                info.apply_token_type_ids(types, combine="replace"), info.apply_causal().apply_kv_lengths(lengths)]  # fmt: skip
        return tuple(one.get_or_compute_attention_mask() for one in each)

    found = run(library, build, ids_, types, lengths)
    segment = lambda i, j: ids_[0, i] == ids_[0, j] >= 0  # noqa: E731
    type_ = lambda i, j: types[0, i] == types[0, j] != 0  # noqa: E731
    rules = [lambda i, j: segment(i, j) and j <= i, lambda i, j: segment(i, j) and i - 1 <= j <= i,
             lambda i, j: segment(i, j) and j <= i and i // 2 == j // 2, lambda i, j: segment(i, j) and j < 4,
             lambda i, j: segment(i, j) or type_(i, j), lambda i, j: segment(i, j) and type_(i, j), type_,
             lambda i, j: segment(i, j) and j <= i and j < 4]  # fmt: skip
    for mask, rule in zip(found, rules, strict=True):
        numpy.testing.assert_array_equal(mask, dense(6, 6, lambda b, i, j: rule(i, j))[:1])


def test_mask_info_is_what_it_was_made_of():
    info = masks.MaskInfo.from_cu_seqlens(numpy.array([0, 2, 2, 3]), q_len=4)
    assert info.q_segment_ids.tolist() == [[0, 0, 2, -1]] and (info.q_len, info.kv_len) == (4, 4)
    assert set(info.arguments()) == {"q_segment_ids", "kv_segment_ids"}
    assert [each.tolist() for each in info.get_or_compute_segment_ids()] == [[[0, 0, 2, -1]]] * 2
    both = info.apply_causal()
    assert set(both.arguments()) == {"attention_mask", "q_segment_ids", "kv_segment_ids"}
    with pytest.raises(ejk.InputError, match="no union"):
        both.get_or_compute_segment_ids()
    cut = info.apply_kv_lengths(numpy.array([1])).get_or_compute_segment_ids()
    numpy.testing.assert_array_equal(masks.segment_mask(*cut), info.apply_kv_lengths(numpy.array([1])).get_or_compute_attention_mask())
    with pytest.raises(AttributeError, match="not changed"):
        info.q_segment_ids = None
    again = pickle.loads(pickle.dumps(both))
    assert all((again.arguments()[name] == each).all() for name, each in both.arguments().items())
    for wrong in ({}, {"q_segment_ids": [[0]]}, {"attention_mask": numpy.ones((1, 1, 2, 2), bool), "q_segment_ids": [[0]], "kv_segment_ids": [[0]]}):
        with pytest.raises(ejk.InputError):
            masks.MaskInfo(**wrong)


@needs_jax
def test_mask_info_goes_through_jit():
    info = masks.MaskInfo.from_segments(jnp.array([[0, 0, 1]]))
    made = jax.jit(lambda info: info.apply_causal())(info)
    assert isinstance(made, masks.MaskInfo)
    numpy.testing.assert_array_equal(made.get_or_compute_attention_mask()[0, 0], [[1, 0, 0], [1, 1, 0], [0, 0, 1]])


def test_attention_takes_a_mask_info():
    random = numpy.random.default_rng(3)
    q, k, v = (random.standard_normal((1, 6, 2, 16)).astype(numpy.float32) for _ in range(3))
    info = masks.MaskInfo.from_cu_seqlens(numpy.array([0, 2, 5]), q_len=6)
    numpy.testing.assert_allclose(
        ejk.flash_attention(q, k, v, **info.apply_causal(offset=0).arguments()),
        ejk.flash_attention(q, k, v, causal=True, causal_offset=0, **info.arguments()),
        rtol=1e-5,
        atol=1e-6,
    )
    by_mask = ejk.flash_attention(q, k, v, attention_mask=info.get_or_compute_attention_mask())
    numpy.testing.assert_allclose(by_mask, ejk.flash_attention(q, k, v, **info.arguments()), rtol=1e-5, atol=1e-6)


def test_the_example_of_the_page_runs(capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs/helpers.md").read_text()
    example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    exec(example, {})
    promised = re.findall(r"^(?:print|cum_seqlens).*# (.*)$", example, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == promised[1:] and promised[0] == "[0, 3, 3, 8]"
