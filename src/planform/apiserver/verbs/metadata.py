"""ObjectMeta at the border: which fields exist, which the server owns, and what a client may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from planform.api.kinds import Object
from planform.clock import parse_timestamp, timestamp
from planform.errors import BadRequest

_STRING = "string"
_TYPES: Mapping[str, str] = {
    "name": _STRING,
    "generateName": _STRING,
    "namespace": _STRING,
    "selfLink": _STRING,
    "uid": _STRING,
    "resourceVersion": _STRING,
    "generation": "integer",
    "creationTimestamp": _STRING,
    "deletionTimestamp": _STRING,
    "deletionGracePeriodSeconds": "integer",
    "labels": "strings",
    "annotations": "strings",
    "ownerReferences": "objects",
    "finalizers": "list",
    "managedFields": "objects",
}
_STRINGS = frozenset({str})
_OBJECTS = frozenset({dict})
_OWNER_FLAGS = ("controller", "blockOwnerDeletion")
_OWNER_FIELDS = frozenset({"apiVersion", "kind", "name", "uid", *_OWNER_FLAGS})
SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
NEVER_KEPT_ON_CREATE = (*SERVER_OWNED, "selfLink")
CLIENT_OWNED = ("labels", "annotations", "finalizers", "ownerReferences")


def clean(obj: Object, unknown: list[str]) -> dict[str, Any]:
    """The object's metadata, checked for types and rid of nulls and unknown fields (their paths go to `unknown`).

    Raises BadRequest for a wrong type: no later stage can do anything sensible with such an object.
    """
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if type(metadata) is not dict:
        raise BadRequest(f"metadata must be an object, not {_type_name(metadata)}")
    drop: list[str] | None = None
    for name, value in metadata.items():
        expected = _TYPES.get(name)
        if expected is None:
            unknown.append(f"metadata.{name}")
        elif value is not None:
            if expected is _STRING:
                if type(value) is str:
                    continue
                raise _wrong(name, "string", value)
            _CHECKS[expected](name, value, unknown)
            if value or expected == "integer" or name == "managedFields":
                continue
        drop = [name] if drop is None else [*drop, name]
    if drop is not None:
        for name in drop:
            del metadata[name]
    for name in ("creationTimestamp", "deletionTimestamp"):
        time = metadata.get(name)
        if time is not None and not time.endswith("Z"):
            metadata[name] = normal_time(f"metadata.{name}", time)
    return metadata


def normal_time(field: str, text: str) -> str:
    """An RFC 3339 time in UTC, whole seconds; raises BadRequest for anything else."""
    try:
        return timestamp(parse_timestamp(text))
    except ValueError as error:
        raise BadRequest(f"{field}: cannot parse {text!r} as a time: {error}") from error


def name_owners_once(metadata: dict[str, Any]) -> None:
    """Drop repeated owner references, in place."""
    owners = metadata.get("ownerReferences")
    if owners and len(owners) > 1:
        distinct = {orjson.dumps(owner, option=orjson.OPT_SORT_KEYS): owner for owner in reversed(owners)}
        metadata["ownerReferences"] = list(reversed(distinct.values()))


def name_of(obj: Object) -> str:
    return str(obj["metadata"].get("name", ""))


def is_terminating(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def _integer(name: str, value: object, unknown: list[str]) -> None:
    if type(value) is not int:
        raise _wrong(name, "integer", value)


def _strings(name: str, value: object, unknown: list[str]) -> None:
    if type(value) is not dict:
        raise _wrong(name, "object with string values", value)
    if _STRINGS.issuperset(map(type, value.values())):
        return
    for key, item in list(value.items()):
        if item is None:
            value[key] = ""
        elif type(item) is not str:
            raise BadRequest(f"metadata.{name}.{key} must be a string, not {_type_name(item)}")


def _list(name: str, value: object, unknown: list[str]) -> None:
    if type(value) is not list or not _STRINGS.issuperset(map(type, value)):
        raise _wrong(name, "list of strings", value)


def _objects(name: str, value: object, unknown: list[str]) -> None:
    if type(value) is not list or not _OBJECTS.issuperset(map(type, value)):
        raise _wrong(name, "list of objects", value)
    if name == "ownerReferences":
        for index, owner in enumerate(value):
            for field in [field for field in owner if field not in _OWNER_FIELDS]:
                unknown.append(f"metadata.ownerReferences[{index}].{field}")
                del owner[field]
            for field in _OWNER_FLAGS:
                if type(owner.get(field, False)) is not bool:
                    if owner[field] is not None:
                        raise _wrong(f"ownerReferences[{index}].{field}", "boolean", owner[field])
                    del owner[field]


_CHECKS = {"integer": _integer, "strings": _strings, "list": _list, "objects": _objects}


def _wrong(name: str, expected: str, value: object) -> BadRequest:
    return BadRequest(f"metadata.{name} must be a {expected}, not {_type_name(value)}")


def _type_name(value: object) -> str:
    return {dict: "object", list: "list", str: "string", bool: "boolean", int: "number", float: "number"}.get(
        type(value), "null"
    )
