"""The annotations of any object, and those by which users tell the control plane to leave one alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import metadata_of
from planform.api.names import PAUSED_ANNOTATION

_NONE: Final[Mapping[str, str]] = {}


def annotations_of(obj: Mapping[str, Any] | None) -> Mapping[str, str]:
    return metadata_of(obj).get("annotations") or _NONE


def annotation(obj: Mapping[str, Any] | None, name: str) -> str:
    """The value of an annotation; empty without it."""
    return str(annotations_of(obj).get(name) or "")


def set_annotation(obj: Object, name: str, value: str) -> None:
    """Set an annotation, or remove it; the map is replaced, since the stored object may share it."""
    metadata = obj["metadata"]
    annotations = {key: each for key, each in (metadata.get("annotations") or {}).items() if key != name}
    if value:
        annotations[name] = value
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)


def is_paused(obj: Mapping[str, Any]) -> bool:
    """Whether the user asked the control plane to leave this object alone."""
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return bool(annotations) and isinstance(annotations, dict) and annotations.get(PAUSED_ANNOTATION) == "true"
