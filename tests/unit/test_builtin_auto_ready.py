"""auto-ready: which resources it finds ready, and which it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from planform.builtin.auto_ready import function
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Ready, Resource, Severity, State

INPUT: Object = {"apiVersion": "autoready.fn.crossplane.io/v1beta1", "kind": "Input"}


def run(
    observed: Object,
    *,
    desired: Object | None = None,
    ready: Ready = Ready.UNSPECIFIED,
    spec: Object | None = None,
    context: Object | None = None,
) -> FunctionResponse:
    return function(
        FunctionRequest(
            observed=State(resources={"r": Resource(observed)}),
            desired=State(resources={"r": Resource(observed if desired is None else desired, ready=ready)}),
            input=None if spec is None else {**INPUT, **spec},
            context=context or {},
        )
    )


def found(observed: Object, **more: Any) -> Ready:
    response = run(observed, **more)
    assert response.fatal is None, response.fatal
    return response.desired.resources["r"].ready


def kind(name: str, **members: Any) -> Object:
    api_version, _, short = name.rpartition(" ")
    return {"apiVersion": api_version, "kind": short, **members}


def conditions(**statuses: str) -> list[Object]:
    return [{"type": name, "status": status} for name, status in statuses.items()]


def status(**members: Any) -> Object:
    return {"status": members}


AVAILABLE = conditions(Available="True")
DAY1, DAY2 = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("observed", "ready"),
    [
        *[
            (kind(name), True)
            for name in (
                "v1 ConfigMap",
                "v1 Secret",
                "v1 ServiceAccount",
                "v1 Namespace",
                "rbac.authorization.k8s.io/v1 Role",
                "rbac.authorization.k8s.io/v1 ClusterRoleBinding",
                "networking.k8s.io/v1 NetworkPolicy",
                "storage.k8s.io/v1 StorageClass",
                "policy/v1 PodDisruptionBudget",
            )
        ],
        (kind("v1 Service"), True),
        (kind("v1 Service", spec={"type": "ClusterIP"}), True),
        (kind("v1 Service", spec={"type": "LoadBalancer"}), False),
        (kind("v1 Service", spec={"type": "LoadBalancer"}, **status(loadBalancer={"ingress": []})), False),
        (kind("v1 Service", spec={"type": "LoadBalancer"}, **status(loadBalancer={"ingress": [{"ip": "::1"}]})), True),
        (kind("v1 PersistentVolumeClaim", **status(phase="Bound")), True),
        (kind("v1 PersistentVolumeClaim", **status(phase="Pending")), False),
        (kind("v1 Pod", **status(phase="Succeeded")), True),
        (kind("v1 Pod", spec={"restartPolicy": "Always"}, **status(phase="Running")), False),
        (
            kind(
                "v1 Pod",
                spec={"restartPolicy": "Always"},
                **status(phase="Running", conditions=conditions(Ready="True")),
            ),
            True,
        ),
        (kind("v1 Pod", spec={"restartPolicy": "Always"}, **status(phase="Pending")), False),
        (kind("apps/v1 Deployment", **status(updatedReplicas=1, availableReplicas=1, conditions=AVAILABLE)), True),
        (kind("apps/v1 Deployment", **status(updatedReplicas=1, availableReplicas=1)), False),
        (
            kind(
                "apps/v1 Deployment",
                spec={"replicas": 3},
                **status(updatedReplicas=3, availableReplicas=2, conditions=AVAILABLE),
            ),
            False,
        ),
        (kind("apps/v1 Deployment", spec={"replicas": 2}, **status(updatedReplicas=2, conditions=AVAILABLE)), False),
        (kind("apps/v1 Deployment", spec={"replicas": 0}, **status(conditions=AVAILABLE)), True),
        (
            kind(
                "apps/v1 StatefulSet",
                **status(readyReplicas=1, currentReplicas=1, currentRevision="a", updateRevision="a"),
            ),
            True,
        ),
        (
            kind(
                "apps/v1 StatefulSet",
                **status(readyReplicas=1, currentReplicas=1, currentRevision="a", updateRevision="b"),
            ),
            False,
        ),
        (kind("apps/v1 StatefulSet", **status(readyReplicas=1, currentRevision="a", updateRevision="a")), False),
        (
            kind(
                "apps/v1 DaemonSet",
                **status(desiredNumberScheduled=2, numberReady=2, updatedNumberScheduled=2, numberAvailable=2),
            ),
            True,
        ),
        (
            kind("apps/v1 DaemonSet", **status(desiredNumberScheduled=2, numberReady=2, updatedNumberScheduled=2)),
            False,
        ),
        (kind("apps/v1 DaemonSet", **status(desiredNumberScheduled=0)), True),
        (kind("apps/v1 DaemonSet", **status(numberReady=0)), False),
        (
            kind("apps/v1 ReplicaSet", metadata={"generation": 2}, **status(observedGeneration=2, availableReplicas=1)),
            True,
        ),
        (
            kind("apps/v1 ReplicaSet", metadata={"generation": 2}, **status(observedGeneration=1, availableReplicas=1)),
            False,
        ),
        (kind("apps/v1 ReplicaSet", spec={"replicas": 2}, **status(availableReplicas=1)), False),
        (
            kind("apps/v1 ReplicaSet", **status(availableReplicas=1, conditions=conditions(ReplicaFailure="True"))),
            False,
        ),
        (kind("batch/v1 Job", **status(conditions=conditions(Complete="True"))), True),
        (kind("batch/v1 Job", **status(conditions=conditions(Failed="True", Complete="True"))), False),
        (kind("batch/v1 Job", **status(conditions=conditions(Suspended="False", Complete="True"))), True),
        (kind("batch/v1 Job", **status(conditions=conditions(Suspended="True"))), False),
        (kind("batch/v1 Job"), False),
        (kind("batch/v1 CronJob", spec={"suspend": True}), True),
        (kind("batch/v1 CronJob"), False),
        (kind("batch/v1 CronJob", **status(lastScheduleTime=DAY1, active=[{"name": "j"}])), True),
        (kind("batch/v1 CronJob", **status(lastScheduleTime=DAY1)), False),
        (kind("batch/v1 CronJob", **status(lastScheduleTime=DAY1, lastSuccessfulTime=DAY1)), True),
        (kind("batch/v1 CronJob", **status(lastScheduleTime=DAY1, lastSuccessfulTime=DAY2)), True),
        (kind("batch/v1 CronJob", **status(lastScheduleTime=DAY2, lastSuccessfulTime=DAY1)), False),
        (kind("batch/v1 CronJob", **status(lastScheduleTime="soon", lastSuccessfulTime=DAY1)), False),
        (
            kind("autoscaling/v2 HorizontalPodAutoscaler", **status(conditions=conditions(ScalingActive="True"))),
            True,
        ),
        (
            kind("autoscaling/v2 HorizontalPodAutoscaler", **status(conditions=conditions(ScalingLimited="True"))),
            True,
        ),
        (
            kind(
                "autoscaling/v2 HorizontalPodAutoscaler",
                **status(conditions=conditions(FailedGetScale="True", ScalingActive="True")),
            ),
            False,
        ),
        (kind("autoscaling/v2 HorizontalPodAutoscaler"), False),
        (kind("networking.k8s.io/v1 Ingress"), False),
        (kind("networking.k8s.io/v1 Ingress", **status(loadBalancer={"ingress": [{"hostname": "h"}]})), True),
        (kind("example.org/v1 Thing", **status(conditions=conditions(Ready="True"))), True),
        (kind("example.org/v1 Thing", **status(conditions=conditions(Ready="False"))), False),
        (kind("example.org/v1 Thing"), False),
        (kind("batch/v1 Job", **status(conditions=conditions(Ready="True"))), True),
        (kind("v1 ConfigMap", metadata={"deletionTimestamp": DAY1}), False),
        (
            kind(
                "example.org/v1 Thing",
                metadata={"deletionTimestamp": DAY1},
                **status(conditions=conditions(Ready="True")),
            ),
            False,
        ),
    ],
)
def test_what_is_ready(observed: Object, ready: bool) -> None:
    assert found(observed) is (Ready.TRUE if ready else Ready.UNSPECIFIED)


@pytest.mark.parametrize("decided", [Ready.TRUE, Ready.FALSE])
def test_what_an_earlier_step_decided_stays(decided: Ready) -> None:
    assert found(kind("v1 ConfigMap"), ready=decided) is decided
    assert found(kind("batch/v1 Job"), ready=decided) is decided


def test_the_kind_that_is_observed_decides_not_the_one_that_is_desired() -> None:
    assert found(kind("v1 ConfigMap"), desired=kind("batch/v1 Job")) is Ready.TRUE
    assert found(kind("batch/v1 Job"), desired=kind("v1 ConfigMap")) is Ready.UNSPECIFIED


def test_a_resource_that_does_not_exist_or_is_not_desired_is_left_alone() -> None:
    config_map = Resource(kind("v1 ConfigMap"))
    response = function(
        FunctionRequest(
            observed=State(resources={"gone": config_map}), desired=State(resources={"new": config_map}), tag="t"
        )
    )
    assert response.desired.resources == {"new": config_map}
    assert (response.tag, response.ttl, response.results) == ("t", None, [])


def test_the_request_is_not_changed() -> None:
    desired = Resource(kind("v1 ConfigMap"))
    request = FunctionRequest(observed=State(resources={"r": desired}), desired=State(resources={"r": desired}))
    assert function(request).desired.resources["r"].ready is Ready.TRUE
    assert desired.ready is Ready.UNSPECIFIED


# --- rules in CEL -----------------------------------------------------------------------------------------------------

THING = kind("example.org/v1 Thing", spec={"size": 3}, **status(conditions=conditions(Ready="True")))
KEY = "example.org_v1_Thing"


def rules(**by_key: str) -> Object:
    return {"celHealthCheckCustomization": by_key}


def test_a_rule_decides_before_anything_else_and_its_no_is_explicit() -> None:
    assert found(THING, spec=rules(**{KEY: "object.spec.size > 2"})) is Ready.TRUE
    assert found(THING, spec=rules(**{KEY: "object.spec.size > 3"})) is Ready.FALSE
    assert found(THING, spec=rules(other_v1_Thing="false")) is Ready.TRUE
    assert found(kind("v1 Pod"), spec=rules(_v1_Pod="true")) is Ready.TRUE


@pytest.mark.parametrize("rule", ["object.spec.nope > 1", "object.", "object.spec.size", "'text'"])
def test_a_rule_that_fails_is_a_warning_and_the_next_way_decides(rule: str) -> None:
    response = run(THING, spec=rules(**{KEY: rule}))
    assert response.desired.resources["r"].ready is Ready.TRUE
    [result] = response.results
    assert result.severity is Severity.WARNING
    assert result.message.startswith(f'cannot check readiness of composed resource "r" with {KEY}: ')


def test_rules_come_from_the_context_too_and_inline_ones_win() -> None:
    source = {"celHealthCheckCustomizationFrom": "[example.org/rules].checks"}
    context = {"example.org/rules": {"checks": {KEY: "false", "_v1_Pod": "true"}}}
    assert found(THING, spec=source, context=context) is Ready.FALSE
    assert found(kind("v1 Pod"), spec=source, context=context) is Ready.TRUE
    assert found(THING, spec={**source, **rules(**{KEY: "true"})}, context=context) is Ready.TRUE
    assert found(THING, spec={**source, **rules(**{KEY: "true"})}) is Ready.TRUE, "a context without rules has none"


def test_rules_of_the_context_that_are_none_are_fatal() -> None:
    source = {"celHealthCheckCustomizationFrom": "rules"}
    for content in ("text", ["list"]):
        fatal = run(THING, spec=source, context={"rules": content}).fatal
        assert fatal is not None and "rules: not an object" in fatal.message


# --- the input --------------------------------------------------------------------------------------------------------


def test_a_ttl_is_passed_on_if_one_is_asked_for() -> None:
    assert run(THING, spec={"ttl": "1m30s"}).ttl == 90
    assert run(THING, spec={}).ttl is None


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"ttl": "soon"}, 'invalid Function input: ttl: Invalid value: "soon"'),
        ({"ttl": "-1s"}, 'invalid Function input: ttl: Invalid value: "-1s": must not be negative'),
        ({"celHealthCheckCustomizationFrom": "a["}, "invalid Function input: celHealthCheckCustomizationFrom"),
        ({"extra": 1}, 'cannot get Function input: object contains unknown field "extra"'),
    ],
)
def test_a_wrong_input_is_fatal_and_changes_nothing(spec: Object, problem: str) -> None:
    response = run(kind("v1 ConfigMap"), spec=spec)
    assert response.fatal is not None and response.fatal.message.startswith(problem)
    assert response.desired.resources["r"].ready is Ready.UNSPECIFIED
