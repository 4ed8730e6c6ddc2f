"""Objects as rows: the Tables that `kubectl get` prints, and the metadata-only objects that other clients ask for.

Columns of built-in kinds are in `builtin_columns`; those of custom kinds come from their definition. Rows carry what
the cells mean now, so the caller says what time it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import orjson

from planform.api.kinds import Kind, Object
from planform.apimachinery.age import INVALID, age
from planform.apimachinery.jsonpath import JsonPathError, compile_jsonpath
from planform.apiserver.crds.registry import PrinterColumn
from planform.apiserver.wire.builtin_columns import AGE, BUILTIN_COLUMNS, NAME, Cell, Column
from planform.errors import BadRequest

META = "meta.k8s.io/v1"
Convert = Callable[[Any, datetime], Any]


def table_for(
    kind: Kind,
    columns: Sequence[PrinterColumn],
    objects: Sequence[Object],
    *,
    now: datetime,
    include_object: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> Object:
    """A Table of the objects: a list's, one object's, or (without objects) a bookmark's.

    `columns` are those of a custom kind, empty for a built-in one or when none are given; `include_object` is
    Metadata (also when empty), None or Object, and raises BadRequest otherwise.
    """
    shown = _INCLUDED.get(include_object)
    if shown is None:
        raise BadRequest(f'unrecognized includeObject value: "{include_object}"')
    cells = columns_of(kind, tuple(columns))
    return {
        "kind": "Table",
        "apiVersion": META,
        "metadata": dict(metadata or {}),
        "columnDefinitions": [column.definition() for column in cells],
        "rows": [{"cells": [column.cell(obj, now) for column in cells], "object": shown(obj)} for obj in objects],
    }


def partial_object(obj: Object) -> Object:
    """The object without its content."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": obj.get("metadata") or {}}


def partial_list(objects: Sequence[Object], metadata: Mapping[str, Any]) -> Object:
    """A list of objects without their content."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": META,
        "metadata": dict(metadata),
        "items": [partial_object(obj) for obj in objects],
    }


_INCLUDED: Mapping[str, Callable[[Object], Object | None]] = {
    "": partial_object,
    "Metadata": partial_object,
    "None": lambda _: None,
    "Object": lambda obj: obj,
}


@lru_cache(maxsize=1024)
def columns_of(kind: Kind, columns: tuple[PrinterColumn, ...]) -> tuple[Column, ...]:
    """Name first; then what the definition asks for, what is known for the kind, or at least its age."""
    if columns:
        return (NAME, *map(_custom_column, columns))
    return BUILTIN_COLUMNS.get(kind.gvk) or (NAME, AGE)


def _custom_column(column: PrinterColumn) -> Column:
    """The first thing that the path finds. A path that is wrong leaves its column empty: the rest can still be read."""
    convert: Convert = _CONVERTERS.get(column.type, _as_text)
    try:
        find = compile_jsonpath(column.path)
    except JsonPathError:
        return _column(column, lambda _obj, _now: None)

    def cell(obj: Object, now: datetime) -> Any:
        try:
            found = find(obj)
        except JsonPathError:
            return None
        return convert(found[0], now) if found and found[0] is not None else None

    return _column(column, cell)


def _column(column: PrinterColumn, cell: Cell) -> Column:
    return Column(column.name, cell, column.type, column.format, column.description, column.priority)


def _as_text(value: Any, _: datetime) -> str:
    """Strings as they are, everything else as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _as_integer(value: Any, _: datetime) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_number(value: Any, _: datetime) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_boolean(value: Any, _: datetime) -> bool | None:
    return value if isinstance(value, bool) else None


def _as_age(value: Any, now: datetime) -> str:
    return age(value, now) if isinstance(value, str) and value else INVALID


_CONVERTERS: Mapping[str, Convert] = {
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
    "string": _as_text,
    "date": _as_age,
}
