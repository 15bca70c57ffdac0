"""Masks of attention: bool arrays [B or 1, 1, Sq, Sk], True where a query sees a key, and the segment ids that say some of them shorter. Arrays
are NumPy's or JAX's, also inside jax.jit.

    info = ejk.masks.MaskInfo.from_segments(segment_ids).apply_causal()
    out = ejk.flash_attention(q, k, v, **info.arguments())

What each means is in docs/semantics.md, "Visibility" and "Masks and sequence helpers". Kernels compute causal, window and segments by themselves, for
less than a mask costs: these are for what they have no word for, and to compare with.
"""

from __future__ import annotations

import sys

from . import sequences
from ._array_namespace import integers, is_traced, known, namespace, size
from ._errors import InputError

Array = object  # in annotations: NumPy's or JAX's
_FARTHEST = 1 << 30  # an offset of the diagonal: sums with places stay within 32 bits

__all__ = ["MaskInfo", "kv_length_mask", "position_mask", "segment_mask", "segments_from_mask", "token_type_mask"]


def _pair(queries, keys, what):
    """(library, queries' [B, Sq], keys' [B, Sk]); keys None: the queries'."""
    xp = namespace(queries, keys)
    q = integers(xp, queries, f"q_{what}", 2)
    k = q if keys is None else integers(xp, keys, f"kv_{what}", 2)
    if len({len(q), len(k)} - {1}) > 1:
        raise InputError(f"q_{what} has {len(q)} rows, kv_{what} {len(k)}; expected as many, or 1")
    return xp, q, k


def segment_mask(q_segment_ids: Array, kv_segment_ids: Array | None = None) -> Array:
    """[B, 1, Sq, Sk] of ids [B, Sq] and [B, Sk] (None: the queries'): True where they are equal and not negative."""
    _, q, k = _pair(q_segment_ids, kv_segment_ids, "segment_ids")
    return ((q[:, :, None] == k[:, None, :]) & (q >= 0)[:, :, None])[:, None]


def position_mask(
    q_len: int,
    kv_len: int,
    *,
    causal: bool = False,
    causal_offset: int | Array | None = None,
    window_left: int = -1,
    window_right: int = -1,
    chunk_size: int = 0,
    like: Array | None = None,
) -> Array:
    """[B or 1, 1, q_len, kv_len] by where query and key stand: causal and windows as the kernels have them; chunk_size above 0: query i at
    i + offset and key j in the same chunk of so many places, and causal. causal_offset: an int, or one a row of the batch, [B]; None:
    kv_len - q_len. like: an array of the library that the result is to be of; None: causal_offset's."""
    q_len, kv_len, chunk = size(q_len, "q_len"), size(kv_len, "kv_len"), size(chunk_size, "chunk_size")
    for name, value in (("window_left", window_left), ("window_right", window_right)):
        size(value, name, -1)
    xp = namespace(like, causal_offset)
    offset = xp.asarray(kv_len - q_len if causal_offset is None else causal_offset)
    offset = integers(xp, offset, "causal_offset", 1 if offset.ndim else 0)
    if not is_traced(offset) and offset.size and abs(known(offset).astype("int64")).max() > _FARTHEST:
        raise InputError(f"causal_offset is {causal_offset!r:.80}; expected -2^30 to 2^30")
    i, j = xp.arange(q_len)[:, None] + offset.reshape(-1, 1, 1, 1), xp.arange(kv_len)
    after, seen = j - i, xp.ones((len(i), 1, q_len, kv_len), bool)  # how far behind the query's diagonal the key is
    if causal or chunk:
        seen &= after <= 0
    if window_left >= 0:
        seen &= after >= -window_left
    if window_right >= 0:
        seen &= after <= window_right
    if chunk:
        seen &= i // chunk == j // chunk
    return seen


def token_type_mask(q_types: Array, kv_types: Array | None = None, *, zero_policy: str = "q") -> Array:
    """[B, 1, Sq, Sk] of token types [B, Sq] and [B, Sk] (None: the queries'): True where they are equal. Type 0 is that of ordinary tokens:
    zero_policy "q": queries of it match nothing; "kv": keys of it; "both": either; "none": it is a type like others."""
    if zero_policy not in ("q", "kv", "both", "none"):
        raise InputError(f"zero_policy is {zero_policy!r:.80}; expected q, kv, both or none")
    xp, q, k = _pair(q_types, kv_types, "types")
    same = q[:, :, None] == k[:, None, :]
    if zero_policy != "none":  # where they are equal, one is 0 if the other is
        same = same & (q != 0)[:, :, None]
    return same[:, None]


def kv_length_mask(kv_lengths: Array, q_len: int, kv_len: int) -> Array:
    """[B, 1, q_len, kv_len] of lengths [B]: True at keys before the length."""
    xp = namespace(kv_lengths)
    lengths, q_len, kv_len = integers(xp, kv_lengths, "kv_lengths", 1), size(q_len, "q_len"), size(kv_len, "kv_len")
    seen = xp.arange(kv_len) < lengths[:, None, None, None]
    return xp.broadcast_to(seen, (len(lengths), 1, q_len, kv_len))


def _as_mask(mask, name="mask"):
    """(library, the mask as [B, H, Sq, Sk])."""
    xp = namespace(mask)
    mask = xp.asarray(mask)
    if mask.ndim not in (2, 3, 4) or mask.dtype != bool:
        raise InputError(f"{name} has shape {list(mask.shape)} of {mask.dtype}; expected bool [B, H, Sq, Sk], [B, Sq, Sk] or [Sq, Sk]")
    return xp, mask if mask.ndim == 4 else mask[None, None] if mask.ndim == 2 else mask[:, None]


def segments_from_mask(mask: Array, *, check: bool = True) -> tuple[Array, Array]:
    """(q_segment_ids [B, Sq], kv_segment_ids [B, Sk]) that say the same as a mask which is a union of rectangles without a row or column in
    common; ids count up from 0 by the first key, -1: sees nothing, or is never seen. Other masks are an InputError. Inside jax.jit, where
    that cannot be told, check=False is needed, and the ids of another mask say something else than it."""
    xp, mask = _as_mask(mask)
    if check and is_traced(mask | False):  # traced, too, where the mask is known but the trace computes
        raise InputError("inside jax.jit it cannot be told whether segments say all of the mask: give check=False if they are known to")
    rows, heads, queries, keys = mask.shape
    if 0 in (heads, queries, keys):
        return xp.full((rows, queries), -1, xp.int32), xp.full((rows, keys), -1, xp.int32)
    one = mask[:, 0]
    first_key = xp.where(one.any(2), one.argmax(2), -1)  # of each query: its rectangle's name
    first_query = one.argmax(1)
    opens = (xp.arange(keys) == first_key[:, :, None]).any(1)  # [B, Sk]: whether a rectangle begins at the key
    number = xp.cumsum(opens, axis=1, dtype=xp.int32) - 1
    q = xp.where(first_key >= 0, xp.take_along_axis(number, xp.maximum(first_key, 0), 1), -1)
    k = xp.where(one.any(1), xp.take_along_axis(q, first_query, 1), -1)
    if check:
        differs = (known(segment_mask(q, k)) != known(mask)).nonzero()
        if differs[0].size:
            at = [int(each[0]) for each in differs]
            raise InputError(f"mask is no union of rectangles without a row or column in common: segments would say otherwise at {at}; pass it as it is")
    return q, k


class MaskInfo:
    """A mask of attention: dense, by segment ids, or both, which then must both allow a key. It is not changed: each method gives a new one.

    With JAX it is a pytree, so that it goes through jax.jit like the arrays in it."""

    __slots__ = ("attention_mask", "q_segment_ids", "kv_segment_ids")

    def __init__(self, attention_mask: Array | None = None, q_segment_ids: Array | None = None, kv_segment_ids: Array | None = None):
        """attention_mask: bool [B or 1, H or 1, Sq, Sk]; ids: [B, Sq] and [B, Sk], both or neither."""
        if attention_mask is None and q_segment_ids is None:
            raise InputError("a MaskInfo needs attention_mask, or q_segment_ids and kv_segment_ids")
        if (q_segment_ids is None) != (kv_segment_ids is None):
            raise InputError(f"q_segment_ids and kv_segment_ids go together; {'kv' if kv_segment_ids is None else 'q'}_segment_ids is missing")
        if attention_mask is not None:
            _, attention_mask = _as_mask(attention_mask, "attention_mask")
        if q_segment_ids is not None:
            _, q_segment_ids, kv_segment_ids = _pair(q_segment_ids, kv_segment_ids, "segment_ids")
        self._set(attention_mask, q_segment_ids, kv_segment_ids)
        if attention_mask is not None and q_segment_ids is not None:
            ids = (q_segment_ids.shape[1], kv_segment_ids.shape[1])
            if attention_mask.shape[2:] != ids:
                raise InputError(f"attention_mask is of {list(attention_mask.shape[2:])} queries and keys, the segment ids of {list(ids)}")
        _register()

    def _set(self, *fields):
        for name, value in zip(self.__slots__, fields):
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        raise AttributeError(f"a MaskInfo is not changed; make a new one with another {name}")

    def __repr__(self):
        told = [f"{name}={list(value.shape)}" for name in self.__slots__ if (value := getattr(self, name)) is not None]
        return f"MaskInfo({', '.join(told)})"

    def __reduce__(self):
        return MaskInfo, tuple(getattr(self, name) for name in self.__slots__)

    @classmethod
    def from_attention_mask(cls, attention_mask: Array) -> MaskInfo:
        return cls(attention_mask)

    @classmethod
    def from_segments(cls, q_segment_ids: Array, kv_segment_ids: Array | None = None) -> MaskInfo:
        """kv_segment_ids None: the queries'."""
        return cls(None, q_segment_ids, q_segment_ids if kv_segment_ids is None else kv_segment_ids)

    @classmethod
    def from_cu_seqlens(
        cls, cu_seqlens_q: Array, cu_seqlens_kv: Array | None = None, *, q_len: int | None = None, kv_len: int | None = None
    ) -> MaskInfo:
        """Of sequences laid end to end: a batch of one row, whose segments they are. q_len, kv_len: sizes, as in ejk.sequences.sequence_ids."""
        q = sequences.sequence_ids(cu_seqlens_q, q_len)
        k = q if cu_seqlens_kv is None else sequences.sequence_ids(cu_seqlens_kv, kv_len)
        return cls(None, q[None], k[None])

    @property
    def q_len(self) -> int:
        return self.attention_mask.shape[2] if self.q_segment_ids is None else self.q_segment_ids.shape[1]

    @property
    def kv_len(self) -> int:
        return self.attention_mask.shape[3] if self.kv_segment_ids is None else self.kv_segment_ids.shape[1]

    def get_or_compute_attention_mask(self) -> Array:
        """[B or 1, H or 1, Sq, Sk]: all of it as a dense mask."""
        if self.q_segment_ids is None:
            return self.attention_mask
        segments = segment_mask(self.q_segment_ids, self.kv_segment_ids)
        return segments if self.attention_mask is None else segments & self.attention_mask

    def get_or_compute_segment_ids(self, *, check: bool = True) -> tuple[Array, Array]:
        """(q_segment_ids, kv_segment_ids) that say all of it; see segments_from_mask."""
        if self.attention_mask is None:
            return self.q_segment_ids, self.kv_segment_ids
        return segments_from_mask(self.get_or_compute_attention_mask(), check=check)

    def arguments(self) -> dict[str, Array]:
        """What a kernel of attention takes by name: attention_mask, q_segment_ids, kv_segment_ids, those that there are."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}

    def _and(self, mask):
        dense = mask if self.attention_mask is None else self.attention_mask & mask
        return MaskInfo(dense, self.q_segment_ids, self.kv_segment_ids)

    def _by_position(self, **rule):
        array = self.q_segment_ids if self.attention_mask is None else self.attention_mask
        return self._and(position_mask(self.q_len, self.kv_len, like=array, **rule))

    def apply_causal(self, offset: int | Array | None = None) -> MaskInfo:
        """offset: see position_mask."""
        return self._by_position(causal=True, causal_offset=offset)

    def apply_sliding_window(self, left: int, right: int = -1, offset: int | Array | None = None) -> MaskInfo:
        """Keys from `left` before a query's diagonal to `right` after it, both included; -1: no limit."""
        return self._by_position(window_left=left, window_right=right, causal_offset=offset)

    def apply_chunked(self, chunk_size: int, offset: int | Array | None = None) -> MaskInfo:
        """Keys of the query's own chunk, up to it."""
        size(chunk_size, "chunk_size", 1)
        return self._by_position(chunk_size=chunk_size, causal_offset=offset)

    def apply_kv_lengths(self, kv_lengths: Array) -> MaskInfo:
        return self._and(kv_length_mask(kv_lengths, self.q_len, self.kv_len))

    def apply_token_type_ids(
        self, q_types: Array, kv_types: Array | None = None, *, combine: str = "union", zero_policy: str = "q"
    ) -> MaskInfo:
        """combine: "union": tokens of one type also see each other; "intersect": they see no others; "replace": that alone counts."""
        types = token_type_mask(q_types, kv_types, zero_policy=zero_policy)
        if types.shape[2:] != (self.q_len, self.kv_len):
            raise InputError(f"token types are of {list(types.shape[2:])} queries and keys; expected {[self.q_len, self.kv_len]}")
        if combine == "intersect":
            return self._and(types)
        if combine not in ("union", "replace"):
            raise InputError(f"combine is {combine!r:.80}; expected union, intersect or replace")
        return MaskInfo(types if combine == "replace" else types | self.get_or_compute_attention_mask())


def _register():
    """As a pytree of JAX's, once JAX is there."""
    jax = sys.modules.get("jax")
    if jax is None or not hasattr(jax, "tree_util") or _register.done:
        return
    _register.done = True

    def flat(info):
        return tuple(getattr(info, name) for name in MaskInfo.__slots__), None

    def made(_, fields):  # of whatever JAX puts in the arrays' places: nothing is checked
        info = object.__new__(MaskInfo)
        info._set(*fields)
        return info

    jax.tree_util.register_pytree_node(MaskInfo, flat, made)


_register.done = False
