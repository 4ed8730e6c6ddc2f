"""Ways of printing objects that the user writes down: a JSONPath template, columns of one's own, an order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from planform.api import metadata
from planform.api.kinds import Object
from planform.cli.output import table
from planform.errors import UsageError

JSONPATH, COLUMNS = "jsonpath=", "custom-columns="


class Printing(click.ParamType[str]):
    """One of the fixed forms, or `jsonpath=TEMPLATE`, or `custom-columns=HEADER:PATH,...`."""

    name = "form"

    def __init__(self, *forms: str) -> None:
        self._forms = forms

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What help shows."""
        return f"[{'|'.join((*self._forms, JSONPATH + '…', COLUMNS + '…'))}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text not in self._forms and not text.startswith((JSONPATH, COLUMNS)):
            known = ", ".join((*self._forms, JSONPATH + "TEMPLATE", COLUMNS + "HEADER:PATH,..."))
            self.fail(f"{text!r} is none of {known}", param, ctx)
        return text


def printing_option(*forms: str) -> Callable[[Any], Any]:
    """The `-o/--output` of `planform get`."""
    return click.option(
        "-o", "--output", type=Printing(*forms), default=forms[0], show_default=True, help="How to print."
    )


def printed(output: str, document: Object, objects: Sequence[Object]) -> str | None:
    """What a form of the user's own makes of objects; None for the fixed forms. Templates begin at `document`."""
    if not output.startswith((JSONPATH, COLUMNS)):
        return None
    from planform.apimachinery.jsonpath import JsonPathError, JsonPathTemplate

    try:
        if output.startswith(JSONPATH):
            return JsonPathTemplate(output.removeprefix(JSONPATH)).render(document)
        columns = _columns(output.removeprefix(COLUMNS))
        rows = [[_joined(path(obj)) for _, path in columns] for obj in objects]
        return table([header for header, _ in columns], rows) + "\n"
    except JsonPathError as error:
        raise UsageError(f"--output: {error}", hint="-o jsonpath='{.metadata.name}'") from error


def sort_key(path: str) -> Callable[[Object], tuple[int, Any]]:
    """Orders objects by what a path finds: numbers by size, then texts, then those that have nothing there."""
    from planform.apimachinery.jsonpath import JsonPathError, compile_jsonpath

    try:
        found = compile_jsonpath(path)
    except JsonPathError as error:
        raise UsageError(f"--sort-by: {error}", hint="--sort-by .metadata.creationTimestamp") from error

    def key(obj: Object) -> tuple[int, Any]:
        value = next(iter(found(obj)), None)
        if isinstance(value, int | float):
            return (0, value)
        return (2, "") if value is None else (1, str(value))

    return key


def shown_labels(obj: Object) -> str:
    """`a=1,b=2`, in order."""
    labels = metadata.labels_of(obj)
    return ",".join(f"{name}={labels[name]}" for name in sorted(labels)) or "<none>"


def _columns(text: str) -> list[tuple[str, Callable[[Any], list[Any]]]]:
    from planform.apimachinery.jsonpath import compile_jsonpath

    columns = []
    for column in text.split(","):
        header, colon, path = column.partition(":")
        if not (header and colon and path):
            raise UsageError(
                f"--output: the column {column!r} is not HEADER:PATH",
                hint="-o custom-columns=NAME:.metadata.name,SIZE:.spec.size",
            )
        columns.append((header, compile_jsonpath(path)))
    return columns


def _joined(values: Sequence[Any]) -> str:
    if not values:
        return "<none>"
    return ",".join(value if isinstance(value, str) else _compact(value) for value in values)


def _compact(value: Any) -> str:
    import orjson

    return "<nil>" if value is None else orjson.dumps(value).decode()
