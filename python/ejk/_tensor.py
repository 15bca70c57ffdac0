"""What kind of array an argument is, and what a call needs of it: address, shape, strides, element type, device.

A kind is a module-like object with
    call(kernel, inputs, fixed, varying, outputs, wanted, cfg, stream)   a whole call; see _call.py
    view(array)             View: everything a call needs to know
    empty(shape, dtype, like)   an output of this kind beside `like`
    host_view(view)         View of a copy on the host, of one on a device; a kind may lack it
    stream(like)            the address of the stream that calls of this kind go to, 0 on the host
`kind_of(array)` finds it by the array's type. The kinds stand on this module and on _call.py; _array_libraries.py, above them, knows which there
are.
"""

from collections import namedtuple

# pointer: of the first element. strides: in elements. dtype: the spec's name ("bf16"). device: (DLPack's type, index).
# keep: whatever must live until the call has returned.
View = namedtuple("View", "pointer shape strides dtype device keep", defaults=[None])

_kinds = {}  # type: kind
_finder = None  # of the kind of a type that was not seen before: _array_libraries.find


def kind_of(array):
    kind = _kinds.get(type(array))
    return kind if kind is not None else _finder(array)
