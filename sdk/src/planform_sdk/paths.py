"""Field paths into plain objects: `spec.ports[0].name`, `metadata.annotations[example.org/team]`, `data['a.b']`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

_MISSING = object()


class PathError(ValueError):
    """A field path that cannot be parsed, or that does not fit the object."""


@lru_cache(maxsize=4096)
def parse(path: str) -> tuple[str | int, ...]:
    """Split a path into keys and indexes. Raises PathError."""
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        if path[at] == "[":
            end = path.find("]", at)
            if end < 0:
                raise PathError(f'field path "{path}": no "]" for the "[" at {at}')
            inside = path[at + 1 : end]
            quoted = len(inside) > 1 and inside[0] == inside[-1] and inside[0] in "'\""
            if not inside or inside in ("''", '""'):
                raise PathError(f'field path "{path}": nothing between the brackets at {at}')
            steps.append(inside[1:-1] if quoted else int(inside) if inside.isdecimal() else inside)
            at = end + 1
            if at < len(path) and path[at] not in ".[":
                raise PathError(f'field path "{path}": expected "." or "[" at {at}')
        else:
            if path[at] == ".":
                at += 1
                if not steps:
                    raise PathError(f'field path "{path}": starts with "."')
            end = at
            while end < len(path) and path[end] not in ".[":
                end += 1
            if end == at:
                raise PathError(f'field path "{path}": an empty name at {at}')
            steps.append(path[at:end])
            at = end
    if not steps:
        raise PathError("an empty field path")
    return tuple(steps)


def get(value: Any, path: str, default: Any = None) -> Any:
    """Give what is at the path, or the default if the way there ends early."""
    for step in parse(path):
        value = _child(value, step)
        if value is _MISSING:
            return default
    return value


def set(value: Any, path: str, new: Any) -> None:
    """Put a value at the path. Objects on the way are made; a list may be extended by one item at its end."""
    steps = parse(path)
    for step, following in pairwise(steps):
        child = _child(value, step)
        if child is _MISSING or child is None:
            child = [] if isinstance(following, int) else {}
            _put(value, step, child, path)
        value = child
    _put(value, steps[-1], new, path)


def delete(value: Any, path: str) -> None:
    """Remove what is at the path, if anything is."""
    *way, last = parse(path)
    for step in way:
        value = _child(value, step)
        if value is _MISSING:
            return
    if _child(value, last) is not _MISSING:
        del value[last if isinstance(value, list) else str(last)]


def merge(value: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Lay a patch over an object: objects merge key by key, anything else replaces."""
    for key, new in patch.items():
        old = value.get(key)
        if isinstance(old, dict) and isinstance(new, Mapping):
            merge(old, new)
        else:
            value[key] = new


def _child(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(step if isinstance(step, str) else str(step), _MISSING)
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    return _MISSING


def _put(value: Any, step: str | int, new: Any, path: str) -> None:
    if isinstance(value, dict):
        value[step if isinstance(step, str) else str(step)] = new
    elif isinstance(value, list) and isinstance(step, int) and step < len(value):
        value[step] = new
    elif isinstance(value, list) and step == len(value):
        value.append(new)
    else:
        kind = "a list" if isinstance(value, list) else f"{type(value).__name__} {value!r}"
        raise PathError(f'field path "{path}": cannot put "{step}" into {kind}')
