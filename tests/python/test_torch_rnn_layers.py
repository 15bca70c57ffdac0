"""ejk.rnn_layers on PyTorch's tensors: torch.nn.LSTM, GRU and RNN with their own weights, in float64 on the CPU, values and every gradient."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

import ejk  # noqa: E402
from ejk import _dropout  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
B, T, I, H, LAYERS = 3, 7, 5, 6, 2
LENGTHS = [4, T, 1]
KINDS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn_tanh": torch.nn.RNN, "rnn_relu": torch.nn.RNN}


def error(found, expected):
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    assert found.shape == expected.shape
    return float((found - expected).norm() / max(expected.norm(), 1e-2 * expected.numel() ** 0.5))


def module(cell, layers=LAYERS, **options):
    if cell.startswith("rnn_"):
        options["nonlinearity"] = cell[4:]
    torch.manual_seed(0)
    return KINDS[cell](I, H, layers, batch_first=True, **options)


def draw(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, dtype="f4"))


def theirs(layer, x, states, lengths):
    """(y, h_n, c_n) of torch.nn's module, by packed sequences where there are lengths."""
    if lengths is not None:
        x = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    y, last = layer(x, states)
    if lengths is not None:
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=T)
    return y, *(last if isinstance(last, tuple) else (last,))


def compare(cell, device, dtype, lengths, limit, **options):
    layer = module(cell, **options).to(dtype)  # rounded once, for both
    directions, lstm = 2 if options.get("bidirectional") else 1, cell == "lstm"
    leaf = lambda a, where, what: a.to(where, what).detach().clone().requires_grad_()  # noqa: E731
    x, h0, c0 = draw(1, B, T, I).to(dtype), draw(2, LAYERS * directions, B, H), draw(3, LAYERS * directions, B, H)

    wide = module(cell, **options).to(torch.float64)
    wide.load_state_dict({k: v.double() for k, v in layer.state_dict().items()})
    inputs = [leaf(each, "cpu", torch.float64) for each in (x, h0, c0)]
    expected = theirs(wide, inputs[0], (inputs[1], inputs[2]) if lstm else inputs[1], lengths)

    layer = layer.to(device)
    mine = [leaf(x, device, dtype), leaf(h0, device, torch.float32), leaf(c0, device, torch.float32)]
    weights = dict(layer.named_parameters())
    found = ejk.rnn_layers(
        mine[0],
        weights,
        h0=mine[1],
        c0=mine[2] if lstm else None,
        lengths=None if lengths is None else torch.tensor(lengths, dtype=torch.int32, device=device),
        cell_type=cell,
    )
    found = [each for each in found if each is not None]
    assert len(found) == len(expected)
    for name, a, b in zip(("y", "h_n", "c_n"), found, expected):
        assert error(a, b) < limit, name
    sums = [draw(9 + i, *each.shape) for i, each in enumerate(expected)]
    sum((a.double() * b).sum() for a, b in zip(expected, sums)).backward()
    sum((a.float() * b.to(device)).sum() for a, b in zip(found, sums)).backward()
    for name, a, b in zip(("x", "h0", "c0"), mine, inputs):
        if b.grad is not None:
            assert error(a.grad, b.grad) < 2 * limit, name
    for name, parameter in wide.named_parameters():
        assert error(weights[name].grad, parameter.grad) < 2 * limit, name


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", KINDS)
@pytest.mark.parametrize("device", DEVICES)
def test_values_and_gradients_are_those_of_torch_nn(device, cell, bidirectional, lengths):
    compare(cell, device, torch.float32, lengths, 1e-5, bidirectional=bidirectional)


@pytest.mark.parametrize("device", DEVICES)
def test_a_layer_without_biases(device):
    compare("gru", device, torch.float32, LENGTHS, 1e-5, bidirectional=True, bias=False)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)])
@pytest.mark.parametrize("device", DEVICES)
def test_of_16_bits(device, dtype, limit):
    """The limits are those of one layer, twice: two layers are rounded."""
    compare("lstm", device, dtype, LENGTHS, limit, bidirectional=True)


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_is_numpys_and_its_gradient_too(device):
    layer = module("lstm", bidirectional=True)
    x, limit = draw(1, B, T, I), _dropout.threshold(0.4)
    lower, upper = module("lstm", 1, bidirectional=True), torch.nn.LSTM(2 * H, H, 1, batch_first=True, bidirectional=True)
    state = layer.state_dict()
    lower.load_state_dict({k: v for k, v in state.items() if "_l0" in k})
    upper.load_state_dict({k.replace("_l1", "_l0"): v for k, v in state.items() if "_l1" in k})
    between, _ = lower(x)
    mask = torch.from_numpy(_dropout.kept(np.zeros(between.shape, np.float32), limit, 21, 1))
    y, _ = upper(torch.where(mask, between / (1 - limit / 65536), torch.zeros(())))
    (y**2).sum().backward()
    layer = layer.to(device)
    found = ejk.rnn_layers(x.to(device), dict(layer.named_parameters()), dropout=0.4, dropout_seed=21)
    assert error(found.y, y) < 1e-5
    (found.y**2).sum().backward()
    for name, parameter in layer.named_parameters():
        mine = lower if "_l0" in name else upper
        assert error(parameter.grad, mine.get_parameter(name.replace("_l1", "_l0")).grad) < 2e-5, name


@pytest.mark.parametrize("device", DEVICES)
def test_weights_go_to_numpy_and_come_from_it(device):
    layer = module("gru").to(device, torch.bfloat16)
    x = draw(1, B, T, I)
    state = {"rnn." + k: v for k, v in layer.state_dict().items()}
    of_numpy = ejk.rnn_weights(state, prefix="rnn.", like=x.numpy())
    assert all(isinstance(part, np.ndarray) and part.dtype == np.float32 for each in of_numpy for part in each.values())
    back = ejk.rnn_weights({k: v.float().cpu().numpy() for k, v in layer.state_dict().items()}, like=x.to(device))
    assert back[0]["w_ih"].device.type == device and back[0]["w_ih"].dtype == torch.float32
    y = ejk.rnn_layers(x.to(device), back, cell_type="gru").y
    assert error(y, torch.from_numpy(ejk.rnn_layers(x.numpy(), of_numpy, cell_type="gru").y)) < 1e-5


def test_weights_of_one_direction_are_not_copied():
    layer = module("lstm")
    layers = ejk.rnn_weights(dict(layer.named_parameters()))
    assert layers[0]["w_ih"].data_ptr() == layer.weight_ih_l0.data_ptr()
