"""Inputs that no test notices: each field of an XR's spec is changed, one at a time, and cases are run again. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from planform.api.kinds import Object

_SKIPPED: Final = frozenset({"crossplane", "compositionRef", "compositionSelector", "compositionUpdatePolicy"})
_MAX_MUTANTS: Final = 64


def mutants(xr: Object) -> Iterator[tuple[str, Object]]:
    """Copies of the XR, each with one value of its spec changed, and the path of that value."""
    for number, path in enumerate(_leaves(xr.get("spec") or {}, ())):
        if number == _MAX_MUTANTS:
            return
        changed = copy.deepcopy(xr)
        holder: Any = changed["spec"]
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = _other(holder[path[-1]])
        yield _shown(path), changed


def _leaves(value: Any, above: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for name, each in value.items():
            if above or name not in _SKIPPED:
                yield from _leaves(each, (*above, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _leaves(each, (*above, number))
    elif value is not None and above:
        yield above


def _other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}-other"


def _shown(path: tuple[str | int, ...]) -> str:
    return "spec" + "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
