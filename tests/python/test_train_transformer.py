"""The example that trains: what it says of itself holds."""

import importlib.util
import pathlib

import pytest

pytest.importorskip("jax")


def test_the_loss_goes_down_and_gradients_are_jaxs():
    path = pathlib.Path(__file__).parents[2] / "examples" / "train_transformer.py"
    spec = importlib.util.spec_from_file_location("train_transformer", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    losses, difference = example.train(40)
    assert difference < 1e-5
    assert sum(losses[-5:]) / 5 < losses[0] - 1.5
