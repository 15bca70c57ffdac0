"""A kernel's contract, as the library tells it (ejk_describe): what arguments it has, in the order of its spec."""

import functools
import json
from dataclasses import dataclass, replace

from ._library import c_text, text


@dataclass(frozen=True)
class TensorSpec:
    name: str
    doc: str
    type: str  # a type variable of the contract ("E") or an element type ("i32")
    shapes: tuple  # of (form or "", extents as the spec writes them: ("B", "Sq", "Hq|1", "C..."))
    optional: bool
    output: bool
    for_gradient: bool  # outputs: made only where a gradient will be taken; none of Contract.outputs
    updated_as: str  # inputs: the output that is this memory after the call; "": the input is only read
    shape_reads: tuple  # outputs: inputs whose data, not only shape, decides the output's shape
    updates: str = ""  # outputs: the input whose memory it is; "": an array of its own


@dataclass(frozen=True)
class AttributeSpec:
    name: str
    doc: str
    type: str  # "bool", "int", "float", "string"
    optional: bool  # may be absent, which means something of its own
    varies: bool  # differs from call to call: no part of what is cached
    choices: tuple
    default: "str | None"  # an expression; None: no default


@dataclass(frozen=True)
class Contract:
    kernel: str
    doc: str
    dims: dict  # name: doc
    types: dict  # type variable: element types
    forms: tuple  # of {"name", "doc", "when"}
    tensors: tuple  # inputs, then outputs that are arrays of their own: the order of the packed call
    outputs: tuple  # all, also those that are the memory of an input that the call updates
    attributes: tuple
    requires: tuple  # of {"that", "else", "reads"}
    gradient: tuple  # steps: {"kernel"[, "tensors", "attributes"]} or {"tensor", "is"}
    batch: "dict | None"  # {"dim", "if"}: along this dim calls are independent

    @functools.cached_property
    def inputs(self):
        return tuple(tensor for tensor in self.tensors if not tensor.output)

    @functools.cached_property
    def saved(self):
        """Outputs for the gradient alone."""
        return tuple(tensor for tensor in self.tensors if tensor.for_gradient)

    @functools.cached_property
    def updates(self):
        """((place of an output, place of the input that it updates), ...)."""
        places = {each.name: place for place, each in enumerate(self.inputs)}
        return tuple((place, places[each.updates]) for place, each in enumerate(self.outputs) if each.updates)

    @functools.cached_property
    def fixed(self):
        """Attributes that a config may depend on."""
        return tuple(attribute for attribute in self.attributes if not attribute.varies)

    @functools.cached_property
    def varying(self):
        return tuple(attribute for attribute in self.attributes if attribute.varies)


def kernel_names():
    """The kernels of the stores, sorted."""
    return json.loads(text("ejk_kernels"))


def _tensor(entry):
    shapes = tuple((shape["form"], tuple(shape["extents"])) for shape in entry["shapes"])
    fields = {**entry, "shapes": shapes, "shape_reads": tuple(entry["shape_reads"])}
    return TensorSpec(**fields)


def _output(entry, tensors):
    """An output that updates an input has its type, its shapes, and is there where the input is."""
    if not entry["updates"]:
        return tensors[entry["name"]]
    rest = {"name": entry["name"], "doc": entry["doc"], "output": True, "updated_as": "", "updates": entry["updates"]}
    return replace(tensors[entry["updates"]], **rest)


def _attribute(entry):
    return AttributeSpec(**{"default": None, **entry, "choices": tuple(entry["choices"])})


@functools.lru_cache(maxsize=None)
def contract(kernel):
    """The contract of a kernel. InputError for a name that no store has."""
    told = json.loads(text("ejk_describe", c_text(kernel, "a kernel's name")))
    tensors = tuple(_tensor(entry) for entry in told["tensors"])
    by_name = {tensor.name: tensor for tensor in tensors}
    return Contract(
        kernel=told["kernel"],
        doc=told["doc"],
        dims=told["dims"],
        types=told["types"],
        forms=tuple(told["forms"]),
        tensors=tensors,
        outputs=tuple(_output(entry, by_name) for entry in told["outputs"]),
        attributes=tuple(_attribute(entry) for entry in told["attributes"]),
        requires=tuple(told["requires"]),
        gradient=tuple(told["gradient"]),
        batch=told.get("batch"),
    )


def element_types(told, name):
    """Those that an input may have."""
    type_ = next(each.type for each in told.inputs if each.name == name)
    listed = told.types.get(type_, (type_,))
    return tuple(listed.get("any", ()) if isinstance(listed, dict) else listed)


def differentiated(name, inputs):
    """The input whose gradient `name` is: x of "dx", "d_x", "grad_x", "x_grad"; None for other names."""
    return next((x for x in inputs if name in (f"d{x}", f"d_{x}", f"grad_{x}", f"{x}_grad")), None)


def _names_read(kernel, wanted):
    """Names of the kernel that steps of its gradient read. What a step takes or leaves, it takes only if it was wanted, or is there for it."""
    told, read = contract(kernel), set()
    there = {*wanted, *(each.name for each in told.saved)}
    for step in told.gradient:
        if "kernel" in step:
            for each in contract(step["kernel"]).inputs:
                name = step["tensors"].get(each.name) if "tensors" in step else each.name
                if not each.optional or name in there:
                    read.add(name)
    return read


@functools.lru_cache(maxsize=None)
def outputs_read(kernel, wanted):
    """Outputs that the gradient of a call reads, if the caller wants those: what the call must keep."""
    told, read = contract(kernel), _names_read(kernel, wanted)
    return tuple(each.name for each in told.outputs + told.saved if each.name in read)


@functools.lru_cache(maxsize=None)
def updated_and_read(kernel):
    """Updated inputs whose value before the call the gradient reads."""
    told = contract(kernel)
    return frozenset(told.inputs[place].name for _, place in told.updates) & _names_read(kernel, tuple(x.name for x in told.inputs))


def calls_needed(calls, inputs, needed):
    """[(call, {its output: (the input whose gradient it is or None, the name that later calls take it by)})]: those of a gradient's calls
    (ejk_gradient) without which a gradient that is needed could not be made, in order, with the outputs that they are asked for: required
    ones always."""
    taken, result = set(), []
    for call in reversed(calls):
        ours, outputs = call["tensors"], call["outputs"]
        of = {name: (differentiated(ours[name], inputs), ours[name]) for name in outputs}
        used = {name for name, (x, temporary) in of.items() if x in needed or (x is None and temporary in taken)}
        if used:
            optional = {each.name for each in contract(call["kernel"]).tensors if each.output and each.optional}
            result.append((call, {name: each for name, each in of.items() if name in used or name not in optional}))
            taken.update(name for theirs, name in ours.items() if theirs not in of)
    return result[::-1]
