"""A real plan is within what a preview expected, or says what deviates."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from planform.api.kinds import Object
from planform.functions.sending import digest_of
from planform.pipeline.expectation import (
    NOTHING,
    Expectation,
    ExpectedResource,
    deviations,
    input_digest,
    object_digest,
    plan_digest,
)
from planform.pipeline.plan import Composed, Deletion, Plan


def bucket(**spec: Any) -> Object:
    return {"apiVersion": "s3.example.org/v1", "kind": "Bucket", "metadata": {"name": "logs"}, "spec": spec}


def composed(obj: Object, *, exists: bool = True) -> Composed:
    return Composed("logs", obj, ready=True, exists=exists, digest=digest_of(obj))


def plan_of(*apply: Composed, delete: tuple[Deletion, ...] = ()) -> Plan:
    return Plan(apply=apply, delete=delete, references=(), status={})


def expecting(action: Any, *objects: Object, unknown: tuple[str, ...] = ()) -> Expectation:
    digests = tuple(object_digest(each, unknown) for each in objects)
    return Expectation(resources={"logs": ExpectedResource(action=action, digests=digests, unknown=unknown)})


def test_what_was_previewed_is_no_deviation() -> None:
    assert deviations(expecting("Update", bucket(size=2)), plan_of(composed(bucket(size=2)))) == []


def test_each_reconcile_on_the_way_is_expected() -> None:
    expected = expecting("Update", bucket(size=1), bucket(size=2))
    assert deviations(expected, plan_of(composed(bucket(size=1)))) == []


def test_less_than_was_previewed_is_no_deviation() -> None:
    assert deviations(expecting("Delete"), plan_of()) == []
    assert deviations(expecting("Update", bucket(size=2)), plan_of(composed(bucket(size=9))), unchanged={"logs"}) == []


def test_another_value_deviates() -> None:
    found = deviations(expecting("Update", bucket(size=2)), plan_of(composed(bucket(size=3))))
    assert found == ['Bucket "logs" would become something else']


def test_another_value_of_an_unknown_field_does_not_deviate() -> None:
    expected = expecting("Update", bucket(size=2, arn="?"), unknown=("spec.arn",))
    assert deviations(expected, plan_of(composed(bucket(size=2, arn="arn:1")))) == []
    assert deviations(expected, plan_of(composed(bucket(size=3, arn="arn:1")))) != []


def test_a_deletion_that_was_not_previewed_deviates() -> None:
    gone = (Deletion("logs", bucket(size=1)),)
    assert deviations(NOTHING, plan_of(delete=gone)) == ['Bucket "logs" would be deleted']
    assert deviations(expecting("Delete"), plan_of(delete=gone)) == []
    assert deviations(expecting("Recreate"), plan_of(delete=gone)) == []


def test_a_creation_that_was_not_previewed_deviates() -> None:
    assert deviations(NOTHING, plan_of(composed(bucket(), exists=False))) == ['Bucket "logs" would be created']


def test_several_elements_of_a_list_may_be_unknown() -> None:
    paths = ("spec.zones[0]", "spec.zones[2]")
    one, other = bucket(zones=["?", "b", "?"]), bucket(zones=["a", "b", "c"])
    assert object_digest(one, paths) == object_digest(other, paths)
    assert object_digest(one, paths) != object_digest(bucket(zones=["a", "x", "c"]), paths)


def test_the_digest_of_a_secret_tells_nothing_of_its_values() -> None:
    def secret(value: str) -> Object:
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"password": value}}

    assert object_digest(secret("YQ==")) == object_digest(secret("Yg=="))


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(-(2**40), 2**40), min_size=1))
def test_a_plan_is_always_a_subset_of_its_own_expectation(spec: dict[str, int]) -> None:
    obj = bucket(**spec)
    assert deviations(expecting("Create", obj), plan_of(composed(obj, exists=False))) == []


def xr(**spec: Any) -> Object:
    metadata = {"name": "one", "namespace": "a", "uid": "u", "resourceVersion": "1", "generation": 1}
    return {"apiVersion": "example.org/v1", "kind": "App", "metadata": metadata, "spec": spec}


def test_what_the_control_plane_writes_into_an_xr_is_no_new_input() -> None:
    before = xr(size=1)
    after = xr(size=1, crossplane={"compositionRevisionRef": {"name": "r2"}, "resourceRefs": [{"name": "x"}]})
    after["metadata"] |= {"resourceVersion": "9", "generation": 4}
    after["status"] = {"ready": True}
    assert input_digest(before, "modern") == input_digest(after, "modern")
    assert input_digest(before, "modern") != input_digest(xr(size=2), "modern")
    assert input_digest(before, "modern") != input_digest(
        xr(size=1, crossplane={"compositionUpdatePolicy": "Manual"}), "modern"
    )


def test_the_plan_digest_depends_on_every_expectation_and_on_no_order() -> None:
    one, other = expecting("Delete"), expecting("Update", bucket(size=2))
    assert plan_digest({"a": one, "b": other}) == plan_digest({"b": other, "a": one})
    assert plan_digest({"a": one, "b": other}) != plan_digest({"a": other, "b": one})
