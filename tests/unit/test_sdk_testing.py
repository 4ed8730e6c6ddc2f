"""The test kit for authors: requests in a line, partial matches with a readable diff, convergence."""

from __future__ import annotations

from typing import Any

import pytest

from planform_sdk import Request, Response, Severity, function
from planform_sdk.testing import (
    DidNotConverge,
    assert_resource,
    assert_result,
    assert_xr,
    becomes_ready,
    converge,
    differences,
    request,
    run,
)


@function
def chain(req: Request[Any], rsp: Response) -> None:
    """A bucket, and, once that is ready, a policy for it."""
    rsp.desired.resources["bucket"] = {"kind": "Bucket", "spec": {"region": req.xr.get("spec.region"), "tags": ["a"]}}
    bucket = req.observed.resources.get("bucket")
    if bucket is None or not bucket.is_true("Ready"):
        return
    rsp.desired.resources["bucket"].ready = True
    rsp.desired.resources["policy"] = {"kind": "Policy", "spec": {"bucket": bucket.name}}
    policy = req.observed.resources.get("policy")
    rsp.desired.resources["policy"].ready = policy is not None and policy.is_true("Ready")
    rsp.xr.set("status.bucket", bucket.name)


@function
def needs_config(req: Request[Any], rsp: Response) -> None:
    config = req.require("config", api_version="v1", kind="ConfigMap", name="settings", namespace="a")
    if config is None:
        rsp.warning("no settings yet")
        return
    others = req.require_all("others", api_version="v1", kind="ConfigMap", labels={"of": config["data"]["team"]})
    rsp.xr.set("status.others", [each.name for each in others])


CLUSTER = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": space, "labels": labels}, **more}
    for name, space, labels, more in [
        ("settings", "b", {}, {}),
        ("settings", "a", {}, {"data": {"team": "x"}}),
        ("two", "a", {"of": "x"}, {}),
        ("one", "a", {"of": "x", "more": "y"}, {}),
        ("zero", "a", {"of": "z"}, {}),
    ]
]


def test_a_function_is_run_on_a_request_made_in_a_line() -> None:
    response = run(chain, xr={"spec": {"region": "eu"}})
    bucket = assert_resource(response, "bucket", {"spec": {"region": "eu"}})
    assert not bucket.ready
    assert response.meta.tag == "test"


def test_what_is_missing_is_named_and_so_is_what_is_there() -> None:
    response = run(chain, xr={})
    with pytest.raises(AssertionError, match=r'no desired resource "policy" \(there are: bucket\)'):
        assert_resource(response, "policy", {})


def test_a_mismatch_says_where_what_and_what_was_expected() -> None:
    response = run(chain, xr={"spec": {"region": "eu"}})
    with pytest.raises(AssertionError) as error:
        assert_resource(response, "bucket", {"spec": {"region": "us", "tags": ["a", "b"], "size": 3}})
    assert str(error.value).splitlines() == [
        'desired resource "bucket" is not as expected:',
        "  spec.region: 'eu', expected 'us'",
        "  spec.tags: 1 items, expected 2: ['a']",
        "  spec.size: missing, expected 3",
    ]


@pytest.mark.parametrize(
    ("expected", "actual", "lines"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": [{"x": 1}]}, {"a": [{"x": 1, "y": 2}]}, []),
        ({"a": {}}, {"a": {"b": 1}}, []),
        (True, 1, ["value: 1, expected True"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["a[1]: 3, expected 2"]),
        ({"a": {"x/y": 1}}, {"a": {}}, ["a[x/y]: missing, expected 1"]),
        ({"a": {}}, {"a": None}, ["a: None, expected {}"]),
    ],
)
def test_objects_match_in_part_lists_as_a_whole(expected: Any, actual: Any, lines: list[str]) -> None:
    assert differences(expected, actual) == lines


def test_results_are_shown_when_the_expected_one_is_missing() -> None:
    response = run(needs_config, xr={})
    assert_result(response, Severity.WARNING, "no settings")
    with pytest.raises(AssertionError, match="WARNING: no settings yet"):
        assert_result(response, Severity.FATAL, "no settings")


def test_requirements_are_met_from_the_cluster_and_by_what_a_step_brings() -> None:
    response = run(needs_config, xr={}, cluster=CLUSTER)
    assert_xr(response, {"status": {"others": ["one", "two"]}})
    assert not response.results
    brought = run(needs_config, request(required={"config": CLUSTER[1], "others": []}))
    assert_xr(brought, {"status": {"others": []}})


def test_a_function_that_always_requires_something_new_is_stopped() -> None:
    calls = 0

    @function
    def greedy(req: Request[Any], rsp: Response) -> None:
        nonlocal calls
        calls += 1
        req.require(f"r{calls}", api_version="v1", kind="Pod", name="x")

    with pytest.raises(DidNotConverge, match='"greedy" required something new in each of 6 calls'):
        run(greedy, xr={}, cluster=[])


def test_a_pipeline_converges_over_simulated_observed_state() -> None:
    done = converge(chain, xr={"spec": {"region": "eu"}})
    assert done.ready == {"bucket", "policy"}
    assert done.rounds == 4
    assert done.observed.composite.resource == {"spec": {"region": "eu"}, "status": {"bucket": "bucket"}}
    assert_resource(done.response, "policy", {"spec": {"bucket": "bucket"}})


def test_steps_see_what_earlier_steps_want() -> None:
    @function
    def label(req: Request[Any], rsp: Response) -> None:
        for resource in rsp.desired.resources.values():
            resource.set("metadata.labels[team]", "a")

    done = converge([chain, label], xr={})
    assert_resource(done.response, "policy", {"metadata": {"labels": {"team": "a"}}, "kind": "Policy"})


def test_simulation_can_be_slow_or_broken() -> None:
    def slow(name: str, desired: dict[str, Any], round: int) -> dict[str, Any] | None:
        return None if round < 3 else becomes_ready(name, desired, round)

    assert converge(chain, xr={}, simulate=slow).ready == {"bucket", "policy"}
    assert converge(chain, xr={}, simulate=lambda name, desired, round: desired).ready == set()
    with pytest.raises(DidNotConverge, match='resource "bucket" is not there'):
        converge(chain, xr={}, simulate=lambda name, desired, round: None)


def test_a_pipeline_that_never_rests_is_named_with_what_changes() -> None:
    @function
    def restless(req: Request[Any], rsp: Response) -> None:
        rsp.xr.set("status.count", req.xr.get("status.count", 0) + 1)
        rsp.desired.resources["same"] = {"kind": "Same"}

    with pytest.raises(DidNotConverge, match=r"still changing after 4 rounds:\n  XR"):
        converge(restless, xr={}, limit=4)


def test_a_fatal_result_ends_it() -> None:
    @function
    def fails(req: Request[Any], rsp: Response) -> None:
        rsp.fatal("no")

    done = converge([fails, chain], xr={})
    assert done.rounds == 1
    assert_result(done.response, Severity.FATAL, "no")


def test_an_answer_that_no_control_plane_could_read_fails_the_test() -> None:
    @function
    def odd(req: Request[Any], rsp: Response) -> None:
        rsp.desired.resources["odd"] = {"spec": object()}

    with pytest.raises(ValueError, match='resource "odd" cannot be encoded'):
        run(odd, xr={})


def test_a_request_and_its_fields_together_are_a_mistake() -> None:
    with pytest.raises(TypeError, match="not both"):
        run(chain, request(), xr={})
