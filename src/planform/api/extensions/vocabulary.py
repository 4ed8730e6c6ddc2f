"""The words in which the schemas of our kinds are written: each field says its type, its limits and its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from planform.api.kinds import Object

Schema = dict[str, Any]

DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$"
"""Go's durations, such as 1m30s."""
AGE: Final = {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def text(
    says: str,
    *,
    one_of: Sequence[str] = (),
    default: str | None = None,
    shortest: int = 0,
    longest: int | None = None,
    pattern: str = "",
    rules: Iterable[Object] = (),
) -> Schema:
    """A string."""
    schema: Schema = {"type": "string", "description": says}
    if one_of:
        schema["enum"] = list(one_of)
    if default is not None:
        schema["default"] = default
    if shortest:
        schema["minLength"] = shortest
    if longest is not None:
        schema["maxLength"] = longest
    if pattern:
        schema["pattern"] = pattern
    return _ruled(schema, rules)


def moment(says: str) -> Schema:
    """A point in time."""
    return {"type": "string", "format": "date-time", "description": says}


def number(
    says: str,
    *,
    least: int | None = None,
    most: int | None = None,
    default: int | None = None,
    rules: Iterable[Object] = (),
) -> Schema:
    """A whole number."""
    schema: Schema = {"type": "integer", "format": "int64", "description": says}
    for word, value in (("minimum", least), ("maximum", most), ("default", default)):
        if value is not None:
            schema[word] = value
    return _ruled(schema, rules)


def flag(says: str, *, default: bool | None = None) -> Schema:
    """True or false."""
    schema: Schema = {"type": "boolean", "description": says}
    return schema if default is None else {**schema, "default": default}


def record(
    says: str,
    fields: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    rules: Iterable[Object] = (),
) -> Schema:
    """An object with these fields."""
    schema: Schema = {"type": "object", "description": says, "properties": dict(fields)}
    if required:
        schema["required"] = list(required)
    return _ruled(schema, rules)


def labels(says: str) -> Schema:
    """A map from text to text."""
    return {"type": "object", "description": says, "additionalProperties": {"type": "string"}}


def free(says: str, *, rules: Iterable[Object] = ()) -> Schema:
    """An object whose fields are its reader's business."""
    schema = {"type": "object", "description": says, "x-kubernetes-preserve-unknown-fields": True}
    return _ruled(schema, rules)


def embedded(says: str) -> Schema:
    """A whole object of any kind. Null is as good as absent: published manifests leave the key without a value."""
    return {**free(says), "x-kubernetes-embedded-resource": True, "nullable": True}


def many(
    says: str,
    items: Schema,
    *,
    by: str = "",
    distinct: bool = False,
    least: int | None = None,
    most: int | None = None,
    rules: Iterable[Object] = (),
) -> Schema:
    """A list: merged by the field `by`, or a set if its items are distinct, or else replaced as a whole."""
    schema: Schema = {"type": "array", "description": says, "items": items}
    if by:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [by]}
    else:
        schema["x-kubernetes-list-type"] = "set" if distinct else "atomic"
    if least is not None:
        schema["minItems"] = least
    if most is not None:
        schema["maxItems"] = most
    return _ruled(schema, rules)


def rule(cel: str, message: str, *, whether_new: bool = False) -> Object:
    """A condition on the value. `whether_new`: oldSelf is an optional, and the rule also holds for what is new."""
    made: Object = {"rule": cel, "message": message}
    return {**made, "optionalOldSelf": True} if whether_new else made


def immutable(what: str) -> Object:
    """What is set once and then stays as it is."""
    return rule("self == oldSelf", f"{what} is immutable")


def name_ref(says: str, *, rules: Iterable[Object] = ()) -> Schema:
    """A reference by name to an object of a known kind."""
    return record(says, {"name": text("Name of the object.", longest=253)}, required=["name"], rules=rules)


def secret_ref(says: str) -> Schema:
    """A reference to a Secret."""
    fields = {
        "name": text("Name of the Secret.", longest=253),
        "namespace": text("Namespace of the Secret.", longest=253),
    }
    return record(says, fields, required=["name", "namespace"])


def kind_ref(says: str, *, rules: Iterable[Object] = ()) -> Schema:
    """The name of a kind in one version."""
    fields = {
        "apiVersion": text("API version of the kind, such as example.org/v1.", longest=317),
        "kind": text("The kind, such as Bucket.", longest=63),
    }
    return record(says, fields, required=["apiVersion", "kind"], rules=rules)


def object_ref(says: str, *, required: Sequence[str] = ("apiVersion", "kind", "name")) -> Schema:
    """The name of one object of any kind."""
    fields = {
        "apiVersion": text("API version of the object."),
        "kind": text("Kind of the object."),
        "name": text("Name of the object."),
        "namespace": text("Namespace of the object, if its kind is namespaced."),
    }
    return record(says, fields, required=required)


def match_labels(says: str) -> Schema:
    """A selector of equal labels."""
    wanted = labels("The labels, each of which must be there with this value.")
    return record(says, {"matchLabels": wanted}, required=["matchLabels"])


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


def status(says: str, fields: Mapping[str, Schema] | None = None) -> Schema:
    """A status with conditions and what else its kind has."""
    return record(says, {"conditions": conditions(), **(fields or {})})


def root(
    says: str, fields: Mapping[str, Schema], *, required: Sequence[str] = (), rules: Iterable[Object] = ()
) -> Schema:
    """The schema of a whole object."""
    meta: dict[str, Schema] = {
        "apiVersion": text("The API group and version in which this object is written."),
        "kind": text("The kind of this object."),
        "metadata": {"type": "object"},
    }
    return record(says, {**meta, **fields}, required=required, rules=rules)


def column(name: str, path: str, kind: str = "string", *, priority: int = 0) -> Object:
    """A column that `kubectl get` prints."""
    made: Object = {"name": name, "type": kind, "jsonPath": path}
    return {**made, "priority": priority} if priority else made


def condition_column(type_: str, name: str = "") -> Object:
    """The status of one condition as a column."""
    return column(name or type_.upper(), f".status.conditions[?(@.type=='{type_}')].status")


def version(
    name: str, schema: Schema, columns: Sequence[Object] = (), *, storage: bool = False, deprecated: str = ""
) -> Object:
    """A served version; `deprecated` is the warning that its users get."""
    made: Object = {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [*columns, AGE],
    }
    return {**made, "deprecated": True, "deprecationWarning": deprecated} if deprecated else made


def crd(
    group: str,
    kind: str,
    versions: Sequence[Object],
    *,
    scope: Literal["Cluster", "Namespaced"] = "Cluster",
    short: Sequence[str] = (),
    categories: Sequence[str] = ("crossplane",),
    plural: str = "",
) -> Object:
    """The CustomResourceDefinition, complete as a server gives it back, so that the two can be compared."""
    plural = plural or f"{kind.lower()}s"
    names: Object = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    if short:
        names["shortNames"] = list(short)
    names["categories"] = list(categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": scope,
            "versions": list(versions),
            "conversion": {"strategy": "None"},
        },
    }


def _ruled(schema: Schema, rules: Iterable[Object]) -> Schema:
    written = list(rules)
    return {**schema, "x-kubernetes-validations": written} if written else schema
