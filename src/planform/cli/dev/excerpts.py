"""Where in a file something is wrong: the line of a field, and the lines around it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

_AROUND: Final = 2
_PYTHON_LINE: Final = re.compile(r"\((?P<file>[\w.-]+\.py), line (?P<line>\d+)\)")
_FIELD: Final = re.compile(r"(?P<path>(?:spec|metadata|status|data)(?:\.[A-Za-z0-9_-]+|\[\d+\])*)")


@dataclass(frozen=True)
class Problem:
    """Something to mend, and where; `line` is 0 if that is not known."""

    message: str
    file: Path | None = None
    line: int = 0
    lines: tuple[str, ...] = field(default=())

    def text(self, directory: Path) -> Iterable[str]:
        """As it is shown: `file:line: message`, then the source."""
        where = ""
        if self.file is not None:
            shown = self.file.relative_to(directory) if self.file.is_relative_to(directory) else self.file
            where = f"{shown}:{self.line}: " if self.line else f"{shown}: "
        yield where + self.message
        yield from self.lines


def excerpt(file: Path, line: int) -> tuple[str, ...]:
    """The lines around one, which is marked; nothing if the file has no such line."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    if not 1 <= line <= len(lines):
        return ()
    first, last = max(1, line - _AROUND), min(len(lines), line + _AROUND)
    width = len(str(last))
    return tuple(f"{'>' if n == line else ' '} {n:{width}} | {lines[n - 1]}" for n in range(first, last + 1))


def at_field(message: str, file: Path, number: int) -> Problem:
    """A problem with an object in a file; the first field that the message names is looked for in it."""
    found = _FIELD.search(message)
    line = line_of(file, number, found["path"]) if found is not None else 0
    return Problem(message, file, line, excerpt(file, line) if line else ())


def at_python_line(message: str, directory: Path) -> Problem | None:
    """A problem whose message says `(function.py, line 12)` of a file below the directory."""
    found = _PYTHON_LINE.search(message)
    if found is None:
        return None
    file = next(iter(sorted(directory.rglob(found["file"]))), None)
    if file is None:
        return None
    return Problem(message, file, int(found["line"]), excerpt(file, int(found["line"])))


def line_of(file: Path, number: int, path: str) -> int:
    """The line of a field of the document with that number, or of the nearest one above it that is written."""
    try:
        nodes = list(yaml.compose_all(file.read_text(errors="replace"), Loader=yaml.SafeLoader))
    except (OSError, yaml.YAMLError):
        return 0
    node = nodes[number - 1] if 0 < number <= len(nodes) else None
    line = node.start_mark.line + 1 if node is not None else 0
    for name in re.findall(r"[^.\[\]]+", path):
        found = _child(node, name)
        if found is None:
            break
        line, node = found
    return line


def _child(node: Any, name: str) -> tuple[int, Any] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and name.isdigit() and int(name) < len(node.value):
        item = node.value[int(name)]
        return item.start_mark.line + 1, item
    return None
