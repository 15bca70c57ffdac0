"""Which elements a dropout leaves, by Philox-4x32-10: the same for NumPy, JAX and PyTorch, on every device (docs/semantics.md, "Dropout" and "rnn")."""

import sys

from ._errors import InputError

_LOW = 0xFFFFFFFF


def _library_of(array):
    """(torch or None, jax.numpy or numpy)"""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch, None
    if jax is not None and isinstance(array, jax.Array):
        import jax.numpy

        return None, jax.numpy
    import numpy

    return None, numpy


def _product(a, factor, number):
    """(high word, low word) of words a and a number below 2^32, by parts of 16 bits, since no 64-bit type is everywhere."""
    a0, a1, f0, f1 = a & number(0xFFFF), a >> 16, number(factor & 0xFFFF), number(factor >> 16)
    least = a0 * f0
    middle = a1 * f0 + (least >> 16)
    other = a0 * f1 + (middle & number(0xFFFF))
    return a1 * f1 + (middle >> 16) + (other >> 16), (other << 16) & number(_LOW) | (least & number(0xFFFF))


def philox(counter, key, number):
    """Four output words of four arrays of counter words and two of key words, which have 32 bits without sign, or more; number: makes one of an int."""
    a, b, c, d = counter
    low, high = key
    for _ in range(10):
        (over_a, under_a), (over_c, under_c) = _product(a, 0xD2511F53, number), _product(c, 0xCD9E8D57, number)
        a, b, c, d = over_c ^ b ^ low, under_c, over_a ^ d ^ high, under_a
        low, high = (low + number(0x9E3779B9)) & number(_LOW), (high + number(0xBB67AE85)) & number(_LOW)
    return a, b, c, d


def threshold(probability):
    """floor(65536 p + 1/2): the number that stays must be at least that."""
    if isinstance(probability, bool) or not isinstance(probability, (int, float)) or not 0 <= probability <= 1:
        raise InputError(f"dropout is {probability!r:.80}; expected a number from 0 to 1")
    return int(65536 * probability + 0.5)


def _key(seed):
    """(low word, high word) of the seed: ints, or arrays of JAX's, which may be traced."""
    if hasattr(seed, "dtype") and getattr(seed, "shape", None) == () and seed.dtype.kind in "iu" and _library_of(seed)[1].__name__ != "numpy":
        low = seed.astype("uint32")
        if seed.dtype.itemsize == 8:
            return low, (seed >> 32).astype("uint32")
        return low, (seed >> 31).astype("uint32") if seed.dtype.kind == "i" else low ^ low  # the sign's bits, as of an int
    try:
        number = -1 if isinstance(seed, bool) else seed.__index__()
    except (AttributeError, TypeError):
        raise InputError(f"dropout_seed is {seed!r:.80}; expected an integer") from None
    if isinstance(seed, bool) or not -(1 << 63) <= number < 1 << 64:
        raise InputError(f"dropout_seed is {seed}; expected an integer of 64 bits")
    return number & _LOW, number >> 32 & _LOW


def kept(x, limit, seed, layer):
    """Bool of x's shape [B, T, F]: element f of token t in row b stays if its number is at least `limit`."""
    torch, xp = _library_of(x)
    rows, tokens, features = x.shape
    sizes = {(1, 1, -1): -(-features // 8), (1, -1, 1): tokens, (-1, 1, 1): rows}
    if torch:
        counter = [torch.arange(count, device=x.device).reshape(shape) for shape, count in sizes.items()]
        counter, key, number = torch.broadcast_tensors(*counter), _key(seed), int
        words = philox([*counter, torch.full_like(counter[0], layer)], key, number)
    else:
        counter = xp.broadcast_arrays(*[xp.arange(count, dtype=xp.uint32).reshape(shape) for shape, count in sizes.items()])
        number, key = xp.uint32, [xp.asarray(word, xp.uint32).reshape(1, 1, 1) for word in _key(seed)]
        words = philox([*counter, xp.full_like(counter[0], layer)], key, number)
    numbers = (torch or xp).stack([half for word in words for half in (word & number(0xFFFF), word >> 16)], -1)
    return numbers.reshape(rows, tokens, -1)[..., :features] >= limit


def dropped(x, probability, seed, layer):
    """x [B, T, F] after the dropout, what stays divided by the share that stays."""
    limit = threshold(probability)
    if limit == 0:
        return x
    torch, xp = _library_of(x)
    if limit == 65536 or 0 in x.shape:
        return (torch or xp).zeros_like(x)
    stays, share = kept(x, limit, seed, layer), 1 - limit / 65536
    if torch:
        return torch.where(stays, x / share, torch.zeros_like(x))
    return xp.where(stays, (x.astype(xp.float32) / xp.float32(share)).astype(x.dtype), xp.zeros_like(x))
