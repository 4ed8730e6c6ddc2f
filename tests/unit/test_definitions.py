"""From an XRD to its CRDs, checked by establishing them on the embedded engine."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.kinds import gvk
from planform.api.owners import is_controlled_by
from planform.definitions.crds import (
    ForeignDefinition,
    InvalidDefinition,
    StoredVersionRemoved,
    check_replaceable,
    claim_crd,
    claim_kind,
    composite_crd,
    is_current,
    scope_of,
    style,
    xr_kind,
)
from planform.definitions.roles import definition_roles
from planform.errors import Invalid
from tests.harness.embedded import embedded_engine

SPEC = {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer"}}}


def xrd(version: str = "v2", **spec: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"spec": SPEC, "status": {"type": "object", "properties": {"url": {"type": "string"}}}},
    }
    versions = [{"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": schema}}]
    return {
        "apiVersion": f"apiextensions.crossplane.io/{version}",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": "apps.example.org", "uid": "u1", "labels": {"team": "a"}},
        "spec": {"group": "example.org", "names": {"plural": "apps", "kind": "App"}, "versions": versions, **spec},
    }


@pytest.mark.parametrize(
    ("version", "scope", "expected"),
    [
        ("v1", None, "LegacyCluster"),
        ("v2", None, "Namespaced"),
        ("v2", "Cluster", "Cluster"),
        ("v1", "Cluster", "Cluster"),
    ],
)
def test_an_absent_scope_depends_on_the_version(version: str, scope: str | None, expected: str) -> None:
    assert scope_of(xrd(version, **({"scope": scope} if scope else {}))) == expected


def test_modern_machinery_is_apart_and_legacy_machinery_is_beside_the_users_fields() -> None:
    def spec_of(crd: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        return found

    modern, legacy = spec_of(composite_crd(xrd())), spec_of(composite_crd(xrd("v1")))
    assert set(modern["properties"]) == {"size", "crossplane"}
    assert {"size", "compositionRef", "claimRef", "writeConnectionSecretToRef"} <= set(legacy["properties"])
    assert modern["required"] == legacy["required"] == ["size"]
    assert "namespace" not in modern["properties"]["crossplane"]["properties"]["resourceRefs"]["items"]["properties"]
    policy = modern["properties"]["crossplane"]["properties"]["compositionUpdatePolicy"]
    assert policy["default"] == "Automatic"


def test_the_crd_is_owned_and_labelled_and_categorised() -> None:
    crd = composite_crd(xrd(metadata={"labels": {"tier": "b"}, "annotations": {"a": "b"}}))
    assert crd["metadata"]["labels"] == {"team": "a", "tier": "b"}
    assert crd["metadata"]["annotations"] == {"a": "b"}
    assert crd["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert crd["spec"]["names"]["categories"] == ["composite"]


def test_claims_are_for_legacy_definitions_only() -> None:
    names = {"plural": "apps", "kind": "App"}
    composite = {"plural": "xapps", "kind": "XApp"}
    legacy = xrd("v1", claimNames=names, names=composite)
    claim = claim_crd(legacy)
    assert claim is not None
    assert (claim["metadata"]["name"], claim["spec"]["scope"]) == ("apps.example.org", "Namespaced")
    assert claim_crd(xrd()) is None
    with pytest.raises(InvalidDefinition, match="claimNames"):
        claim_crd(xrd(claimNames=names))


def test_a_version_without_a_schema_is_named() -> None:
    broken = xrd(versions=[{"name": "v1", "served": True, "referenceable": True}])
    with pytest.raises(InvalidDefinition, match=r"version v1 has no schema"):
        composite_crd(broken)


def version(name: str = "v1", *, referenceable: bool = True, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": SPEC}}
    made = {"name": name, "served": True, "referenceable": referenceable, "schema": {"openAPIV3Schema": schema}}
    return {**made, **more}


def with_schema(schema: Any) -> dict[str, Any]:
    return xrd(versions=[version(schema={"openAPIV3Schema": schema})])


def root_of(crd: dict[str, Any] | None, index: int = 0) -> dict[str, Any]:
    assert crd is not None
    found: dict[str, Any] = crd["spec"]["versions"][index]["schema"]["openAPIV3Schema"]
    return found


CLAIMED: dict[str, Any] = {
    "names": {"plural": "xapps", "kind": "XApp"},
    "claimNames": {"plural": "apps", "kind": "App", "categories": ["web"]},
}


def test_the_crd_has_the_name_of_the_xrd_and_goes_with_it() -> None:
    metadata = composite_crd(xrd())["metadata"]
    assert metadata["name"] == "apps.example.org"
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "apiextensions.crossplane.io/v2",
            "kind": "CompositeResourceDefinition",
            "name": "apps.example.org",
            "uid": "u1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_annotations_of_the_xrd_itself_are_not_copied() -> None:
    definition = xrd(metadata={"annotations": {"docs": "here"}})
    definition["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    assert composite_crd(definition)["metadata"]["annotations"] == {"docs": "here"}
    assert "annotations" not in composite_crd(xrd())["metadata"]


def test_a_category_that_the_user_gave_is_kept_and_ours_is_there_once() -> None:
    names = {"plural": "apps", "kind": "App", "categories": ["composite", "web"]}
    assert composite_crd(xrd(names=names))["spec"]["names"]["categories"] == ["composite", "web"]


@pytest.mark.parametrize(
    ("scope", "expected"), [("Namespaced", "Namespaced"), ("Cluster", "Cluster"), ("LegacyCluster", "Cluster")]
)
def test_the_scope_of_the_crd_follows_the_scope_of_the_xrd(scope: str, expected: str) -> None:
    assert composite_crd(xrd(scope=scope))["spec"]["scope"] == expected


def test_an_unknown_scope_is_named() -> None:
    with pytest.raises(InvalidDefinition, match=r'spec\.scope: there is no scope "Moon"'):
        composite_crd(xrd(scope="Moon"))


def test_the_referenceable_version_is_stored_and_the_others_are_served_as_told() -> None:
    versions = [
        version("v1beta1", referenceable=False, served=False),
        version("v1"),
        version("v2", referenceable=False),
    ]
    made = composite_crd(xrd(versions=versions))["spec"]["versions"]
    assert [(each["name"], each["served"], each["storage"]) for each in made] == [
        ("v1beta1", False, False),
        ("v1", True, True),
        ("v2", True, False),
    ]


@pytest.mark.parametrize("referenceable", [[], ["v1", "v2"]], ids=["none", "two"])
def test_exactly_one_version_is_referenceable(referenceable: list[str]) -> None:
    versions = [version(name, referenceable=name in referenceable) for name in ("v1", "v2")]
    with pytest.raises(InvalidDefinition, match=r"spec\.versions: exactly one must be referenceable"):
        composite_crd(xrd(versions=versions))


def test_deprecation_is_copied() -> None:
    old, new = version(deprecated=True, deprecationWarning="use v2"), version("v2", referenceable=False)
    made = composite_crd(xrd(versions=[old, new]))["spec"]["versions"]
    assert (made[0]["deprecated"], made[0]["deprecationWarning"]) == (True, "use v2")
    assert "deprecated" not in made[1] and "deprecationWarning" not in made[1]


def test_status_is_always_a_subresource_and_scale_if_given() -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    plain, scaled = composite_crd(xrd()), composite_crd(xrd(versions=[version(subresources={"scale": scale})]))
    assert plain["spec"]["versions"][0]["subresources"] == {"status": {}}
    assert scaled["spec"]["versions"][0]["subresources"] == {"status": {}, "scale": scale}


def test_the_users_columns_come_before_the_standard_ones() -> None:
    column = {"name": "SIZE", "type": "integer", "jsonPath": ".spec.size"}

    def shown(crd: dict[str, Any] | None) -> list[tuple[str, str, int]]:
        assert crd is not None
        columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
        return [(each["name"], each["jsonPath"], each.get("priority", 0)) for each in columns]

    versions = [version(additionalPrinterColumns=[column])]
    modern, legacy = xrd(versions=versions), xrd("v1", versions=versions, **CLAIMED)
    synced = ("SYNCED", ".status.conditions[?(@.type=='Synced')].status", 0)
    ready = ("READY", ".status.conditions[?(@.type=='Ready')].status", 0)
    age = ("AGE", ".metadata.creationTimestamp", 0)
    assert shown(composite_crd(modern)) == [
        ("SIZE", ".spec.size", 0),
        synced,
        ready,
        ("COMPOSITION", ".spec.crossplane.compositionRef.name", 0),
        ("COMPOSITIONREVISION", ".spec.crossplane.compositionRevisionRef.name", 1),
        age,
    ]
    assert shown(composite_crd(legacy))[3:5] == [
        ("COMPOSITION", ".spec.compositionRef.name", 0),
        ("COMPOSITIONREVISION", ".spec.compositionRevisionRef.name", 1),
    ]
    secret = ("CONNECTION-SECRET", ".spec.writeConnectionSecretToRef.name", 0)
    assert shown(claim_crd(legacy)) == [("SIZE", ".spec.size", 0), synced, ready, secret, age]


def test_only_known_parts_of_the_users_schema_are_taken() -> None:
    rules = [{"rule": "true"}]
    part = {
        "type": "object",
        "description": "a part",
        "required": ["size"],
        "properties": {"size": {"type": "integer"}},
        "x-kubernetes-validations": rules,
        "oneOf": [{"required": ["size"]}],
        "x-kubernetes-preserve-unknown-fields": True,
        "maxProperties": 3,
    }
    root = {
        "type": "object",
        "description": "an app",
        "x-kubernetes-validations": rules,
        "required": ["metadata"],
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"spec": part, "status": part, "data": {"type": "string"}},
    }
    made = root_of(composite_crd(with_schema(root)))
    assert (made["type"], made["required"], made["description"]) == ("object", ["spec"], "an app")
    assert made["x-kubernetes-validations"] == rules
    assert "x-kubernetes-preserve-unknown-fields" not in made
    assert set(made["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
    spec, status = made["properties"]["spec"], made["properties"]["status"]
    kept = {"type", "description", "required", "properties", "x-kubernetes-validations", "oneOf"}
    assert set(spec) == kept | {"x-kubernetes-preserve-unknown-fields"}
    assert set(status) == kept


@pytest.mark.parametrize(("users", "expected"), [(None, 63), (20, 20), (100, 63), (0, 0)])
def test_a_name_is_at_most_63_characters_or_fewer_if_the_user_says_so(users: int | None, expected: int) -> None:
    name = {"type": "string"} | ({} if users is None else {"maxLength": users})
    schema = {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": name}}}}
    made = root_of(composite_crd(with_schema(schema)))
    assert made["properties"]["metadata"] == {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": expected}},
    }


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": ["spec"]}, "properties"),
        ({"properties": {"spec": "x"}}, r"properties"),
        ({"properties": {"status": {"properties": 3}}}, r"properties\[status\]\.properties"),
        ({"properties": {"metadata": {"properties": {"name": True}}}}, r"properties\[metadata\]\.properties"),
        ({"properties": {"spec": {"properties": {"a": 5}}}}, r"properties\[spec\]\.properties"),
        ({"description": 5}, "description"),
    ],
)
def test_a_schema_of_wrong_types_is_refused_by_its_path(schema: dict[str, Any], path: str) -> None:
    where = r'^XRD "apps.example.org": spec\.versions\[0\]\.schema\.openAPIV3Schema\.'
    with pytest.raises(InvalidDefinition, match=where + path):
        composite_crd(with_schema(schema))


def test_machinery_wins_over_fields_of_the_users_with_the_same_name() -> None:
    mine = {"type": "integer"}
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"crossplane": mine, "compositionRef": mine}},
            "status": {"type": "object", "properties": {"conditions": mine, "planform": mine, "url": mine}},
        },
    }
    modern = root_of(composite_crd(with_schema(schema)))["properties"]
    assert modern["spec"]["properties"]["crossplane"]["type"] == "object"
    assert modern["spec"]["properties"]["compositionRef"] == mine
    assert modern["status"]["properties"]["conditions"]["type"] == "array"
    assert modern["status"]["properties"]["planform"]["type"] == "object"
    assert modern["status"]["properties"]["url"] == mine
    legacy = xrd("v1", versions=[version(schema={"openAPIV3Schema": schema})])
    spec = root_of(composite_crd(legacy))["properties"]["spec"]["properties"]
    assert (spec["compositionRef"]["type"], spec["crossplane"]) == ("object", mine)


SELECTION = {
    "compositionRef": ["name"],
    "compositionSelector": ["matchLabels"],
    "compositionRevisionRef": ["name"],
    "compositionRevisionSelector": None,
    "compositionUpdatePolicy": None,
}


def required(properties: dict[str, Any]) -> dict[str, Any]:
    return {name: schema.get("required") for name, schema in properties.items() if name != "size"}


def test_each_style_has_the_fields_of_the_table() -> None:
    legacy = xrd("v1", **CLAIMED)
    modern = root_of(composite_crd(xrd()))["properties"]["spec"]["properties"]["crossplane"]["properties"]
    assert required(modern) == {**SELECTION, "resourceRefs": None}
    composite = root_of(composite_crd(legacy))["properties"]["spec"]["properties"]
    assert required(composite) == {
        **SELECTION,
        "resourceRefs": None,
        "claimRef": ["apiVersion", "kind", "namespace", "name"],
        "writeConnectionSecretToRef": ["name", "namespace"],
    }
    claim = root_of(claim_crd(legacy))["properties"]["spec"]["properties"]
    assert required(claim) == {
        **SELECTION,
        "resourceRef": ["apiVersion", "kind", "name"],
        "writeConnectionSecretToRef": ["name"],
        "compositeDeletePolicy": None,
    }


@pytest.mark.parametrize(("scope", "namespaces"), [("Namespaced", False), ("Cluster", True), ("LegacyCluster", True)])
def test_references_name_a_namespace_unless_the_xr_has_one(scope: str, namespaces: bool) -> None:
    spec = root_of(composite_crd(xrd(scope=scope)))["properties"]["spec"]["properties"]
    references = (spec if scope == "LegacyCluster" else spec["crossplane"]["properties"])["resourceRefs"]
    assert references["x-kubernetes-list-type"] == "atomic"
    assert references["items"]["required"] == ["apiVersion", "kind"]
    assert ("namespace" in references["items"]["properties"]) is namespaces


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, "Automatic"),
        ({"defaultCompositionUpdatePolicy": "Manual"}, "Manual"),
        ({"defaultCompositionUpdatePolicy": "Automatic", "enforceCompositionUpdatePolicy": "Manual"}, "Manual"),
        ({"defaultCompositionUpdatePolicy": "Manual", "enforceCompositionUpdatePolicy": "Automatic"}, "Automatic"),
    ],
    ids=["neither", "default", "enforced-manual", "enforced-automatic"],
)
def test_the_update_policy_defaults_to_what_the_xrd_enforces_or_else_says(spec: dict[str, Any], expected: str) -> None:
    modern = root_of(composite_crd(xrd(**spec)))["properties"]["spec"]["properties"]["crossplane"]["properties"]
    assert modern["compositionUpdatePolicy"] == {
        "type": "string",
        "enum": ["Automatic", "Manual"],
        "default": expected,
    }
    legacy = xrd("v1", **CLAIMED, **spec)
    composite = root_of(composite_crd(legacy))["properties"]["spec"]["properties"]
    claim = root_of(claim_crd(legacy))["properties"]["spec"]["properties"]
    assert composite["compositionUpdatePolicy"]["default"] == expected
    assert "default" not in claim["compositionUpdatePolicy"]


@pytest.mark.parametrize(("given", "expected"), [(None, "Background"), ("Foreground", "Foreground")])
def test_the_delete_policy_of_claims_defaults_to_the_xrds(given: str | None, expected: str) -> None:
    spec = {"defaultCompositeDeletePolicy": given} if given else {}
    claim = root_of(claim_crd(xrd("v1", **CLAIMED, **spec)))["properties"]["spec"]["properties"]
    assert claim["compositeDeletePolicy"]["default"] == expected
    assert claim["compositeDeletePolicy"]["enum"] == ["Background", "Foreground"]


def test_the_status_carries_what_each_style_reports() -> None:
    def status_of(crd: dict[str, Any] | None) -> dict[str, Any]:
        found: dict[str, Any] = root_of(crd)["properties"]["status"]["properties"]
        return found

    legacy = xrd("v1", versions=[version()], **CLAIMED)
    shared, published = {"conditions", "lastHandledReconcileAt"}, {"connectionDetails", "claimConditionTypes"}
    ours = {"watchedResourceRefs", "planform"}
    assert set(status_of(composite_crd(xrd(versions=[version()])))) == shared | ours
    assert set(status_of(composite_crd(legacy))) == shared | ours | published
    assert set(status_of(claim_crd(legacy))) == shared | published
    conditions = status_of(composite_crd(xrd()))["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    assert conditions["items"]["required"] == ["lastTransitionTime", "reason", "status", "type"]
    assert status_of(composite_crd(legacy))["claimConditionTypes"]["x-kubernetes-list-type"] == "set"


def test_claims_are_namespaced_and_have_a_category_of_their_own() -> None:
    claim = claim_crd(xrd("v1", **CLAIMED))
    assert claim is not None
    assert claim["metadata"]["name"] == "apps.example.org"
    assert claim["spec"]["scope"] == "Namespaced"
    assert claim["spec"]["names"]["categories"] == ["web", "claim"]
    assert claim["metadata"]["labels"] == {"team": "a"}


def test_conversion_is_copied_to_both_crds() -> None:
    conversion = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}
    legacy = xrd("v1", conversion=conversion, **CLAIMED)
    claim = claim_crd(legacy)
    assert claim is not None
    assert composite_crd(legacy)["spec"]["conversion"] == claim["spec"]["conversion"] == conversion
    assert "conversion" not in composite_crd(xrd())["spec"]


def test_kinds_are_named_in_the_referenceable_version() -> None:
    versions = [version("v1", referenceable=False), version("v2")]
    legacy = xrd("v1", versions=versions, **CLAIMED)
    assert xr_kind(legacy) == gvk("example.org/v2", "XApp")
    assert claim_kind(legacy) == gvk("example.org/v2", "App")
    assert claim_kind(xrd()) is None
    assert (style(legacy), style(xrd()), style(xrd(scope="Cluster"))) == ("legacy", "modern", "modern")


def owned(crd: dict[str, Any], *owners: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {**crd, "metadata": {**crd["metadata"], "ownerReferences": list(owners)}, "status": status}


OURS = composite_crd(xrd())["metadata"]["ownerReferences"][0]


def test_a_crd_of_this_xrd_or_of_a_namesake_that_is_gone_may_be_replaced() -> None:
    crd = composite_crd(xrd())
    check_replaceable(owned(crd, OURS), crd)
    before = {**OURS, "uid": "u0", "apiVersion": "apiextensions.crossplane.io/v1"}
    check_replaceable(owned(crd, before), crd)
    assert is_controlled_by(owned(crd, OURS), xrd())
    assert not is_controlled_by(owned(crd, before), xrd())


def test_a_crd_of_somebody_else_may_not_be_replaced() -> None:
    crd = composite_crd(xrd())
    other = {"apiVersion": "pkg.crossplane.io/v1", "kind": "Provider", "name": "p", "uid": "u9", "controller": True}
    with pytest.raises(ForeignDefinition, match=r'CRD "apps.example.org" is controlled by Provider "p"'):
        check_replaceable(owned(crd, other), crd)


def test_a_crd_that_nobody_controls_is_adopted_only_if_an_xrd_made_it() -> None:
    crd = composite_crd(xrd())
    check_replaceable(owned(crd), crd)
    check_replaceable(owned(crd, {**OURS, "controller": False}), crd)
    for names, scope in (({"plural": "apps", "kind": "App"}, "Namespaced"), (crd["spec"]["names"], "Cluster")):
        stranger = {**crd, "spec": {**crd["spec"], "names": names, "scope": scope}}
        with pytest.raises(ForeignDefinition, match="was not made by an XRD"):
            check_replaceable(owned(stranger), crd)


def test_a_version_with_stored_objects_may_not_vanish() -> None:
    crd = composite_crd(xrd())
    with pytest.raises(StoredVersionRemoved, match=r"spec\.versions: objects may be stored as v1alpha1"):
        check_replaceable(owned(crd, OURS, storedVersions=["v1alpha1", "v1"]), crd)


def test_a_crd_is_current_with_what_api_servers_fill_in_and_with_nothing_else() -> None:
    wanted = composite_crd(xrd())
    spec = wanted["spec"]
    filled = {**spec, "conversion": {"strategy": "None"}}
    filled["names"] = {**spec["names"], "singular": "app", "listKind": "AppList"}
    found = {**wanted, "spec": filled, "status": {"storedVersions": ["v1"]}}
    assert is_current(found, wanted)
    for change in (
        {"scope": "Cluster"},
        {"conversion": {"strategy": "Webhook"}},
        {"names": {**filled["names"], "shortNames": ["a"]}},
        {"versions": [*spec["versions"], {**spec["versions"][0], "name": "v2"}]},
    ):
        assert not is_current({**found, "spec": {**filled, **change}}, wanted), change
    strange: list[dict[str, Any]] = [
        {"labels": {}},
        {"labels": {"team": "a", "b": "c"}},
        {"annotations": {"a": "b"}},
        {"ownerReferences": []},
    ]
    for more in strange:
        assert not is_current({**found, "metadata": {**wanted["metadata"], **more}}, wanted), more


def test_roles_give_each_audience_its_verbs() -> None:
    roles = {role["metadata"]["name"].rpartition("-to-")[2]: role for role in definition_roles(xrd("v1", **CLAIMED))}

    def rules(name: str) -> list[tuple[list[str], list[str]]]:
        assert all(rule["apiGroups"] == ["example.org"] for rule in roles[name]["rules"])
        return [(rule["resources"], rule["verbs"]) for rule in roles[name]["rules"]]

    read = ["get", "list", "watch"]
    assert rules("crossplane") == [
        (["xapps", "xapps/status", "apps", "apps/status"], ["*"]),
        (["xapps/finalizers", "apps/finalizers"], ["update"]),
    ]
    assert rules("edit") == [(["xapps", "apps"], ["*"])]
    assert rules("view") == [(["xapps", "apps"], read)]
    assert rules("browse") == [(["xapps"], read)]
    assert roles["edit"]["metadata"]["name"] == "crossplane:composite:apps.example.org:aggregate-to-edit"
    assert "rbac.authorization.k8s.io/aggregate-to-edit" in roles["edit"]["metadata"]["labels"]
    assert "rbac.authorization.k8s.io/aggregate-to-admin" in roles["edit"]["metadata"]["labels"]
    assert "rbac.authorization.k8s.io/aggregate-to-view" in roles["view"]["metadata"]["labels"]
    assert all(role["metadata"]["ownerReferences"][0]["uid"] == "u1" for role in roles.values())


async def test_the_crd_is_accepted_and_serves_xrs_as_users_write_them() -> None:
    async with embedded_engine() as engine:
        await engine.establish(composite_crd(xrd()) | {})
        app = {
            "apiVersion": "example.org/v1",
            "kind": "App",
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"size": 3, "crossplane": {"compositionRef": {"name": "c"}}},
        }
        created = await engine.client.create(app)
        assert created["spec"]["crossplane"]["compositionUpdatePolicy"] == "Automatic"
        created["status"] = {"url": "x", "conditions": []}
        assert (await engine.client.update(created, subresource="status"))["status"]["url"] == "x"
        with pytest.raises(Invalid, match=r"spec\.size: Required value"):
            await engine.client.create({**app, "metadata": {"name": "b", "namespace": "default"}, "spec": {}})
        assert (await engine.client.kind(gvk("example.org/v1", "App"))).categories == ("composite",)


async def test_what_the_control_plane_writes_into_a_status_is_not_pruned() -> None:
    status = {
        "lastHandledReconcileAt": "token",
        "watchedResourceRefs": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "namespace": "default"}],
        "planform": {
            "revisionSelector": {"matchLabels": {"channel": "stable"}},
            "generation": 3,
            "problems": [{"resource": "bucket", "message": "no"}, {"step": "one", "message": "no"}],
        },
    }
    async with embedded_engine() as engine:
        await engine.establish(composite_crd(xrd()))
        app = {"apiVersion": "example.org/v1", "kind": "App", "metadata": {"name": "a", "namespace": "default"}}
        created = await engine.client.create({**app, "spec": {"size": 3}})
        written = await engine.client.update({**created, "status": status}, subresource="status")
        assert written["status"] == status
