"""Several recurrent layers: ejk.rnn_layers, which calls ejk.rnn a layer, and ejk.rnn_weights, which takes weights as torch.nn has them."""

from __future__ import annotations

import re
from collections import namedtuple

from ._dropout import _library_of, dropped, threshold
from ._errors import InputError
from ._functions import rnn

Array = object  # in annotations: NumPy's, JAX's or PyTorch's
Layer = dict  # {"w_ih": [dirs, G * H, I], "w_hh": [dirs, G * H, H], "b_ih": [dirs, G * H], "b_hh": likewise}; without biases, or with either

__all__ = ["RnnLayersResult", "rnn_layers", "rnn_weights"]

RnnLayersResult = namedtuple("RnnLayersResult", ("y", "h_n", "c_n"))

_NAME = re.compile(r"(weight|bias)_(ih|hh|hr)_l(0|[1-9]\d*)(_reverse)?")
_PARTS = {"w_ih": 3, "w_hh": 3, "b_ih": 2, "b_hh": 2}  # and their dimensions
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _like(array, like):
    """The array, of any of the libraries, as one of like's: its library, device and element type."""
    torch, xp = _library_of(like)
    if _library_of(array)[0]:
        if torch:
            return array.to(like.device, like.dtype)
        array = array.detach().cpu()
        array = (array.float() if array.element_size() < 4 else array).numpy()
    if torch:
        import numpy

        array = numpy.asarray(array)
        return torch.from_numpy(numpy.array(array, array.dtype if array.dtype.kind in "fiu" else "float32")).to(like.device, like.dtype)
    return xp.asarray(array, like.dtype)


def _stacked(arrays):
    torch, xp = _library_of(arrays[0])
    if len(arrays) == 1:
        return arrays[0][None]
    return (torch or xp).stack(arrays)


def _is(thing):
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _shape(name, array):
    if not hasattr(array, "shape"):
        raise InputError(f"{name} is a {_is(array)}; expected an array of NumPy, JAX or PyTorch")
    return list(array.shape)


def _found(state, prefix):
    """{(part, layer, direction): array} of the names behind the prefix."""
    if not hasattr(state, "items"):
        raise InputError(f"weights are a {_is(state)}; expected a dict of arrays by torch.nn's names, such as {prefix}weight_ih_l0")
    found = {}
    for name, array in state.items():
        if not isinstance(name, str):
            raise InputError(f"weights have the name {name!r:.80}; expected names such as {prefix}weight_ih_l0")
        if not name.startswith(prefix):
            continue
        match = _NAME.fullmatch(name[len(prefix) :])
        if not match:
            raise InputError(f"weights have '{name}'; expected names such as {prefix}weight_ih_l0, {prefix}bias_hh_l1_reverse")
        kind, part, layer, reverse = match.groups()
        if part == "hr":
            raise InputError(f"weights have '{name}': an LSTM with proj_size, which ejk.rnn has not; expected proj_size=0")
        _shape(f"weights' '{name}'", array)
        found[f"{kind[0]}_{part}", int(layer), bool(reverse)] = array
    if not found:
        raise InputError(f"weights have no name that begins with '{prefix}'; expected {prefix}weight_ih_l0 and so on" if prefix else "weights are empty")
    return found


def rnn_weights(state: dict, *, prefix: str = "", like: Array | None = None) -> list[Layer]:
    """Layers for rnn_layers of what torch.nn.LSTM, GRU or RNN names weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_ih_l0_reverse, and so on.

    state: a state_dict or dict(module.named_parameters()), or arrays of NumPy or JAX by those names. prefix: of a larger module, such as "encoder.lstm.": only names
    that begin with it are read. like: the arrays are converted to its library, device and element type; None: they stay what they are, and gradients
    flow to them. Gates are in PyTorch's order, which is ejk.rnn's, so that nothing is moved. Directions are stacked: of one direction it is a view in PyTorch."""
    found = _found(state, prefix)
    count, directions = 1 + max(layer for _, layer, _ in found), 1 + max(reverse for _, _, reverse in found)
    parts = [part for part in _PARTS if any(part == each for each, _, _ in found) or part[0] == "w"]
    layers = []
    for layer in range(count):
        made = {}
        for part in parts:
            names = [(part, layer, bool(direction)) for direction in range(directions)]
            missing = [name for name in names if name not in found]
            if missing:
                kind = {"w": "weight", "b": "bias"}[part[0]]
                told = f"{prefix}{kind}_{part[2:]}_l{layer}{'_reverse' if missing[0][2] else ''}"
                raise InputError(f"weights have no '{told}'; expected it of each of {count} layers in {directions} direction{'s' if directions > 1 else ''}")
            made[part] = _stacked([found[name] if like is None else _like(found[name], like) for name in names])
        layers.append(made)
    return layers


def _check_layer(number, layer, cell_type, directions):
    if not hasattr(layer, "get"):
        raise InputError(f"weights of layer {number} are a {_is(layer)}; expected a dict of w_ih, w_hh and perhaps b_ih, b_hh")
    strange = sorted(set(layer) - set(_PARTS))
    missing = [name for name in ("w_ih", "w_hh") if layer.get(name) is None]
    if strange or missing:
        wrong = f"has {', '.join(map(repr, strange))}" if strange else f"has no {missing[0]}"
        raise InputError(f"weights of layer {number}: it {wrong}; expected w_ih, w_hh and perhaps b_ih, b_hh")
    for name, rank in _PARTS.items():
        shape = None if layer.get(name) is None else _shape(f"weights of layer {number}: {name}", layer[name])
        if shape is not None and len(shape) != rank:
            raise InputError(f"weights of layer {number}: {name} has shape {shape}; expected {rank} dimensions, the first the directions")
    if directions not in (1, 2) or layer["w_ih"].shape[0] != directions:
        raise InputError(f"weights of layer {number}: w_ih has {layer['w_ih'].shape[0]} directions; expected {directions if directions in (1, 2) else '1 or 2'}, as of layer 0")
    rows, features = layer["w_hh"].shape[1:]
    if rows != _GATES[cell_type] * features:
        raise InputError(
            f"weights of layer {number}: w_hh has {rows} rows of {features}; expected {_GATES[cell_type] * features}, {_GATES[cell_type]} gates of a cell '{cell_type}'"
        )
    for name in _PARTS:
        if layer.get(name) is not None and layer[name].shape[1] != rows:
            raise InputError(f"weights of layer {number}: {name} has {layer[name].shape[1]} rows; expected {rows}, as w_hh has")


def _check_features(number, layer, below, hidden):
    """below: features of the layer's input, None where x tells them."""
    takes, has = layer["w_ih"].shape[2], layer["w_hh"].shape[2]
    if has != hidden:
        raise InputError(f"weights of layer {number}: w_hh has {has} features; expected {hidden}, as of layer 0")
    if below is not None and takes != below:
        raise InputError(f"weights of layer {number}: w_ih takes {takes} features; expected {below}, which layer {number - 1} gives")


def _layers(weights, cell_type):
    """The layers, checked, as a list."""
    if cell_type not in _GATES:
        raise InputError(f"cell_type is {cell_type!r:.80}; expected one of {', '.join(_GATES)}")
    if isinstance(weights, str) or not (hasattr(weights, "items") or hasattr(weights, "__iter__")):
        raise InputError(f"weights are a {_is(weights)}; expected a list of layers, or a dict of torch.nn's names")
    layers = rnn_weights(weights) if hasattr(weights, "items") else list(weights)
    if not layers:
        raise InputError("weights have no layer; expected one or more")
    for number, layer in enumerate(layers):
        first = layers[0].get("w_ih") if hasattr(layers[0], "get") else None
        _check_layer(number, layer, cell_type, first.shape[0] if getattr(first, "shape", None) else 0)
        directions, _, hidden = layers[0]["w_hh"].shape
        _check_features(number, layer, directions * hidden if number else None, hidden)
    return layers


def _state(name, state, layers, directions):
    """The first state in f32, checked, or None."""
    if state is None:
        return None
    shape = _shape(name, state)
    if len(shape) != 3 or shape[0] != len(layers) * directions:
        raise InputError(f"{name} has shape {shape}; expected [{len(layers) * directions}, B, H]: of {len(layers)} layers, each {directions} long")
    torch, xp = _library_of(state)
    return state.float() if torch else state.astype(xp.float32)


def _joined(states):
    if states[0] is None:
        return None
    if len(states) == 1:
        return states[0]
    torch, xp = _library_of(states[0])
    return torch.cat(states) if torch else xp.concatenate(states)


def rnn_layers(
    x: Array,
    weights,
    *,
    h0: Array | None = None,
    c0: Array | None = None,
    lengths: Array | None = None,
    cell_type: str = "lstm",
    dropout: float = 0.0,
    dropout_seed: int | None = None,
    keep_gates: bool = True,
) -> RnnLayersResult:
    """Recurrent layers one above the other, each a call of ejk.rnn, on the arrays of NumPy, JAX (also under jit and grad) or PyTorch (also under autograd).

    x: [B, T, I] of f32, f16 or bf16, batch first. weights: a list of layers, {"w_ih": [dirs, G * H, I], "w_hh": [dirs, G * H, H], "b_ih": [dirs, G * H],
    "b_hh": likewise}, the biases optional, of x's type; or a dict of torch.nn's names (see rnn_weights). Layers of two directions get both directions' features of
    the layer below. h0, c0 (LSTM): [layers * dirs, B, H], as in torch.nn; None: 0. lengths: i32 [B], valid tokens of each row, 0 to T; None: all.
    dropout: the probability that an element of the input of each layer but the first is 0; what stays is divided by the share that stays. Leave it 0 where the model
    is not being trained. dropout_seed: an integer of 64 bits (in JAX also an array, which may be traced), needed with dropout: another one each step. Which elements
    stay follows from the seed, the layer and the place alone, the same in every library and on every device. keep_gates: as of ejk.rnn; False keeps less for the gradient, which takes longer.

    Returns (y, h_n, c_n): y [B, T, dirs * H] of the last layer, 0 past a row's length; h_n and c_n, None unless LSTM, [layers * dirs, B, H] in f32. InputError names what is wrong."""
    layers = _layers(weights, cell_type)
    directions = layers[0]["w_ih"].shape[0]
    h0, c0 = _state("h0", h0, layers, directions), _state("c0", c0, layers, directions)
    if threshold(dropout) and len(layers) > 1 and dropout_seed is None:
        raise InputError(f"dropout is {dropout} and dropout_seed is not given; expected an integer, another one each step")
    states, memories, lstm = [], [], cell_type == "lstm"
    for number, layer in enumerate(layers):
        part = slice(number * directions, (number + 1) * directions)
        if number and dropout:
            x = dropped(x, dropout, dropout_seed, number)
        x, h_n, c_n = rnn(
            x,
            layer["w_ih"],
            layer["w_hh"],
            h0=None if h0 is None else h0[part],
            c0=None if c0 is None else c0[part],
            b_ih=layer.get("b_ih"),
            b_hh=layer.get("b_hh"),
            lengths=lengths,
            cell_type=cell_type,
            bidirectional=directions == 2,
            keep_gates=keep_gates,
            return_c_n=lstm,
        )
        states.append(h_n), memories.append(c_n)
    return RnnLayersResult(x, _joined(states), _joined(memories))
