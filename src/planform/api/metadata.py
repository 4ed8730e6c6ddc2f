"""What the metadata of any object says, typed. For objects of any kind, whose types nobody declared.

What is absent, or null as in manifests of other tools, reads as empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_NOTHING: Final[Mapping[str, Any]] = {}


def metadata_of(obj: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The metadata, for those who copy or compare it as a whole."""
    return _NOTHING if obj is None else obj.get("metadata") or _NOTHING


def name_of(obj: Mapping[str, Any] | None) -> str:
    return str(metadata_of(obj).get("name") or "")


def namespace_of(obj: Mapping[str, Any] | None) -> str:
    """Empty for what is cluster scoped."""
    return str(metadata_of(obj).get("namespace") or "")


def uid_of(obj: Mapping[str, Any] | None) -> str:
    """Empty for what is not stored yet, as in a rendering."""
    return str(metadata_of(obj).get("uid") or "")


def resource_version_of(obj: Mapping[str, Any] | None) -> str:
    return str(metadata_of(obj).get("resourceVersion") or "")


def generation_of(obj: Mapping[str, Any] | None) -> int:
    return int(metadata_of(obj).get("generation") or 0)


def created_at(obj: Mapping[str, Any] | None) -> str:
    """The timestamp as the server wrote it; empty before it did."""
    return str(metadata_of(obj).get("creationTimestamp") or "")


def deleted_at(obj: Mapping[str, Any] | None) -> str:
    """Since when the object is kept only by its finalizers; empty if nobody deleted it."""
    return str(metadata_of(obj).get("deletionTimestamp") or "")


def is_deleted(obj: Mapping[str, Any] | None) -> bool:
    """Whether somebody has deleted the object, which is kept only by its finalizers."""
    return bool(metadata_of(obj).get("deletionTimestamp"))


def finalizers_of(obj: Mapping[str, Any] | None) -> Sequence[str]:
    return metadata_of(obj).get("finalizers") or ()


def labels_of(obj: Mapping[str, Any] | None) -> Mapping[str, str]:
    return metadata_of(obj).get("labels") or _NOTHING


def label(obj: Mapping[str, Any] | None, name: str) -> str:
    """The value of a label; empty without it."""
    return str(labels_of(obj).get(name) or "")


def managed_fields_of(obj: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    """Who set which fields, as the server keeps it."""
    return metadata_of(obj).get("managedFields") or ()
