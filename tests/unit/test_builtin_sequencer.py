"""sequencer: what has to wait for what, and what keeps what from being deleted."""

from __future__ import annotations

from typing import Any

import pytest

from planform.builtin.sequencer import function
from planform.builtin.sequencer.usages import usage
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Ready, Resource, Severity, State


def spec(*sequences: list[str] | Object, **more: Any) -> Object:
    rules = [each if isinstance(each, dict) else {"sequence": each} for each in sequences]
    return {"apiVersion": "sequencer.fn.crossplane.io/v1beta1", "kind": "Input", "rules": rules, **more}


def thing(name: str, kind: str = "Thing", namespace: str | None = None) -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "example.org/v1", "kind": kind, "metadata": metadata}


def run(
    entered: Object | None,
    desired: dict[str, bool] | None = None,
    *,
    observed: list[str] | dict[str, Object] | None = None,
    xr: Object | None = None,
) -> FunctionResponse:
    """`desired` says of each resource whether it is ready."""
    existing = observed if isinstance(observed, dict) else {name: thing(name) for name in observed or ()}
    return function(
        FunctionRequest(
            observed=State(Resource(xr or {}), {name: Resource(each) for name, each in existing.items()}),
            desired=State(
                resources={
                    name: Resource(thing(name), ready=Ready.TRUE if ready else Ready.UNSPECIFIED)
                    for name, ready in (desired or {}).items()
                }
            ),
            input=entered,
        )
    )


def kept(*arguments: Any, **more: Any) -> list[str]:
    response = run(*arguments, **more)
    assert response.fatal is None, response.fatal
    return list(response.desired.resources)


def told(response: FunctionResponse) -> list[str]:
    assert all(result.severity is Severity.NORMAL for result in response.results), response.results
    return [result.message for result in response.results]


def fatal(response: FunctionResponse) -> str:
    assert response.fatal is not None
    return response.fatal.message


# --- creating ---------------------------------------------------------------------------------------------------------


def test_a_resource_waits_until_those_before_it_are_ready() -> None:
    entered = spec(["a", "b", "c"])
    assert kept(entered, {"a": False, "b": False, "c": False}) == ["a"]
    assert kept(entered, {"a": True, "b": False, "c": False}) == ["a", "b"]
    assert kept(entered, {"a": True, "b": True, "c": False}) == ["a", "b", "c"]


def test_a_resource_waits_for_one_that_nobody_desires() -> None:
    response = run(spec(["a", "b"]), {"b": True})
    assert list(response.desired.resources) == []
    assert told(response) == ['Delaying creation of resource(s) matching "b" because "a" does not exist yet']


def test_what_exists_already_is_never_taken_away() -> None:
    assert kept(spec(["a", "b"]), {"a": False, "b": False}, observed=["b"]) == ["a", "b"]
    entered = spec(["a", "b-.*"])
    assert kept(entered, {"a": False, "b-1": False, "b-2": False}, observed=["b-1"]) == ["a", "b-1"]


def test_entries_are_patterns_for_whole_names_unless_they_bring_an_anchor() -> None:
    desired = {"first-1": True, "first-2": False, "second": False, "not-second": False, "second-too": False}
    response = run(spec(["first-.*", "second"]), desired)
    assert list(response.desired.resources) == ["first-1", "first-2", "not-second", "second-too"]
    assert told(response) == [
        'Delaying creation of resource(s) matching "second" because "first-.*" is not fully ready (1 of 2)'
    ]
    assert kept(spec(["first-2", "^second"]), desired) == ["first-1", "first-2", "not-second"]
    assert kept(spec(["first-2", "second$"]), desired) == ["first-1", "first-2", "second-too"]
    assert kept(spec(["first-2", "second|not-second"]), desired) == ["first-1", "first-2", "second-too"]


def test_rules_see_what_earlier_rules_took_away() -> None:
    assert kept(spec(["a", "b"], ["b", "c"]), {"a": False, "b": True, "c": True}) == ["a"]
    assert kept(spec(["b", "c"], ["a", "b"]), {"a": False, "b": True, "c": True}) == ["a", "c"]


def test_readiness_that_is_not_said_yet_counts_as_not_ready() -> None:
    assert kept(spec(["a", "b"]), {"a": False, "b": False}, observed=["a"]) == ["a"]


def test_holding_back_can_make_the_xr_unready() -> None:
    entered = spec(["a", "b"], resetCompositeReadiness=True)
    assert run(entered, {"a": False, "b": False}).desired.composite.ready is Ready.FALSE
    assert run(entered, {"a": True, "b": False}).desired.composite.ready is Ready.UNSPECIFIED
    assert run(spec(["a", "b"]), {"a": False, "b": False}).desired.composite.ready is Ready.UNSPECIFIED


def test_a_condition_decides_whether_a_sequence_holds() -> None:
    rule = {"sequence": ["a", "b"], "condition": "observed.composite.resource.spec.ordered"}
    desired = {"a": False, "b": False}
    assert kept(spec(rule), desired, xr={"spec": {"ordered": True}}) == ["a"]
    response = run(spec(rule), desired, xr={"spec": {"ordered": False}})
    assert list(response.desired.resources) == ["a", "b"]
    assert told(response) == [
        'Skipping sequence [a b]: condition "observed.composite.resource.spec.ordered" evaluated to false'
    ]
    assert "for sequence [a b]: cannot evaluate CEL condition: no such key" in fatal(run(spec(rule), desired))
    assert "is not bool" in fatal(run(spec(rule), desired, xr={"spec": {"ordered": 1}}))
    by_state = {
        "sequence": ["a", "b"],
        "condition": "desired.resources['a'].ready == 0 && !('a' in observed.resources)",
    }
    assert kept(spec(by_state), desired) == ["a"]


def test_the_request_is_not_changed() -> None:
    request = FunctionRequest(desired=State(resources={"b": Resource(thing("b"))}), input=spec(["a", "b"]))
    assert function(request).desired.resources == {}
    assert list(request.desired.resources) == ["b"]


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_usages_keep_each_resource_while_the_next_one_is_there() -> None:
    entered = spec(["a", "b"], enableDeletionSequencing=True)
    response = run(entered, {"a": True, "b": True}, observed=["a", "b"])
    made = response.desired.resources["b-a-usage"]
    assert made.ready is Ready.TRUE
    assert made.resource == {
        "apiVersion": "protection.crossplane.io/v1beta1",
        "kind": "ClusterUsage",
        "metadata": {"name": made.resource["metadata"]["name"]},
        "spec": {
            "of": {"apiVersion": "example.org/v1", "kind": "Thing", "resourceRef": {"name": "a"}},
            "by": {"apiVersion": "example.org/v1", "kind": "Thing", "resourceRef": {"name": "b"}},
            "reason": "dependency",
            "replayDeletion": True,
        },
    }
    assert list(response.desired.resources) == ["a", "b", "b-a-usage"]


def test_usages_of_namespaced_resources_stand_in_their_namespace() -> None:
    observed = {"a": thing("a", namespace="ns"), "b": thing("b", namespace="ns")}
    entered = spec(["a", "b"], enableDeletionSequencing=True, replayDeletion=False)
    made = run(entered, {"a": True, "b": True}, observed=observed).desired.resources["b-a-usage"].resource
    assert (made["kind"], made["metadata"]["namespace"]) == ("Usage", "ns")
    assert made["spec"]["replayDeletion"] is False
    older = spec(["a", "b"], enableDeletionSequencing=True, usageVersion="v1")
    made = run(older, {"a": True, "b": True}, observed=observed).desired.resources["b-a-usage"].resource
    assert (made["apiVersion"], made["kind"]) == ("apiextensions.crossplane.io/v1beta1", "Usage")
    assert "namespace" not in made["metadata"]


@pytest.mark.parametrize(
    ("rule", "created", "protected"),
    [
        ({}, ["a"], True),
        ({"createOnly": True}, ["a"], False),
        ({"deleteOnly": True}, ["a", "c"], True),
        ({"condition": "false"}, ["a", "c"], True),
    ],
)
def test_a_rule_may_be_for_one_direction_only(rule: Object, created: list[str], protected: bool) -> None:
    entered = spec({"sequence": ["a", "b", "c"], **rule}, enableDeletionSequencing=True)
    names = kept(entered, {"a": False, "c": False}, observed=["a", "b"])
    assert [name for name in names if "usage" not in name] == created
    assert ("b-a-usage" in names) is protected


def test_what_is_no_longer_desired_or_does_not_exist_is_not_protected() -> None:
    entered = spec(["a", "b", "c"], enableDeletionSequencing=True)
    assert kept(entered, {"b": True}, observed=["a", "b"]) == ["b"]
    assert kept(entered, {"a": True, "b": True}, observed=["a"]) == ["a", "b"]


def test_usages_do_not_wait_for_the_rules_that_come_after() -> None:
    """The patterns of both rules match the names of usages, which must protect from the first reconcile on."""
    entered = spec(["a", "b"], ["c", ".*-usage"], ["b.*", "d"], enableDeletionSequencing=True)
    response = run(entered, {"a": True, "b": True, "c": False, "d": True}, observed=["a", "b"])
    assert list(response.desired.resources) == ["a", "b", "c", "d", "b-a-usage"]


def test_usages_are_not_users() -> None:
    observed = {"a": thing("a"), "x-usage": thing("u", kind="ClusterUsage")}
    entered = spec(["a", ".*"], enableDeletionSequencing=True)
    assert "x-usage-a-usage" not in kept(entered, {"a": True}, observed=observed)


def test_the_name_of_a_usage_is_short_stable_and_different_for_different_pairs() -> None:
    def name(of: str, by: str) -> str:
        made = usage(of=thing(of), by=thing(by, "Other"), version="v2", replay_deletion=True)
        assert made is not None
        found: str = made["metadata"]["name"]
        return found

    assert name("a", "b").startswith("other-b-thing-a-")
    assert name("a", "b").endswith("-dependency")
    long = [name("a" * 60 + str(index), "b" * 60) for index in range(3)]
    assert all(len(each) <= 63 and each.endswith("-dependency") for each in long)
    assert len(set(long)) == 3
    assert name("a", "b") == name("a", "b")


# --- the input --------------------------------------------------------------------------------------------------------


def test_a_ttl_is_passed_on_if_one_is_asked_for() -> None:
    assert run(spec(cacheTTL="30s")).ttl == 30
    assert run(spec()).ttl is None


@pytest.mark.parametrize(
    ("entered", "problem"),
    [
        (None, "the step has no input"),
        (spec(["(", "a"]), "cannot compile regex (: error parsing regexp: missing closing ): `(`"),
        (spec(["a)b(", "a"]), "cannot compile regex a)b(: error parsing regexp"),
        (
            spec({"sequence": ["a"], "createOnly": True, "deleteOnly": True}),
            "rule for sequence [a] cannot have both deleteOnly and createOnly set to true",
        ),
        (spec({"sequence": ["a"], "condition": "1 +"}), "for sequence [a]: cannot parse CEL condition"),
        (spec({"sequence": ["a"], "condition": "1 + 1"}), "CEL condition must evaluate to bool, got int"),
        (spec(cacheTTL="x"), 'cannot set cacheTTL: time: invalid duration "x"'),
        (spec({"sequence": "a"}), "rules[0].sequence: expected a list, got a string"),
        (spec(extra=1), 'unknown field "extra"'),
    ],
)
def test_a_wrong_input_is_fatal(entered: Object | None, problem: str) -> None:
    assert problem in fatal(run(entered))


def test_an_unknown_version_of_usages_is_a_warning() -> None:
    response = run(spec(usageVersion="v3"))
    assert [each.message for each in response.results] == ['usageVersion: "v3" is neither v2 nor v1, and counts as v2']
