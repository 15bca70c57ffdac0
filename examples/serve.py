"""An inference engine of a small Llama-shaped model with random weights, over ejk's ragged_page_attention_v3.

Requests are admitted as pages get free, prompts come in chunks beside the decodes of others, a step without prompts tries trees of guessed tokens,
and where pages run out the youngest request gives its own back and is computed again later. Keys and values are written in place: in JAX the caches
are donated. At the end each token's logits are compared with those of a dense recomputation of its sequence in float64, without a cache.

    python examples/serve.py                        in JAX, on its default device
    python examples/serve.py --library torch        the same step in PyTorch, on a GPU if there is one; numpy: with nothing else installed
"""

import argparse
import dataclasses
import functools
import sys
import time

import numpy as np

import ejk

PAGE, TREE = 16, 5  # tokens a page; of a tree: the token to come, and two guesses of what follows it, two tokens each
PARENTS = [-1, 0, 1, 0, 3]
DEPTHS = [0, 1, 2, 1, 2]


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int = 2
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    hidden: int = 1024
    vocabulary: int = 512

    @property
    def width(self):
        return self.heads * self.head_dim

    def weights(self, seed=0):
        rng = np.random.default_rng(seed)

        def matrix(rows, columns):
            return (rng.standard_normal((rows, columns)) / rows**0.5).astype("f4")

        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        layers = [
            {
                "qkv": matrix(self.width, qkv),
                "out": matrix(self.width, self.width),
                "up": matrix(self.width, 2 * self.hidden),
                "down": matrix(self.hidden, self.width),
            }
            for _ in range(self.layers)
        ]
        return {"embed": matrix(self.vocabulary, self.width), "layers": layers, "head": matrix(self.width, self.vocabulary)}


def mapped(function, weights):
    if isinstance(weights, dict):
        return {name: mapped(function, each) for name, each in weights.items()}
    return [mapped(function, each) for each in weights] if isinstance(weights, list) else function(weights)


def normalised(x):
    return x * ((x * x).sum(-1)[..., None] / x.shape[-1] + 1e-6) ** -0.5


def turned(lib, x, positions):
    """Rotary positions: pairs of features turn with the token's place."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * lib.exp(lib.arange(half, dtype=x.dtype) * (-float(np.log(10000.0)) / half))
    cos, sin = lib.cos(angle)[:, None], lib.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return lib.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def forward(lib, model, weights, tokens, positions, attention):
    """Logits [T, vocabulary]. lib: jax.numpy, torch or numpy. attention(layer, q, k, v) says which keys a token sees."""
    x = weights["embed"][tokens]
    for number, layer in enumerate(weights["layers"]):
        rows = (normalised(x) @ layer["qkv"]).reshape(len(tokens), -1, model.head_dim)
        q, k, v = rows[:, : model.heads], rows[:, model.heads : -model.kv_heads], rows[:, -model.kv_heads :]
        out = attention(number, turned(lib, q, positions), turned(lib, k, positions), v)
        x = x + out.reshape(len(tokens), -1) @ layer["out"]
        wide = normalised(x) @ layer["up"]
        gate, value = wide[:, : model.hidden], wide[:, model.hidden :]
        x = x + (gate / (1 + lib.exp(-gate)) * value) @ layer["down"]
    return normalised(x) @ weights["head"]


def step(lib, model, weights, caches, batch):
    """(logits, caches) of one step: a batch of any mix of prompts and decodes."""
    caches = list(caches)

    def attention(layer, q, k, v):
        lengths, tables, starts, count = batch["lengths"], batch["tables"], batch["starts"], batch["distribution"]
        found = ejk.ragged_page_attention_v3(q, k, v, caches[layer], lengths, tables, starts, count, tree_mask=batch.get("tree"))
        caches[layer] = found.kv_pages
        return found.out

    return forward(lib, model, weights, batch["tokens"], batch["positions"], attention), tuple(caches)


def dense(model, weights, tokens):
    """Logits of a whole sequence, in float64, by plain attention."""
    causal = np.tril(np.ones((len(tokens),) * 2, bool))

    def attention(layer, q, k, v):
        k, v = (np.repeat(x, model.heads // model.kv_heads, 1) for x in (k, v))
        scores = np.where(causal, np.einsum("qhd,khd->hqk", q, k) / model.head_dim**0.5, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hqk,khd->qhd", shares / shares.sum(-1, keepdims=True), v)

    wide = mapped(lambda x: x.astype("f8"), weights)
    return forward(np, model, wide, tokens, np.arange(len(tokens)), attention)


class InNumPy:
    def __init__(self, model, weights, pages):
        self.step = functools.partial(step, np, model, weights)
        self.caches = tuple(np.zeros((pages, PAGE, 2 * model.kv_heads, model.head_dim), "f4") for _ in range(model.layers))

    def run(self, batch):
        logits, self.caches = self.step(self.caches, batch)
        return np.asarray(logits)


class InJax(InNumPy):
    def __init__(self, model, weights, pages):
        import jax
        import jax.numpy as jnp

        import ejk.jax  # noqa: F401

        super().__init__(model, weights, pages)
        self.caches = tuple(jnp.asarray(cache) for cache in self.caches)
        self.step = functools.partial(jax.jit(functools.partial(step, jnp, model), donate_argnums=1), mapped(jnp.asarray, weights))
        self.precision = functools.partial(jax.default_matmul_precision, "highest")  # f32 products in f32, as the comparison asks

    def run(self, batch):
        with self.precision():
            return super().run(batch)


class InTorch(InNumPy):
    def __init__(self, model, weights, pages):
        import torch

        super().__init__(model, weights, pages)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.to_device = lambda x: torch.as_tensor(x, device=device)
        self.caches = tuple(self.to_device(cache) for cache in self.caches)
        self.step = functools.partial(step, _On(torch, device), model, mapped(self.to_device, weights))

    def run(self, batch):
        logits, self.caches = self.step(self.caches, {name: self.to_device(x) for name, x in batch.items()})
        return logits.cpu().numpy()


class _On:
    """What forward takes of torch; arange makes its tensors where the others are."""

    def __init__(self, torch, device):
        self.exp, self.cos, self.sin, self.concatenate = torch.exp, torch.cos, torch.sin, torch.concatenate
        self.arange = functools.partial(torch.arange, device=device)


LIBRARIES = {"jax": InJax, "torch": InTorch, "numpy": InNumPy}


@dataclasses.dataclass
class Request:
    tokens: list
    wanted: int  # tokens in all
    cached: int = 0  # of tokens: how many have keys and values in pages
    pages: list = dataclasses.field(default_factory=list)
    logits: list = dataclasses.field(default_factory=list)  # (position, row) of every time that it was computed

    def new(self):
        return len(self.tokens) - self.cached


def guesses(tokens):
    """Two continuations of two tokens each, which begin differently: what followed where the last token stood before, or made up."""
    followed = {}
    for place in range(len(tokens) - 1, 0, -1):
        if tokens[place - 1] == tokens[-1]:
            followed.setdefault(tokens[place], (tokens[place : place + 2] + tokens[-1:])[:2])
    for made_up in (0, 1):
        followed.setdefault(made_up, [made_up, made_up])
    return list(followed.values())[:2]


class Engine:
    def __init__(self, library, pages, seats, chunk):
        self.library, self.seats, self.chunk = library, seats, chunk
        self.free, self.waiting, self.running, self.done = list(range(pages))[::-1], [], [], []
        self.columns = pages
        self.counts = dict.fromkeys(["steps", "prompt chunks", "evictions", "tree steps", "guesses taken", "of second ones"], 0)

    def admit(self):
        while self.waiting and len(self.running) < self.seats and len(self.free) * PAGE >= min(self.waiting[0].new(), self.chunk) + TREE:
            self.running.append(self.waiting.pop(0))

    def evict(self):
        """The youngest gives its pages back, and is computed again when it is its turn."""
        youngest = self.running.pop()
        self.free += youngest.pages
        youngest.pages, youngest.cached = [], 0
        self.waiting.insert(0, youngest)
        self.counts["evictions"] += 1
        return youngest

    def room(self, request, tokens):
        """Pages for so many more tokens; False if the request itself had to give up its own."""
        while len(request.pages) * PAGE < request.cached + tokens:
            if self.free:
                request.pages.append(self.free.pop())
            elif self.evict() is request:
                return False
        return True

    def plan(self, tree):
        """[(request, tokens)] of this step. With a tree each has the same few tokens."""
        planned, left = [], self.chunk
        for request in sorted(self.running, key=lambda x: x.new() > 1):  # decodes first
            tokens = TREE if tree else min(request.new(), left)
            if request in self.running and tokens > 0 and self.room(request, tokens):
                planned.append((request, tokens))
                left -= 0 if tree else tokens
        return [each for each in planned if each[0] in self.running]  # those that later ones evicted are not

    def batch(self, planned, tree):
        """Arrays of one shape for every step, or of a second one for steps of trees; what is past the planned requests is not looked at."""
        width = self.seats * TREE if tree else self.chunk
        tokens, positions = np.zeros(width, "i4"), np.zeros(width, "f4")
        lengths, starts, tables = np.zeros(self.seats, "i4"), np.zeros(self.seats + 1, "i4"), np.zeros((self.seats, self.columns), "i4")
        for row, (request, count) in enumerate(planned):
            begin = starts[row]
            starts[row + 1] = begin + count
            lengths[row] = request.cached + count
            tables[row, : len(request.pages)] = request.pages
            first = request.tokens[request.cached : request.cached + count]
            tokens[begin : begin + count] = request.tree if tree else first
            positions[begin : begin + count] = request.cached + np.asarray(DEPTHS if tree else range(count))
        found = {"tokens": tokens, "positions": positions, "lengths": lengths, "starts": starts, "tables": tables}
        found["distribution"] = np.full(3, len(planned), "i4")
        if tree:
            sees = np.eye(TREE, dtype=bool)
            for node in range(1, TREE):
                sees[node] |= sees[PARENTS[node]]
            found["tree"] = np.tile(sees, (self.seats, 1))
        return found

    def take(self, request, logits):
        """Tokens of a plain step: the last one's logits choose the next token, if all have been seen."""
        for row in logits:
            request.logits.append((request.cached, row))
            request.cached += 1
        if request.cached == len(request.tokens):
            request.tokens.append(int(logits[-1].argmax()))

    def take_tree(self, request, logits):
        """The way down the tree that the logits themselves choose. Rows of keys stay where a node's number is its depth; the others are computed again."""
        node = 0
        while True:
            request.logits.append((request.cached + DEPTHS[node], logits[node]))
            request.tokens.append(int(logits[node].argmax()))
            following = [n for n in range(1, TREE) if PARENTS[n] == node and request.tree[n] == request.tokens[-1]]
            if not following:
                break
            node = following[0]
            self.counts["guesses taken"] += 1
            self.counts["of second ones"] += PARENTS[node] == 0 and node != 1
        request.cached += 1 + (DEPTHS[node] if node == DEPTHS[node] else 0)

    def advance(self):
        """One step. Returns how many requests it ended."""
        self.admit()
        tree = all(request.new() == 1 for request in self.running) and self.counts["steps"] % 2 == 1
        if tree:
            self.guess()
        planned = self.plan(tree)
        logits = self.library.run(self.batch(planned, tree))
        self.counts["steps"] += 1
        self.counts["tree steps"] += tree
        begin = 0
        for request, count in planned:
            self.counts["prompt chunks"] += not tree and count > 1
            (self.take_tree if tree else self.take)(request, logits[begin : begin + count])
            begin += count
        return self.finish()

    def guess(self):
        """The likelier guess is the first in one step and the second in the next, so that this program tries both ways down a tree."""
        for request in self.running:
            likely, other = guesses(request.tokens)
            a, b = (likely, other) if self.counts["tree steps"] % 2 == 0 else (other, likely)
            request.tree = [request.tokens[-1], *a, *b]

    def finish(self):
        ended = [request for request in self.running if len(request.tokens) > request.wanted]
        for request in ended:
            self.running.remove(request)
            self.free += request.pages
            request.tokens = request.tokens[: request.wanted]
        self.done += ended
        return len(ended)


def bar(done, all_of_them, rate):
    filled = 30 * done // all_of_them
    sys.stderr.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{all_of_them} requests, {rate:.0f} tokens/s ")
    sys.stderr.flush()


def serve(library="jax", requests=24, prompt=96, answer=48, pages=40, seats=8, chunk=64, model=None, show=None, seed=0):
    """(requests, counts, tokens a second, largest relative difference of a token's logits)."""
    model = model or Model()
    weights, rng = model.weights(seed), np.random.default_rng(seed + 1)
    engine = Engine(LIBRARIES[library](model, weights, pages), pages, seats, chunk)
    if pages * PAGE < prompt + answer + TREE:
        raise ValueError(f"{pages} pages of {PAGE} tokens hold no request of up to {prompt} + {answer} tokens and a tree of {TREE}")
    for _ in range(requests):
        length = int(rng.integers(1, prompt + 1))
        engine.waiting.append(Request(rng.integers(0, model.vocabulary, length).tolist(), length + int(rng.integers(1, answer + 1))))
    begin = time.perf_counter()
    while len(engine.done) < requests:
        engine.advance()
        rate = sum(x.cached for x in engine.done + engine.running) / (time.perf_counter() - begin)
        if show:
            show(len(engine.done), requests, rate)
    return engine.done, engine.counts, rate, max(difference(model, weights, request) for request in engine.done)


def difference(model, weights, request):
    """Largest, over all logits that the engine made for the request's tokens, of |logits - dense ones| / |dense ones|."""
    expected = dense(model, weights, np.asarray(request.tokens))
    made = [(position, row) for position, row in request.logits if position < len(request.tokens) - 1]
    if {position for position, _ in made} != set(range(len(request.tokens) - 1)):
        raise AssertionError("a token was never computed")
    expected = expected[[position for position, _ in made]]
    return float((np.linalg.norm(np.stack([row for _, row in made]) - expected, axis=1) / np.linalg.norm(expected, axis=1)).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=LIBRARIES, default="jax")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=96, help="tokens of the longest prompt")
    parser.add_argument("--answer", type=int, default=48, help="tokens of the longest answer")
    parser.add_argument("--pages", type=int, default=40, help=f"pages of the cache, of {PAGE} tokens")
    parser.add_argument("--seats", type=int, default=8, help="requests at once")
    parser.add_argument("--chunk", type=int, default=64, help="tokens of a step")
    options = vars(parser.parse_args())
    done, counts, rate, worst = serve(**options, show=bar)
    print(f"\n{len(done)} requests, {sum(len(x.tokens) for x in done)} tokens, {rate:.0f} tokens/s (with compiling, without the comparison)")
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    print(f"logits differ from the dense ones by {worst:.1e} of their norm at most")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
