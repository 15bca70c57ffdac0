"""A program for test_jax_command_buffers.py, on a GPU: calls captured into XLA's command buffers (CUDA graphs) and replayed."""

import jax
import jax.numpy as jnp
import numpy
from attention_reference import attention, in_float64
from references import error

import ejk
import ejk.jax

TYPES = {"float32": 1e-5, "bfloat16": 1.6e-2}


def normal(seed, dtype, *shape):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype)


def main():
    assert jax.default_backend() == "gpu", jax.default_backend()
    for dtype, tolerance in TYPES.items():

        def step(q, k, v, w):
            out, pull = jax.vjp(lambda *x: ejk.flash_attention(*x, causal=True), q * 2, k, v)
            return out + 1, *pull(w)

        def truth(q, k, v, w):
            out, pull = jax.vjp(lambda *x: attention(*x, causal=True)[0], q * 2, k, v)
            return out + 1, *pull(w)

        program = jax.jit(step)
        few = (normal(9, dtype, 1, 1, 8, 64), normal(10, dtype, 1, 900, 2, 64), normal(11, dtype, 1, 900, 2, 64))
        decode = jax.jit(lambda *x: ejk.flash_attention(*x) * 1.0)  # keys split over blocks: a workspace of XLA's
        for turn in range(4):  # the first runs as it is, the second is captured, the rest are replayed
            arrays = [normal(10 * turn + i, dtype, 2, 65, h, 64) for i, h in enumerate((4, 2, 2, 4))]
            for found, right in zip(program(*arrays), in_float64(truth, *arrays)):
                assert error(found, right) < tolerance, (dtype, turn, error(found, right))
            many = [x * (turn + 1) for x in few]
            assert error(decode(*many), in_float64(attention, *many)[0]) < tolerance, (dtype, turn)


if __name__ == "__main__":
    main()
