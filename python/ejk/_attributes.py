"""Values of attributes: from Python's to the library's."""

import math
import struct

from ._errors import InputError

CONVERT = {"bool": bool, "int": int, "float": float, "string": str}


def _legal(spec, value):
    if spec.type == "string":
        return isinstance(value, str)
    if isinstance(value, (str, bytes)):
        return False
    try:
        return CONVERT[spec.type](value) == value or value != value
    except (TypeError, ValueError, OverflowError):
        return False


_SIGN, _WORDS = 1 << 63, 1 << 64


def as_int64(value):
    """A seed may be any 64 bits: those above the largest int64 as libejk takes them."""
    return value - _WORDS if _SIGN <= value < _WORDS else value


def signed(spec, value):
    """The value of an attribute; integers that vary from call to call are seeds."""
    return as_int64(value) if spec.varies and spec.type == "int" else value


def attribute_values(kernel, specs, values):
    """The given ones as a dict, of Python's types. InputError for a value that the attribute's type does not have."""
    given = {}
    for spec, value in zip(specs, values):
        if value is None:
            continue
        if not _legal(spec, value):
            raise InputError(f"{kernel}: {spec.name} must be {spec.type}; found {value!r:.80}")
        given[spec.name] = converted = signed(spec, CONVERT[spec.type](value))
        if spec.type == "float" and not math.isfinite(converted):
            raise InputError(f"{kernel}: attribute {spec.name} is {converted}, expected a finite number")
    return given


_ABSENT = bytes(16)
_FLOAT, _INTEGER = struct.Struct("i4xd").pack, struct.Struct("i4xq").pack
_PACK = {"float": (3, _FLOAT), "int": (2, _INTEGER), "bool": (1, _INTEGER)}  # ejk_value's kind


def packed_values(specs, values):
    """Varying attributes as an array of ejk_value, in bytes."""
    parts = []
    for spec, value in zip(specs, values):
        if value is None:
            parts.append(_ABSENT)
            continue
        kind, pack = _PACK[spec.type]
        try:
            parts.append(pack(kind, signed(spec, CONVERT[spec.type](value))))
        except struct.error:
            raise InputError(f"{spec.name} is {value}; expected an integer of at most 64 bits") from None
    return b"".join(parts)
