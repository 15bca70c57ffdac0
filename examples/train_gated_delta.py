"""Trains a small language model of gated delta layers on this repository's documents with ejk in JAX until its loss falls below a figure; the same model
with the recurrence written as a jax.lax.scan over tokens, from the same weights and on the same texts, beside it. Then writes text with it: a token
a call, whose states are updated in place and take the same memory however long the text is. Draws the losses.

usage: python examples/train_gated_delta.py [--plot losses.svg]     needs jax; runs on JAX's default device
"""

import argparse
import functools
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

import ejk.jax

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from train_characters import FIRST, SAME_STEPS, SECOND, bar, difference, documents, drawing, recent, run  # noqa: E402

RATE = 3e-3


class Task:
    """The text as numbers, and the sizes of the model."""

    def __init__(self, text, features=96, layers=2, heads=3, keys=32, values=32, tokens=128, batch=16):
        self.alphabet, self.text = np.unique(text, return_inverse=True)
        self.features, self.layers, self.heads, self.keys, self.values = features, layers, heads, keys, values
        self.tokens, self.batch = tokens, batch

    def texts(self, step):
        """[batch, tokens + 1] of step `step`: pieces from anywhere."""
        starts = np.random.default_rng(step).integers(0, len(self.text) - self.tokens, self.batch)
        return self.text[starts[:, None] + np.arange(self.tokens + 1)].astype(np.int32)

    def parameters(self, seed=0):
        """The embedding, which is also what scores are made with, and a list of layers."""
        rng, width, heads = np.random.default_rng(seed), self.features, self.heads
        draw = lambda *shape: jnp.asarray(rng.normal(0, shape[0] ** -0.5, shape), jnp.float32)  # noqa: E731

        def layer():
            made = {"q": draw(width, heads * self.keys), "k": draw(width, heads * self.keys), "v": draw(width, heads * self.values)}
            made |= {"beta": draw(width, heads), "decay": draw(width, heads), "decay_bias": jnp.linspace(-5, -1, heads)}
            return made | {"out": draw(heads * self.values, width), "up": draw(width, 4 * width), "down": draw(2 * width, width)}

        return {"embed": draw(width, len(self.alphabet)).T, "layers": [layer() for _ in range(self.layers)]}

    def states(self, batch):
        """Of each layer, before the first token."""
        return [jnp.zeros((batch, self.heads, self.keys, self.values)) for _ in range(self.layers)]


def normed(x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def operands(x, layer):
    """q, k, v, beta and the log gate of tokens [B, T, width]."""
    heads = layer["beta"].shape[1]
    q, k, v = ((x @ layer[name]).reshape(*x.shape[:2], heads, -1) for name in ("q", "k", "v"))
    return q, k, v, jax.nn.sigmoid(x @ layer["beta"]), -jax.nn.softplus(x @ layer["decay"] + layer["decay_bias"])


def by_ejk(q, k, v, beta, g, state):
    found = ejk.jax.gated_delta_rule(q, k, v, beta, g=g, initial_state=state, l2_norm=True)
    return found.out, found.final_state


def in_place(q, k, v, beta, g, state):
    """For decoding: the state's memory is the new state's."""
    found = ejk.jax.recurrent_update(q, k, v, state, beta=beta, g=g, l2_norm=True)
    return found.out, found.state


def by_scan(q, k, v, beta, g, state):
    """The definition, a token at a time."""
    q, k = (x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))

    def step(state, token):
        q, k, v, beta, g = token
        state = state * jnp.exp(g)[..., None, None]
        write = beta[..., None] * (v - jnp.einsum("bhkv,bhk->bhv", state, k))
        state = state + k[..., None] * write[:, :, None]
        return state, jnp.einsum("bhkv,bhk->bhv", state, q) * q.shape[-1] ** -0.5

    state, out = jax.lax.scan(step, state, [jnp.moveaxis(x, 1, 0) for x in (q, k, v, beta, g)])
    return jnp.moveaxis(out, 0, 1), state


def scores(model, tokens, states, recurrence):
    """([B, T, alphabet], the states after the tokens)."""
    x, after = model["embed"][tokens], []
    for layer, state in zip(model["layers"], states):
        out, state = recurrence(*operands(normed(x), layer), state)
        x = x + normed(out).reshape(*x.shape[:2], -1) @ layer["out"]
        gate, up = jnp.split(normed(x) @ layer["up"], 2, -1)
        x = x + (jax.nn.silu(gate) * up) @ layer["down"]
        after.append(state)
    return normed(x) @ model["embed"].T, after


def loss(model, texts, states, recurrence):
    """Mean cross entropy of each next character, in nats."""
    found, _ = scores(model, texts[:, :-1], states, recurrence)
    return -jnp.take_along_axis(jax.nn.log_softmax(found), texts[:, 1:, None], -1).mean()


class Training:
    """Adam; iterating gives a loss a step, for ever."""

    def __init__(self, task, recurrence):
        self.task, self.recurrence, self.model = task, recurrence, task.parameters()

    def __iter__(self):
        states, count = self.task.states(self.task.batch), 0

        @jax.jit
        def step(model, moments, texts, count):
            with jax.default_matmul_precision("highest"):
                value, gradient = jax.value_and_grad(loss)(model, texts, states, self.recurrence)
            first = jax.tree.map(lambda m, g: FIRST * m + (1 - FIRST) * g, moments[0], gradient)
            second = jax.tree.map(lambda v, g: SECOND * v + (1 - SECOND) * g * g, moments[1], gradient)
            root = jnp.sqrt(1 - SECOND**count)
            move = lambda p, m, v: p - RATE / (1 - FIRST**count) * m / (jnp.sqrt(v) / root + 1e-8)  # noqa: E731
            return jax.tree.map(move, model, first, second), (first, second), value

        moments = (jax.tree.map(jnp.zeros_like, self.model),) * 2
        while True:
            count += 1
            self.model, moments, value = step(self.model, moments, self.task.texts(count), count)
            yield float(value)


class Writer:
    """Text of a model, a token a call."""

    def __init__(self, task, model):
        self.task, self.model, self.states = task, model, task.states(1)
        self.step = jax.jit(functools.partial(scores, recurrence=in_place), donate_argnums=2)

    def read(self, token):
        """The scores of the token after this one."""
        with jax.default_matmul_precision("highest"):
            found, self.states = self.step(self.model, jnp.full((1, 1), token, jnp.int32), self.states)
        return np.asarray(found[0, 0])

    def bytes(self):
        return sum(state.nbytes for state in self.states)

    def write(self, prompt, count, seed=0):
        """The prompt and `count` characters more, drawn from what the model expects."""
        rng, tokens = np.random.default_rng(seed), list(prompt)
        for token in tokens:
            found = self.read(token)
        for _ in range(count):
            chance = np.exp(1.5 * (found - found.max()))
            tokens.append(int(rng.choice(len(chance), p=chance / chance.sum())))
            found = self.read(tokens[-1])
        return self.task.alphabet[np.asarray(tokens)].tobytes().decode("ascii")


def worst_of_decoding(task, model, tokens):
    """How far scores of a token a call are from those of the whole text at once, by the largest of them."""
    with jax.default_matmul_precision("highest"):
        whole = np.asarray(scores(model, jnp.asarray(tokens[None]), task.states(1), by_ejk)[0][0])
    writer = Writer(task, model)
    return max(np.abs(writer.read(token) - row).max() for token, row in zip(tokens, whole)) / np.abs(whole).max()


def train(task, steps, target, show=None):
    """({name: (losses, seconds)}, ejk's model): ejk's until the target, the scan's for as many steps."""
    ours = Training(task, by_ejk)
    curves = {"ejk": run("ejk", iter(ours), steps, target, show)}
    curves["lax.scan"] = run("lax.scan", iter(Training(task, by_scan)), len(curves["ejk"][0]), None, show)
    return curves, ours.model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=2.0, help="train until the mean loss of ten steps is below this, in nats a character")
    parser.add_argument("--steps", type=int, default=600, help="steps at most")
    parser.add_argument("--plot", type=pathlib.Path, default=pathlib.Path("losses.svg"))
    options = parser.parse_args()
    task = Task(documents())
    curves, model = train(task, options.steps, options.target, bar)
    (ours, seconds), (theirs, others) = curves.values()
    options.plot.write_text(drawing(curves, options.target))
    print(f"\n{len(task.text)} characters of {len(task.alphabet)} kinds; loss {ours[0]:.3f} at first, {recent(ours):.3f} after {len(ours)} steps and {seconds:.0f} s (with compiling)")
    first, last = difference(ours, theirs)
    print(f"lax.scan: {others:.0f} s; losses differ by {first:.1e} at most in the first {SAME_STEPS} steps, by {last:.1e} at the end")
    worst = worst_of_decoding(task, model, task.text[:200])
    writer = Writer(task, model)
    text = writer.write(task.text[:40], 400)
    print(f"a token a call, scores differ from the whole text's by {worst:.1e} of the largest; the states take {writer.bytes()} bytes at any length:\n\n{text}\n")
    print(f"the losses are drawn in {options.plot}")
    return 0 if first < 1e-3 and last < 0.05 and worst < 1e-4 and recent(ours) < options.target else 1


if __name__ == "__main__":
    sys.exit(main())
