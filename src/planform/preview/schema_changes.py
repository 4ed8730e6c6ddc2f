"""What another schema of an XRD makes of XRs that are there: which become invalid, lose fields, or gain defaults."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planform.api.kinds import Object
from planform.api.names import XRD
from planform.api.previews import FieldChange
from planform.apimachinery.cel_rules import Rules, compile_rules
from planform.apimachinery.schema import Schema, compile_schema
from planform.definitions.crds import composite_crd
from planform.functions.sending import canonical
from planform.preview.field_diffs import content_of, field_changes
from planform.xrs.index import Definition


@dataclass(frozen=True)
class SchemaVerdict:
    """What becomes of one XR. `invalid` are rules that it breaks now and did not before; an update that leaves those
    fields alone is still accepted."""

    invalid: tuple[str, ...]
    pruned: tuple[str, ...]
    fields: tuple[FieldChange, ...]
    """What changes in the XR: fields that are pruned, and defaults that appear."""


class SchemaChange:
    """The schemas of one kind before and after, compiled once for all XRs."""

    def __init__(self, before: Definition, after: Definition) -> None:
        self._before, self._after = _compiled(before), _compiled(after)

    def upgraded(self, xr: Object) -> tuple[Object, SchemaVerdict]:
        """The XR as the new schema gives it, and what is to be said of it."""
        version = str(xr["apiVersion"]).rpartition("/")[2]
        after = self._after.get(version)
        if after is None:
            return xr, SchemaVerdict((f"version {version} is no longer served",), (), ())
        admitted, errors, pruned = _admitted(xr, after)
        before = self._before.get(version)
        known = set(_admitted(xr, before)[1]) if before is not None else set()
        invalid = tuple(f"{each} (tolerated until that field is edited)" for each in errors if each not in known)
        return admitted, SchemaVerdict(invalid, pruned, field_changes(content_of(xr), content_of(admitted)))


@dataclass(frozen=True)
class _Version:
    schema: Schema
    rules: Rules


def _compiled(definition: Definition) -> dict[str, _Version]:
    xrd = {
        "apiVersion": XRD.api_version,
        "kind": XRD.kind,
        "metadata": {"name": definition.name, "uid": ""},
        "spec": {**definition.spec, "scope": _scope(definition)},
    }
    found: dict[str, _Version] = {}
    for version in composite_crd(xrd)["spec"]["versions"]:
        if version["served"]:
            schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
            found[version["name"]] = _Version(compile_schema(dict(schema), root=True), compile_rules(dict(schema)))
    return found


def _scope(definition: Definition) -> str:
    if definition.style == "legacy":
        return "LegacyCluster"
    return "Namespaced" if definition.namespaced else "Cluster"


def _admitted(xr: Object, version: _Version) -> tuple[Object, list[str], tuple[str, ...]]:
    obj = copy.deepcopy(xr)
    found = version.schema.admit(obj)
    errors = [str(each) for each in found.errors]
    if not errors:
        errors = [str(each) for each in version.rules.check(obj)]
    return obj, errors, tuple(found.unknown)


def removed_paths(before: Definition, after: Definition) -> list[str]:
    """Fields that the old schema has in some version and the new one lacks there."""
    versions = {each["name"]: each for each in after.spec["versions"]}
    found: dict[str, None] = {}
    for version in before.spec["versions"]:
        if version["name"] in versions:
            old, new = _openapi(version), _openapi(versions[version["name"]])
            found |= dict.fromkeys(_missing(old, new, ""))
    return list(found)


def readers(compositions: Iterable[Mapping[str, Any]], paths: Iterable[str]) -> Iterator[str]:
    """Sentences about Compositions whose pipelines mention a field that goes: by the text of patches and templates."""
    wanted = list(paths)
    for composition in compositions:
        text = canonical(composition["spec"]).decode()
        for path in wanted:
            if re.search(rf"(?<![A-Za-z0-9]){re.escape(path)}(?![A-Za-z0-9])", text):
                name = composition["metadata"]["name"]
                yield f'Composition "{name}" reads {path}, which the new schema does not have'


def _openapi(version: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _missing(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    if new.get("x-kubernetes-preserve-unknown-fields"):
        return
    known = new.get("properties") or {}
    for name, schema in (old.get("properties") or {}).items():
        path = f"{at}.{name}" if at else name
        if name not in known:
            yield path
        else:
            yield from _missing(schema, known[name], path)
