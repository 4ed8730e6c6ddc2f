"""What people and programs read: tables, YAML, JSON and names. Tables have no borders and few columns."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import click
import orjson

Format = Literal["table", "wide", "json", "yaml", "name"]
GAP = 3


def output_option(*choices: str, default: str = "table") -> Callable[[Any], Any]:
    """The `-o/--output` of a command."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(choices or ("table", "json", "yaml")),
        default=default,
        show_default=True,
        help="How to print.",
    )


def write_data(value: Any, form: str) -> None:
    """A value as JSON or YAML on stdout."""
    if form == "json":
        click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    else:
        from planform.apimachinery import yaml_loader

        click.echo(yaml_loader.dump(value), nl=False)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, `-` for nothing."""
    texts = [list(headers), *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in texts) for column in range(len(headers))]
    lines = []
    for line in texts:
        padded = [cell.ljust(width + GAP) for cell, width in zip(line, widths, strict=True)]
        lines.append("".join(padded).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return str(value).replace("\n", " ")


def say(text: str) -> None:
    """Words for people: stderr."""
    click.echo(text, err=True)


def is_terminal() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
