"""Objects of any kind, seen through typed views: XRs of both styles alike, and nothing of theirs is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.api.annotations import annotation, annotations_of, is_paused, set_annotation
from planform.api.composite import ComposedResource, CompositeResource
from planform.api.conditions import XrCondition, condition_of, condition_status, conditions_of, has_condition, is_true
from planform.api.metadata import generation_of, is_deleted, label, name_of, namespace_of, uid_of
from planform.api.owners import controller_of, controller_reference, controller_uid, is_controlled_by, is_owned_by
from planform.api.xr import CLAIM_FIELDS, LEGACY_FIELDS, MODERN_FIELDS, STATUS_FIELDS, Style
from planform.definitions.fields import claim_fields, composite_status, legacy_fields, modern_fields, shared_status

SOURCES = Path(__file__).parents[2] / "src" / "planform"
FIELDS = {
    "compositionRef": {"name": "site"},
    "compositionSelector": {"matchLabels": {"stage": "prod"}},
    "compositionRevisionRef": {"name": "site-1"},
    "compositionRevisionSelector": {"matchLabels": {"channel": "stable"}},
    "compositionUpdatePolicy": "Manual",
    "resourceRefs": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "one"}, {"apiVersion": "v1", "kind": "Pod"}],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def xr(style: Style) -> dict[str, Any]:
    spec = {"region": "eu", **FIELDS} if style == "legacy" else {"region": "eu", "crossplane": dict(FIELDS)}
    return {"apiVersion": "example.org/v1", "kind": "Site", "metadata": {"name": "a", "uid": "1"}, "spec": spec}


@pytest.mark.parametrize("style", ["modern", "legacy"])
@pytest.mark.parametrize("told", [True, False], ids=["its XRD says the style", "it shows its style"])
def test_both_styles_read_alike(style: Style, told: bool) -> None:
    seen = CompositeResource(xr(style), style if told else None)
    assert seen.style == style
    assert seen.composition_ref == "site"
    assert seen.composition_selector == {"stage": "prod"}
    assert seen.composition_revision_ref == "site-1"
    assert seen.composition_revision_selector == {"matchLabels": {"channel": "stable"}}
    assert seen.composition_update_policy == "Manual"
    assert [each["name"] for each in seen.resource_refs] == ["one"]
    assert seen.spec["region"] == "eu"


@pytest.mark.parametrize(
    ("style", "path"), [("modern", "spec.crossplane.compositionRef"), ("legacy", "spec.compositionRef")]
)
def test_a_field_is_written_where_the_style_has_it_and_nothing_else_changes(style: Style, path: str) -> None:
    before = xr(style)
    seen = CompositeResource(before, style)
    assert seen.path_of("compositionRef") == path
    moved = seen.with_fields({"compositionRevisionRef": {"name": "site-2"}})
    assert CompositeResource(moved, style).composition_revision_ref == "site-2"
    assert CompositeResource(moved, style).composition_ref == "site"
    assert before == xr(style)
    body = seen.body_of({"compositionRevisionRef": None})
    assert body == {"spec": {"crossplane": {"compositionRevisionRef": None}}} or style == "legacy"
    assert body == {"spec": {"compositionRevisionRef": None}} or style == "modern"


def test_an_xr_without_anything_reads_as_empty() -> None:
    seen = CompositeResource({"metadata": {"name": "a"}})
    assert (seen.style, seen.composition_ref, seen.composition_revision_ref, seen.uid) == ("modern", "", "", "")
    assert (seen.claim_ref, seen.composition_update_policy, list(seen.resource_refs)) == (None, None, [])


def test_every_list_of_control_plane_fields_is_the_one() -> None:
    xrd: dict[str, Any] = {"spec": {}}
    modern: Any = modern_fields(xrd, namespaced=True)
    assert set(modern["properties"]) == set(MODERN_FIELDS)
    assert set(legacy_fields(xrd)) == set(LEGACY_FIELDS)
    assert set(claim_fields(xrd)) == set(CLAIM_FIELDS)
    assert {*shared_status(legacy=True), *composite_status()} == {*STATUS_FIELDS, "conditions"}


def test_what_an_object_is_is_defined_once() -> None:
    found = [path for path in SOURCES.rglob("*.py") if re.search(r"^Object(: \w+)? = ", path.read_text(), re.MULTILINE)]
    assert [path.relative_to(SOURCES).as_posix() for path in found] == ["apimachinery/objects.py"]


@given(obj=st.fixed_dictionaries({}, optional={"metadata": st.none() | st.just({}), "status": JSON}))
def test_conditions_of_anybodys_object_can_be_asked_for(obj: dict[str, Any]) -> None:
    found = condition_of(obj, "Ready")
    assert condition_status(obj, "Ready") == (found.status if found is not None else "")
    assert all(isinstance(each, dict) for each in conditions_of(obj))


def test_a_condition_that_an_object_has_is_no_news() -> None:
    obj = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Available"}]}}
    assert is_true(obj, "Ready")
    assert has_condition(obj, XrCondition("Ready", "True", "Available"))
    assert not has_condition(obj, XrCondition("Ready", "True", "Available", "at last"))
    assert condition_of(obj, "Synced") is None


def test_an_owner_is_known_by_its_uid_and_not_by_its_name() -> None:
    owner, namesake = xr("modern"), {**xr("modern"), "metadata": {"name": "a", "uid": "2"}}
    obj = {"metadata": {"ownerReferences": [controller_reference(owner)]}}
    assert is_controlled_by(obj, owner)
    assert is_owned_by(obj, "1")
    assert not is_controlled_by(obj, namesake)
    assert controller_uid(obj) == "1"
    assert controller_of({"metadata": {}}) is None
    assert not is_controlled_by({"metadata": {}}, owner)


def test_null_metadata_as_other_tools_write_it_reads_as_empty() -> None:
    obj: dict[str, Any] = {"metadata": {"labels": None, "annotations": None, "creationTimestamp": None}}
    assert (name_of(obj), namespace_of(obj), uid_of(obj), generation_of(obj)) == ("", "", "", 0)
    assert (label(obj, "a"), annotation(obj, "a"), annotations_of(None)) == ("", "", {})
    assert not is_deleted(obj)
    assert not is_paused(obj)


def test_an_annotation_is_set_without_touching_a_shared_map() -> None:
    shared = {"a": "1"}
    obj: dict[str, Any] = {"metadata": {"annotations": shared}}
    set_annotation(obj, "b", "2")
    assert (annotations_of(obj), shared) == ({"a": "1", "b": "2"}, {"a": "1"})
    set_annotation(obj, "a", "")
    set_annotation(obj, "b", "")
    assert obj == {"metadata": {}}


def test_a_composed_resource_says_by_which_name_its_composition_knows_it() -> None:
    obj = {"metadata": {"annotations": {"crossplane.io/composition-resource-name": "bucket"}}}
    assert ComposedResource(obj).resource_name == "bucket"
