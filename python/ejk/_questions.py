"""What can be asked about calls and the library: explain, tune, label, info, counters; and kernels that no function was made for."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable

from ._call import Arguments, Array, Kernel, config_text, input_views, kernel_name, plan_outputs
from ._errors import InputError
from ._library import c_text, check, json_text, library, text
from ._open_scopes import follow
from ._spec import contract, kernel_names
from ._tensor import kind_of


def _asked(kernel, arrays, named, with_memory=False):
    """(kernel's name, Arguments, attributes as JSON text) of a call of `kernel` with these arguments. Outputs that are not given have a
    shape, and memory if that is asked for, as its address counts."""
    follow()
    asked = Kernel.of(kernel_name(kernel))
    bound = _signature(asked).bind(*arrays, **named).arguments
    told = asked.contract
    inputs = tuple(bound.get(name) for name in asked.inputs)
    attributes = asked.attributes([bound.get(name) for name in asked.fixed], [bound.get(name) for name in asked.varying])
    kind = kind_of(inputs[0])
    views = input_views(kind, asked, inputs)
    wanted = [bound.get("return_" + spec.name, not spec.optional) for spec in told.outputs]
    planned, makes = plan_outputs(kind, asked, views, attributes, [bound.get(name) for name in asked.outputs], wanted)
    for index, shape, dtype in makes if with_memory else ():
        planned[asked.outputs[index]] = kind.view(kind.empty(shape, dtype, inputs[0]))
    return asked.name.encode(), Arguments({**views, **planned}), json_text(attributes)


def explain(kernel: Callable | str, *arrays: Array, cfg: dict | str | None = None, **named: object) -> dict:
    """How kernel(*arrays, **named) would be carried out, as a dict: variants and what refused each, what each tier of the config's choice
    said, image, geometry, cost. kernel: a function of this package, or a name."""
    name, arguments, attributes = _asked(kernel, arrays, named, with_memory=True)
    return json.loads(text("ejk_explain", name, arguments.array, arguments.count, attributes, config_text(cfg)))


def tune(kernel: Callable | str, *arrays: Array, budget: float = 60.0, jobs: int = 0, seed: int = 1, **named: object) -> dict:
    """Measures the configs of kernel(*arrays, **named) for at most `budget` seconds and keeps the fastest right one: in this process, and
    in the user's records. The arrays are not touched: child processes measure on made-up data. Returns the record as a dict: config,
    median_us, baseline_us (the heuristic's), measured, rejected, ..."""
    name, arguments, attributes = _asked(kernel, arrays, named)
    options = json_text({"budget_seconds": float(budget), "jobs": jobs, "seed": seed}, "tune")
    return json.loads(text("ejk_tune", name, arguments.array, arguments.count, attributes, options))


def label(kernel: Callable | str, *arrays: Array, stamp: str = "hash", **named: object) -> str:
    """The name of kernel(*arrays, **named) in profiles and compiled programs; stamp: "hash" or "json"."""
    name, arguments, attributes = _asked(kernel, arrays, named)
    return text("ejk_label", name, arguments.array, arguments.count, attributes, c_text(stamp, "stamp"))


def labels_in_hlo(program: str) -> list[str]:
    """The labels in the HLO or StableHLO text of a compiled program."""
    if not isinstance(program, str):
        raise TypeError(f"expected the text of a program, a str; found {program!r:.80}")
    encoded = program.encode(errors="replace")
    return json.loads(text("ejk_labels_in_hlo", encoded, len(encoded)))


def info() -> dict:
    """Version, backends (found, or why not), compilers, stores, kernels and environment, as a dict."""
    return json.loads(text("ejk_info"))


def counters() -> dict:
    """Plans, compiles, loads and fallbacks since the start, as a dict."""
    return json.loads(text("ejk_counters"))


def add_store(path: str | os.PathLike) -> None:
    """Puts a store (a folder with specs/, templates/ and built images) in front of the others. Before the first call."""
    check(library().ejk_add_store(os.fsencode(path)))


def set_threads(threads: int) -> None:
    """Threads for CPU work, the caller included; 0: as many as the process may use."""
    if not isinstance(threads, int) or threads.bit_length() > 31:  # ctypes would cut it
        raise InputError(f"set_threads: expected 0 (all) to 4096, found {threads!r:.80}")
    check(library().ejk_set_threads(threads))


def set_jit(jit: str) -> None:
    """What becomes of calls whose image no store has, in this process from its next calls on: "on", they wait for the compiler; "off", the nearest image
    that a store has serves, or it is an error; "background", the best image that is there, or one that is compiled sooner, serves while their own is
    compiled on another thread, and later calls take that. EJKERNEL_JIT says what holds at first."""
    check(library().ejk_set_jit(c_text(jit, "jit")))


def wait_for_images(timeout: float | None = None) -> bool:
    """Waits until nothing is compiled on other threads, or so many seconds have passed. False: something still is."""
    milliseconds = 1 << 40 if timeout is None else max(0, int(timeout * 1000))
    return bool(library().ejk_wait_for_images(milliseconds))


def _signature(kernel):
    told = kernel.contract
    parameter, keyword = inspect.Parameter, inspect.Parameter.KEYWORD_ONLY
    required = [parameter(each.name, parameter.POSITIONAL_OR_KEYWORD) for each in told.inputs if not each.optional]
    others = [parameter(each.name, keyword, default=None) for each in told.inputs if each.optional]
    others += [parameter(each.name, keyword, default=None) for each in told.attributes]
    others += [parameter(each.name, keyword, default=None) for each in told.outputs if each.name != each.updates]
    others += [parameter("return_" + each.name, keyword, default=False) for each in told.outputs if each.optional and not each.updates]
    others += [parameter("cfg", keyword, default=None), parameter("stream", keyword, default=None)]
    return inspect.Signature(required + others)


def _doc(told):
    lines = [f"{told.kernel}: {told.doc}", ""]
    lines += [f"{each.name}: {each.type} {' or '.join(str(list(shape)) for _, shape in each.shapes)}. {each.doc}" for each in told.tensors]
    lines += [f"{each.name}: {each.type}, default {each.default}. {each.doc}" for each in told.attributes]
    return "\n".join(lines)


class _Function:
    """A function of a kernel, made at run time: pickled by its kernel's name, since no module has it."""

    def __init__(self, function):
        self._function = function

    def __call__(self, *arrays, **named):
        return self._function(*arrays, **named)

    def __repr__(self):
        return f"<ejk.kernel({self.__name__!r})>"

    def __reduce__(self):
        return kernel, (self.__name__,)


def kernel(name: str) -> Callable:
    """A function for a kernel of the stores, also one of your own that this package knows nothing of: required inputs by position, all
    else by name, as in the functions of this package."""
    if name not in kernel_names():
        contract(name)  # raises: names those that there are
    asked = Kernel.of(name)
    signature, optional = _signature(asked), [spec.optional and not spec.updates for spec in asked.contract.outputs]
    same_name = {each.name for each in asked.contract.outputs if each.name == each.updates}

    def function(*arrays, **named):
        bound = signature.bind(*arrays, **named)
        bound.apply_defaults()
        get = bound.arguments.get
        outputs = tuple(None if each in same_name else get(each) for each in asked.outputs)
        return asked.call(
            tuple(get(each) for each in asked.inputs),
            tuple(get(each) for each in asked.fixed),
            tuple(get(each) for each in asked.varying),
            None if all(each is None for each in outputs) else outputs,
            tuple(not may or bool(get("return_" + each)) for may, each in zip(optional, asked.outputs)),
            get("cfg"),
            get("stream"),
        )

    made = _Function(function)
    made.__name__ = made.__qualname__ = name
    made.__signature__, made.__doc__ = signature, _doc(asked.contract)
    return made
