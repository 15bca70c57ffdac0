"""Masks of blocks for blocksparse_attention: which blocks of keys a block of queries sees, made once and kept.

    mask = ejk.block_masks.local(8192, 8192, 4, 0) & ejk.block_masks.causal(8192, 8192)
    out = ejk.blocksparse_attention(q, k, v, **mask.arguments())

A builder of token positions (causal, window, chunk, document, and ejk.block_mask of a dense mask) turns on each block of which any key may be seen,
and says in arguments() what decides inside it; one of block indices (local, strided, fixed, global_local) says all by its blocks. `&` allows what
both do; packed makes one mask of those of packed sequences. Arrays are NumPy's, or of the library and device of `like`: JAX's, also inside
jax.jit, or PyTorch's. docs/semantics.md, "blocksparse_attention".
"""

from __future__ import annotations

import sys

from ._array_namespace import is_traced, known, size
from ._errors import InputError
from .masks import MaskInfo

Array = object  # in annotations: NumPy's, JAX's or PyTorch's

__all__ = ["BlockMask", "block_mask", "causal", "chunk", "document", "fixed", "from_blocks", "global_local", "local", "packed", "strided", "window"]

_BLOCK = 128
_ARRAYS = ("attention_mask", "q_segment_ids", "kv_segment_ids")  # options that are tensors


class BlockMask:
    """block_mask [B or 1, H or 1, blocks of queries, blocks of keys] of bool, its block sizes, and the options that decide inside the blocks.
    It is not changed. With JAX it is a pytree."""

    __slots__ = ("block_mask", "block_q", "block_k", "options")

    def __init__(self, block_mask: Array, block_q: int = _BLOCK, block_k: int = _BLOCK, options: dict | None = None):
        if len(block_mask.shape) != 4 or "bool" not in str(block_mask.dtype):
            raise InputError(f"block_mask has shape {list(block_mask.shape)} of {block_mask.dtype}; expected bool [B or 1, H or 1, blocks of queries, blocks of keys]")
        self._set(block_mask, _block(block_q, "block_q"), _block(block_k, "block_k"), dict(options or {}))
        _register()

    def _set(self, *fields):
        for name, value in zip(self.__slots__, fields):
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        raise AttributeError(f"a BlockMask is not changed; make a new one with another {name}")

    def __repr__(self):
        told = "".join(f", {name}={list(value.shape) if name in _ARRAYS else value}" for name, value in self.options.items())
        return f"BlockMask({list(self.block_mask.shape)}, block_q={self.block_q}, block_k={self.block_k}{told})"

    def __reduce__(self):
        return BlockMask, tuple(getattr(self, name) for name in self.__slots__)

    def arguments(self) -> dict:
        """What blocksparse_attention takes by name: the mask, the block sizes and the options."""
        return {"block_mask": self.block_mask, "block_q": self.block_q, "block_k": self.block_k, **self.options}

    def density(self) -> float:
        """The share of blocks that are on, of a mask whose values are known."""
        if is_traced(self.block_mask):
            raise InputError("inside jax.jit it cannot be told how many blocks are on")
        return float(known(_on_host(self.block_mask)).mean()) if 0 not in self.block_mask.shape else 0.0

    def __and__(self, other: BlockMask) -> BlockMask:
        """What both allow. Two rules of one kind, such as two windows, have no option that says both: an InputError."""
        if not isinstance(other, BlockMask):
            return NotImplemented
        _check_alike(self, other)
        options = dict(self.options)
        if _by_rule(options) and _by_rule(other.options) and options.get("causal_offset") != other.options.get("causal_offset"):
            raise InputError("the masks have different values of causal_offset, which says one for all rules; make one a dense mask: ejk.block_mask")
        for name, value in other.options.items():
            if name == "attention_mask" and name in options:
                options[name] = options[name] & value
            elif name in options and (name in _ARRAYS or options[name] != value):
                raise InputError(f"both masks have {name}, which says one rule; make one of the rules a dense mask: ejk.block_mask")
            else:
                options[name] = value
        return BlockMask(self.block_mask & _same_library(other.block_mask, self.block_mask), self.block_q, self.block_k, options)

    def __or__(self, other: BlockMask) -> BlockMask:
        """What either allows; of masks whose blocks say all."""
        if not isinstance(other, BlockMask):
            return NotImplemented
        _check_alike(self, other)
        if self.options or other.options:
            raise InputError(f"{' and '.join({*self.options, *other.options})} decide inside blocks; only masks that are blocks alone can be joined by |")
        return BlockMask(self.block_mask | _same_library(other.block_mask, self.block_mask), self.block_q, self.block_k)


def _block(value, name):
    number = size(value, name, 16)
    if number % 16 or number > 65536:
        raise InputError(f"{name} is {number}; expected a multiple of 16 up to 65536")
    return number


def _by_rule(options):
    return bool({"causal", "window_left", "chunk_size"} & set(options))


def _check_alike(one, other):
    sizes = [(each.block_q, each.block_k, *each.block_mask.shape[2:]) for each in (one, other)]
    if sizes[0] != sizes[1]:
        raise InputError(f"masks of {list(sizes[0][2:])} blocks of {list(sizes[0][:2])} and of {list(sizes[1][2:])} blocks of {list(sizes[1][:2])}; expected the same")


def _torch_of(*arrays):
    torch = sys.modules.get("torch")
    return torch if torch is not None and any(isinstance(each, torch.Tensor) for each in arrays) else None


def _jax_of(*arrays):
    jax = sys.modules.get("jax")
    return jax if jax is not None and any(isinstance(each, jax.Array) for each in arrays) else None


def _on_host(array):
    return array.detach().cpu().numpy() if _torch_of(array) else array


def _same_library(array, like):
    """A NumPy array as one of like's library, on its device; others as they are."""
    import numpy

    if not isinstance(array, numpy.ndarray) or like is None:
        return array
    torch = _torch_of(like)
    if torch:
        return torch.from_numpy(numpy.ascontiguousarray(array)).to(like.device)
    if _jax_of(like):
        import jax.numpy

        return jax.numpy.asarray(array)
    return array


def _grid(q_len, kv_len, block_q, block_k):
    """(blocks of queries as a column, blocks of keys as a row), by number."""
    import numpy

    q_len, kv_len = size(q_len, "q_len"), size(kv_len, "kv_len")
    block_q, block_k = _block(block_q, "block_q"), _block(block_k, "block_k")
    return numpy.arange(-(-q_len // block_q))[:, None], numpy.arange(-(-kv_len // block_k))[None, :]


def from_blocks(predicate, q_len: int, kv_len: int, *, block_q: int = _BLOCK, block_k: int = _BLOCK, like: Array | None = None) -> BlockMask:
    """predicate(bi, bj): of numbers of blocks, NumPy arrays [blocks, 1] and [1, blocks]; True where a block is on."""
    import numpy

    bi, bj = _grid(q_len, kv_len, block_q, block_k)
    on = numpy.broadcast_to(numpy.asarray(predicate(bi, bj), bool), (bi.size, bj.size))
    return BlockMask(_same_library(on.copy()[None, None], like), block_q, block_k)


def local(q_len: int, kv_len: int, left: int, right: int = 0, **blocks) -> BlockMask:
    """Blocks from `left` before the query's to `right` after it. blocks, here and below: block_q, block_k (128), like."""
    left, right = size(left, "left"), size(right, "right")
    return from_blocks(lambda bi, bj: (bi - left <= bj) & (bj <= bi + right), q_len, kv_len, **blocks)


def strided(q_len: int, kv_len: int, stride: int, **blocks) -> BlockMask:
    """The query's block and the stride - 1 before it, and every block a multiple of stride away."""
    s = size(stride, "stride", 1)
    return from_blocks(lambda bi, bj: ((bi - s < bj) & (bj <= bi)) | ((bi - bj) % s == 0), q_len, kv_len, **blocks)


def fixed(q_len: int, kv_len: int, stride: int, summary: int, **blocks) -> BlockMask:
    """The blocks of the query's stretch of `stride` blocks, and the last `summary` blocks of every stretch."""
    s, c = size(stride, "stride", 1), size(summary, "summary")
    return from_blocks(lambda bi, bj: (bi // s == bj // s) | (bj % s >= s - c), q_len, kv_len, **blocks)


def global_local(q_len: int, kv_len: int, first: int, left: int, right: int = 0, **blocks) -> BlockMask:
    """The first `first` blocks see all and are seen by all; others are local."""
    g, left, right = size(first, "first"), size(left, "left"), size(right, "right")
    return from_blocks(lambda bi, bj: (bj < g) | (bi < g) | ((bi - left <= bj) & (bj <= bi + right)), q_len, kv_len, **blocks)


def _by_position(q_len, kv_len, lowest, highest, causal_offset, options, *, block_q=_BLOCK, block_k=_BLOCK, like=None):
    """lowest, highest: of a block's first and last position among the keys, the keys that any of its queries sees."""
    offset = kv_len - q_len if causal_offset is None else int(causal_offset)
    if causal_offset is not None:
        options["causal_offset"] = offset

    def meets(bi, bj):
        first, last = bi * block_q + offset, (bi * block_q + block_q).clip(max=q_len) - 1 + offset
        return (lowest(first) <= (bj * block_k + block_k).clip(max=kv_len) - 1) & (bj * block_k <= highest(last))

    mask = from_blocks(meets, q_len, kv_len, block_q=block_q, block_k=block_k, like=like)
    return BlockMask(mask.block_mask, block_q, block_k, options)


def causal(q_len: int, kv_len: int, causal_offset: int | None = None, **blocks) -> BlockMask:
    """Keys up to the query at i + causal_offset; None: kv_len - q_len."""
    return _by_position(q_len, kv_len, lambda i: 0 * i, lambda i: i, causal_offset, {"causal": True}, **blocks)


def window(q_len: int, kv_len: int, left: int, right: int = -1, causal_offset: int | None = None, **blocks) -> BlockMask:
    """Keys from `left` before the query's position to `right` after it, both included; -1: no limit."""
    left, right = size(left, "left", -1), size(right, "right", -1)
    return _by_position(
        q_len,
        kv_len,
        lambda i: i - left if left >= 0 else 0 * i,
        lambda i: i + right if right >= 0 else 0 * i + kv_len,
        causal_offset,
        {"window_left": left, "window_right": right},
        **blocks,
    )


def chunk(q_len: int, kv_len: int, chunk_size: int, causal_offset: int | None = None, **blocks) -> BlockMask:
    """Keys of the query's own chunk of so many positions, up to it."""
    c = size(chunk_size, "chunk_size", 1)
    return _by_position(q_len, kv_len, lambda i: i // c * c, lambda i: i, causal_offset, {"chunk_size": c}, **blocks)


def packed(masks) -> BlockMask:
    """One mask of packed sequences from a mask of each: blocksparse_attention's, with cum_seqlens_q and cum_seqlens_k. What decides inside the blocks is
    one for all sequences, which each have their own lengths: an option that is a tensor, or that differs from mask to mask, is an InputError."""
    masks = list(masks)
    if not masks:
        raise InputError("packed sequences need a mask each; found none")
    first = masks[0]
    for mask in masks:
        if (mask.block_q, mask.block_k) != (first.block_q, first.block_k):
            raise InputError(f"masks of blocks of {[first.block_q, first.block_k]} and of {[mask.block_q, mask.block_k]}; expected the same")
        if mask.block_mask.shape[0] != 1:
            raise InputError(f"a mask has shape {list(mask.block_mask.shape)}; expected [1, H or 1, blocks of queries, blocks of keys] of each sequence")
        tensors = [name for name in _ARRAYS if name in mask.options]
        if tensors:
            raise InputError(f"a mask has {tensors[0]}, which packed calls do not take; its blocks, and the other options, must say all")
        if mask.options != first.options:
            raise InputError(f"the masks have different options, {first.options} and {mask.options}; a call has one for all sequences")
    heads, rows, columns = (max(mask.block_mask.shape[axis] for mask in masks) for axis in (1, 2, 3))
    on = _none_on(first.block_mask, (len(masks), heads, rows, columns))
    for number, mask in enumerate(masks):
        blocks = _same_library(mask.block_mask, first.block_mask)
        if blocks.shape[1] not in (1, heads):
            raise InputError(f"masks of {blocks.shape[1]} and of {heads} heads; expected the same, or 1")
        place = (number, slice(None), slice(blocks.shape[2]), slice(blocks.shape[3]))
        if _jax_of(on):
            on = on.at[place].set(blocks[0])
        else:
            on[place] = blocks[0]
    return BlockMask(on, first.block_q, first.block_k, first.options)


def _none_on(like, shape):
    """bool of that shape, all false, of like's library and device."""
    if _jax_of(like):
        import jax.numpy

        return jax.numpy.zeros(shape, bool)
    return like.new_zeros(shape) if _torch_of(like) else _numpy_full(shape, False, bool)


def _cut(array, block, fill):
    """[..., tokens] as [..., blocks, block], `fill` after the last token."""
    count = -(-array.shape[-1] // block)
    shape = (*array.shape[:-1], count * block)
    if _jax_of(array):
        import jax.numpy

        padded = jax.numpy.full(shape, fill, array.dtype).at[..., : array.shape[-1]].set(array)
    else:
        padded = array.new_full(shape, fill) if _torch_of(array) else _numpy_full(shape, fill, array.dtype)
        padded[..., : array.shape[-1]] = array
    return padded.reshape(*array.shape[:-1], count, block)


def _numpy_full(shape, fill, dtype):
    import numpy

    return numpy.full(shape, fill, dtype)


def _where(condition, array, otherwise):
    library = _torch_of(array)
    if library is None:
        import numpy

        library = numpy
        if _jax_of(array):
            import jax.numpy

            library = jax.numpy
    return library.where(condition, array, otherwise)


def _as_array(value, name, rank):
    import numpy

    array = value if hasattr(value, "dtype") and hasattr(value, "reshape") else numpy.asarray(value)
    if len(array.shape) != rank:
        raise InputError(f"{name} has shape {list(array.shape)}; expected {rank} dimensions")
    return array


def _extremes(segment_ids, block):
    """The lowest and the highest id of each block that is not negative; of a block without one the lowest is above every id."""
    cut = _cut(segment_ids, block, -1)
    largest = 0x7FFFFFFF
    lowest = _where(cut >= 0, cut, largest)
    if _torch_of(segment_ids):
        return lowest.amin(-1), cut.amax(-1)
    return lowest.min(-1), cut.max(-1)


def document(q_segment_ids: Array, kv_segment_ids: Array | None = None, *, block_q: int = _BLOCK, block_k: int = _BLOCK) -> BlockMask:
    """Of ids [B, Sq] and [B, Sk] (None: the queries'), int32: tokens of a document see each other; negative: padding. A block is on where the
    ranges of its ids meet: what documents laid one after the other need, and never less than the ids say."""
    q = _as_array(q_segment_ids, "q_segment_ids", 2)
    k = q if kv_segment_ids is None else _as_array(kv_segment_ids, "kv_segment_ids", 2)
    q_low, q_high = _extremes(q, _block(block_q, "block_q"))
    k_low, k_high = _extremes(k, _block(block_k, "block_k"))
    on = (q_low[:, :, None] <= k_high[:, None, :]) & (k_low[:, None, :] <= q_high[:, :, None])
    return BlockMask(on[:, None], block_q, block_k, {"q_segment_ids": q, "kv_segment_ids": k})


def _blocks_of(dense, block_q, block_k):
    rows = _cut(dense, block_k, False).any(-1)  # [B, H, Sq, blocks of keys]
    on = _cut(rows.swapaxes(-1, -2), block_q, False).any(-1).swapaxes(-1, -2)
    return on.contiguous() if _torch_of(on) else on if _jax_of(on) else on.copy()


def block_mask(
    mask,
    *,
    block_q: int = _BLOCK,
    block_k: int = _BLOCK,
    q_len: int | None = None,
    kv_len: int | None = None,
    batch: int = 1,
    heads: int = 1,
    like: Array | None = None,
) -> BlockMask:
    """A mask of blocks from a dense mask (bool [B or 1, H or 1, Sq, Sk], [B, Sq, Sk] or [Sq, Sk]), from an ejk.masks.MaskInfo, or from a predicate: a
    function of (b, h, i, j), arrays that broadcast to [batch, heads, q_len, kv_len], True where query i sees key j. A block is on where any of its
    elements is; inside the blocks the mask itself decides, as attention_mask, unless it is known to be true all over them."""
    if isinstance(mask, BlockMask):
        return mask
    if isinstance(mask, MaskInfo):
        mask = mask.get_or_compute_attention_mask()
    if callable(mask):
        mask = _same_library(_evaluated(mask, batch, heads, q_len, kv_len), like)
    if not hasattr(mask, "dtype"):
        import numpy

        mask = numpy.asarray(mask)
    rank = len(mask.shape)
    if rank not in (2, 3, 4) or "bool" not in str(mask.dtype):
        raise InputError(f"mask has shape {list(mask.shape)} of {mask.dtype}; expected bool [B, H, Sq, Sk], [B, Sq, Sk] or [Sq, Sk], or a function of (b, h, i, j)")
    dense = mask if rank == 4 else mask[None, None] if rank == 2 else mask[:, None]
    on = _blocks_of(dense, _block(block_q, "block_q"), _block(block_k, "block_k"))
    partly = (_blocks_of(~dense, block_q, block_k) & on).any()
    if not is_traced(partly) and not bool(partly):  # inside jax.jit it cannot be told even of a mask that is known
        return BlockMask(on, block_q, block_k)
    return BlockMask(on, block_q, block_k, {"attention_mask": dense})


def _evaluated(predicate, batch, heads, q_len, kv_len):
    import numpy

    if q_len is None or kv_len is None:
        raise InputError("the mask of a predicate needs q_len and kv_len")
    shape = [size(each, name) for each, name in ((batch, "batch"), (heads, "heads"), (q_len, "q_len"), (kv_len, "kv_len"))]
    places = numpy.ogrid[tuple(slice(0, extent) for extent in shape)]
    return numpy.broadcast_to(numpy.asarray(predicate(*places), bool), shape).copy()


def _register():
    """As a pytree of JAX's, once JAX is there."""
    jax = sys.modules.get("jax")
    if jax is None or not hasattr(jax, "tree_util") or _register.done:
        return
    _register.done = True

    def flat(mask):
        arrays = [mask.block_mask] + [mask.options.get(name) for name in _ARRAYS]
        plain = tuple((name, value) for name, value in mask.options.items() if name not in _ARRAYS)
        return arrays, (mask.block_q, mask.block_k, plain)

    def made(static, arrays):  # of whatever JAX puts in the arrays' places: nothing is checked
        block_q, block_k, plain = static
        options = {**dict(plain), **{name: value for name, value in zip(_ARRAYS, arrays[1:]) if value is not None}}
        mask = object.__new__(BlockMask)
        mask._set(arrays[0], block_q, block_k, options)
        return mask

    jax.tree_util.register_pytree_node(BlockMask, flat, made)


_register.done = False
