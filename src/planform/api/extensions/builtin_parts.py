"""Parts of Kubernetes' own kinds within ours: their schemas as a CustomResourceDefinition may have them.

The facts are those that the embedded server serves for the built-in kinds. A CRD's schema is structural: it has no
references, says `x-kubernetes-int-or-string` instead of alternatives, and knows no strategies of patches. Nothing is
described in words, which are Kubernetes'; `kubectl explain deployment.spec` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from planform.api.builtin import resolve
from planform.api.extensions.vocabulary import Schema, labels, many, record, text

_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_KEPT: Final = (
    "type",
    "format",
    "enum",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
)
_NUMBER: Final = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_AMOUNT: Final = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"
_FILLED_IN: Final = frozenset({"selector", "template", "containers"})
"""What a Deployment must have and a template of one need not: the control plane fills it in."""


def deployment_spec(description: str) -> Schema:
    """The specification of a Deployment, of which any part may be left out."""
    return {**_part("io.k8s.api.apps.v1.DeploymentSpec"), "description": description}


@cache
def _part(name: str) -> Schema:
    """The schema of a component; it is shared by all that refer to it, so that it is made and kept once."""
    if name == _QUANTITY:
        return {**_int_or_string(), "pattern": _AMOUNT}
    if name == _INT_OR_STRING:
        return _int_or_string()
    if name == _OBJECT_META:
        return _metadata()
    return _structural(resolve(name))


def _structural(schema: Mapping[str, Any]) -> Schema:
    [reference] = [schema["$ref"]] if "$ref" in schema else [each["$ref"] for each in schema.get("allOf") or ()] or [""]
    made = {**_part(reference.rpartition("/")[2])} if reference else {}
    made |= {word: schema[word] for word in _KEPT if word in schema}
    if "properties" in schema:
        made["properties"] = {name: _structural(part) for name, part in schema["properties"].items()}
        required = [name for name in schema.get("required") or () if name not in _FILLED_IN]
        if required:
            made["required"] = required
    for below in ("items", "additionalProperties"):
        if below in schema:
            made[below] = _structural(schema[below])
    return _with_key_defaults(made, schema) if "x-kubernetes-list-map-keys" in made else made


def _with_key_defaults(made: Schema, schema: Mapping[str, Any]) -> Schema:
    """A list is merged by keys, which must be there: required, or by default. Other defaults are the server's."""
    item = schema["items"]
    facts = (resolve(item["$ref"]) if "$ref" in item else item)["properties"]
    properties = {**made["items"]["properties"]}
    for key in made["x-kubernetes-list-map-keys"]:
        if "default" in facts[key]:
            properties[key] = {**properties[key], "default": facts[key]["default"]}
    return {**made, "items": {**made["items"], "properties": properties}}


def _int_or_string() -> Schema:
    return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


def _metadata() -> Schema:
    """Metadata of what is made of a template; a CRD prunes all of it that its schema does not have."""
    return record(
        "Names, labels and annotations.",
        {
            "name": text("A name."),
            "namespace": text("A namespace."),
            "labels": labels("Labels."),
            "annotations": labels("Annotations."),
            "finalizers": many("Finalizers.", text("A finalizer.")),
        },
    )
