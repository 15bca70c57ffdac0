"""Calling a kernel: from a function's arguments to the library and back.

`Kernel.call` takes arguments by position, in the spec's order:
    inputs    arrays or None, one an input                     outputs   the caller's arrays or None, one an output; or None for none
    fixed     attributes that do not vary, None = default      wanted    one an output: make it, if it is optional and not given
    varying   the varying ones, likewise                       cfg       a dict or JSON text that overrides the config, or None
    stream    the address of a stream, or None: the kind's current one
Each kind of array (_tensor.py) has its own `call`; most are `through`, below: shapes and types that were seen before cost no JSON and no
validation, since libejk keeps the call prepared. Whoever has only pointers and a stream (a custom call of a compiler, a plug-in):

    call = ejk._call.prepare("mean_pooling", {"x": View(...), "out": View(...)}, {"chunk_size": 0})   # views: _tensor.View
    call.run([x_pointer, out_pointer], stream=stream)            # order of the views; any thread; nothing is allocated
    call.run([...], varying=ejk._call.packed_values(contract("...").varying, (0.5, 7)))
"""

import ctypes
import functools
import json
import struct
from collections import namedtuple

from . import _open_scopes
from ._attributes import CONVERT, attribute_values, packed_values
from ._errors import EjkError, ElementError, InputError
from ._library import DLDataType, DLDevice, DTYPE_NAMES, DTYPES, Argument, Tensor, c_text, check, failure, json_text, library
from ._seen import Seen
from ._spec import contract, element_types
from ._tensor import _kinds, kind_of

_HOST = 1  # DLPack's device type
Array = object  # in annotations: an array of any kind that _tensor.py knows
_MOST_PREPARED = 4096  # of a kernel; then all are dropped: shapes that never come again must not fill memory


class Arguments:
    """Named views as an array of ejk_argument, with all that it points to."""

    def __init__(self, views):
        self.count = len(views)
        self.array = (Argument * self.count)()
        self._keep = []
        for argument, (name, view) in zip(self.array, views.items()):
            rank = len(view.shape)
            shape, strides = (ctypes.c_int64 * rank)(*view.shape), None
            if view.strides is not None:
                strides = (ctypes.c_int64 * rank)(*view.strides)
            tensor = Tensor(
                data=view.pointer,
                device=DLDevice(*view.device),
                rank=rank,
                dtype=DLDataType(*DTYPES[view.dtype], 1),
                shape=shape,
                strides=strides,
            )
            argument.name, argument.tensor = name.encode(), ctypes.pointer(tensor)
            self._keep.append((view, tensor, shape, strides))


class Prepared:
    """A call that libejk has read: run it on any data of the same shapes. Threads may share it."""

    def __init__(self, kernel, views, attributes, cfg=None):
        self._address, arguments = ctypes.c_void_p(), Arguments(views)
        check(
            library().ejk_prepare(
                kernel.encode(), arguments.array, arguments.count, json_text(attributes), cfg, ctypes.byref(self._address)
            )
        )
        self.address = self._address.value
        self.pack = struct.Struct(f"{arguments.count}P").pack
        self.ejk_run = library().ejk_run
        self.makes = ()  # outputs to allocate: (index, shape, element type)
        self.no_values = ()  # the varying attributes of a call that gives none

    def __del__(self):
        if self._address:
            library().ejk_release(self._address)

    def expect_gradient(self, inputs):
        """Its gradient, of the inputs named, will be asked for: the images of both are built at the same time. To be said before it runs."""
        if inputs:
            check(library().ejk_expect_gradient(self.address, ",".join(inputs).encode()))

    def run(self, pointers, varying=None, stream=0):
        status = self.ejk_run(self.address, self.pack(*pointers), varying, stream)
        if status:
            raise failure(status)


def prepare(kernel, views, attributes=None, cfg=None):
    """A Prepared call of `views`, a dict of _tensor.View by name; attributes as a dict, cfg as a dict or None."""
    return Prepared(kernel, views, attributes or {}, json_text(cfg))


def output(kernel, views, attributes, name):
    """(shape, element type) of an output. InputError if the inputs are not legal."""
    rank, shape = ctypes.c_int32(), (ctypes.c_int64 * 8)()
    code, bits, arguments = ctypes.c_uint8(), ctypes.c_uint8(), Arguments(views)
    check(
        library().ejk_output(
            kernel.encode(), arguments.array, arguments.count, json_text(attributes), name.encode(), rank, shape, code, bits
        )
    )
    return tuple(shape[: rank.value]), DTYPE_NAMES[code.value, bits.value]


def output_by_data(kernel, views, attributes, spec, host_view):
    """output() of a spec's output. Where its shape follows from data that lies on a device, that is read: host_view(view) copies it, or
    None, for kinds of arrays that cannot."""
    try:
        return output(kernel, views, attributes, spec.name)
    except InputError:
        there = [name for name in spec.shape_reads if name in views and views[name].device[0] != _HOST]
        if not there or host_view is None:
            raise
        return output(kernel, {**views, **{name: host_view(views[name]) for name in there}}, attributes, spec.name)


@functools.lru_cache(maxsize=None)
def result_type(kernel, outputs):
    """The named tuple of a kernel's outputs. It can be pickled, though no module has it by name."""
    made = namedtuple("".join(part.capitalize() for part in kernel.split("_")) + "Result", outputs)
    made.__reduce__ = lambda result: (_result, (kernel, outputs, tuple(result)))
    return made


def _result(kernel, outputs, values):
    return result_type(kernel, outputs)(*values)


class Kernel:
    """One kernel of the specs. The names are those of the spec, in its order; generated functions know them without the library.
    updates: ((place of an output, place of the input whose memory it is), ...); such an output is no array of its own."""

    def __init__(self, name, inputs, outputs, fixed, varying, updates=()):
        self.name, self.inputs, self.outputs, self.fixed, self.varying = name, inputs, outputs, fixed, varying
        self.updates = updates
        self.result = result_type(name, outputs)
        self.prepared = {}  # by a key of Python's objects
        self.seen = {}  # of (fixed attributes, wanted outputs, config): a Seen, where arrays can be read without Python
        self.remembered = 0  # calls in them
        self._contract = None

    @classmethod
    def of(cls, name):
        """The kernel of that name in the stores."""
        told = contract(name)
        names = [tuple(each.name for each in group) for group in (told.inputs, told.outputs, told.fixed, told.varying)]
        return cls(told.kernel, *names, told.updates)

    @property
    def contract(self):
        if self._contract is None:
            told = Kernel.of(self.name)
            for what in ("inputs", "outputs", "fixed", "varying", "updates"):
                if getattr(told, what) != getattr(self, what):
                    raise EjkError(
                        f"{self.name}: this package was made for a spec with {what} {getattr(self, what)}, the first store has one with"
                        f" {getattr(told, what)}: EJKERNEL_STORE or ejk.add_store names a store of another version"
                    )
            self._contract = contract(self.name)
        return self._contract

    @functools.cached_property
    def follows_data(self):
        """Whether an output's shape may depend on data."""
        return any(spec.shape_reads for spec in self.contract.outputs)

    def call(self, inputs, fixed, varying, outputs, wanted, cfg, stream):
        if _open_scopes.used and not _open_scopes.traced():
            _open_scopes.follow()
        first = inputs[0]
        if stream is not None and not isinstance(stream, int):  # ctypes would take the address of a text
            raise TypeError(f"{self.name}: stream must be the address of a stream, an int; found {stream!r:.80}")
        kind = _kinds.get(type(first))
        if kind is None:
            kind = _named(self.name, self.inputs[0], kind_of, first)
        return kind.call(self, inputs, fixed, varying, outputs, wanted, cfg, stream)

    def differentiated(self, inputs):
        """Names of the inputs whose gradients will be asked for after such a call, as far as is known."""
        return ()

    def remember(self, key, prepared):
        if len(self.prepared) >= _MOST_PREPARED:
            self.prepared.clear()
        self.prepared[key] = prepared

    def seen_calls(self, key, objects):
        """The Seen of this key, for one call more. objects: how libejk reads the arrays."""
        self.remembered += 1
        if self.remembered > _MOST_PREPARED:
            self.seen, self.remembered = {}, 1
        found = self.seen.get(key)
        return found or self.seen.setdefault(key, Seen(objects, len(self.inputs), len(self.outputs)))

    def attributes(self, fixed, varying):
        told = self.contract
        return {**attribute_values(self.name, told.fixed, fixed), **attribute_values(self.name, told.varying, varying)}

    def returned(self, outputs):
        """One array, or a named tuple if more were asked for."""
        for each in outputs[1:]:
            if each is not None:
                return self.result(*outputs)
        return outputs[0]


def updated_results(kernel, inputs, results):
    """Puts the inputs that the call updates among its results."""
    for output, place in kernel.updates:
        results[output] = inputs[place]
    return results


def without_updated(kind, kernel, inputs, outputs):
    """The caller's outputs without those that are the memory of an input. InputError where other memory is given for one."""
    outputs = list(outputs)
    for output, place in kernel.updates:
        given, array = outputs[output], inputs[place]
        outputs[output] = None
        if given is None or given is array:
            continue
        name = kernel.outputs[output]
        views = [_named(kernel.name, name, kind_of(each).view, each) if each is not None else None for each in (given, array)]
        if views[1] is None or views[0][:-1] != views[1][:-1]:
            raise InputError(
                f"{kernel.name}: {name} is the memory of {kernel.inputs[place]}, which the call updates; found other memory, expected"
                f" {kernel.inputs[place]} itself, or None"
            )
    return None if all(each is None for each in outputs) else tuple(outputs)


def _named(kernel, name, function, argument):
    """function(argument); what it raises says which argument of which kernel it was."""
    try:
        return function(argument)
    except (EjkError, TypeError) as error:
        raise type(error)(f"{kernel}: {name}: {error}") from None


def check_config(kernel, cfg):
    """InputError, which names the kernel, if the text is no JSON object."""
    try:
        if cfg is not None and not isinstance(json.loads(cfg), dict):
            raise InputError(f"{kernel}: cfg must be a JSON object; found {cfg.decode()!r:.80}")
    except json.JSONDecodeError as error:
        raise InputError(f"{kernel}: cfg is not JSON: {error}; found {cfg.decode()!r:.80}") from None


def config_text(cfg):
    return c_text(cfg, "cfg") if isinstance(cfg, str) else json_text(cfg, "cfg")


def kernel_name(kernel):
    """Of a function of this package, or a name."""
    name = kernel if isinstance(kernel, str) else getattr(kernel, "__name__", None)
    if name is None:
        raise TypeError(f"expected a function of ejk or a kernel's name; found {kernel!r:.80}")
    return name


def input_views(kind, kernel, inputs):
    """View of each given input by name. TypeError if one is an array of another library."""
    views = {}
    for name, array in zip(kernel.inputs, inputs):
        if array is None:
            continue
        if _named(kernel.name, name, kind_of, array) is not kind:
            raise TypeError(
                f"{kernel.name}: {name} is a {type(array).__module__}.{type(array).__qualname__}, {kernel.inputs[0]} a"
                f" {type(inputs[0]).__module__}.{type(inputs[0]).__qualname__}; expected arrays of one library"
            )
        try:
            views[name] = _named(kernel.name, name, kind.view, array)
        except ElementError as error:
            raise InputError(f"{error}; it takes {', '.join(element_types(kernel.contract, name))}") from None
    for _, place in kernel.updates:
        if inputs[place] is not None and not kind.writable(inputs[place]):
            raise InputError(f"{kernel.name}: {kernel.inputs[place]} is read-only, and the call updates it: give a copy")
    return views


def output_view(kind, kernel, name, array):
    if _named(kernel.name, name, kind_of, array) is not kind:
        raise TypeError(f"{kernel.name}: {name} is a {type(array).__qualname__}; expected an array of the inputs' library")
    if not kind.writable(array):
        raise InputError(f"{kernel.name}: {name} is read-only")
    return _named(kernel.name, name, kind.view, array)


def plan_outputs(kind, kernel, views, attributes, outputs, wanted):
    """(views of all outputs, outputs to make): given ones as they are, wanted ones by shape, without data."""
    device, planned, makes = next(iter(views.values())).device, {}, []
    from ._tensor import View

    for index, spec in enumerate(kernel.contract.outputs):
        if spec.updates:
            continue
        given = outputs[index] if outputs else None
        if given is not None:
            planned[spec.name] = output_view(kind, kernel, spec.name, given)
        elif wanted[index] or not spec.optional:
            shape, dtype = output_by_data(kernel.name, views, attributes, spec, getattr(kind, "host_view", None))
            planned[spec.name] = View(None, shape, None, dtype, device)
            makes.append((index, shape, dtype))
    return planned, makes


def shapes_follow_data(kernel, inputs):
    """Whether an output's shape depends on data of these inputs: then shapes alone do not tell what to prepare."""
    given = {name for name, array in zip(kernel.inputs, inputs) if array is not None}
    return any(given.intersection(spec.shape_reads) for spec in kernel.contract.outputs)


def other_form(told, views):
    """Where the first input has the rank of a form that needs an input which was not given: what that form is."""
    first, given = told.inputs[0], views.keys()
    rank = len(views[first.name].shape)
    ranks = {form: len(extents) for form, extents in first.shapes}
    if len(set(ranks.values())) == 1:
        return ""
    for form in (form for form in ranks if ranks[form] == rank):
        missing = [x.name for x in told.inputs if x.optional and x.name not in given and {one for one, _ in x.shapes} == {form}]
        if missing:
            return f"; with {rank} dimensions it is of the form '{form}', which needs {' and '.join(missing)}"
    return ""


def prepare_call(kind, kernel, inputs, fixed, varying, outputs, wanted, cfg):
    check_config(kernel.name, cfg)
    views, attributes = input_views(kind, kernel, inputs), kernel.attributes(fixed, varying)
    try:
        planned, makes = plan_outputs(kind, kernel, views, attributes, outputs, wanted)
    except InputError as error:
        raise InputError(f"{error}{other_form(kernel.contract, views) if 'dimensions' in str(error) else ''}") from None
    for name in kernel.varying:  # each run gives its own
        attributes.pop(name, None)
    prepared = Prepared(kernel.name, {**views, **planned}, attributes, cfg)
    prepared.expect_gradient(kernel.differentiated(inputs))
    prepared.makes, prepared.no_values = tuple(makes), (None,) * len(varying)
    return prepared


def through(kind, kernel, inputs, fixed, varying, outputs, wanted, cfg, stream):
    """The call of a kind that has key(array), which is another for arrays of another type, and pointer(array)."""
    cfg = config_text(cfg)
    if kernel.updates and outputs:
        outputs = without_updated(kind, kernel, inputs, outputs)
    try:
        key = (
            kind,
            fixed,
            wanted,
            cfg,
            kernel.updates and tuple([inputs[place] is None or kind.writable(inputs[place]) for _, place in kernel.updates]),
            tuple([None if array is None else kind.key(array) for array in inputs]),
            outputs and tuple([None if array is None else (kind.key(array), kind.writable(array)) for array in outputs]),
        )
        prepared = kernel.prepared.get(key)
    except (AttributeError, TypeError):  # an argument of the wrong type: preparing says which
        key = prepared = None
    if prepared is None:
        prepared = prepare_call(kind, kernel, inputs, fixed, varying, outputs, wanted, cfg)
        if key is not None and not shapes_follow_data(kernel, inputs):
            kernel.remember(key, prepared)
    results = list(outputs) if outputs else [None] * len(kernel.outputs)
    for index, shape, dtype in prepared.makes:
        results[index] = kind.empty(shape, dtype, inputs[0])
    pointers = [kind.pointer(array) for array in inputs if array is not None]
    pointers += [kind.pointer(array) for array in results if array is not None]
    values = values_of(kernel, varying) if varying != prepared.no_values else None
    prepared.run(pointers, values, kind.stream(inputs[0]) if stream is None else stream)
    return kernel.returned(updated_results(kernel, inputs, results) if kernel.updates else results)


def values_of(kernel, varying):
    """The varying attributes of this call, packed. InputError for a value that its type does not have."""
    specs = kernel.contract.varying
    for spec, value in zip(specs, varying):
        if value is not None and type(value) is not CONVERT[spec.type]:
            attribute_values(kernel.name, specs, varying)
            break
    return packed_values(specs, varying)


def by_views(kind, kernel, inputs, fixed, varying, outputs, wanted, cfg, stream):
    """The call of a kind whose arrays must be exported anew each time: nothing is remembered."""
    check_config(kernel.name, config_text(cfg))
    views, attributes = input_views(kind, kernel, inputs), kernel.attributes(fixed, varying)
    if kernel.updates and outputs:
        outputs = without_updated(kind, kernel, inputs, outputs)
    results = list(outputs) if outputs else [None] * len(kernel.outputs)
    planned, makes = plan_outputs(kind, kernel, views, attributes, outputs, wanted)
    for index, shape, dtype in makes:
        results[index] = kind.empty(shape, dtype, inputs[0])
        planned[kernel.outputs[index]] = output_view(kind, kernel, kernel.outputs[index], results[index])
    arguments = Arguments({**views, **planned})
    stream = kind.stream(inputs[0]) if stream is None else stream
    check(
        library().ejk_call(
            kernel.name.encode(), arguments.array, arguments.count, json_text(attributes), config_text(cfg), stream
        )
    )
    results = [None if each is None else kind.finished(each, inputs[0]) for each in results]
    return kernel.returned(updated_results(kernel, inputs, results))
