"""ejk.rnn_layers in JAX programs: values and gradients against plain jax.numpy, dropout whose seed is traced, and Flax's own layers."""

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import references  # noqa: E402
from references import GATES, error, rnn_state  # noqa: E402

import ejk  # noqa: E402
from ejk import _dropout  # noqa: E402

B, T, I, H, LAYERS = 3, 5, 4, 6, 2
LENGTHS = np.array([T, 0, 3], np.int32)


def case(cell, directions):
    rng = np.random.default_rng(2)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape, dtype="f4"))  # noqa: E731
    state = {k: jnp.asarray(v) for k, v in rnn_state(rng, cell, LAYERS, directions, I, H).items()}
    return {"x": draw(B, T, I), "state": state, "h0": draw(LAYERS * directions, B, H), "c0": draw(LAYERS * directions, B, H)}


def by_ejk(cell, call, **options):
    c0 = call["c0"] if cell == "lstm" else None
    found = ejk.rnn_layers(call["x"], call["state"], h0=call["h0"], c0=c0, lengths=jnp.asarray(LENGTHS), cell_type=cell, **options)
    return [each for each in found if each is not None]


def plainly(cell, directions, call, **more):
    found = references.rnn_layers(jnp, call["x"], call["state"], cell, LAYERS, directions, call["h0"], call["c0"], jnp.asarray(LENGTHS), **more)
    return found if cell == "lstm" else found[:2]


@pytest.mark.parametrize(("cell", "directions"), [*((cell, 2) for cell in GATES), ("lstm", 1)])
def test_values_and_gradients_are_those_of_plain_loops(cell, directions):
    call, rng = case(cell, directions), np.random.default_rng(3)
    expected = plainly(cell, directions, call)
    for mine, other in zip(jax.jit(lambda c: by_ejk(cell, c))(call), expected, strict=True):
        assert error(mine, other) < 1e-5
    weights = [jnp.asarray(rng.standard_normal(each.shape, dtype="f4")) for each in expected]
    loss = lambda function: lambda c: sum((a * b).sum() for a, b in zip(function(c), weights))  # noqa: E731
    found = jax.jit(jax.grad(loss(lambda c: by_ejk(cell, c))))(call)
    other = jax.grad(loss(lambda c: plainly(cell, directions, c)))(call)
    for (path, mine), theirs in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(other), strict=True):
        assert error(mine, theirs) < 2e-5, path


def test_dropout_with_a_traced_seed_is_numpys():
    call, limit = case("lstm", 2), _dropout.threshold(0.4)

    def between(x, layer):
        return jnp.where(_dropout.kept(np.zeros(x.shape, np.float32), limit, 9, layer), x / (1 - limit / 65536), 0)

    run = jax.jit(lambda c, seed: by_ejk("lstm", c, dropout=0.4, dropout_seed=seed))
    for mine, other in zip(run(call, 9), plainly("lstm", 2, call, between=between), strict=True):
        assert error(mine, other) < 1e-5
    assert error(run(call, 10)[0], run(call, 9)[0]) > 1e-2
    loss = lambda function: lambda c: (function(c)[0] ** 2).sum()  # noqa: E731
    found = jax.jit(jax.grad(loss(lambda c: by_ejk("lstm", c, dropout=0.4, dropout_seed=9))))(call)["state"]
    other = jax.grad(loss(lambda c: plainly("lstm", 2, c, between=between)))(call)["state"]
    assert all(error(found[name], other[name]) < 2e-5 for name in found)


@pytest.mark.parametrize("seed", [np.int32(-3), np.uint32(2**31 + 1), np.int32(5)])
def test_a_seed_of_jax_is_the_same_number(seed):
    zeros = np.zeros((2, 3, 13), np.float32)
    found = jax.jit(lambda s: _dropout.kept(jnp.asarray(zeros), 30000, s, 1))(jnp.asarray(seed))
    assert (np.asarray(found) == _dropout.kept(zeros, 30000, int(seed), 1)).all()


def test_a_seed_that_is_no_integer_is_refused():
    with pytest.raises(ejk.InputError, match="expected an integer"):
        by_ejk("lstm", case("lstm", 1), dropout=0.4, dropout_seed=jnp.ones((2,)))


def flax_gates(params, names, biases):
    """{part: gates stacked as torch.nn has them} of a cell of Flax's: ii, if, ... for the input and hi, hf, ... for the state."""
    state = {}
    for ours, side in (("ih", "i"), ("hh", "h")):
        state[f"weight_{ours}_l0"] = jnp.concatenate([params[side + name]["kernel"].T for name in names])
        zero = lambda name: jnp.zeros(params[side + name]["kernel"].shape[1])  # noqa: B023, E731
        state[f"bias_{ours}_l0"] = jnp.concatenate([params[side + name].get("bias", zero(name)) for name in names])
    return state


@pytest.mark.parametrize(("cell", "kind", "names"), [("lstm", "OptimizedLSTMCell", "ifgo"), ("gru", "GRUCell", "rzn")])
def test_flaxs_layer_gives_the_same(cell, kind, names):
    linen = pytest.importorskip("flax.linen", reason="needs flax")
    layer = linen.RNN(getattr(linen, kind)(H), return_carry=True)
    rng = np.random.default_rng(4)
    x = jnp.asarray(rng.standard_normal((B, T, I), dtype="f4"))
    variables = layer.init(jax.random.key(0), x)
    variables = jax.tree.map(lambda p: p + jnp.asarray(rng.standard_normal(p.shape, dtype="f4")) / 4, variables)  # biases begin as 0
    (inner,) = variables["params"].values()
    lengths = np.array([T, 1, 3], np.int32)  # Flax's carry of an empty row is not its first state
    carry, y = layer.apply(variables, x, seq_lengths=jnp.asarray(lengths))
    with jax.default_matmul_precision("highest"):
        found = ejk.rnn_layers(x, flax_gates(inner, names, cell), lengths=jnp.asarray(lengths), cell_type=cell)
    valid = (np.arange(T) < lengths[:, None])[..., None]
    assert error(found.y, jnp.where(valid, y, 0)) < 1e-5
    states = carry if cell == "lstm" else (None, carry)
    assert error(found.h_n[0], states[1]) < 1e-5
    assert cell == "gru" or error(found.c_n[0], states[0]) < 1e-5


def test_weights_of_numpy_become_jaxs():
    call = case("lstm", 2)
    state = {k: np.asarray(v, np.float64) for k, v in call["state"].items()}
    layers = ejk.rnn_weights(state, like=call["x"])
    assert all(isinstance(part, jax.Array) and part.dtype == jnp.float32 for layer in layers for part in layer.values())
    narrow = ejk.rnn_weights(state, like=call["x"].astype(jnp.bfloat16))
    assert narrow[0]["w_ih"].dtype == jnp.bfloat16
    assert (ejk.jax.rnn_layers(call["x"], layers).y == ejk.rnn_layers(call["x"], call["state"]).y).all()
