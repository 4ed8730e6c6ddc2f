"""The CRDs of planform's own kinds: right by our own machinery, documented, and complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from planform.api import names
from planform.api.extensions import crds
from planform.api.kinds import GroupVersionKind, Object
from planform.apimachinery.cel_rules import cel_errors
from planform.apimachinery.structural import structural_errors

OURS = (
    names.EXTENSIONS_GROUP,
    names.PACKAGES_GROUP,
    names.PROTECTION_GROUP,
    names.OPERATIONS_GROUP,
    names.NOP_GROUP,
    names.BLUEPRINTS_GROUP,
    names.ROLLOUT_GROUP,
)
LEGACY = "usages.apiextensions.crossplane.io"
BUILTIN_PART = ".spec.deploymentTemplate.spec."
"""A Deployment's specification, for which Kubernetes has the words."""
WITHOUT_STATUS_SUBRESOURCE = ("Blueprint", "ActionSet", "Profile", "PreviewReport", "RolloutAction")
VERSIONS = [
    pytest.param(version, id=f"{crd['spec']['names']['kind']}-{version['name']}")
    for crd in crds()
    for version in crd["spec"]["versions"]
]
CRDS = [pytest.param(crd, id=crd["spec"]["names"]["kind"]) for crd in crds()]


def _fields(schema: Object, path: str) -> Iterator[tuple[str, Object]]:
    yield path, schema
    for name, sub in (schema.get("properties") or {}).items():
        yield from _fields(sub, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _fields(schema["items"], f"{path}[]")


@pytest.mark.parametrize("version", VERSIONS)
def test_schema_is_structural_and_its_rules_are_affordable(version: Object) -> None:
    schema = version["schema"]["openAPIV3Schema"]
    assert structural_errors(schema, "schema") == []
    assert cel_errors(schema, "schema") == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_says_in_one_line_what_it_means(version: Object) -> None:
    for path, field in _fields(version["schema"]["openAPIV3Schema"], ""):
        if path == ".metadata" or path.startswith(BUILTIN_PART):
            continue
        said = field.get("description", "")
        assert said and "\n" not in said and said[0].isupper() and said.endswith("."), f"{path}: {said!r}"


@pytest.mark.parametrize("crd", CRDS)
def test_every_version_has_a_status_of_its_own_and_shows_its_age(crd: Object) -> None:
    for version in crd["spec"]["versions"]:
        assert version["additionalPrinterColumns"][-1]["name"] == "AGE"
        if crd["spec"]["names"]["kind"] in WITHOUT_STATUS_SUBRESOURCE:  # as their users and tools know them
            assert "subresources" not in version
        else:
            assert version["subresources"] == {"status": {}}
            assert "status" in version["schema"]["openAPIV3Schema"]["properties"]


@pytest.mark.parametrize("crd", CRDS)
def test_one_version_is_stored_and_old_ones_say_what_to_use(crd: Object) -> None:
    spec = crd["spec"]
    assert [version["storage"] for version in spec["versions"]].count(True) == 1
    current = [version["name"] for version in spec["versions"] if not version.get("deprecated")]
    if crd["metadata"]["name"] == LEGACY:  # another kind has replaced it
        assert not current
        assert all("; use protection.crossplane.io/" in each["deprecationWarning"] for each in spec["versions"])
        return
    if spec["names"]["kind"] in ("Function", "FunctionRevision"):  # Crossplane's manifests name the older one still
        assert current == ["v1", "v1beta1"]
        return
    assert len(current) == 1
    for version in spec["versions"]:
        if version.get("deprecated"):
            assert version["deprecationWarning"].endswith(f"; use {spec['group']}/{current[0]} {spec['names']['kind']}")


def test_every_kind_that_controllers_name_is_served_in_that_version() -> None:
    named = {value for value in vars(names).values() if isinstance(value, GroupVersionKind) and value.group in OURS}
    served = {
        GroupVersionKind(crd["spec"]["group"], version["name"], crd["spec"]["names"]["kind"])
        for crd in crds()
        for version in crd["spec"]["versions"]
        if not version.get("deprecated") or crd["metadata"]["name"] == LEGACY
    } - {GroupVersionKind(names.EXTENSIONS_GROUP, "v1alpha1", "Usage")}
    served -= {GroupVersionKind(names.PACKAGES_GROUP, "v1beta1", each) for each in ("Function", "FunctionRevision")}
    assert served == named


def test_every_step_field_that_pipelines_read_is_in_the_schema() -> None:
    from planform.pipeline.steps import _WireStep

    [composition] = [crd for crd in crds() if crd["spec"]["names"]["kind"] == "Composition"]
    spec: Any = composition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["pipeline"]["items"]["properties"].keys() == set(_WireStep.__struct_encode_fields__)


@pytest.mark.parametrize(
    ("kind", "short", "columns"),
    [
        ("CompositeResourceDefinition", ["xrd", "xrds"], ["ESTABLISHED", "OFFERED", "AGE"]),
        ("Composition", ["comp"], ["XR-KIND", "XR-APIVERSION", "REVISION", "AGE"]),
        ("CompositionRevision", ["comprev"], ["REVISION", "XR-KIND", "XR-APIVERSION", "XRS", "AGE"]),
        ("Function", None, ["INSTALLED", "HEALTHY", "PACKAGE", "SERVED-BY", "AGE"]),
        ("Operation", ["ops"], ["SYNCED", "SUCCEEDED", "AGE"]),
        ("NopResource", None, ["READY", "SYNCED", "AGE"]),
        ("ActionSet", None, ["STATE", "PROGRESS", "RUNNING PHASE", "AGE"]),
    ],
)
def test_kinds_have_the_short_names_and_columns_that_people_know(
    kind: str, short: list[str] | None, columns: list[str]
) -> None:
    [spec] = [crd["spec"] for crd in crds() if crd["spec"]["names"]["kind"] == kind]
    assert spec["names"].get("shortNames") == short
    for version in spec["versions"]:
        assert [column["name"] for column in version["additionalPrinterColumns"]] == columns
