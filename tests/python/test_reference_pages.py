"""The Python examples of each page of docs/kernels run, and give what the page's kernel returns: NumPy's, PyTorch's and JAX's."""
import importlib.util
import pathlib
import re

import pytest

PAGES = sorted(path for path in (pathlib.Path(__file__).parents[2] / "docs/kernels").glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("library, array", [("numpy", "ndarray"), ("torch", "Tensor"), ("jax", "Array")])
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_example_runs(page, library, array):
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) if f"import {library}\n" in block]
    assert len(blocks) == 1
    if not importlib.util.find_spec(library):
        pytest.skip(f"needs {library}")
    names = {}
    exec(blocks[0], names)
    kind, result = getattr(names[library], array), names["result"]
    for each in result if isinstance(result, tuple) else (result,):
        assert each is None or (isinstance(each, kind) and 0 not in each.shape)
    if "requires_grad=True" in blocks[0]:
        assert any(isinstance(each, kind) and each.grad is not None and each.grad.shape == each.shape for each in names.values())
    if "jax.grad" in blocks[0]:
        assert isinstance(names["slope"], kind) and 0 not in names["slope"].shape
