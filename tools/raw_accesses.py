#!/usr/bin/env python3
"""Counts where the code reaches into spec, status or metadata of an object by hand instead of through a typed value.

    tools/raw_accesses.py            each folder, and how many
    tools/raw_accesses.py --list     every place

A raw access is a subscript, `get`, `pop` or `setdefault` with one of these names as a literal. Not counted are `api/`,
which declares the kinds and the views, and the folders whose objects are of any kind by nature: `apimachinery/`,
`apiserver/`, `builtin/` and `gotemplate/`. tests/unit/test_raw_accesses.py keeps the figure from growing.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ROOT / "src" / "planform"
NAMES: Final = frozenset({"spec", "status", "metadata"})
OF_ANY_KIND: Final = frozenset({"api", "apimachinery", "apiserver", "builtin", "gotemplate"})
_METHODS: Final = frozenset({"get", "pop", "setdefault"})


class Access(NamedTuple):
    """One place in the code."""

    path: str
    line: int
    name: str


def raw_accesses(sources: Path = SOURCES) -> list[Access]:
    """All of them, in order of file and line."""
    found = []
    for path in sorted(sources.rglob("*.py")):
        where = path.relative_to(sources)
        if where.parts[0] not in OF_ANY_KIND:
            found += [Access(where.as_posix(), line, name) for line, name in _of(path.read_text())]
    return sorted(found)


def _of(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript):
            key: ast.expr | None = node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            key = node.args[0] if node.args else None
        else:
            continue
        if isinstance(key, ast.Constant) and key.value in NAMES:
            yield node.lineno, str(key.value)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Count raw accesses of spec, status and metadata.")
    parser.add_argument("--list", action="store_true", help="print every place")
    found = raw_accesses()
    if parser.parse_args().list:
        for access in found:
            print(f"src/planform/{access.path}:{access.line}: {access.name}")
    else:
        for folder, count in Counter(access.path.split("/")[0] for access in found).most_common():
            print(f"{count:5} {folder}")
    print(f"{len(found):5} in all")


if __name__ == "__main__":
    main()
