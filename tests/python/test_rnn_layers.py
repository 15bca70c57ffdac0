"""ejk.rnn_layers and ejk.rnn_weights on NumPy's arrays: values against plain loops in float64, dropout, and what is refused."""

import pathlib
import re

import numpy as np
import pytest
import references
from references import GATES, error, rnn_state

import ejk
from ejk import _dropout

B, T, I, H = 3, 5, 4, 6
LENGTHS = np.array([T, 0, 3], np.int32)


def case(cell, layers, directions, bias=True, seed=1):
    """(x, weights, h0, c0)"""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.standard_normal(shape, dtype="f4")  # noqa: E731
    return draw(B, T, I), rnn_state(rng, cell, layers, directions, I, H, bias), draw(layers * directions, B, H), draw(layers * directions, B, H)


def expected(cell, layers, directions, x, state, h0, c0, lengths=LENGTHS, **more):
    wide = lambda a: np.asarray(a, np.float64)  # noqa: E731
    return references.rnn_layers(np, wide(x), {k: wide(v) for k, v in state.items()}, cell, layers, directions, wide(h0), wide(c0), lengths, **more)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("cell", GATES)
def test_values_are_those_of_plain_loops(cell, layers, directions):
    x, state, h0, c0 = case(cell, layers, directions)
    lstm = cell == "lstm"
    found = ejk.rnn_layers(x, state, h0=h0, c0=c0 if lstm else None, lengths=LENGTHS, cell_type=cell)
    y, h_n, c_n = expected(cell, layers, directions, x, state, h0, c0)
    assert error(found.y, y) < 1e-5 and error(found.h_n, h_n) < 1e-5
    assert error(found.c_n, c_n) < 1e-5 if lstm else found.c_n is None


@pytest.mark.parametrize("cell", GATES)
def test_more_rows_than_are_multiplied_at_once(cell):
    """The variant for CPUs makes inputs' products of 256 rows before their steps: here of two steps, the last time of one."""
    rng = np.random.default_rng(7)
    rows, x = 96, rng.standard_normal((96, T, I), dtype="f4")
    state, none = rnn_state(rng, cell, 1, 2, I, H, True), np.zeros((2, 96, H), "f4")
    lengths = rng.integers(0, T + 1, rows).astype("i4")
    found = ejk.rnn_layers(x, state, lengths=lengths, cell_type=cell)
    y, h_n, _ = expected(cell, 1, 2, x, state, none, none, lengths)
    assert error(found.y, y) < 1e-5 and error(found.h_n, h_n) < 1e-5


def test_states_biases_and_lengths_may_be_left_out():
    x, state, h0, c0 = case("gru", 2, 2, bias=False)
    found = ejk.rnn_layers(x, ejk.rnn_weights(state), cell_type="gru")
    y, h_n, _ = expected("gru", 2, 2, x, state, 0 * h0, 0 * c0, np.full(B, T))
    assert error(found.y, y) < 1e-5 and error(found.h_n, h_n) < 1e-5 and found.c_n is None


def test_states_of_another_type_are_taken_as_f32():
    x, state, h0, c0 = case("lstm", 2, 1)
    wide = ejk.rnn_layers(x, state, h0=h0.astype("f8"), c0=c0.astype("f8"))
    assert (wide.y == ejk.rnn_layers(x, state, h0=h0, c0=c0).y).all() and wide.h_n.dtype == np.float32


def test_philox_gives_the_known_answers():
    """Of Random123's kat_vectors for philox4x32, 10 rounds."""
    words = lambda *w: [np.array([each], np.uint32) for each in w]  # noqa: E731
    for counter, key, answer in (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ):
        assert [int(each[0]) for each in _dropout.philox(words(*counter), words(*key), np.uint32)] == list(answer)


def by_definition(b, t, f, seed, layer):
    """The number of one element, from docs/semantics.md, "rnn", in Python's integers."""
    a, key = [f // 8, t, b, layer], [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        one, two = a[0] * 0xD2511F53, a[2] * 0xCD9E8D57
        a = [two >> 32 ^ a[1] ^ key[0], two & 0xFFFFFFFF, one >> 32 ^ a[3] ^ key[1], one & 0xFFFFFFFF]
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return a[f % 8 // 2] >> 16 * (f % 2) & 0xFFFF


@pytest.mark.parametrize("seed", [0, 7, 2**63 + 5, -3])
def test_the_elements_that_stay_are_those_of_the_definition(seed):
    limit = _dropout.threshold(0.3)
    found = _dropout.kept(np.zeros((2, 3, 13), np.float32), limit, seed, 2)
    assert found.tolist() == [[[by_definition(b, t, f, seed, 2) >= limit for f in range(13)] for t in range(3)] for b in range(2)]


def test_dropout_is_between_layers_and_divides_by_the_share_that_stays():
    x, state, h0, c0 = case("lstm", 3, 2)
    limit, masks = _dropout.threshold(0.25), []

    def between(x, layer):
        masks.append(_dropout.kept(x, limit, 11, layer))
        return np.where(masks[-1], x / 0.75, 0)

    found = ejk.rnn_layers(x, state, h0=h0, c0=c0, lengths=LENGTHS, dropout=0.25, dropout_seed=11)
    y, h_n, c_n = expected("lstm", 3, 2, x, state, h0, c0, between=between)
    assert error(found.y, y) < 1e-5 and error(found.h_n, h_n) < 1e-5 and error(found.c_n, c_n) < 1e-5
    assert (masks[0] != masks[1]).any()
    other = ejk.rnn_layers(x, state, h0=h0, c0=c0, lengths=LENGTHS, dropout=0.25, dropout_seed=12)
    assert error(other.y, y) > 1e-2


def test_dropout_of_a_single_layer_is_nothing_and_of_all_is_zero():
    x, state, *_ = case("rnn_tanh", 1, 1)
    assert (ejk.rnn_layers(x, state, cell_type="rnn_tanh", dropout=0.5).y == ejk.rnn_layers(x, state, cell_type="rnn_tanh").y).all()
    nothing = _dropout.dropped(np.full((1, 2, 3), np.inf, np.float32), 1.0, 1, 1)
    assert (nothing == 0).all()
    share = _dropout.kept(np.zeros((4, 50, 64), np.float32), _dropout.threshold(0.3), 5, 1).mean()
    assert abs(share - 0.7) < 4 * (0.21 / (4 * 50 * 64)) ** 0.5


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_of_16_bits(name):
    x, state, h0, c0 = case("gru", 2, 2)
    narrow = references.dtype(name)
    x, state = x.astype(narrow), {k: v.astype(narrow) for k, v in state.items()}
    found = ejk.rnn_layers(x, state, h0=h0, lengths=LENGTHS, cell_type="gru")
    y, h_n, _ = expected("gru", 2, 2, x, state, h0, c0)
    assert found.y.dtype == narrow and error(found.y, y) < 2 * references.TOLERANCE[name]  # of two layers, each rounded


def test_weights_behind_a_prefix_of_another_type():
    x, state, *_ = case("lstm", 2, 2)
    named = {"encoder.rnn." + k: v.astype("f8") for k, v in state.items()} | {"encoder.norm.weight": np.zeros(3)}
    layers = ejk.rnn_weights(named, prefix="encoder.rnn.", like=x)
    assert [part.dtype for layer in layers for part in layer.values()] == [np.float32] * 8
    assert layers[1]["w_ih"].shape == (2, 4 * H, 2 * H)
    assert (ejk.rnn_layers(x, layers).y == ejk.rnn_layers(x, state).y).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("weight_hh_l1"), "weights have no 'weight_hh_l1'; expected it of each of 2 layers in 2 directions"),
        (lambda s: s.pop("bias_ih_l0_reverse"), "weights have no 'bias_ih_l0_reverse'"),
        (lambda s: s.update(weight_hr_l0=s["weight_hh_l0"]), "'weight_hr_l0': an LSTM with proj_size"),
        (lambda s: s.update(weight=s["weight_hh_l0"]), "weights have 'weight'; expected names such as weight_ih_l0"),
        (lambda s: s.clear(), "weights are empty"),
        (lambda s: s.update({7: s["weight_hh_l0"]}), "weights have the name 7; expected names such as weight_ih_l0"),
        (lambda s: s.update(bias_hh_l0=[0.5]), "weights' 'bias_hh_l0' is a builtins.list; expected an array"),
        (lambda s: s.update(bias_hh_l0=s["bias_hh_l0"][1:], bias_hh_l0_reverse=s["bias_hh_l0"][1:]), f"layer 0: b_hh has {4 * H - 1} rows; expected {4 * H}"),
        (lambda s: s.update(weight_hh_l1=s["weight_hh_l1"][:-1], weight_hh_l1_reverse=s["weight_hh_l1"][:-1]), f"layer 1: w_hh has {4 * H - 1} rows of {H}; expected {4 * H}, 4 gates"),
    ],
)  # fmt: skip
def test_weights_that_are_refused(change, words):
    x, state, *_ = case("lstm", 2, 2)
    change(state)
    with pytest.raises(ejk.InputError) as told:
        ejk.rnn_layers(x, state)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cell_type": "peephole"}, "cell_type is 'peephole'; expected one of lstm, gru"),
        ({"cell_type": "gru"}, f"w_hh has {4 * H} rows of {H}; expected {3 * H}"),
        ({"dropout": 1.5, "dropout_seed": 1}, "dropout is 1.5; expected a number from 0 to 1"),
        ({"dropout": 0.5}, "dropout is 0.5 and dropout_seed is not given"),
        ({"dropout": 0.5, "dropout_seed": 1.5}, "dropout_seed is 1.5; expected an integer"),
        ({"h0": np.zeros((3, B, H), np.float32)}, "h0 has shape [3, 3, 6]; expected [4, B, H]"),
        ({"h0": [[0.5]]}, "h0 is a builtins.list; expected an array of NumPy, JAX or PyTorch"),
        ({"lengths": np.full(B, T + 1, np.int32)}, "lengths must be from 0 to T = 5; found lengths[0] is 6"),
    ],
)  # fmt: skip
def test_options_that_are_refused(options, words):
    x, state, *_ = case("lstm", 2, 2)
    with pytest.raises(ejk.InputError) as told:
        ejk.rnn_layers(x, state, **options)
    assert words in str(told.value)


def layer(features, hidden):
    return {"w_ih": np.zeros((1, hidden, features), np.float32), "w_hh": np.zeros((1, hidden, hidden), np.float32)}


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (None, "weights are a builtins.NoneType; expected a list of layers, or a dict of torch.nn's names"),
        ("weights", "weights are a builtins.str; expected a list of layers"),
        ([layer(3, 5), np.zeros((1, 5, 5), np.float32)], "weights of layer 1 are a numpy.ndarray; expected a dict of w_ih, w_hh"),
        ([layer(3, 5), layer(5, 6)], "weights of layer 1: w_hh has 6 features; expected 5, as of layer 0"),
        ([layer(3, 5), layer(3, 5)], "weights of layer 1: w_ih takes 3 features; expected 5, which layer 0 gives"),
    ],
)
def test_layers_that_do_not_fit(layers, words):
    with pytest.raises(ejk.InputError) as told:
        ejk.rnn_layers(np.zeros((1, 2, 3), np.float32), layers, cell_type="rnn_tanh")
    assert words in str(told.value)


def test_a_state_that_is_no_dict():
    with pytest.raises(ejk.InputError, match="weights are a builtins.list; expected a dict of arrays by torch.nn's names, such as lstm.weight_ih_l0"):
        ejk.rnn_weights([], prefix="lstm.")


@pytest.mark.parametrize("layers", [[], [{"w_ih": np.zeros((1, 4, 1), np.float32)}], [{"w": 1}], [{"w_ih": np.zeros((3, 4, 1), np.float32), "w_hh": np.zeros((3, 4, 1), np.float32)}]])
def test_layers_that_are_none(layers):
    with pytest.raises(ejk.InputError, match="weights"):
        ejk.rnn_layers(np.zeros((1, 2, 1), np.float32), layers)


def test_the_pages_example_runs(capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs/helpers.md").read_text()
    code = next(each for each in re.findall(r"```python\n(.*?)```", page, re.S) if "rnn_layers" in each)
    exec(code, {"ejk": ejk, "numpy": np})
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)\s*# (.*)", code)
