"""From an XRD to its CRDs, checked by establishing them on the embedded engine."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.kinds import gvk
from planform.composition.definitions import InvalidDefinition, claim_crd, composite_crd, scope_of
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
