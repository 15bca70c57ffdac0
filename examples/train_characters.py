"""Trains a character model on this repository's documents with ejk's LSTM in JAX until its loss falls below a figure; the same model on jax.lax.scan, from
the same weights and on the same texts, beside it, and with --torch on torch.nn.LSTM. Draws the losses.

usage: python examples/train_characters.py [--torch] [--plot losses.svg]     needs jax; runs on JAX's default device
"""

import argparse
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import ejk.jax

ROOT = pathlib.Path(__file__).resolve().parent.parent
RATE, FIRST, SECOND, SAME_STEPS = 4e-3, 0.9, 0.99, 20
COLOURS = {"ejk": "#c2410c", "lax.scan": "#1d4ed8", "torch.nn.LSTM": "#15803d"}


def documents():
    """The text: README and docs, of which only characters that a keyboard has."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "".join(path.read_text() for path in paths)
    return np.frombuffer(text.encode("ascii", "ignore"), np.uint8)


class Task:
    """The text as numbers, and the sizes of the model."""

    def __init__(self, text, features=64, hidden=128, layers=2, tokens=64, batch=32):
        self.alphabet, self.text = np.unique(text, return_inverse=True)
        self.features, self.hidden, self.layers, self.tokens, self.batch = features, hidden, layers, tokens, batch

    def texts(self, step):
        """[batch, tokens + 1] of step `step`: pieces from anywhere."""
        starts = np.random.default_rng(step).integers(0, len(self.text) - self.tokens, self.batch)
        return self.text[starts[:, None] + np.arange(self.tokens + 1)].astype(np.int32)

    def parameters(self, seed=0):
        """{name: array}: the recurrent layers' are named as torch.nn.LSTM's."""
        rng, count, h = np.random.default_rng(seed), len(self.alphabet), self.hidden
        draw = lambda bound, *shape: rng.uniform(-bound, bound, shape).astype(np.float32)  # noqa: E731
        made = {"embed": draw(1, count, self.features), "out": draw(h**-0.5, h, count)}
        for layer in range(self.layers):
            made[f"weight_ih_l{layer}"] = draw(h**-0.5, 4 * h, self.features if layer == 0 else h)
            made[f"weight_hh_l{layer}"] = draw(h**-0.5, 4 * h, h)
            made[f"bias_ih_l{layer}"], made[f"bias_hh_l{layer}"] = draw(h**-0.5, 4 * h), draw(h**-0.5, 4 * h)
        return made


def recurrent_part(model):
    return {name: each for name, each in model.items() if "_l" in name}


def layers_of_ejk(x, state):
    return ejk.jax.rnn_layers(x, state).y


def layers_of_scan(x, state):
    def step(carry, products, w_hh):
        h, c = carry
        i, f, g, o = jnp.split(products + h @ w_hh.T, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    for layer in range(len(state) // 4):
        w_hh = state[f"weight_hh_l{layer}"]
        products = x @ state[f"weight_ih_l{layer}"].T + state[f"bias_ih_l{layer}"] + state[f"bias_hh_l{layer}"]
        zero = jnp.zeros((x.shape[0], w_hh.shape[1]))
        _, x = jax.lax.scan(lambda carry, each, w_hh=w_hh: step(carry, each, w_hh), (zero, zero), jnp.moveaxis(products, 1, 0))
        x = jnp.moveaxis(x, 0, 1)
    return x


def loss(model, texts, layers):
    """Mean cross entropy of each next character, in nats."""
    y = layers(model["embed"][texts[:, :-1]], recurrent_part(model))
    return -jnp.take_along_axis(jax.nn.log_softmax(y @ model["out"]), texts[:, 1:, None], -1).mean()


def train_jax(task, layers):
    """Losses, one a step, for ever."""

    @jax.jit
    def step(model, moments, texts, count):
        """Adam, as torch.optim has it."""
        with jax.default_matmul_precision("highest"):
            value, gradient = jax.value_and_grad(loss)(model, texts, layers)
        first = jax.tree.map(lambda m, g: FIRST * m + (1 - FIRST) * g, moments[0], gradient)
        second = jax.tree.map(lambda v, g: SECOND * v + (1 - SECOND) * g * g, moments[1], gradient)
        root = jnp.sqrt(1 - SECOND**count)
        move = lambda p, m, v: p - RATE / (1 - FIRST**count) * m / (jnp.sqrt(v) / root + 1e-8)  # noqa: E731
        return jax.tree.map(move, model, first, second), (first, second), value

    model = {name: jnp.asarray(each) for name, each in task.parameters().items()}
    moments, count = (jax.tree.map(jnp.zeros_like, model),) * 2, 0
    while True:
        count += 1
        model, moments, value = step(model, moments, task.texts(count), count)
        yield float(value)


def train_torch(task):
    """The same on torch.nn.LSTM."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    start = {name: torch.from_numpy(each).to(device) for name, each in task.parameters().items()}
    lstm = torch.nn.LSTM(task.features, task.hidden, task.layers, batch_first=True).to(device)
    lstm.load_state_dict(recurrent_part(start))
    embed, out = (start[name].requires_grad_() for name in ("embed", "out"))
    adam = torch.optim.Adam([embed, out, *lstm.parameters()], lr=RATE, betas=(FIRST, SECOND))
    count = 0
    while True:
        count += 1
        texts = torch.from_numpy(task.texts(count)).long().to(device)
        scores = lstm(embed[texts[:, :-1]])[0] @ out
        value = torch.nn.functional.cross_entropy(scores.flatten(0, 1), texts[:, 1:].flatten())
        adam.zero_grad()
        value.backward()
        adam.step()
        yield value.item()


def recent(losses):
    """The mean of the last ten."""
    return sum(losses[-10:]) / len(losses[-10:])


def bar(name, losses, steps, seconds):
    filled = 30 * len(losses) // steps
    sys.stderr.write(f"\r{name:14} [{'#' * filled}{'.' * (30 - filled)}] step {len(losses)}, loss {recent(losses):.3f}, {seconds:.0f} s ")
    sys.stderr.flush()


def run(name, losses_of, steps, target=None, show=None):
    """(losses, seconds): up to `steps`, or until the recent ones are below the target."""
    losses, begin = [], time.perf_counter()
    for value in losses_of:
        losses.append(value)
        if show:
            show(name, losses, steps, time.perf_counter() - begin)
        if len(losses) >= steps or (target is not None and len(losses) >= 10 and recent(losses) < target):
            return losses, time.perf_counter() - begin


def difference(ours, theirs):
    """(largest relative difference of a loss in the first steps, before rounding has grown; that of the last ten's means)."""
    first = max(abs(a - b) / b for a, b in zip(ours[:SAME_STEPS], theirs))
    return first, abs(recent(ours) - recent(theirs)) / recent(theirs)


def train(task, steps, target, with_torch=False, show=None):
    """{name: (losses, seconds)}: ejk's until the target, the others for as many steps."""
    curves = {"ejk": run("ejk", train_jax(task, layers_of_ejk), steps, target, show)}
    others = {"lax.scan": lambda: train_jax(task, layers_of_scan), **({"torch.nn.LSTM": lambda: train_torch(task)} if with_torch else {})}
    for name, other in others.items():
        curves[name] = run(name, other(), len(curves["ejk"][0]), None, show)
    return curves


def drawing(curves, target):
    """An SVG of the losses by step."""
    wide, high, left, top = 640, 320, 50, 40
    steps, most = max(len(losses) for losses, _ in curves.values()), max(max(losses) for losses, _ in curves.values())
    across = lambda step: left + wide * step / max(steps - 1, 1)  # noqa: E731
    up = lambda value: top + high * (1 - value / most)  # noqa: E731
    text = lambda x, y, words, anchor="middle": f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}" fill="#222">{words}</text>'  # noqa: E731
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 20} {top + high + 40}" font-family="sans-serif">', '<rect width="100%" height="100%" fill="white"/>']
    for value in range(int(most) + 1):
        parts += [f'<path d="M{left} {up(value):.1f}h{wide}" stroke="#ddd"/>', text(left - 8, up(value) + 4, value, "end")]
    parts += [text(across(0), top + high + 18, 1), text(across(steps - 1), top + high + 18, steps), text(left + wide / 2, top + high + 34, "step")]
    parts += [f'<path d="M{left} {up(target):.1f}h{wide}" stroke="#555" stroke-dasharray="4"/>', text(left + wide, up(target) - 6, f"aim {target:g}", "end")]
    for place, (name, (losses, _)) in enumerate(reversed(curves.items())):
        path = "L".join(f"{across(step):.1f} {up(value):.1f}" for step, value in enumerate(losses))
        dash = "" if name == "ejk" else ' stroke-dasharray="6 3"'
        parts.append(f'<path d="M{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="{1.2 if name == "ejk" else 3}" opacity="{1 if name == "ejk" else 0.6}"{dash}/>')
        parts += [f'<path d="M{left + 150 * place} 20h26" stroke="{COLOURS[name]}" stroke-width="2"/>', text(left + 150 * place + 32, 24, name, "start")]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=2.0, help="train until the mean loss of ten steps is below this, in nats a character")
    parser.add_argument("--steps", type=int, default=600, help="steps at most")
    parser.add_argument("--torch", action="store_true", help="torch.nn.LSTM as well")
    parser.add_argument("--plot", type=pathlib.Path, default=pathlib.Path("losses.svg"))
    options = parser.parse_args()
    task = Task(documents())
    curves = train(task, options.steps, options.target, options.torch, bar)
    ours, seconds = curves["ejk"]
    options.plot.write_text(drawing(curves, options.target))
    print(f"\n{len(task.text)} characters of {len(task.alphabet)} kinds; loss {ours[0]:.3f} at first, {recent(ours):.3f} after {len(ours)} steps and {seconds:.0f} s (with compiling)")
    alike = True
    for name, (losses, others) in list(curves.items())[1:]:
        first, last = difference(ours, losses)
        alike &= first < 1e-3 and last < 0.05
        print(f"{name}: {others:.0f} s; losses differ by {first:.1e} at most in the first {SAME_STEPS} steps, by {last:.1e} at the end")
    print(f"the losses are drawn in {options.plot}")
    return 0 if alike and recent(ours) < options.target else 1


if __name__ == "__main__":
    sys.exit(main())
