"""A schema as something to walk through, field by field: what stands below a field, or that nothing does. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_TEXTS: Final = ("name", "namespace", "uid", "generateName", "resourceVersion", "selfLink")
_OTHERS: Final = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_LISTS: Final = ("finalizers", "ownerReferences", "managedFields")
_METADATA: Final[Mapping[str, Any]] = {
    **{name: {"type": "object", "additionalProperties": {"type": "string"}} for name in ("annotations", "labels")},
    **{name: {"type": "string"} for name in (*_TEXTS, *_OTHERS)},
    **{name: {_PRESERVE: True} for name in _LISTS},
}


@dataclass(frozen=True, slots=True, eq=False)
class Typed:
    """A schema. One of a custom kind is structural: what it does not name is pruned, unless it says otherwise."""

    schema: Mapping[str, Any]
    is_custom: bool = True

    def names(self) -> list[str]:
        properties = self.schema.get("properties")
        return list(properties) if isinstance(properties, Mapping) else []


UNKNOWN: Final = Typed({_PRESERVE: True})
"""Whatever is asked of it may be there."""


def typed(schema: Mapping[str, Any], *, is_custom: bool) -> Typed:
    return Typed(schema, is_custom)


def metadata_of(root: Typed) -> Typed:
    """The schema of a whole object, which need not say what all objects have."""
    schema = root.schema
    properties = {
        **(schema.get("properties") or {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": _METADATA},
    }
    return Typed({**schema, "properties": properties}, root.is_custom)


def at(here: Typed, segment: str | int) -> Typed | None:
    """What stands below; None if there is certainly nothing."""
    schema = here.schema
    if schema.get(_PRESERVE) or schema.get("x-kubernetes-embedded-resource") or "$ref" in schema:
        properties = schema.get("properties") or {}
        return Typed(properties[segment], here.is_custom) if segment in properties else UNKNOWN
    if isinstance(segment, int) or segment == "*":
        if schema.get("type") == "array" and isinstance(schema.get("items"), Mapping):
            return Typed(schema["items"], here.is_custom)
        return UNKNOWN if segment == "*" or schema.get("type") in (None, "array") else None
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and segment in properties:
        return Typed(properties[segment] or {}, here.is_custom)
    more = schema.get("additionalProperties")
    if isinstance(more, Mapping):
        return Typed(more, here.is_custom)
    if more is True or (not properties and not here.is_custom) or schema.get("type") is None:
        return UNKNOWN
    return None
