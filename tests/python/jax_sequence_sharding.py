"""A program for test_jax_sharding.py: recurrent on a sequence whose tokens lie over several devices. Prints nothing if all is well."""

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
    ((), {}),
    (("g", "initial_state"), {"softmax_scale": 0.3}),
    (("g_gamma", "gk", "gv", "initial_state"), {"reverse": True}),
    (("beta", "g"), {"l2_norm": True}),
    (("beta", "g", "gk", "gv", "g_gamma", "initial_state"), {"l2_norm": True, "reverse": True}),
)


def check(mesh, names, options):
    """Values and gradients of the cut sequence, with the last state in the loss, are those of the whole one."""
    arrays = {name: each for name, each in inputs().items() if name in ("q", "k", "v", *names)}
    where = {name: WHOLE if name in ("g_gamma", "initial_state") else TOKENS for name in arrays}
    cut = jax.shard_map(
        lambda arrays: ejk.jax.sequence_sharded_recurrent(**arrays, axis_name="x", **options), mesh=mesh, in_specs=(where,), out_specs=(TOKENS, WHOLE)
    )
    whole = lambda arrays: tuple(ejk.recurrent(**arrays, **options))
    for found, expected in zip(jax.jit(cut)(arrays), whole(arrays)):
        assert error(found, expected) < 2e-6, (names, error(found, expected))

    def loss(function):
        return lambda arrays: sum((x * jnp.cos(jnp.arange(x.size, dtype="f4")).reshape(x.shape)).sum() for x in function(arrays))

    found, expected = (jax.jit(jax.grad(loss(each)))(arrays) for each in (cut, whole))
    for name in arrays:
        assert error(found[name], expected[name]) < 5e-6, (names, name, error(found[name], expected[name]))
    text = jax.jit(cut).lower(arrays).compile().as_text()
    assert "collective-permute" in text and "all-gather" not in text, text


def main():
    devices = jax.devices()[: int(sys.argv[1])]
    assert len(devices) == int(sys.argv[1]), devices
    for names, options in CALLS:
        check(Mesh(numpy.asarray(devices), ("x",)), names, options)
    check(Mesh(numpy.asarray(devices[:5]), ("x",)), *CALLS[-1])  # no power of two


if __name__ == "__main__":
    main()
