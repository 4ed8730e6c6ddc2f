"""Section 14: the life of a CRD and what is refused at its creation."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.contract.engines import Engine, Object, case
from tests.contract.kinds import CRDS, TEXT, crd, establish, version

SPEC: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def fresh(engine: Engine, **options: Any) -> Object:
    """A CRD nobody else has, in a group of its own."""
    word = engine.fresh("k").replace("-", "")
    return crd(word + "s", word.capitalize(), group=f"{word}.example.org", **options)


def conditions(obj: Object) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in obj.get("status", {}).get("conditions") or ()}


def collection(definition: Object, name: str = "v1") -> str:
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{name}/{spec['names']['plural']}"


def instance(definition: Object, name: str, **metadata: Any) -> Object:
    spec = definition["spec"]
    return {
        "apiVersion": f"{spec['group']}/{spec['versions'][0]['name']}",
        "kind": spec["names"]["kind"],
        "metadata": {"name": name, **metadata},
        "spec": {},
    }


@case("14-lifecycle", "15-crd")
def test_a_crd_is_completed_accepted_and_established(engine: Engine) -> None:
    definition = fresh(engine)
    created = engine.post(CRDS, definition).ok(201)
    names = created["spec"]["names"]
    assert names["singular"] == names["kind"].lower() and names["listKind"] == names["kind"] + "List"
    assert created["spec"]["conversion"] == {"strategy": "None"}
    assert created["status"]["storedVersions"] == ["v1"]
    path = f"{CRDS}/{definition['metadata']['name']}"
    ready = engine.eventually(path, lambda r: conditions(r.json()).get("Established", ("", ""))[0] == "True")
    found = conditions(ready)
    assert found["NamesAccepted"] == ("True", "NoConflicts")
    assert found["Established"] == ("True", "InitialNamesAccepted")
    assert ready["status"]["acceptedNames"] == names
    engine.delete(path).ok()


@case("14-name-clash")
def test_a_name_in_use_in_the_group_is_not_accepted(engine: Engine) -> None:
    first = fresh(engine, scope="Cluster", names={"shortNames": ["fst"]})
    group = first["spec"]["group"]
    establish(engine, first)
    clashes = {
        "KindConflict": crd("others", first["spec"]["names"]["kind"], group=group, names={"listKind": "OtherList"}),
        "ListKindConflict": crd(
            "thirds", "Third", group=group, names={"listKind": first["spec"]["names"]["kind"] + "List"}
        ),
        "ShortNamesConflict": crd("fourths", "Fourth", group=group, names={"shortNames": ["fst"]}),
    }
    for reason, definition in clashes.items():
        engine.post(CRDS, definition).ok(201)
        path = f"{CRDS}/{definition['metadata']['name']}"
        refused = engine.eventually(path, lambda response: "NamesAccepted" in conditions(response.json()))
        assert conditions(refused)["NamesAccepted"] == ("False", reason)
        assert conditions(refused)["Established"] == ("False", "NotAccepted")
        assert engine.get(collection(definition)).status == 404
        engine.delete(path).ok()
    engine.delete(f"{CRDS}/{first['metadata']['name']}").ok()


@case("14-delete")
def test_deleting_a_crd_deletes_its_objects_first(engine: Engine) -> None:
    definition = fresh(engine, scope="Cluster")
    establish(engine, definition)
    objects, path = collection(definition), f"{CRDS}/{definition['metadata']['name']}"
    engine.post(objects, instance(definition, "held", finalizers=["e.org/hold"])).ok(201)
    engine.post(objects, instance(definition, "free")).ok(201)
    marked = engine.delete(path).ok()
    assert marked["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    under_way = ("True", "InstanceDeletionInProgress")
    engine.eventually(path, lambda response: conditions(response.json()).get("Terminating") == under_way)
    engine.gone(f"{objects}/free")
    refusal = engine.post(objects, instance(definition, "new"))
    assert refusal.status in (403, 405), refusal.text
    engine.patch(f"{objects}/held", {"metadata": {"finalizers": None}}).ok()
    engine.gone(path)
    engine.gone(objects)
    engine.gone(f"/apis/{definition['spec']['group']}")


@case("14-versions-stored")
def test_stored_versions_are_remembered(engine: Engine) -> None:
    definition = fresh(engine, versions=[version("v1"), version("v2", storage=False)])
    establish(engine, definition)
    path = f"{CRDS}/{definition['metadata']['name']}"
    flipped = [version("v1", storage=False), version("v2")]
    changed = engine.patch(path, {"spec": {"versions": flipped}}).ok()
    assert changed["status"]["storedVersions"] == ["v1", "v2"]
    engine.patch(path, {"spec": {"versions": [version("v2")]}}).refused(
        422, "Invalid", 'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions'
    )
    engine.patch(f"{path}/status", {"status": {"storedVersions": ["v2"]}}).ok()
    engine.patch(path, {"spec": {"versions": [version("v2")]}}).ok()
    engine.delete(path).ok()


@case("14-scope-immutable")
def test_the_scope_cannot_change(engine: Engine) -> None:
    definition = fresh(engine)
    establish(engine, definition)
    path = f"{CRDS}/{definition['metadata']['name']}"
    engine.patch(path, {"spec": {"scope": "Cluster"}}).refused(
        422, "Invalid", 'spec.scope: Invalid value: "Cluster": field is immutable'
    )
    engine.delete(path).ok()


ROOT = "spec.validation.openAPIV3Schema"
BROKEN: dict[str, tuple[Object, str]] = {
    "missing type": (
        {"type": "object", "properties": {"a": {}}},
        "properties[spec].properties[a].type: Required value",
    ),
    "array without items": (
        {"type": "object", "properties": {"a": {"type": "array"}}},
        "properties[spec].properties[a].items: Required value: must be specified",
    ),
    "reference": (
        {"type": "object", "properties": {"a": {"type": "object", "$ref": "#/x"}}},
        "$ref: Forbidden: $ref is not supported",
    ),
    "type in anyOf": (
        {"type": "object", "properties": {"a": {"type": "string", "anyOf": [{"type": "string"}]}}},
        "anyOf[0].type: Forbidden: must be empty to be structural",
    ),
    "default of wrong type": (
        {"type": "object", "properties": {"a": {"type": "string", "default": 1}}},
        'properties[spec].properties[a].default: Invalid value: "integer"',
    ),
    "map without keys": (
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "items": {"type": "object", "properties": {"k": TEXT}},
                }
            },
        },
        "x-kubernetes-list-map-keys: Required value",
    ),
    "key neither required nor defaulted": (
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": TEXT}},
                }
            },
        },
        "items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys",
    ),
    "rule that does not parse": (
        {"type": "object", "properties": {"a": TEXT}, "x-kubernetes-validations": [{"rule": "self."}]},
        "x-kubernetes-validations[0].rule: Invalid value: ",
    ),
    "rule of unknown field": (
        {"type": "object", "properties": {"a": TEXT}, "x-kubernetes-validations": [{"rule": "self.b == 'x'"}]},
        "undefined field 'b'",
    ),
    "rule that is no bool": (
        {"type": "object", "properties": {"a": TEXT}, "x-kubernetes-validations": [{"rule": "self.a"}]},
        "cel expression must evaluate to a bool",
    ),
    "rule too dear": (
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "array",
                    "items": {"type": "array", "items": {"type": "array", "items": TEXT}},
                    "x-kubernetes-validations": [{"rule": "self.all(x, x.all(y, y.all(z, z.contains('q'))))"}],
                }
            },
        },
        "estimated rule cost exceeds budget by factor of",
    ),
}


@pytest.mark.parametrize("row", BROKEN)
@case("14-rejected-schemas")
def test_a_schema_that_is_not_structural_is_refused(engine: Engine, row: str) -> None:
    spec, text = BROKEN[row]
    engine.post(CRDS, fresh(engine, spec=spec)).refused(422, "Invalid", text)


def without_schema(definition: Object) -> None:
    del definition["spec"]["versions"][0]["schema"]


def preserving(definition: Object) -> None:
    definition["spec"]["preserveUnknownFields"] = True


def misnamed(definition: Object) -> None:
    definition["metadata"]["name"] = "x.example.org"


def rootless(definition: Object) -> None:
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "array", "items": TEXT}


def with_metadata(definition: Object) -> None:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {"type": "object", "properties": {"labels": {"type": "object"}}}


def protected(definition: Object) -> None:
    definition["spec"]["group"] = "planform.k8s.io"
    definition["metadata"]["name"] = f"{definition['spec']['names']['plural']}.planform.k8s.io"


def two_storages(definition: Object) -> None:
    definition["spec"]["versions"].append(version("v2"))


def no_storage(definition: Object) -> None:
    definition["spec"]["versions"][0]["storage"] = False


DEFINITIONS: dict[str, tuple[Any, str]] = {
    "name": (misnamed, 'must be spec.names.plural+"."+spec.group'),
    "root": (rootless, 'type: Invalid value: "array": must be object at the root'),
    "no schema": (without_schema, "spec.versions[0].schema.openAPIV3Schema: Required value"),
    "preserving": (preserving, "spec.preserveUnknownFields: Invalid value: true: cannot set to true"),
    "metadata": (
        with_metadata,
        "must not specify anything other than name and generateName, but metadata is implicitly specified",
    ),
    "protected group": (protected, "protected groups must have approval annotation"),
    "two storages": (two_storages, "must have exactly one version marked as storage version"),
    "no storage": (no_storage, "must have exactly one version marked as storage version"),
}


@pytest.mark.parametrize("row", DEFINITIONS)
@case("14-rejected-definitions")
def test_a_definition_that_contradicts_itself_is_refused(engine: Engine, row: str) -> None:
    change, text = DEFINITIONS[row]
    definition = copy.deepcopy(fresh(engine))
    change(definition)
    engine.post(CRDS, definition).refused(422, "Invalid", text)


@case("14-accepted-oddities")
def test_int_or_string_patterns_and_open_maps_are_accepted(engine: Engine) -> None:
    pattern = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    open_map = {"type": "object", "additionalProperties": True, "properties": {"a": TEXT}}
    named = fresh(engine, spec={"type": "object", "properties": {"a": pattern}})
    named["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["metadata"] = {
        "type": "object",
        "properties": {"name": {"type": "string", "pattern": "^a"}},
    }
    for definition in (named, fresh(engine, spec=open_map)):
        engine.post(CRDS, definition).ok(201)
        engine.delete(f"{CRDS}/{definition['metadata']['name']}").ok()
