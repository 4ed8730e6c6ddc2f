"""The pages of the examples do what they say, read from inside their directories."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_tutorial import ROOT, Reader, blocks

OWN_TESTS = {"database-service"}
"""Those that need real programs beside the control plane: a test of their own has them."""
PAGES = [
    path
    for path in sorted((ROOT / "examples").glob("*/README.md"))
    if path.parent.name not in OWN_TESTS and blocks(path)
]


@pytest.mark.parametrize("page", [pytest.param(path, id=path.parent.name) for path in PAGES])
def test_page_of_an_example_does_what_it_says(page: Path, tmp_path: Path) -> None:
    directory = tmp_path / page.parent.name
    shutil.copytree(page.parent, directory)
    with ExitStack() as stack:
        reader = Reader(directory, stack)
        for block in blocks(page):
            reader.follow(block)
