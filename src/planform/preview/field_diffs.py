"""How two versions of an object differ, field by field, without what only a server writes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import UNSET

from planform.api.kinds import Object
from planform.api.previews import FieldChange
from planform.apimachinery import last_applied
from planform.apimachinery.fieldpath import format_path

Segment = str | int

_SERVERS: Final = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


def content_of(obj: Mapping[str, Any]) -> Object:
    """What somebody wants of an object: all but its status and what only a server writes."""
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _SERVERS and value}
    if last_applied.ANNOTATION in (
        metadata.get("annotations") or {}
    ):  # it repeats the rest, values of Secrets included
        annotations = {key: value for key, value in metadata["annotations"].items() if key != last_applied.ANNOTATION}
        metadata["annotations"] = annotations
    return {**{key: value for key, value in obj.items() if key not in ("status", "metadata")}, "metadata": metadata}


def field_changes(before: Any, after: Any) -> tuple[FieldChange, ...]:
    """The fields that differ, in the order of the objects. Lists of different lengths differ from the first item that
    is not the same; plain ones as a whole."""
    return tuple(_changes(before, after, ()))


def without_paths(changes: tuple[FieldChange, ...], paths: frozenset[str]) -> tuple[FieldChange, ...]:
    """The changes outside of these fields, and of all that is within them."""
    return tuple(each for each in changes if not is_within(each.path, paths))


def is_within(path: str, paths: frozenset[str]) -> bool:
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in paths)


def _changes(before: Any, after: Any, at: tuple[Segment, ...]) -> Iterator[FieldChange]:
    if type(before) is dict and type(after) is dict:
        for key in (*before, *(key for key in after if key not in before)):
            yield from _member(before.get(key, UNSET), after.get(key, UNSET), (*at, key))
    elif type(before) is list and type(after) is list and _is_structured(before, after):
        for index in range(max(len(before), len(after))):
            yield from _member(_item(before, index), _item(after, index), (*at, index))
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield FieldChange(path=format_path(at), before=before, after=after)


def _member(before: Any, after: Any, at: tuple[Segment, ...]) -> Iterator[FieldChange]:
    if before is UNSET or after is UNSET:
        if (before or after) not in (None, {}, []):  # servers drop what is empty
            yield FieldChange(path=format_path(at), before=before, after=after)
        return
    yield from _changes(before, after, at)


def _item(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else UNSET


def _is_structured(before: list[Any], after: list[Any]) -> bool:
    """Whether items are worth comparing one by one."""
    return len(before) == len(after) or all(isinstance(each, dict) for each in (*before, *after))
