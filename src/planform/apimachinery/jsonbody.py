"""JSON as the API accepts it: strict, of bounded depth, and with an eye for fields that are given twice.

NaN, Infinity, numbers beyond a double, a byte order mark, lone surrogates and anything after the value are refused.
A field given twice is legal JSON whose last value counts; whoever validates strictly or warns needs to know its path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import orjson

MAX_DEPTH: Final = 128
"""How deep objects and lists may nest.

Go's decoder allows 10,000. Python's stack does not, and what walks a document here recurses, some of it with three
calls for each level; no real object comes near this depth (a nested CRD schema reaches 40).
"""


class JsonBodyError(ValueError):
    """The bytes are not JSON, or not JSON that we take."""


def loads(data: bytes | str, *, max_depth: int = MAX_DEPTH) -> Any:
    """The value; of a field given twice, the last one."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise JsonBodyError(str(error)) from None
    # A value cannot nest deeper than the number of its opening brackets, which is quick to count.
    brackets = data.count(b"{") + data.count(b"[") if isinstance(data, bytes) else data.count("{") + data.count("[")
    if brackets > max_depth and nests_deeper(value, max_depth):
        raise JsonBodyError(f"objects and lists nest deeper than {max_depth} levels")
    return value


def to_keep(encoded: bytes) -> bytes:
    """The same bytes in no more memory than they need: orjson leaves its whole buffer behind a text, often four times
    its size. For what is held, not for what is sent and forgotten."""
    return bytes(memoryview(encoded))


def loads_reporting_duplicates(data: bytes | str, *, max_depth: int = MAX_DEPTH) -> tuple[Any, list[str]]:
    """The value, and the paths of all fields that were given more than once, such as `data.a` or `spec.list[0].b`."""
    value = loads(data, max_depth=max_depth)
    raw = data.encode() if isinstance(data, str) else data
    # A dropped field takes at least its own two quotation marks along; written out again, the value would have fewer.
    # Only an escape that hides a mark could make up for it.
    if rb"\u0022" not in raw and raw.count(b'"') == orjson.dumps(value).count(b'"'):
        return value, []
    pairs = json.loads(raw, object_pairs_hook=_Pairs)
    return value, list(dict.fromkeys(_duplicates(pairs, "")))


def nests_deeper(value: Any, limit: int) -> bool:
    """Whether objects and lists nest more than `limit` deep; does not recurse."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(limit):
        if not level:
            return False
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
    return bool(level)


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, before duplicates are dropped."""


def _duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen = set()
        for key, child in value:
            here = f"{path}.{key}" if path else key
            if key in seen:
                yield here
            seen.add(key)
            yield from _duplicates(child, here)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _duplicates(child, f"{path}[{index}]")
