"""What the author sees: one picture that stays on a terminal, lines elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import click

from planform.cli.dev.excerpts import Problem
from planform.cli.dev.testing import TestResult
from planform.cli.objects.drawing import as_text
from planform.client.resource_tree import Node, Target

_COLOURS: Final = {"+": "green", "-": "red", "~": "yellow"}
_CLEAR: Final = "\x1b[H\x1b[J"


@dataclass
class Picture:
    """All there is to show now."""

    directory: Path
    heading: str = ""
    saved: str = ""
    effect: str = ""
    changes: list[str] = field(default_factory=list)
    trees: Mapping[Target, Node] = field(default_factory=dict)
    tests: Sequence[TestResult] = ()
    problems: Sequence[Problem] = ()


class View(Protocol):
    """Told of each thing that happens, in turn; the picture holds all of it."""

    def say(self, text: str) -> None: ...

    def changed(self, lines: Sequence[str]) -> None: ...

    def tested(self, results: Sequence[TestResult]) -> None: ...

    def problem(self, problem: Problem) -> None: ...

    def draw(self) -> None: ...


class Lines:
    """For pipes, logs and debuggers: a line for each thing that happens."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture

    def say(self, text: str) -> None:
        click.echo(text)

    def changed(self, lines: Sequence[str]) -> None:
        for line in lines:
            click.echo(f"  {line}")

    def tested(self, results: Sequence[TestResult]) -> None:
        for line in _test_lines(results):
            click.echo(line)

    def problem(self, problem: Problem) -> None:
        first, *rest = problem.text(self._picture.directory)
        click.echo(click.style("error: ", fg="red", bold=True) + first)
        for line in rest:
            click.echo(f"  {line}")

    def draw(self) -> None:
        """Nothing is drawn twice."""


class Screen:
    """For a terminal: everything in one picture, drawn anew in its place."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        click.echo("\x1b[?1049h\x1b[?25l\x1b[?7l", nl=False)

    def close(self) -> None:
        click.echo("\x1b[?7h\x1b[?25h\x1b[?1049l", nl=False)

    def say(self, text: str) -> None:
        self.draw()

    def changed(self, lines: Sequence[str]) -> None:
        self.draw()

    def tested(self, results: Sequence[TestResult]) -> None:
        self.draw()

    def problem(self, problem: Problem) -> None:
        self.draw()

    def draw(self) -> None:
        size = shutil.get_terminal_size()
        lines = picture_lines(self._picture)
        if len(lines) > size.lines - 1:
            lines = [*lines[: size.lines - 2], f"... and {len(lines) - size.lines + 2} more lines"]
        click.echo(_CLEAR + "\n".join(lines), nl=False)


def picture_lines(picture: Picture) -> list[str]:
    """Errors first: they are what the author looks for after a save."""
    lines = [click.style(picture.heading, bold=True), ""]
    if picture.saved:
        lines.append(click.style(picture.saved, bold=True) + (f"  {picture.effect}" if picture.effect else ""))
    for problem in picture.problems:
        first, *rest = problem.text(picture.directory)
        lines += [click.style("error: ", fg="red", bold=True) + first, *(f"  {line}" for line in rest)]
    lines += [_painted(line) for line in picture.changes]
    lines.append("")
    if picture.trees:
        lines += as_text([picture.trees[target] for target in sorted(picture.trees, key=str)], colour=True).split("\n")
    lines += ["", *_test_lines(picture.tests)]
    return lines


def _painted(line: str) -> str:
    colour = _COLOURS.get(line.strip()[:1])
    return click.style(line, fg=colour) if colour else line


def _test_lines(results: Sequence[TestResult]) -> list[str]:
    if not results:
        return []
    failed = [each for each in results if not each.passed]
    passed = len(results) - len(failed)
    lines = [click.style(f"tests: {passed} passed, {len(failed)} failed", fg="red" if failed else "green")]
    for each in failed:
        lines.append(f"  [x] {each.file.name}: {each.name}")
        lines += [f"      {problem}" for problem in each.problems]
    return lines
