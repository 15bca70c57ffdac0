"""Sequences of several lengths laid end to end, described by cum_seqlens [N + 1]: sequence n holds tokens cum_seqlens[n] up to
cum_seqlens[n + 1]. Arrays are NumPy's or JAX's, also inside jax.jit, where the sizes of results (`total`, `count`) must be given.

    cum_seqlens = numpy.array([0, 3, 4, 8, 10])
    ejk.sequences.lens(cum_seqlens)               # [3, 1, 4, 2]
    ejk.sequences.chunk_indices(cum_seqlens, 2)   # [[0, 0], [0, 1], [1, 0], [2, 0], [2, 1], [3, 0]]

Indices are int32. Rows behind the last token or chunk are -1. Offsets must begin at 0 and never fall: that is checked wherever they are read on
the host, which JAX's are only if the size of the result follows from them. docs/semantics.md, "Masks and sequence helpers".
"""

from __future__ import annotations

import functools

from ._array_namespace import integers, known, namespace, size
from ._errors import InputError

Array = object  # in annotations: NumPy's or JAX's

__all__ = [
    "chunk_indices",
    "chunk_offsets",
    "cum_seqlens_from_lens",
    "cum_seqlens_from_mask",
    "cumsum",
    "lens",
    "lens_from_mask",
    "position_ids",
    "sequence_ids",
    "token_indices",
]


def _check(offsets):
    """Of offsets whose values are known."""
    if offsets[0] != 0:
        raise InputError(f"cum_seqlens begins with {offsets[0]}; expected 0")
    falls = (offsets[1:] < offsets[:-1]).nonzero()[0]
    if falls.size:
        at = falls[0]
        raise InputError(f"cum_seqlens falls from {offsets[at]} to {offsets[at + 1]} at [{at + 1}]; expected offsets that do not decrease")


def _offsets(cum_seqlens):
    """(its library, the offsets), checked if they are NumPy's."""
    xp = namespace(cum_seqlens)
    offsets = integers(xp, cum_seqlens, "cum_seqlens", 1)
    if offsets.size == 0:
        raise InputError("cum_seqlens is empty; expected N + 1 offsets, [0] for no sequence")
    if xp.__name__ == "numpy":
        _check(offsets)
    return xp, offsets


def _extent(offsets, given, name):
    """The size of a result: as given, or the last offset."""
    if given is not None:
        extent = size(given, name)
        if type(offsets).__module__ == "numpy" and extent < offsets[-1]:
            raise InputError(f"{name} is {extent}; expected at least {offsets[-1]}, the last offset")
        return extent
    values = known(offsets)
    if values is None:
        raise InputError(f"inside jax.jit the size of the result is not known: give {name}")
    _check(values)
    return int(values[-1])


def _places(xp, offsets, extent):
    """(number of the part that each of `extent` elements is in, its place there); -1 behind the last part."""
    elements = xp.arange(extent, dtype=xp.int32)
    part = xp.searchsorted(offsets[1:], elements, side="right").astype(xp.int32)  # an empty part has no element, and keeps its number
    inside = part < offsets.size - 1
    start = offsets[xp.where(inside, part, 0)]
    return xp.where(inside, part, -1), xp.where(inside, elements - start, -1)


def lens(cum_seqlens: Array) -> Array:
    """[N]: tokens of each sequence."""
    _, offsets = _offsets(cum_seqlens)
    return offsets[1:] - offsets[:-1]


def _offsets_of(xp, counts):
    zero = xp.zeros((1,), xp.int32)
    return xp.concatenate([zero, xp.cumsum(counts, dtype=xp.int32)])


def cum_seqlens_from_lens(lens: Array) -> Array:
    """[N + 1] of the lengths [N]."""
    xp = namespace(lens)
    counts = integers(xp, lens, "lens", 1)
    if xp.__name__ == "numpy" and counts.size and counts.min() < 0:
        raise InputError(f"lens has {counts.min()} at [{counts.argmin()}]; expected no negative length")
    if xp.__name__ == "numpy" and counts.sum(dtype=xp.int64) > 0x7FFFFFFF:
        raise InputError(f"lens has {counts.sum(dtype=xp.int64)} tokens in all; expected at most 2^31 - 1")
    return _offsets_of(xp, counts)


def lens_from_mask(mask: Array) -> Array:
    """[B]: how many tokens of each row of the bool mask [B, S] count."""
    xp = namespace(mask)
    mask = xp.asarray(mask)
    if mask.ndim != 2 or mask.dtype != bool:
        raise InputError(f"mask has shape {list(mask.shape)} of {mask.dtype}; expected bool [B, S]")
    return xp.sum(mask, axis=1, dtype=xp.int32)


def cum_seqlens_from_mask(mask: Array) -> Array:
    """[B + 1]: offsets of the rows' tokens that count, laid end to end; mask is bool [B, S]."""
    return cum_seqlens_from_lens(lens_from_mask(mask))


def position_ids(cum_seqlens: Array, total: int | None = None) -> Array:
    """[total]: the place of each token in its sequence. total: tokens in all, None: as many as cum_seqlens says."""
    xp, offsets = _offsets(cum_seqlens)
    return _places(xp, offsets, _extent(offsets, total, "total"))[1]


def sequence_ids(cum_seqlens: Array, total: int | None = None) -> Array:
    """[total]: the sequence of each token, which serves as its segment id too."""
    xp, offsets = _offsets(cum_seqlens)
    return _places(xp, offsets, _extent(offsets, total, "total"))[0]


def token_indices(cum_seqlens: Array, total: int | None = None) -> Array:
    """[total, 2]: (sequence, place in it) of each token."""
    xp, offsets = _offsets(cum_seqlens)
    return xp.stack(_places(xp, offsets, _extent(offsets, total, "total")), axis=1)


def chunk_offsets(cum_seqlens: Array, chunk_size: int) -> Array:
    """[N + 1]: chunks before each sequence, where each is cut into chunks of chunk_size tokens of its own, and after the last."""
    xp, offsets = _offsets(cum_seqlens)
    chunk = size(chunk_size, "chunk_size", 1)
    lengths = offsets[1:] - offsets[:-1]
    return _offsets_of(xp, lengths // chunk + (lengths % chunk > 0))


def chunk_indices(cum_seqlens: Array, chunk_size: int, count: int | None = None) -> Array:
    """[count, 2]: (sequence, number in it) of each chunk. count: rows, None: as many as there are chunks; T // chunk_size + N is always enough."""
    offsets = chunk_offsets(cum_seqlens, chunk_size)
    xp = namespace(offsets)
    return xp.stack(_places(xp, offsets, _extent(offsets, count, "count")), axis=1)


def _parts(xp, tokens, chunk_size, cum_seqlens):
    """The number of each token's part, a chunk or sequence of its own; -1 behind the last sequence."""
    if cum_seqlens is None:
        place = xp.arange(tokens, dtype=xp.int32)
        return place // chunk_size if chunk_size else xp.zeros_like(place)
    sequence, place = _places(xp, xp.asarray(cum_seqlens), tokens)
    if not chunk_size:
        return sequence
    first = place % chunk_size == 0
    return xp.where(sequence < 0, -1, xp.cumsum(first, dtype=xp.int32) - 1)


def _sums(xp, x, part, reverse):
    """Along axis 0, each part by itself: nothing of one reaches the next, infinities included."""
    differs, end = part[1:] != part[:-1], xp.ones((1,), bool)
    if xp.__name__ == "numpy":
        sums, edges = xp.empty_like(x), [0, *(xp.nonzero(differs)[0] + 1), len(x)]
        for begin, end in zip(edges, edges[1:]):
            piece = x[begin:end][::-1] if reverse else x[begin:end]
            sums[begin:end] = xp.cumsum(piece, axis=0, dtype=x.dtype)[:: -1 if reverse else 1]
        return sums
    starts = xp.concatenate([differs, end] if reverse else [end, differs]).reshape((-1,) + (1,) * (x.ndim - 1))
    return _scan(reverse)(xp.broadcast_to(starts, x.shape), x)


@functools.lru_cache(maxsize=None)
def _scan(reverse):
    """Sums in JAX that begin anew where `starts` says so: one program, as eager calls of its many operations would each be compiled."""
    import jax

    def joined(a, b):
        return a[0] | b[0], jax.numpy.where(b[0], b[1], a[1] + b[1])

    return jax.jit(lambda starts, x: jax.lax.associative_scan(joined, (starts, x), reverse=reverse)[1])


def cumsum(x: Array, *, chunk_size: int = 0, cum_seqlens: Array | None = None, reverse: bool = False, axis: int = 1) -> Array:
    """Cumulative sum of x [B, T, ...] over its tokens, of each sequence by itself.

    chunk_size: above 0, the sum begins anew with each chunk of so many tokens of a sequence, the last of which may be shorter. cum_seqlens:
    sequences laid end to end along the axis; tokens behind the last give 0. reverse: from the end of each chunk or sequence. axis: the tokens'.
    Floats of 16 bits and less are summed in float32 and rounded once; other types are summed as they are, bool as int32."""
    xp = namespace(x, cum_seqlens)
    x, chunk = xp.asarray(x), size(chunk_size, "chunk_size")
    if not -x.ndim <= axis < x.ndim:
        raise InputError(f"axis is {axis}; expected an axis of x, which has shape {list(x.shape)}")
    made = xp.dtype("int32") if x.dtype == bool else x.dtype
    wide = xp.dtype("float32") if made.itemsize <= 2 and made.kind not in "iu" else made
    moved, tokens = xp.moveaxis(x, axis, 0).astype(wide), x.shape[axis]
    if cum_seqlens is not None:
        _, cum_seqlens = _offsets(cum_seqlens)
        _extent(cum_seqlens, tokens, "the tokens' axis of x")
    if moved.size == 0:
        return x.astype(made)
    part = _parts(xp, tokens, chunk, cum_seqlens)
    inside = (part >= 0).reshape((-1,) + (1,) * (moved.ndim - 1))
    sums = xp.where(inside, _sums(xp, moved, part, reverse), xp.zeros((), wide))
    return xp.moveaxis(sums.astype(made), 0, axis)
