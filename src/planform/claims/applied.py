"""Whether a server-side apply would change anything, told from the object alone. Pure.

An apply that changes nothing leaves nothing behind, but it is a request all the same. What a manager applied last is
written in the object's managed fields: if that is what it would apply now, and the values are still there, it need not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planform.api.metadata import managed_fields_of


def is_applied(found: Mapping[str, Any], wanted: Mapping[str, Any], *, manager: str) -> bool:
    """Whether applying `wanted` to `found` as this manager is known to change nothing; if in doubt, no.

    `wanted` carries no preconditions. Atomic maps and lists that are merged item by item are always in doubt: without
    a schema the one looks like an empty map, and of the other it is not known what makes two items the same.
    """
    owned = _applied_fields(found, manager, wanted["apiVersion"])
    if owned is None:
        return False
    said = {name: value for name, value in wanted.items() if name not in ("apiVersion", "kind", "metadata")}
    names = ("name", "namespace")
    metadata = {name: value for name, value in wanted["metadata"].items() if name not in names}
    return _holds(owned, {**said, "metadata": metadata} if metadata else said, found)


def _applied_fields(found: Mapping[str, Any], manager: str, api_version: str) -> Mapping[str, Any] | None:
    for entry in managed_fields_of(found):
        mine = entry.get("manager") == manager and entry.get("operation") == "Apply"
        if mine and entry.get("apiVersion") == api_version and not entry.get("subresource"):
            fields: Mapping[str, Any] = entry.get("fieldsV1") or {}
            return fields
    return None


def _holds(owned: Mapping[str, Any], wanted: Any, found: Any) -> bool:
    """Whether exactly `wanted` is owned, and is there."""
    members = {name.removeprefix("f:"): below for name, below in owned.items() if name != "."}
    if not members:
        return _same(found, wanted) and not (isinstance(wanted, Mapping) and wanted)
    if not isinstance(wanted, Mapping) or not isinstance(found, Mapping) or members.keys() != wanted.keys():
        return False
    return all(name in found and _holds(below, wanted[name], found[name]) for name, below in members.items())


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values, in which true is not 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
