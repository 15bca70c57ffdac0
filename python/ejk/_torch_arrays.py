"""PyTorch tensors. An eager call seen before (_seen.py) is a look-up, an allocation and a launch; under autograd it is an autograd.Function, for
torch.compile and subclasses of Tensor an operator, both of ejk.torch."""

import functools
import sys

import torch
import torch.autograd.forward_ad as _forward_ad

from . import _open_scopes
from ._call import config_text, prepare_call, shapes_follow_data, through, updated_results, values_of, without_updated
from ._library import failure
from ._seen import reader
from ._torch_tensors import (  # noqa: F401  the kind's
    _DTYPES,
    _PLAIN,
    _current_stream,
    empty,
    handles,
    host_view,
    maker,
    stream,
    view,
    writable,
)

_reader = reader(torch.Tensor, torch.nn.Parameter)
_is_grad_enabled, _is_compiling = torch.is_grad_enabled, torch.compiler.is_compiling
_open_scopes.traced = _is_compiling
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", int)  # how many
_transforms = getattr(torch._C, "_are_functorch_transforms_active", bool)
_self = sys.modules[__name__]


def _through_operators(*arguments):
    from .torch import _autograd  # not before it is needed: it imports torch._dynamo

    return _autograd.call(*arguments)


@functools.lru_cache(maxsize=None)
def _eager():
    from .torch import _eager

    return _eager


def _under_autograd(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_):
    plain = not [each for each in inputs if each is not None and type(each) not in _PLAIN]
    if plain and not kernel.updates and outputs is None and stream_ is None and not _eager().watched():
        return _eager().call(call, kernel, inputs, fixed, varying, wanted, cfg)
    return _through_operators(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_)


def key(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def pointer(tensor):
    return tensor.data_ptr()


def _remember(kernel, inputs, fixed, varying, outputs, wanted, cfg):
    """Prepares the call, to be found by its tensors. False: libejk cannot read them, or the arguments are wrong."""
    cfg = config_text(cfg)
    try:
        seen = kernel.seen_calls((fixed, wanted, cfg), _reader)
        number = seen.add(seen.address, id(inputs), outputs and id(outputs))
    except Exception:  # an attribute of the wrong kind, or a tensor that PyTorch does not give away
        return False
    if number < 0:
        return False
    prepared = prepare_call(_self, kernel, inputs, fixed, varying, outputs, wanted, cfg)
    prepared.makers = [(index, maker(shape, _DTYPES[dtype], inputs[0].device)) for index, shape, dtype in prepared.makes]
    prepared.make = prepared.makers[0][1] if prepared.makers and outputs is None and sum(wanted) == 1 else None
    prepared.count, prepared.results = sum([tensor is not None for tensor in inputs]), len(wanted)
    prepared.device = inputs[0].device.index if inputs[0].is_cuda else None
    if kernel.updates:
        prepared.make = None
    seen.prepared[number] = prepared
    return True


def _results(prepared, outputs, pointers):
    """All outputs, given or made; their addresses follow the inputs'."""
    results = list(outputs) if outputs else [None] * prepared.results
    for index, make in prepared.makers:
        results[index] = make()
    for at, tensor in enumerate([each for each in results if each is not None], prepared.count):
        pointers[at] = tensor.data_ptr()
    return results


def _written(kernel, inputs):
    """Tells PyTorch, as its own operators that write to a tensor do, so that autograd knows of what it has saved that it is no more."""
    for _, place in kernel.updates:
        if inputs[place] is not None and not inputs[place].is_inference():
            torch.autograd.graph.increment_version(inputs[place])


def _call_anew(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_):
    """A call that was not seen before, or whose arguments are wrong: the library says which."""
    arguments = kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_
    if _transforms() or [each for each in inputs if isinstance(each, torch.Tensor) and type(each) not in _PLAIN]:
        return _through_operators(*arguments)
    if _reader is None or shapes_follow_data(kernel, inputs) or not _remember(*arguments[:-1]):
        result = through(_self, *arguments)
        _written(kernel, inputs)
        return result
    return call(*arguments)  # which finds it now


def call(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_):
    if kernel.updates and outputs is not None:
        outputs = without_updated(_self, kernel, inputs, outputs)
    # An operator takes neither outputs nor a stream: modes do not see such calls.
    if _is_compiling() or _forward_ad._current_level >= 0 or (_dispatch_modes() and outputs is None and stream_ is None):
        return _through_operators(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_)
    prepared = recorded = None
    try:
        recorded = _is_grad_enabled() and True in [each.requires_grad for each in inputs if each is not None]
        if not recorded:
            seen = kernel.seen[fixed, wanted, cfg if cfg is None else config_text(cfg)]
            block = seen.blocks.pop() if seen.blocks else seen.block()
            pointers, address = block
            prepared = seen.prepared[seen.find(seen.address, id(inputs), outputs and id(outputs), address)]
    except Exception:  # a call not seen before, or what PyTorch says of a tensor that it does not give away
        pass
    if recorded:
        return _under_autograd(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_)
    if prepared is None:
        return _call_anew(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream_)
    if prepared.make is not None:
        result = prepared.make()
        pointers[prepared.count] = result.data_ptr()
    else:
        result = kernel.returned(updated_results(kernel, inputs, _results(prepared, outputs, pointers)))
    if stream_ is None:
        stream_ = 0 if prepared.device is None else _current_stream(prepared.device)
    values = values_of(kernel, varying) if varying != prepared.no_values else None
    status = prepared.ejk_run(prepared.address, address, values, stream_)
    seen.blocks.append(block)
    if status:
        raise failure(status)
    if kernel.updates:
        _written(kernel, inputs)
    return result
