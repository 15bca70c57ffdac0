"""A kernel's contract, as the library tells it (ejk_describe): what arguments it has, in the order of its spec."""

import functools
import json
from dataclasses import dataclass

from ._library import c_text, text


@dataclass(frozen=True)
class TensorSpec:
    name: str
    doc: str
    type: str  # a type variable of the contract ("E") or an element type ("i32")
    shapes: tuple  # of (form or "", extents as the spec writes them: ("B", "Sq", "Hq|1", "C..."))
    optional: bool
    output: bool
    shape_reads: tuple  # outputs: inputs whose data, not only shape, decides the output's shape


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
    tensors: tuple  # inputs, then outputs
    attributes: tuple
    requires: tuple  # of {"that", "else", "reads"}
    gradient: tuple  # steps: {"kernel"[, "tensors", "attributes"]} or {"tensor", "is"}
    batch: "dict | None"  # {"dim", "if"}: along this dim calls are independent

    @functools.cached_property
    def inputs(self):
        return tuple(tensor for tensor in self.tensors if not tensor.output)

    @functools.cached_property
    def outputs(self):
        return tuple(tensor for tensor in self.tensors if tensor.output)

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


def _attribute(entry):
    return AttributeSpec(**{"default": None, **entry, "choices": tuple(entry["choices"])})


@functools.lru_cache(maxsize=None)
def contract(kernel):
    """The contract of a kernel. InputError for a name that no store has."""
    told = json.loads(text("ejk_describe", c_text(kernel, "a kernel's name")))
    return Contract(
        kernel=told["kernel"],
        doc=told["doc"],
        dims=told["dims"],
        types=told["types"],
        forms=tuple(told["forms"]),
        tensors=tuple(_tensor(entry) for entry in told["tensors"]),
        attributes=tuple(_attribute(entry) for entry in told["attributes"]),
        requires=tuple(told["requires"]),
        gradient=tuple(told["gradient"]),
        batch=told.get("batch"),
    )


def differentiated(name, inputs):
    """The input whose gradient `name` is: x of "dx", "d_x", "grad_x", "x_grad"; None for other names."""
    return next((x for x in inputs if name in (f"d{x}", f"d_{x}", f"grad_{x}", f"{x}_grad")), None)


@functools.lru_cache(maxsize=None)
def outputs_read(kernel, wanted):
    """Outputs that the gradient of a call reads, if the caller wants those: what the call must keep. What the gradient's kernel takes or
    leaves, it takes only if it was wanted."""
    told, read = contract(kernel), set()
    for step in told.gradient:
        if "kernel" in step:
            for each in contract(step["kernel"]).inputs:
                name = step["tensors"].get(each.name) if "tensors" in step else each.name
                if not each.optional or name in wanted:
                    read.add(name)
    return tuple(each.name for each in told.outputs if each.name in read)
