"""A program for test_jax_sharding.py: recurrences on sequences whose tokens lie over several devices. Prints nothing if all is well."""

import sys

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from references import error

import ejk
import ejk.jax

B, T, H, K, V = 2, 40, 4, 8, 12
TOKENS, WHOLE = P(None, "x"), P()


def inputs():
    rng = numpy.random.default_rng(5)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape, dtype="f4"))
    gate = lambda *shape: -abs(draw(*shape)) / 4
    arrays = {"q": draw(B, T, 2, K), "k": draw(B, T, 1, K), "v": draw(B, T, H, V), "g": gate(B, T, H), "gk": gate(B, T, H, K)}
    arrays |= {"gv": gate(B, T, H, V), "g_gamma": gate(H), "beta": jax.nn.sigmoid(draw(B, T, H)), "initial_state": draw(B, H, K, V)}
    arrays["g"] = arrays["g"].at[:, 17].set(-jnp.inf)
    return arrays


CALLS = (
    ("recurrent", (), {}),
    ("recurrent", ("g", "initial_state"), {"softmax_scale": 0.3}),
    ("recurrent", ("g_gamma", "gk", "gv", "initial_state"), {"reverse": True}),
    ("recurrent", ("beta", "g"), {"l2_norm": True, "num_layers": 3, "layer_idx": 1}),
    ("recurrent", ("beta", "g", "gk", "gv", "g_gamma", "initial_state"), {"l2_norm": True, "reverse": True}),
    ("gla", ("gk",), {}),
    ("lightning_attn", ("initial_state",), {"num_layers": 4, "layer_idx": 2}),
    ("lightning_attn", (), {}),
    ("gated_delta_rule", ("beta", "g"), {"l2_norm": True}),
    ("kda", ("beta", "gk"), {"reverse": True, "l2_norm": True}),
)
PACKED = {  # tokens where sequences begin, of 40: within devices of 5, at their edges, over three of them, empty ones, and tokens of none
    "some": (0, 3, 3, 5, 21, 22, 22, 36),
    "one": (0, 40),
    "none": (0, 0, 0),
}


def states_of(array, count):
    """States of `count` sequences."""
    return jnp.concatenate([array] * count)[:count] * jnp.arange(1, count + 1, dtype="f4")[:, None, None, None]


def made_packed(arrays, cum):
    """Rows of one batch, with NaN for tokens that belong to no sequence."""
    ends = jnp.arange(T) < cum[-1]
    of_tokens = lambda x: jnp.where(ends.reshape(1, T, *[1] * (x.ndim - 2)), x[:1], jnp.nan)
    packed = {name: x if name == "g_gamma" else of_tokens(x) for name, x in arrays.items() if name != "initial_state"}
    if "initial_state" in arrays:
        packed["initial_state"] = states_of(arrays["initial_state"], len(cum) - 1)
    return packed


def loss(function):
    return lambda arrays: sum((x * jnp.cos(jnp.arange(x.size, dtype="f4")).reshape(x.shape)).sum() for x in function(arrays))


def check(mesh, kernel, names, options, cum=None):
    """Values and gradients of the cut sequence, with the last state in the loss, are those of the whole one."""
    arrays = {name: each for name, each in inputs().items() if name in ("q", "k", "v", *names)}
    lengths = {}
    if cum is not None:
        arrays, lengths = made_packed(arrays, cum), {"cum_seqlens": jnp.asarray(cum, "i4")}
    where = {name: WHOLE if name in ("g_gamma", "initial_state") else TOKENS for name in arrays}
    function = getattr(ejk.jax, kernel)
    mapped = jax.shard_map(
        lambda arrays, lengths: tuple(function(**arrays, **lengths, axis_name="x", **options)), mesh=mesh, in_specs=(where, WHOLE), out_specs=(TOKENS, WHOLE)
    )
    cut = lambda arrays: mapped(arrays, lengths)
    whole = lambda arrays: tuple(getattr(ejk, kernel)(**arrays, **lengths, **options))
    what = (kernel, names, options, cum)
    program = jax.jit(cut).lower(arrays).compile()
    for found, expected in zip(program(arrays), whole(arrays)):
        assert error(found, expected) < 2e-6, (what, error(found, expected))
    found, expected = (jax.jit(jax.grad(loss(each)))(arrays) for each in (cut, whole))
    for name in arrays:
        assert error(found[name], expected[name]) < 5e-6, (what, name, error(found[name], expected[name]))
    text = program.as_text()
    assert "collective-permute" in text and "all-gather" not in text, text


def refuses(mesh, words, **changed):
    arrays = {name: inputs()[name] for name in "qkv"}
    options = {"axis_name": "x", **changed}
    cut = jax.shard_map(lambda q, k, v: ejk.jax.recurrent(q, k, v, **options)[0], mesh=mesh, in_specs=(TOKENS,) * 3, out_specs=TOKENS)
    try:
        cut(*arrays.values())
    except ejk.InputError as found:
        assert words in str(found), found
    else:
        raise AssertionError(f"taken: {changed}")


def main():
    devices = jax.devices()[: int(sys.argv[1])]
    assert len(devices) == int(sys.argv[1]), devices
    eight, five = Mesh(numpy.asarray(devices), ("x",)), Mesh(numpy.asarray(devices[:5]), ("x",))  # five: no power of two
    if sys.argv[2] == "batched":
        for call in CALLS:
            check(eight, *call)
        check(five, *CALLS[4])
    else:
        for number in (2, 3, 4, 6, 9):
            check(eight, *CALLS[number], PACKED["some"])
        for name in ("one", "none"):
            check(eight, *CALLS[4], PACKED[name])
        check(five, *CALLS[4], PACKED["some"])
    refuses(eight, "axis_name must be the name of an axis", axis_name=3)


if __name__ == "__main__":
    main()
