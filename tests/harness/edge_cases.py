"""Where the edge cases of a specification are tested: a table of test names is true only if those tests exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

Where = dict[str, tuple[str, ...]]
"""Names of tests by file, below the folder of all tests."""

_TESTS = Path(__file__).parents[1]


def missing(where: Where) -> list[str]:
    """The tests that are named and do not exist."""
    return [f"{file}::{name}" for file, names in where.items() for name in names if name not in _names_in(file)]


@cache
def _names_in(file: str) -> frozenset[str]:
    tree = ast.parse((_TESTS / file).read_bytes())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
