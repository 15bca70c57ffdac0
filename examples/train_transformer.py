"""Trains a small transformer in JAX with ejk's attention: the loss goes down, and its gradients are those that jax.nn's attention gives.

usage: python examples/train_transformer.py [--steps 60]      needs jax; runs on JAX's default device
"""

import argparse

import jax
import jax.numpy as jnp

import ejk.jax

VOCABULARY, WIDTH, HEADS, KV_HEADS, LAYERS, TOKENS, BATCH = 64, 128, 4, 2, 2, 64, 16
HEAD_DIM = WIDTH // HEADS


def attention_of_ejk(q, k, v):
    return ejk.flash_attention(q, k, v, causal=True)


def attention_of_jax(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def parameters(key):
    keys = iter(jax.random.split(key, 2 + 4 * LAYERS))

    def matrix(*shape):
        return jax.random.normal(next(keys), shape) * shape[0] ** -0.5

    layers = [
        {
            "qkv": matrix(WIDTH, (HEADS + 2 * KV_HEADS) * HEAD_DIM),
            "out": matrix(WIDTH, WIDTH),
            "up": matrix(WIDTH, 4 * WIDTH),
            "down": matrix(4 * WIDTH, WIDTH),
        }
        for _ in range(LAYERS)
    ]
    return {"embed": matrix(VOCABULARY, WIDTH), "place": matrix(TOKENS, WIDTH), "layers": layers}


def normalised(x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def block(layer, x, attention):
    b, s, _ = x.shape
    heads = (normalised(x) @ layer["qkv"]).reshape(b, s, HEADS + 2 * KV_HEADS, HEAD_DIM)
    q, k, v = jnp.split(heads, [HEADS, HEADS + KV_HEADS], axis=2)
    x = x + attention(q, k, v).reshape(b, s, WIDTH) @ layer["out"]
    return x + jax.nn.gelu(normalised(x) @ layer["up"]) @ layer["down"]


def loss(model, tokens, attention):
    """Mean cross entropy of each next token."""
    x = model["embed"][tokens[:, :-1]] + model["place"][: tokens.shape[1] - 1]
    for layer in model["layers"]:
        x = block(layer, x, attention)
    scores = jax.nn.log_softmax(normalised(x) @ model["embed"].T)
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()


def batch(key):
    """Sequences that repeat with a period of their own: to foretell them, look back."""
    periods, starts = jax.random.randint(key, (2, BATCH, 1), 3, 9)
    words = jax.random.randint(jax.random.fold_in(key, 1), (BATCH, 16), 0, VOCABULARY)
    return jnp.take_along_axis(words, (jnp.arange(TOKENS)[None] + starts) % periods, 1)


@jax.jit
def step(model, moments, tokens, count):
    """Adam. Returns (model, moments, loss)."""
    value, gradient = jax.value_and_grad(loss)(model, tokens, attention_of_ejk)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    second = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, moments[1], gradient)
    rate = 3e-3 * jnp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
    model = jax.tree.map(lambda p, m, s: p - rate * m / (jnp.sqrt(s) + 1e-8), model, first, second)
    return model, (first, second), value


def gradient_error(model, tokens):
    """Largest relative difference of a parameter's gradient between the two attentions."""
    with jax.default_matmul_precision("highest"):
        ours, theirs = (jax.jit(jax.grad(loss), static_argnums=2)(model, tokens, f) for f in (attention_of_ejk, attention_of_jax))
    differences = jax.tree.map(lambda a, b: jnp.linalg.norm(a - b) / jnp.linalg.norm(b), ours, theirs)
    return float(max(jax.tree.leaves(differences)))


def train(steps):
    """(losses, gradient error before the first step)."""
    key = jax.random.key(0)
    model = parameters(key)
    difference = gradient_error(model, batch(key))
    moments = (jax.tree.map(jnp.zeros_like, model),) * 2
    losses = []
    for count in range(1, steps + 1):
        model, moments, value = step(model, moments, batch(jax.random.fold_in(key, count)), count)
        losses.append(float(value))
    return losses, difference


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    losses, difference = train(steps)
    print(f"gradients differ from jax.nn's by {difference:.1e} at most")
    for count in sorted({1, steps, *range(10, steps, 10)}):
        print(f"step {count:4}  loss {losses[count - 1]:.3f}")


if __name__ == "__main__":
    main()
