"""Phase functions that touch objects, on both engines."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import CRD
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.client.protocol import Patch, PatchType
from planform.errors import AlreadyExists, NotFound
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import eventually, read
from tests.harness.phases import PhaseRunner

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
DEPLOYMENT = GroupVersionKind("apps", "v1", "Deployment")
NAMESPACE = GroupVersionKind("", "v1", "Namespace")


@pytest.fixture
async def runner(context: ControllerContext, unique: str) -> PhaseRunner:
    """Phases that work in a namespace of their own."""
    await context.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    return PhaseRunner(client=context.client, clock=context.clock, namespace=unique)


def config_map(namespace: str, name: str = "c", **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def about(namespace: str, name: str = "c") -> dict[str, str]:
    return {"apiVersion": "v1", "resource": "configmaps", "name": name, "namespace": namespace}


async def set_data(context: ControllerContext, namespace: str, **data: str) -> None:
    await context.client.patch(CONFIG_MAP, "c", Patch(PatchType.MERGE, {"data": data}), namespace=namespace)


async def waiting(runner: PhaseRunner, version: str, conditions: Any, **more: Any) -> asyncio.Task[dict[str, Any]]:
    return asyncio.create_task(runner.run("Wait", version, timeout="30s", conditions=conditions, **more))


READY = {
    "v0.0.0": '{{ if and (eq "{$.data.state}" "ready") (ge { $.data.count } 2) }}true{{ else }}false{{ end }}',
    "v1.0.0": '{{ if and (eq .data.state "ready") (ge (int .data.count) 2) }}true{{ else }}false{{ end }}',
}


@pytest.mark.parametrize("version", ["v0.0.0", "v1.0.0"])
async def test_wait_ends_when_all_conditions_hold(
    context: ControllerContext, runner: PhaseRunner, version: str
) -> None:
    namespace = runner.namespace
    runner.params["Options"] = {"name": "c"}
    target = {**about(namespace), "name": "{{ .Options.name }}"}
    conditions = {"allOf": [{"condition": READY[version], "objectReference": target}]}
    task = await waiting(runner, version, conditions)
    await context.client.create(config_map(namespace, state="starting", count="1"))
    await set_data(context, namespace, state="ready")
    await asyncio.sleep(0.1)
    assert not task.done()
    await set_data(context, namespace, count="2")
    assert await task == {}


async def test_wait_ends_when_one_of_any_holds_and_errors_do_not_end_it(
    context: ControllerContext, runner: PhaseRunner, unique: str
) -> None:
    namespace = runner.namespace
    conditions = {
        "anyOf": [
            {"condition": '{{ fail "never" }}', "objectReference": about(namespace)},
            {
                "condition": "true",
                "objectReference": {
                    "apiVersion": "v1",
                    "group": f"{unique}.example.org",
                    "resource": "ghosts",
                    "name": "g",
                },
            },
            {"condition": '{{ eq .data.state "ready" }}', "objectReference": about(namespace, "later")},
        ]
    }
    task = await waiting(runner, "v1.0.0", conditions)
    await context.client.create(config_map(namespace))
    await context.client.create(config_map(namespace, "later", state="ready"))
    assert await task == {}


async def test_wait_that_runs_out_of_time_says_which_condition_did_not_hold(
    context: ControllerContext, runner: PhaseRunner
) -> None:
    await context.client.create(config_map(runner.namespace, state="starting"))
    condition = {"condition": "{{ .data.state }}", "objectReference": about(runner.namespace)}
    with pytest.raises(PhaseFailed, match=r"not within 0\.3 s: a condition on ConfigMap .* renders to 'starting'"):
        await runner.run("WaitV2", timeout="300ms", conditions={"allOf": [condition]})
    with pytest.raises(ArgumentInvalid, match="conditions are empty"):
        await runner.run("WaitV2", timeout="1s", conditions={"allOf": []})


async def test_kube_ops_creates_patches_and_deletes(context: ControllerContext, runner: PhaseRunner) -> None:
    namespace = runner.namespace
    spec = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made}\ndata: {a: '1'}\n"
    told = await runner.run("KubeOps", operation="create", namespace=namespace, spec=spec)
    assert told == {
        "apiVersion": "v1",
        "group": "",
        "resource": "configmaps",
        "kind": "ConfigMap",
        "name": "made",
        "namespace": namespace,
    }
    with pytest.raises(AlreadyExists):
        await runner.run("KubeOps", operation="create", namespace=namespace, spec=spec)
    patch = {"metadata": {"labels": {"x": "y"}}, "data": {"b": "2"}}
    await runner.run("KubeOps", operation="patch", namespace=namespace, spec=patch, objectReference=told)
    found = await context.client.get(CONFIG_MAP, "made", namespace=namespace)
    assert (found["data"], found["metadata"]["labels"]["x"]) == ({"a": "1", "b": "2"}, "y")
    for _ in range(2):  # what is gone already is deleted
        await runner.run("KubeOps", operation="delete", namespace=namespace, objectReference=told)
    assert await read(context.client, CONFIG_MAP, "made", namespace) is None


async def test_kube_ops_waits_until_what_it_deletes_is_gone(context: ControllerContext, runner: PhaseRunner) -> None:
    namespace = runner.namespace
    held = config_map(namespace)
    held["metadata"]["finalizers"] = ["example.org/hold"]
    await context.client.create(held)
    task = asyncio.create_task(
        runner.run("KubeOps", operation="delete", namespace=namespace, objectReference=about(namespace))
    )

    async def deleting() -> bool:
        found = await context.client.get(CONFIG_MAP, "c", namespace=namespace)
        return "deletionTimestamp" in found["metadata"]

    await eventually(deleting, "the deletion began")
    assert not task.done()
    release = Patch(PatchType.MERGE, {"metadata": {"finalizers": None}})
    await context.client.patch(CONFIG_MAP, "c", release, namespace=namespace)
    assert (await task)["name"] == "c"


async def test_kube_ops_v010_applies_reads_and_says_which_patch(
    context: ControllerContext, runner: PhaseRunner
) -> None:
    namespace = runner.namespace
    for value in ("1", "2"):
        await runner.run(
            "KubeOps", "v0.1.0", operation="apply", spec=config_map(namespace, a=value), namespace=namespace
        )
    add = [{"op": "add", "path": "/data/b", "value": "3"}]
    common: dict[str, Any] = {"namespace": namespace, "objectReference": about(namespace)}
    await runner.run("KubeOps", "v0.1.0", operation="patch", patchType="json", spec=add, **common)
    told = await runner.run("KubeOps", "v0.1.0", operation="get", **common)
    assert told["object"]["data"] == {"a": "2", "b": "3"}
    with pytest.raises(ArgumentInvalid, match='operation "get" is not one of create, patch, delete'):
        await runner.run("KubeOps", operation="get", **common)


def crd(group: str) -> Object:
    properties = {"replicas": {"type": "integer"}}
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {**properties, "items": {"type": "array", "items": {"type": "string"}}},
            },
            "status": {"type": "object", "properties": properties},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }
    names = {"plural": "squads", "kind": "Squad", "listKind": "SquadList", "singular": "squad"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"squads.{group}"},
        "spec": spec,
    }


@pytest.fixture
async def squad(context: ControllerContext, runner: PhaseRunner, unique: str) -> Any:
    """An object of a kind with a scale subresource."""
    kind = GroupVersionKind(f"{unique}.example.org", "v1", "Squad")
    await context.client.create(crd(kind.group))

    async def served() -> bool:
        try:
            await context.client.create(
                {
                    "apiVersion": kind.api_version,
                    "kind": "Squad",
                    "metadata": {"name": "s", "namespace": runner.namespace},
                    "spec": {"replicas": 3},
                }
            )
        except NotFound:
            return False
        return True

    await eventually(served, "Squads are served")
    yield kind
    with suppress(NotFound):
        await context.client.delete(CRD, f"squads.{kind.group}")


async def test_custom_kinds_are_patched_and_found_by_their_plural(
    context: ControllerContext, runner: PhaseRunner, squad: GroupVersionKind
) -> None:
    target = {
        "apiVersion": "v1",
        "group": squad.group,
        "resource": "squads",
        "name": "s",
        "namespace": runner.namespace,
    }
    told = await runner.run(
        "KubeOps",
        operation="patch",
        spec={"spec": {"items": ["a"]}},
        objectReference=target,
        namespace=runner.namespace,
    )
    assert (told["kind"], told["resource"]) == ("Squad", "squads")
    found = await context.client.get(squad, "s", namespace=runner.namespace)
    assert found["spec"] == {"replicas": 3, "items": ["a"]}


async def test_v010_scales_anything_that_can_be_scaled_and_waits(
    context: ControllerContext, runner: PhaseRunner, squad: GroupVersionKind
) -> None:
    task = asyncio.create_task(
        runner.run(
            "ScaleWorkload",
            "v0.1.0",
            apiVersion=squad.api_version,
            kind="Squad",
            name="s",
            namespace=runner.namespace,
            replicas="5",
            timeout="30s",
        )
    )

    async def scaled() -> bool:
        found = await context.client.get(squad, "s", namespace=runner.namespace)
        return bool(found["spec"]["replicas"] == 5)

    await eventually(scaled, "the replicas are asked for")
    assert not task.done()
    done = Patch(PatchType.MERGE, {"status": {"replicas": 5}})
    await context.client.patch(squad, "s", done, namespace=runner.namespace, subresource="status")
    assert await task == {"originalReplicaCount": 3}
    with pytest.raises(ArgumentInvalid, match='kind "squad" is not one of'):
        await runner.run("ScaleWorkload", kind="Squad", name="s", replicas=1)


async def test_scale_workload_takes_the_actions_deployment_and_tells_what_it_was(
    context: ControllerContext, runner: PhaseRunner
) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await context.client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": runner.namespace},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
        }
    )
    runner.params["Deployment"] = {"Name": "web", "Namespace": runner.namespace}
    assert await runner.run("ScaleWorkload", replicas="4", waitForReady="false") == {"originalReplicaCount": 2}
    found = await context.client.get(DEPLOYMENT, "web", namespace=runner.namespace)
    assert found["spec"]["replicas"] == 4
    with pytest.raises(PhaseFailed, match=r"0 of them ready, instead of 4"):
        await runner.run("ScaleWorkload", "v0.1.0", replicas="4", timeout="500ms")
    with pytest.raises(ArgumentInvalid, match="must not be negative"):
        await runner.run("ScaleWorkload", replicas="-1")
    runner.params.clear()
    with pytest.raises(ArgumentInvalid, match="the action is about no workload"):
        await runner.run("ScaleWorkload", replicas="1")
