"""The Python example of each page of docs/kernels runs, and gives what the page's kernel returns."""
import pathlib
import re

import numpy
import pytest

PAGES = sorted(path for path in (pathlib.Path(__file__).parents[2] / "docs/kernels").glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_example_runs(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 1
    names = {}
    exec(blocks[0], names)
    result = names["result"]
    for array in result if isinstance(result, tuple) else (result,):
        assert array is None or (isinstance(array, numpy.ndarray) and array.size > 0)
