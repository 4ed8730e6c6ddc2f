"""Where the object is that a Usage holds, as far as the bare object tells: admission asks, and whoever composes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planform.api.kinds import gvk_of
from planform.api.names import PROTECTION_GROUP, USAGE


def is_usage(group: str, kind: str) -> bool:
    """A Usage, which has a namespace; what has none is held by a ClusterUsage."""
    return (group, kind) == (PROTECTION_GROUP, USAGE.kind)


def held_in_another_namespace(obj: Mapping[str, Any], home: str) -> str:
    """The namespace of the object that a Usage of the namespace `home` is about; empty if that is its own.

    What cannot be read names no namespace: the schema refuses it.
    """
    of = _member(_member(obj, "spec"), "of")
    for side in ("resourceRef", "resourceSelector"):
        namespace = _member(of, side).get("namespace")
        if isinstance(namespace, str) and namespace not in ("", home):
            return namespace
    return ""


def holds_in_another_namespace(obj: Mapping[str, Any]) -> bool:
    """Whether the object is a Usage of something in another namespace."""
    kind = gvk_of(obj)
    if not is_usage(kind.group, kind.kind):
        return False
    return bool(held_in_another_namespace(obj, str((obj.get("metadata") or {}).get("namespace") or "")))


def _member(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}
