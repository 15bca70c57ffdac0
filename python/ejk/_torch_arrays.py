"""PyTorch tensors. An eager call of shapes seen before is a look-up, an allocation and a launch; autograd, torch.compile and subclasses of
Tensor go through the operators of ejk.torch."""

import sys

import torch

from ._call import config_text, prepare_call, shapes_follow_data, values_of
from ._errors import InputError
from ._library import failure
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
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_empty_like, _is_grad_enabled, _is_compiling = torch.empty_like, torch.is_grad_enabled, torch.compiler.is_compiling
_contiguous = torch.contiguous_format
_self = sys.modules[__name__]


def handles(array):
    return isinstance(array, torch.Tensor)


def view(array):
    if array.dtype not in _NAMES:
        raise InputError(f"no kernel takes elements of {array.dtype}; it takes {', '.join(map(str, _NAMES))}")
    if array.device.type not in _DEVICES:
        raise InputError(f"is on {array.device}; expected cpu or cuda")
    device = (_DEVICES[array.device.type], array.device.index or 0)
    return View(array.data_ptr(), tuple(array.shape), array.stride(), _NAMES[array.dtype], device, array)


def writable(array):
    return True


def empty(shape, dtype, like):
    return torch.empty(shape, dtype=_DTYPES[dtype], device=like.device)


def _pattern(shape, dtype, like):
    """One element that looks like a whole output: empty_like of it costs less than half of what empty does."""
    return empty((1,) * len(shape), dtype, like).expand(shape)


def stream(like):
    if not like.is_cuda:
        return 0
    return _raw_stream(like.device.index) if _raw_stream else torch.cuda.current_stream(like.device).cuda_stream


def _through_operators(*arguments):
    from . import torch as operators  # ejk.torch

    return operators.call(*arguments)


def _key(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad


def call(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_):
    first = inputs[0]
    if type(first) not in _PLAIN or _is_compiling():
        return _through_operators(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_)
    try:
        key = (
            fixed,
            wanted,
            cfg and config_text(cfg),
            tuple([None if t is None else (t.shape, t.stride(), t.dtype, t.device, t.requires_grad) for t in inputs]),
            outputs and tuple([None if t is None else _key(t) for t in outputs]),
        )
        prepared = kernel.prepared.get(key)
    except (AttributeError, TypeError):  # an argument of the wrong type: preparing says which
        key = prepared = None
    if prepared is None:
        if any(type(tensor) not in _PLAIN for tensor in inputs if isinstance(tensor, torch.Tensor)):
            return _through_operators(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_)
        prepared = prepare_call(_self, kernel, inputs, fixed, varying, outputs, wanted, config_text(cfg))
        prepared.differentiable = any(tensor is not None and tensor.requires_grad for tensor in inputs)
        prepared.makes = tuple((index, _pattern(shape, dtype, inputs[0])) for index, shape, dtype in prepared.makes)
        if key is not None and not shapes_follow_data(kernel, inputs):
            kernel.remember(key, prepared)
    if prepared.differentiable and _is_grad_enabled():
        return _through_operators(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_)
    results = list(outputs) if outputs else [None] * len(wanted)
    for index, pattern in prepared.makes:
        results[index] = _empty_like(pattern, memory_format=_contiguous)
    pointers = [t.data_ptr() for t in inputs if t is not None]
    pointers += [t.data_ptr() for t in results if t is not None]
    if stream_ is None:
        stream_ = stream(first)
    values = values_of(kernel, varying) if varying != prepared.no_values else None
    status = prepared.ejk_run(prepared.address, prepared.pack(*pointers), values, stream_)
    if status:
        raise failure(status)
    return results[0] if len(results) == 1 else kernel.returned(results)
