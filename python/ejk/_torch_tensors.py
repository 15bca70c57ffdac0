"""What a PyTorch tensor is to a kernel, and how one is made: all of the kind (_tensor.py) but the call, for ejk.torch as well."""

import functools

import torch

from ._errors import ElementError, InputError
from ._tensor import View

_NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",
    torch.int8: "i8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
    torch.float8_e4m3fn: "f8_e4m3",
}
_DTYPES = {ours: theirs for theirs, ours in _NAMES.items()}
_DEVICES = {"cpu": 1, "cuda": 10 if torch.version.hip else 2}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
_empty_strided = {name: getattr(_guards, f"_empty_strided_{name}", None) for name in _DEVICES}


def handles(array):
    return isinstance(array, torch.Tensor)


def view(array):
    if array.dtype not in _NAMES:
        raise ElementError(f"no kernel takes elements of {array.dtype}")
    if array.device.type not in _DEVICES:
        raise InputError(f"is on {array.device}; expected cpu or cuda")
    device = (_DEVICES[array.device.type], array.device.index or 0)
    return View(array.data_ptr(), tuple(array.shape), array.stride(), _NAMES[array.dtype], device, array)


def host_view(told):
    return view(told.keep.cpu())


def writable(array):
    return True


def empty(shape, dtype, like):
    return torch.empty(shape, dtype=_DTYPES[dtype], device=like.device)


def maker(shape, dtype, device):
    """What makes such a tensor, contiguous and not initialised, in the least time: empty takes the longest, and empty_like of one element that
    looks like the whole half of it. PyTorch's compiler has functions of its own, for the current device."""
    if device.type == "cpu" or (device.type == "cuda" and torch.cuda.device_count() == 1):
        made = _empty_strided.get(device.type)
        if made:
            return functools.partial(made, tuple(shape), torch.empty(shape, device="meta").stride(), dtype)
    pattern = torch.empty((1,) * len(shape), dtype=dtype, device=device).expand(shape)
    return functools.partial(torch.empty_like, pattern, memory_format=torch.contiguous_format)


def _stream_of(device):
    return torch.cuda.current_stream(device).cuda_stream


_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _stream_of)  # of a device, by its index


def stream(like):
    return _current_stream(like.device.index) if like.is_cuda else 0
