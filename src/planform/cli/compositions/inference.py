"""An XRD from examples, and a Composition for an XRD: drafts that an author goes on from. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import namespace_of
from planform.errors import UsageError

_PLURALS: Final = (
    (re.compile(r"(s|x|z|ch|sh)$"), r"\1es"),
    (re.compile(r"([^aeiou])y$"), r"\1ies"),
    (re.compile(r"$"), "s"),
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_OURS: Final = frozenset({"crossplane", "compositionRef", "compositionSelector", "compositionRevisionRef", "claimRef"})


def plural_of(kind: str) -> str:
    """As English does, more often than not: Database, databases; Policy, policies; Box, boxes."""
    word = kind.lower()
    for ending, plural in _PLURALS:
        if ending.search(word):
            return ending.sub(plural, word, count=1)
    return word


def schema_of_values(values: Sequence[Any], *, required: bool = False, path: str = "spec") -> Object:
    """A structural schema that all the values fit. Raises UsageError where they are of different types."""
    known = [value for value in values if value is not None]
    if not known:
        return {"x-kubernetes-preserve-unknown-fields": True}
    types = {_type_of(value) for value in known}
    if types == {"integer", "number"}:
        types = {"number"}
    if len(types) > 1:
        raise UsageError(f"{path}: examples differ: {' and '.join(sorted(types))}")
    [found] = types
    if found == "object":
        return _object_schema(known, required=required, path=path)
    if found == "array":
        items = [item for value in known for item in value]
        schema = {"type": "array", "items": schema_of_values(items, path=f"{path}[]")}
        return schema if items else {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}}
    if found == "string" and all(_DATE.fullmatch(value) for value in known):
        return {"type": "string", "format": "date-time"}
    return {"type": found}


def _object_schema(values: Sequence[Mapping[str, Any]], *, required: bool, path: str) -> Object:
    names = list(dict.fromkeys(name for value in values for name in value))
    if not names:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {
        name: schema_of_values([value[name] for value in values if name in value], path=f"{path}.{name}")
        for name in names
    }
    schema: Object = {"type": "object", "properties": properties}
    everywhere = [name for name in names if all(name in value for value in values)]
    if required and everywhere and len(values) > 1:
        schema["required"] = everywhere
    return schema


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    for kind, name in ((int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    raise UsageError(f"a value of type {type(value).__name__}")


def xrd_from(examples: Sequence[Object], *, plural: str = "", scope: str = "") -> Object:
    """The XRD of which these are examples, all of one kind; with several, what all have is required."""
    kinds = {(example["apiVersion"], example["kind"]) for example in examples}
    if len(kinds) != 1:
        raise UsageError(f"the examples are of {len(kinds)} kinds", hint="give examples of one kind and version")
    [(api_version, kind)] = kinds
    group, _, version = str(api_version).rpartition("/")
    if "." not in group:
        raise UsageError(f'apiVersion "{api_version}" has no group', hint="as in example.org/v1")
    specs = [
        {name: value for name, value in (example.get("spec") or {}).items() if name not in _OURS}
        for example in examples
    ]
    properties: Object = {"spec": schema_of_values(specs, required=True)}
    if statuses := [example["status"] for example in examples if example.get("status")]:
        properties["status"] = schema_of_values(statuses, path="status")
    name = plural or plural_of(kind)
    namespaced = any(namespace_of(example) for example in examples)
    return {
        "apiVersion": "apiextensions.crossplane.io/v2",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": f"{name}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": name},
            "scope": scope or ("Namespaced" if namespaced else "Cluster"),
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "referenceable": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                }
            ],
        },
    }


def composition_for(xrd: Object, *, functions: Iterable[str] = (), name: str = "") -> Object:
    """A Composition for the version of an XRD that is referenceable: a ConfigMap with what the XR says, the functions
    that are named, and readiness at the end."""
    spec = xrd["spec"]
    version = next((each for each in spec["versions"] if each.get("referenceable")), spec["versions"][0])
    fields = _scalars(((version.get("schema") or {}).get("openAPIV3Schema") or {}), ())
    steps: list[Object] = [
        {"step": each.removeprefix("function-"), "functionRef": {"name": each}} for each in functions
    ]
    if not steps:
        resource: Object = {"name": "settings", "base": {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}}
        resource["patches"] = [_patch(path, kind) for path, kind in fields]
        if spec.get("scope") == "Cluster":
            resource["base"]["metadata"] = {"namespace": "default"}
        steps.append(
            {
                "step": "compose",
                "functionRef": {"name": "function-patch-and-transform"},
                "input": {
                    "apiVersion": "pt.fn.crossplane.io/v1beta1",
                    "kind": "Resources",
                    "resources": [
                        resource if resource["patches"] else {k: v for k, v in resource.items() if k != "patches"}
                    ],
                },
            }
        )
    steps.append({"step": "ready", "functionRef": {"name": "function-auto-ready"}})
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": name or spec["names"].get("singular") or spec["names"]["kind"].lower()},
        "spec": {
            "compositeTypeRef": {"apiVersion": f"{spec['group']}/{version['name']}", "kind": spec["names"]["kind"]},
            "mode": "Pipeline",
            "pipeline": steps,
        },
    }


def _patch(path: tuple[str, ...], kind: str) -> Object:
    patch: Object = {
        "type": "FromCompositeFieldPath",
        "fromFieldPath": ".".join(("spec", *path)),
        "toFieldPath": f"data.{'-'.join(path)}" if len(path) > 1 else f"data.{path[0]}",
    }
    if kind != "string":
        patch["transforms"] = [{"type": "convert", "convert": {"toType": "string"}}]
    return patch


def _scalars(schema: Object, above: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    """The fields of the spec that hold one value, by path, with their types."""
    if not above:
        schema = (schema.get("properties") or {}).get("spec") or {}
    found: list[tuple[tuple[str, ...], str]] = []
    for name, each in (schema.get("properties") or {}).items():
        kind = each.get("type")
        if kind == "object":
            found += _scalars(each, (*above, name))
        elif kind in ("string", "integer", "number", "boolean"):
            found.append(((*above, name), kind))
    return found
