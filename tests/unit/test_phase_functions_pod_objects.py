"""The pods that phases make, as objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext
from planform.blueprints.functions.pods import PodTask, mounting, pod_name, pod_object
from planform.client.protocol import Client
from planform.clock import VirtualClock


def context(**more: Any) -> PhaseContext:
    given = {"actionset": "run", "namespace": "apps", "uid": "u-1", "action": "save", "phase": "dump", **more}
    return PhaseContext(client=cast(Client, None), clock=VirtualClock(), **given)


TASK = PodTask(
    namespace="apps", containers=[{"name": "container", "image": "i", "command": ["id"]}], listen="container"
)


def test_labels_of_the_blueprint_win_and_the_override_of_the_actionset_wins() -> None:
    params = {
        "PodLabels": {"a": "set", "b": "set"},
        "PodAnnotations": {"x": "set"},
        "PodOverride": {"nodeName": "set", "containers": [{"name": "container", "image": "set"}]},
    }
    args = Arguments(
        {
            "podLabels": {"a": "blueprint"},
            "podAnnotations": {"x": "blueprint"},
            "podOverride": {"nodeName": "blueprint", "hostNetwork": True, "containers": [{"workingDir": "/w"}]},
        }
    )
    pod = pod_object(context(params=params), args, TASK)
    assert {key: pod["metadata"]["labels"][key] for key in "ab"} == {"a": "blueprint", "b": "set"}
    assert pod["metadata"]["annotations"] == {"x": "blueprint"}
    assert (pod["spec"]["nodeName"], pod["spec"]["hostNetwork"]) == ("set", True)
    assert pod["spec"]["containers"] == [{"name": "container", "image": "set", "command": ["id"], "workingDir": "/w"}]


def test_an_override_may_bring_a_container_along() -> None:
    args = Arguments({"podOverride": {"containers": [{"name": "sidecar", "image": "s"}]}})
    names = [each["name"] for each in pod_object(context(), args, TASK)["spec"]["containers"]]
    assert names == ["container", "sidecar"]


def test_a_pod_goes_with_its_actionset_where_it_can_be_owned() -> None:
    (owner,) = pod_object(context(), Arguments(), TASK)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ActionSet", "run", "u-1")
    elsewhere = replace(TASK, namespace="other")
    assert "ownerReferences" not in pod_object(context(), Arguments(), elsewhere)["metadata"]


def test_the_name_of_a_pod_follows_from_the_run_of_its_phase() -> None:
    assert pod_name(context()) == pod_name(context(attempt=2, resumed=True))
    others = [context(uid="u-2"), context(action_index=1), context(phase="load"), context(deferred=True)]
    assert len({pod_name(each) for each in (context(), *others)}) == 5


def test_phases_may_be_called_anything() -> None:
    labels = pod_object(context(phase="Take a backup! " + "x" * 80), Arguments(), TASK)["metadata"]["labels"]
    assert labels["planform.dev/phase"] == "Take-a-backup--" + "x" * 48


def test_claims_are_mounted_where_they_are_wanted() -> None:
    spec = pod_object(context(), Arguments(), mounting("apps", "i", {"one": "/a", "two": "/b"}))["spec"]
    claims = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"]}
    mounts = {claims[each["name"]]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    assert mounts == {"one": "/a", "two": "/b"}
