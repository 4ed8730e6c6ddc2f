"""Objects inside objects (`x-kubernetes-embedded-resource`): they have a kind, and metadata as any object has."""

from __future__ import annotations

from typing import Any

from planform.apimachinery import schema_findings as say
from planform.apimachinery.formats import is_short_name
from planform.apimachinery.schema_findings import Path, render
from planform.apimachinery.schema_values import Rule, SchemaDict
from planform.errors import FieldError


def _embedded_errors(obj: dict[str, Any], path: Path) -> list[FieldError]:
    found = [say.required(render((path, name))) for name in ("apiVersion", "kind") if name not in obj]
    for name in ("apiVersion", "kind"):
        if obj.get(name) == "":
            found.append(say.invalid(render((path, name)), "", "must not be empty"))
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if isinstance(version, str) and version.count("/") > 1:
        found.append(say.invalid(render((path, "apiVersion")), version, f"unexpected GroupVersion string: {version}"))
    if isinstance(kind, str) and kind and not (kind[0].isalpha() and is_short_name(kind.lower())):
        detail = (
            "may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric "
            "characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. "
            "'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        )
        found.append(say.invalid(render((path, "kind")), kind, detail))
    return found


IS_RESOURCE = Rule(lambda obj: not _embedded_errors(obj, None), _embedded_errors)
_TIME: SchemaDict = {"type": "string", "format": "date-time", "nullable": True}
_TEXT: SchemaDict = {"type": "string"}
_TEXTS: SchemaDict = {"type": "object", "additionalProperties": _TEXT}
_OBJECT_META: SchemaDict = {
    "type": "object",
    "properties": {
        "annotations": _TEXTS,
        "creationTimestamp": _TIME,
        "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
        "deletionTimestamp": _TIME,
        "finalizers": {"type": "array", "items": _TEXT},
        "generateName": _TEXT,
        "generation": {"type": "integer", "format": "int64"},
        "labels": _TEXTS,
        "managedFields": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "name": _TEXT,
        "namespace": _TEXT,
        "ownerReferences": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["apiVersion", "kind", "name", "uid"],
                "properties": {
                    "apiVersion": _TEXT,
                    "blockOwnerDeletion": {"type": "boolean"},
                    "controller": {"type": "boolean"},
                    "kind": _TEXT,
                    "name": _TEXT,
                    "uid": _TEXT,
                },
            },
        },
        "resourceVersion": _TEXT,
        "selfLink": _TEXT,
        "uid": _TEXT,
    },
}
RESOURCE_FIELDS: dict[str, SchemaDict] = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _OBJECT_META}
"""What every resource has, whatever its schema says."""
