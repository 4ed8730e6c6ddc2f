"""The planner: names, owners, placement, deletions and references, without any I/O."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.conditions import XrCondition, set_conditions
from planform.api.xr import style_of
from planform.functions.values import Ready, Resource, State
from planform.pipeline.plan import Plan, PlanError, plan, readiness

UID = "75e4a668-035f-4ce8-8c45-f4d3ac850155"
LONG_KEY = "test-resource-with-a-super-duper-really-long-name-to-test-compaction"


def xr(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.org/v1",
        "kind": "App",
        "metadata": {"name": "parent-xr", "uid": UID, **metadata},
        "spec": {},
    }


def bucket(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "s3.example.org/v1", "kind": "Bucket", "metadata": metadata, "spec": {"region": "eu"}}


def planned(desired: dict[str, dict[str, Any]], observed: dict[str, Any] | None = None, **metadata: Any) -> Plan:
    state = State(resources={key: Resource(obj) for key, obj in desired.items()})
    return plan(xr(**metadata), observed or {}, state, style="modern")


def existing(key: str, obj: dict[str, Any], *, controller: str = UID) -> dict[str, Any]:
    owner = {"apiVersion": "example.org/v1", "kind": "App", "name": "parent-xr", "uid": controller, "controller": True}
    metadata = {"name": f"{key}-live", "annotations": {"crossplane.io/composition-resource-name": key}}
    return {**obj, "metadata": {**metadata, "ownerReferences": [owner]}}


def test_a_child_is_named_after_its_parent_and_its_key_as_upstream_names_it() -> None:
    [composed] = planned({LONG_KEY: bucket()}).apply
    assert composed.object["metadata"]["name"] == "parent-xr-e5ac98dc40a2"
    assert composed.object["metadata"]["generateName"] == "parent-xr-"


def test_a_child_carries_labels_annotation_and_its_controller() -> None:
    metadata = planned({"bucket": bucket(labels={"team": "a"})}).apply[0].object["metadata"]
    assert metadata["labels"] == {"team": "a", "crossplane.io/composite": "parent-xr"}
    assert metadata["annotations"] == {"crossplane.io/composition-resource-name": "bucket"}
    assert [(o["uid"], o["controller"], o["blockOwnerDeletion"]) for o in metadata["ownerReferences"]] == [
        (UID, True, True)
    ]


def test_children_share_nothing_that_somebody_could_change() -> None:
    one, other = (composed.object["metadata"] for composed in planned({"a": bucket(), "b": bucket()}).apply)
    for field in ("labels", "annotations", "ownerReferences"):
        assert one[field] is not other[field]
    assert one["ownerReferences"] == other["ownerReferences"]
    assert one["ownerReferences"][0] is not other["ownerReferences"][0]


def test_claim_labels_are_passed_on_only_when_both_are_there() -> None:
    both = {"crossplane.io/claim-name": "c", "crossplane.io/claim-namespace": "n"}
    assert planned({"a": bucket()}, labels=both).apply[0].object["metadata"]["labels"].keys() >= both.keys()
    one = {"crossplane.io/claim-name": "c"}
    assert "crossplane.io/claim-name" not in planned({"a": bucket()}, labels=one).apply[0].object["metadata"]["labels"]


def test_an_existing_resource_cannot_be_renamed() -> None:
    [composed] = planned({"bucket": bucket(name="other")}, {"bucket": existing("bucket", bucket())}).apply
    assert composed.object["metadata"]["name"] == "bucket-live"
    assert composed.exists


def test_status_of_a_desired_resource_is_dropped() -> None:
    [composed] = planned({"bucket": {**bucket(), "status": {"ready": True}}}).apply
    assert "status" not in composed.object


def test_what_is_no_longer_desired_is_deleted() -> None:
    found = planned({"a": bucket()}, {"a": existing("a", bucket()), "b": existing("b", bucket())})
    assert [gone.key for gone in found.delete] == ["b"]


def test_another_kind_under_the_same_key_replaces_instead_of_leaking() -> None:
    old = existing("store", bucket())
    new = {**bucket(), "kind": "Table"}
    found = planned({"store": new}, {"store": old})
    assert [gone.object["kind"] for gone in found.delete] == ["Bucket"]
    assert found.apply[0].object["metadata"]["name"] != "store-live"


def test_another_version_under_the_same_key_is_the_same_resource() -> None:
    old = existing("store", bucket())
    found = planned({"store": {**bucket(), "apiVersion": "s3.example.org/v2"}}, {"store": old})
    assert not found.delete
    assert found.apply[0].object["metadata"]["name"] == "store-live"


def test_what_somebody_else_controls_is_never_deleted() -> None:
    foreign = existing("b", bucket(), controller="other")
    orphan = {**bucket(), "metadata": {"name": "x"}}
    assert not planned({"a": bucket()}, {"b": foreign, "c": orphan}).delete


def test_references_cover_what_is_created_and_what_is_still_to_be_deleted_in_order() -> None:
    found = planned({"b": bucket(name="zeta"), "a": bucket(name="alpha")}, {"c": existing("c", bucket())})
    assert [ref["name"] for ref in found.references] == ["alpha", "c-live", "zeta"]


def test_a_namespaced_xr_keeps_its_resources_at_home_and_says_so() -> None:
    found = planned({"a": bucket(namespace="elsewhere")}, namespace="home")
    assert found.apply[0].object["metadata"]["namespace"] == "home"
    assert 'asked for namespace "elsewhere"' in found.warnings[0]
    assert "namespace" not in found.references[0]


@pytest.mark.parametrize(
    ("desired", "problem"),
    [
        pytest.param({"kind": "Bucket"}, "no apiVersion or kind", id="no apiVersion"),
        pytest.param(bucket(name="Bad_Name"), "Bad_Name", id="bad name"),
        pytest.param(
            bucket(ownerReferences=[{"uid": "x", "controller": True, "kind": "K", "name": "n"}]),
            "another controller: K/n",
            id="foreign controller",
        ),
    ],
)
def test_what_cannot_be_applied_is_named(desired: dict[str, Any], problem: str) -> None:
    with pytest.raises(PlanError, match=f'"thing".*{problem}'):
        planned({"thing": desired})


def test_a_cluster_scoped_resource_under_a_namespaced_xr_is_refused() -> None:
    state = State(resources={"a": Resource(bucket())})
    scopes = {("s3.example.org/v1", "Bucket"): False}
    with pytest.raises(PlanError, match="cluster-scoped Bucket"):
        plan(xr(namespace="home"), {}, state, style="modern", scope_of=scopes)


def test_a_namespaced_resource_without_a_namespace_is_refused_if_its_xr_has_none_either() -> None:
    scopes = {("s3.example.org/v1", "Bucket"): True}
    with pytest.raises(PlanError, match=r'"a" is a namespaced Bucket \(s3.example.org/v1\) without a namespace'):
        plan(xr(), {}, State(resources={"a": Resource(bucket())}), style="modern", scope_of=scopes)
    placed = State(resources={"a": Resource(bucket(namespace="there"))})
    [composed] = plan(xr(), {}, placed, style="modern", scope_of=scopes).apply
    assert composed.object["metadata"]["namespace"] == "there"
    again = plan(
        xr(), {"a": composed.object}, State(resources={"a": Resource(bucket())}), style="modern", scope_of=scopes
    )
    assert again.apply[0].object["metadata"]["namespace"] == "there", "what exists stays where it is"
    [home] = plan(
        xr(namespace="home"), {}, State(resources={"a": Resource(bucket())}), style="modern", scope_of=scopes
    ).apply
    assert home.object["metadata"]["namespace"] == "home"


@pytest.mark.parametrize(
    ("ready", "explicit", "expected"),
    [
        pytest.param([Ready.TRUE, Ready.TRUE], Ready.UNSPECIFIED, ("True", "Available", ""), id="all ready"),
        pytest.param(
            [Ready.TRUE, Ready.UNSPECIFIED], Ready.UNSPECIFIED, ("False", "Creating", "Unready resources: r1"), id="one"
        ),
        pytest.param(
            [Ready.FALSE] * 5,
            Ready.UNSPECIFIED,
            ("False", "Creating", "Unready resources: r0, r1, r2, and 2 more"),
            id="many",
        ),
        pytest.param([Ready.FALSE], Ready.TRUE, ("True", "Available", ""), id="the XR says so"),
        pytest.param([Ready.TRUE], Ready.FALSE, ("False", "Creating", ""), id="the XR says not"),
        pytest.param([], Ready.UNSPECIFIED, ("True", "Available", ""), id="nothing composed"),
    ],
)
def test_readiness_follows_the_resources_unless_the_xr_is_explicit(
    ready: list[Ready], explicit: Ready, expected: tuple[str, str, str]
) -> None:
    resources = {f"r{number}": Resource(bucket(), ready=one) for number, one in enumerate(ready)}
    condition = readiness(plan(xr(), {}, State(resources=resources), style="modern"), explicit)
    assert (condition.status, condition.reason, condition.message) == expected


def test_a_condition_that_says_the_same_keeps_its_time() -> None:
    first = set_conditions([], [XrCondition("Ready", "True", "Available")], now="t1", generation=1)
    again = set_conditions(first, [XrCondition("Ready", "True", "Available")], now="t2", generation=2)
    changed = set_conditions(again, [XrCondition("Ready", "False", "Creating")], now="t3", generation=2)
    assert [c["lastTransitionTime"] for c in (*first, *again, *changed)] == ["t1", "t1", "t3"]


@pytest.mark.parametrize(
    ("spec", "namespace", "style"),
    [
        ({}, "", "modern"),
        ({"crossplane": {}}, "", "modern"),
        ({"compositionRef": {"name": "x"}}, "", "legacy"),
        ({"compositionRef": {"name": "x"}}, "home", "modern"),
        ({"size": 1}, "", "modern"),
    ],
)
def test_the_shape_of_an_xr_can_be_told_from_its_spec(spec: dict[str, Any], namespace: str, style: str) -> None:
    metadata = {"name": "x", "namespace": namespace} if namespace else {"name": "x"}
    assert style_of({"metadata": metadata, "spec": spec}) == style
