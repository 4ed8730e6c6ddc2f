"""What makes a cluster run a revision: the objects as values, and where its pods are found."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.kinds import Object
from planform.packages.runtimes.deployments import (
    CERTIFICATE_ANNOTATION,
    DEPLOYMENT,
    NETWORK_POLICY,
    SERVICE,
    SERVICE_ACCOUNT,
    Deployed,
    covers,
    identified,
    objects_of,
    stamped,
    unavailable,
)
from planform.packages.runtimes.serving_pods import places_of, target_of

REVISION = "function-greet-0123456789ab"
LABELS = {"pkg.crossplane.io/revision": REVISION, "pkg.crossplane.io/function": "function-greet"}
OWNER = {
    "apiVersion": "pkg.crossplane.io/v1",
    "kind": "FunctionRevision",
    "name": REVISION,
    "uid": "u",
    "controller": True,
}
PARENT = {
    "apiVersion": "pkg.crossplane.io/v1",
    "kind": "Function",
    "name": "function-greet",
    "uid": "f",
    "controller": True,
}


def deployed(**more: Any) -> Deployed:
    return Deployed("function-greet", REVISION, "u", "registry.example.org/greet@sha256:00", OWNER, PARENT, **more)


def made(wanted: Deployed) -> dict[str, Object]:
    objects = objects_of(wanted, "system", certificate="c1", drain_seconds=120)
    assert all(each["metadata"]["namespace"] == "system" for each in objects)
    return {each["kind"]: each for each in objects}


def pod_of(wanted: Deployed) -> Object:
    pod: Object = made(wanted)[DEPLOYMENT.kind]["spec"]["template"]["spec"]
    return pod


def configured(pod: Object | None = None, **spec: Any) -> Deployed:
    return deployed(config={"deploymentTemplate": {"spec": {"template": {"spec": pod or {}}, **spec}}})


def test_a_function_is_found_by_its_service_and_called_by_the_control_plane_alone() -> None:
    objects = made(deployed())
    service, policy = objects[SERVICE.kind], objects[NETWORK_POLICY.kind]
    assert service["metadata"]["name"] == REVISION
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == LABELS
    assert policy["spec"]["podSelector"] == {"matchLabels": LABELS}
    [rule] = policy["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "planform"}}}]
    assert rule["ports"] == [{"port": "grpc", "protocol": "TCP"}]
    assert all(each["metadata"]["ownerReferences"] == [OWNER] for each in objects.values())


def test_a_function_without_network_may_be_called_and_calls_nobody() -> None:
    policy = made(deployed(why_no_network="it was told so"))[NETWORK_POLICY.kind]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy
    assert policy["ingress"] == made(deployed())[NETWORK_POLICY.kind]["spec"]["ingress"]
    assert made(deployed())[NETWORK_POLICY.kind]["spec"]["policyTypes"] == ["Ingress"]


def test_pods_are_as_restricted_as_pods_can_be() -> None:
    pod = pod_of(deployed())
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "runAsNonRoot": True,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert pod["automountServiceAccountToken"] is False
    assert {"name": "scratch", "mountPath": "/tmp"} in container["volumeMounts"]
    assert container["resources"]["requests"]


def test_what_a_configuration_says_counts_more_than_what_is_filled_in() -> None:
    wanted = configured(
        {
            "serviceAccountName": "theirs",
            "terminationGracePeriodSeconds": 5,
            "securityContext": {"runAsUser": 77},
            "containers": [
                {"name": "sidecar", "image": "proxy"},
                {
                    "name": "package-runtime",
                    "image": "mine",
                    "args": ["--debug"],
                    "env": [{"name": "REVISION_UID", "value": "forged"}, {"name": "LEVEL", "value": "1"}],
                    "ports": [{"name": "grpc", "containerPort": 7000}],
                    "securityContext": {"readOnlyRootFilesystem": False},
                    "resources": {"limits": {"memory": "1Gi"}},
                },
            ],
        },
        replicas=3,
    )
    objects, pod = made(wanted), pod_of(wanted)
    runtime, sidecar = pod["containers"]
    assert sidecar == {"name": "sidecar", "image": "proxy"}
    assert runtime["image"] == "mine"
    assert runtime["args"] == ["--debug"]
    assert runtime["resources"] == {"limits": {"memory": "1Gi"}}
    variables = {each["name"]: each.get("value") for each in runtime["env"]}
    assert variables["LEVEL"] == "1"
    assert variables["REVISION_UID"] == "u", "who it is, is not theirs to say"
    assert [each["containerPort"] for each in runtime["ports"] if each["name"] == "grpc"] == [7000]
    assert runtime["securityContext"]["readOnlyRootFilesystem"] is False
    assert runtime["securityContext"]["allowPrivilegeEscalation"] is False
    assert all(each["name"] != "scratch" for each in pod["volumes"])
    assert pod["securityContext"]["runAsUser"] == 77
    assert pod["terminationGracePeriodSeconds"] == 5
    assert objects[DEPLOYMENT.kind]["spec"]["replicas"] == 3
    assert SERVICE_ACCOUNT.kind not in objects, "an account of theirs is not ours to make"


def test_names_of_a_configuration_are_the_beginning_of_those_of_each_revision() -> None:
    config = {
        "deploymentTemplate": {"metadata": {"name": "greet"}},
        "serviceTemplate": {"metadata": {"name": "s" * 80, "annotations": {"a": "b"}}},
        "serviceAccountTemplate": {"metadata": {"name": "greeter"}},
    }
    objects = made(deployed(config=config))
    assert objects[DEPLOYMENT.kind]["metadata"]["name"] == "greet-0123456789ab"
    assert objects[SERVICE.kind]["metadata"]["name"] == "s" * 50 + "-0123456789ab"
    assert objects[SERVICE.kind]["metadata"]["annotations"] == {"a": "b"}
    account = objects[SERVICE_ACCOUNT.kind]["metadata"]
    assert account["name"] == "greeter"
    assert account["ownerReferences"] == [{**PARENT, "controller": False}], "all revisions share it"


def test_nobody_says_how_many_replicas_there_are_unless_a_configuration_does() -> None:
    assert "replicas" not in made(deployed())[DEPLOYMENT.kind]["spec"]


def test_another_certificate_starts_other_pods() -> None:
    template = made(deployed())[DEPLOYMENT.kind]["spec"]["template"]
    assert template["metadata"]["annotations"] == {CERTIFICATE_ANNOTATION: "c1"}


def test_pods_serve_on_after_they_are_told_to_go() -> None:
    pod = pod_of(deployed())
    assert pod["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 120}}}
    assert pod["terminationGracePeriodSeconds"] > 120


def test_pull_secrets_are_those_of_the_package_and_of_the_configuration() -> None:
    given = {"imagePullSecrets": [{"name": "a"}]}
    wanted = deployed(pull_secrets=("a", "b"), config={"deploymentTemplate": {"spec": {"template": {"spec": given}}}})
    assert pod_of(wanted)["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert made(wanted)[SERVICE_ACCOUNT.kind]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_a_provider_calls_the_api_and_never_runs_twice() -> None:
    objects = made(deployed(provider=True))
    deployment = objects[DEPLOYMENT.kind]
    assert NETWORK_POLICY.kind not in objects, "the API server calls its webhooks"
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    pod = deployment["spec"]["template"]["spec"]
    assert "automountServiceAccountToken" not in pod
    assert {each["name"] for each in pod["volumes"]} == {"tls-server-certs", "tls-client-certs"}
    assert {"PROVIDER_NAME", "POD_NAMESPACE", "TLS_CLIENT_CERTS_DIR"} <= {
        each["name"] for each in pod["containers"][0]["env"]
    }


@pytest.mark.parametrize(
    ("live", "wanted", "enough"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 2}, {"a": 1}, False),
        ({}, {"a": {}}, True),
        (None, {"a": 1}, False),
        ({"l": [{"n": "x", "d": 1}, {"n": "y"}]}, {"l": [{"n": "y"}, {"n": "x"}]}, True),
        ({"l": [{"n": "x"}]}, {"l": [{"n": "z"}]}, False),
        ({"l": []}, {"l": None}, True),
    ],
)
def test_what_is_there_is_enough_if_it_has_all_that_is_wanted(live: Any, wanted: Any, *, enough: bool) -> None:
    assert covers(live, wanted) is enough


def test_something_that_was_taken_out_is_seen() -> None:
    before = stamped({"metadata": {"name": "x"}, "spec": {"a": 1, "b": 2}})
    after = stamped({"metadata": {"name": "x"}, "spec": {"a": 1}})
    assert covers(before, before)
    assert not covers(before, after)


def test_what_replaces_an_object_names_it() -> None:
    obj = {"metadata": {"name": "x"}}
    assert identified(obj, None) == obj
    assert identified(obj, {"metadata": {"uid": "u1"}})["metadata"]["uid"] == "u1"


@pytest.mark.parametrize(
    ("conditions", "some_serve", "problem"),
    [
        ({}, False, "its pods are being started"),
        ({"Available": ("True", "MinimumReplicasAvailable", "fine")}, False, ""),
        ({"Available": ("False", "MinimumReplicasUnavailable", "too few")}, True, "too few"),
        (
            {
                "Available": ("False", "MinimumReplicasUnavailable", "too few"),
                "Progressing": ("True", "NewReplicaSetAvailable", "done"),
            },
            True,
            "",
        ),
        (
            {
                "Available": ("False", "MinimumReplicasUnavailable", "too few"),
                "Progressing": ("True", "NewReplicaSetAvailable", "done"),
            },
            False,
            "too few",
        ),
        (
            {
                "Available": ("False", "MinimumReplicasUnavailable", "too few"),
                "Progressing": ("False", "ProgressDeadlineExceeded", "too slow"),
                "ReplicaFailure": ("True", "FailedCreate", "forbidden by quota"),
            },
            False,
            "forbidden by quota",
        ),
    ],
    ids=["unsaid", "available", "first-pod", "one-lost", "all-lost", "refused"],
)
def test_a_deployment_says_what_keeps_it_from_serving(
    conditions: dict[str, tuple[str, str, str]], *, some_serve: bool, problem: str
) -> None:
    said = [
        {"type": type_, "status": status, "reason": reason, "message": message}
        for type_, (status, reason, message) in conditions.items()
    ]
    told = unavailable({"status": {"conditions": said}}, some_serve=some_serve)
    assert told.removeprefix("its Deployment is not available: ") == problem


def slice_of(*endpoints: tuple[str, dict[str, bool]], family: str = "IPv4", port: str = "grpc") -> Object:
    return {
        "addressType": family,
        "ports": [{"name": "metrics", "port": 8080}, {"name": port, "port": 9443}],
        "endpoints": [{"addresses": [address], "conditions": conditions} for address, conditions in endpoints],
    }


READY = {"ready": True, "serving": True, "terminating": False}
GOING = {"ready": False, "serving": True, "terminating": True}
BROKEN = {"ready": False, "serving": False, "terminating": False}


@pytest.mark.parametrize(
    ("slices", "target"),
    [
        ([slice_of(("10.0.0.2", READY), ("10.0.0.1", READY))], "ipv4:10.0.0.1:9443,10.0.0.2:9443"),
        ([slice_of(("10.0.0.1", READY), ("10.0.0.2", GOING))], "ipv4:10.0.0.1:9443"),
        ([slice_of(("10.0.0.2", GOING))], "ipv4:10.0.0.2:9443"),
        ([slice_of(("10.0.0.1", BROKEN))], ""),
        ([slice_of(("10.0.0.1", {}))], "ipv4:10.0.0.1:9443"),
        ([slice_of(("10.0.0.1", READY)), slice_of(("10.0.0.1", READY))], "ipv4:10.0.0.1:9443"),
        ([slice_of(("fd00::1", READY), family="IPv6")], "ipv6:[fd00::1]:9443"),
        ([slice_of(("fd00::1", READY), family="IPv6"), slice_of(("10.0.0.1", READY))], "ipv4:10.0.0.1:9443"),
        ([slice_of(("name.example.org", READY), family="FQDN")], ""),
        ([slice_of(("10.0.0.1", READY), port="other")], ""),
        ([], ""),
    ],
    ids=["all", "not-going", "only-going", "broken", "unsaid", "twice", "ipv6", "both", "names", "no-port", "none"],
)
def test_calls_go_to_pods_that_are_ready_or_else_to_those_that_still_serve(slices: list[Object], target: str) -> None:
    assert target_of((place for each in slices for place in places_of(each)), str) == target
