"""The words in which the schemas of our kinds are written: each field says its type, its limits and its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from planform.api.crds import column as column
from planform.api.crds import condition_column as condition_column
from planform.api.crds import crd as crd
from planform.api.crds import version as version
from planform.api.declarations import Schema as Schema
from planform.api.declarations import immutable as immutable
from planform.api.declarations import rule as rule
from planform.api.kinds import Object

DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$"
"""Go's durations, such as 1m30s."""


def text(
    description: str,
    *,
    one_of: Sequence[str] = (),
    default: str | None = None,
    min_length: int = 0,
    max_length: int | None = None,
    pattern: str = "",
    rules: Iterable[Object] = (),
) -> Schema:
    """A string."""
    schema: Schema = {"type": "string", "description": description}
    if one_of:
        schema["enum"] = list(one_of)
    if default is not None:
        schema["default"] = default
    if min_length:
        schema["minLength"] = min_length
    if max_length is not None:
        schema["maxLength"] = max_length
    if pattern:
        schema["pattern"] = pattern
    return _ruled(schema, rules)


def moment(description: str) -> Schema:
    """A point in time."""
    return {"type": "string", "format": "date-time", "description": description}


def number(
    description: str,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    default: int | None = None,
    rules: Iterable[Object] = (),
) -> Schema:
    """A whole number."""
    schema: Schema = {"type": "integer", "format": "int64", "description": description}
    for word, value in (("minimum", minimum), ("maximum", maximum), ("default", default)):
        if value is not None:
            schema[word] = value
    return _ruled(schema, rules)


def flag(description: str, *, default: bool | None = None) -> Schema:
    """True or false."""
    schema: Schema = {"type": "boolean", "description": description}
    return schema if default is None else {**schema, "default": default}


def record(
    description: str,
    fields: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    rules: Iterable[Object] = (),
) -> Schema:
    """An object with these fields."""
    schema: Schema = {"type": "object", "description": description, "properties": dict(fields)}
    if required:
        schema["required"] = list(required)
    return _ruled(schema, rules)


def labels(description: str) -> Schema:
    """A map from text to text."""
    return {"type": "object", "description": description, "additionalProperties": {"type": "string"}}


def free(description: str, *, rules: Iterable[Object] = ()) -> Schema:
    """An object whose fields are its reader's business."""
    schema = {"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": True}
    return _ruled(schema, rules)


def embedded(description: str) -> Schema:
    """A whole object of any kind. Null is as good as absent: published manifests leave the key without a value."""
    return {**free(description), "x-kubernetes-embedded-resource": True, "nullable": True}


def many(
    description: str,
    items: Schema,
    *,
    by: str = "",
    distinct: bool = False,
    minimum: int | None = None,
    maximum: int | None = None,
    rules: Iterable[Object] = (),
) -> Schema:
    """A list: merged by the field `by`, or a set if its items are distinct, or else replaced as a whole."""
    schema: Schema = {"type": "array", "description": description, "items": items}
    if by:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [by]}
    else:
        schema["x-kubernetes-list-type"] = "set" if distinct else "atomic"
    if minimum is not None:
        schema["minItems"] = minimum
    if maximum is not None:
        schema["maxItems"] = maximum
    return _ruled(schema, rules)


def name_ref(description: str, *, rules: Iterable[Object] = ()) -> Schema:
    """A reference by name to an object of a known kind."""
    return record(description, {"name": text("Name of the object.", max_length=253)}, required=["name"], rules=rules)


def secret_ref(description: str) -> Schema:
    """A reference to a Secret."""
    fields = {
        "name": text("Name of the Secret.", max_length=253),
        "namespace": text("Namespace of the Secret.", max_length=253),
    }
    return record(description, fields, required=["name", "namespace"])


def kind_ref(description: str, *, rules: Iterable[Object] = ()) -> Schema:
    """The name of a kind in one version."""
    fields = {
        "apiVersion": text("API version of the kind, such as example.org/v1.", max_length=317),
        "kind": text("The kind, such as Bucket.", max_length=63),
    }
    return record(description, fields, required=["apiVersion", "kind"], rules=rules)


def object_ref(description: str, *, required: Sequence[str] = ("apiVersion", "kind", "name")) -> Schema:
    """The name of one object of any kind."""
    fields = {
        "apiVersion": text("API version of the object."),
        "kind": text("Kind of the object."),
        "name": text("Name of the object."),
        "namespace": text("Namespace of the object, if its kind is namespaced."),
    }
    return record(description, fields, required=required)


def match_labels(description: str) -> Schema:
    """A selector of equal labels."""
    wanted = labels("The labels, each of which must be there with this value.")
    return record(description, {"matchLabels": wanted}, required=["matchLabels"])


def label_selector(description: str) -> Schema:
    """A LabelSelector as Kubernetes has it: labels and expressions, all of which must hold."""
    expression = record(
        "One condition on a label.",
        {
            "key": text("The label."),
            "operator": text("How it is compared: In, NotIn, Exists or DoesNotExist."),
            "values": many("For In and NotIn: the values.", text("A value.")),
        },
        required=["key", "operator"],
    )
    fields = {
        "matchLabels": labels("The labels, each of which must be there with this value."),
        "matchExpressions": many("Conditions on labels, all of which must hold.", expression),
    }
    return {**record(description, fields), "x-kubernetes-map-type": "atomic"}


def conditions() -> Schema:
    """`status.conditions`, the same everywhere."""
    fields = {
        "type": text("What the condition is about, such as Ready."),
        "status": text("Whether it holds: True, False or Unknown."),
        "reason": text("Why, as one word for programs."),
        "message": text("Why, as a sentence for people."),
        "lastTransitionTime": moment("When the status last changed."),
        "observedGeneration": number("The generation of the object that this is said about."),
    }
    one = record("One condition.", fields, required=["lastTransitionTime", "reason", "status", "type"])
    return many("What is known about the object, one entry for each type.", one, by="type")


def status(description: str, fields: Mapping[str, Schema] | None = None) -> Schema:
    """A status with conditions and what else its kind has."""
    return record(description, {"conditions": conditions(), **(fields or {})})


def root(
    description: str, fields: Mapping[str, Schema], *, required: Sequence[str] = (), rules: Iterable[Object] = ()
) -> Schema:
    """The schema of a whole object."""
    meta: dict[str, Schema] = {
        "apiVersion": text("The API group and version in which this object is written."),
        "kind": text("The kind of this object."),
        "metadata": {"type": "object"},
    }
    return record(description, {**meta, **fields}, required=required, rules=rules)


def _ruled(schema: Schema, rules: Iterable[Object]) -> Schema:
    written = list(rules)
    return {**schema, "x-kubernetes-validations": written} if written else schema
