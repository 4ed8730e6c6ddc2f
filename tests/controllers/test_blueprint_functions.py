"""The functions that come with planform, run by ActionSets of an embedded control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import ACTION_SET, BLUEPRINT
from planform.blueprints.functions.markers import MARKER
from planform.reconcile.context import ControllerContext
from tests.controllers.blueprint_child import acting
from tests.harness.contexts import eventually, read

TARGET = {"apiVersion": "v1", "resource": "namespaces", "kind": "Namespace", "name": "default", "namespace": "default"}


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[ControllerContext]:
    async with acting(tmp_path) as context:
        yield context


async def run(context: ControllerContext, *phases: Object, defer: Object | None = None, **action: Any) -> Object:
    """Run one action of these phases; gives the ActionSet's status."""
    kinds = {"apiVersion": BLUEPRINT.api_version, "metadata": {"name": "b", "namespace": "default"}}
    actions = {"act": {"phases": list(phases), **({"deferPhase": defer} if defer else {})}}
    await context.client.create({**kinds, "kind": BLUEPRINT.kind, "actions": actions})
    request = {"name": "act", "blueprint": "b", "object": TARGET, **action}
    await context.client.create({**kinds, "kind": ACTION_SET.kind, "spec": {"actions": [request]}})

    async def over() -> Object | None:
        found = await read(context.client, ACTION_SET, "b", "default")
        status: Object = (found or {}).get("status") or {}
        return status if status.get("state") in ("complete", "failed") else None

    return await eventually(over, "the ActionSet is over")


def phase(name: str, func: str, **args: Any) -> Object:
    version = args.pop("funcVersion", "")
    return {"name": name, "func": func, "args": args, **({"funcVersion": version} if version else {})}


async def test_the_designs_blueprint_has_an_equivalent_without_a_cluster(context: ControllerContext) -> None:
    # The design's script lies in the pod's image; a task here sees none of this machine's files but its programs.
    script = f"""echo '{MARKER} {{"key":"now","value":"noon"}}'\n"""
    tail = phase("tail", "KubeTask", funcVersion="v0.1.0", command=["sh", "-c", script])
    told = phase("told", "Echo", output={"said": "it is {{ .Phases.tail.Output.now }}"})
    status = await run(context, tail, told)
    assert status["state"] == "complete", status
    first, second = status["actions"][0]["phases"]
    assert (first["funcVersion"], first["output"], second["output"]) == (
        "v0.1.0",
        {"now": "noon"},
        {"said": "it is noon"},
    )


@pytest.mark.parametrize(
    ("culprit", "reason", "complaint"),
    [
        (
            phase("x", "KubeExec", namespace="default", pod="p", command=["id"]),
            "EngineNotSupported",
            "KubeExec v0.0.0",
        ),
        (
            phase("x", "CreateCSISnapshot", pvc="p", namespace="default", snapshotClass="c"),
            "EngineNotSupported",
            "CSI snapshots are not managed here",
        ),
        (phase("x", "BackupDataUsingKopiaServer"), "VersionRemoved", "BackupDataUsingKopiaServer"),
        (phase("x", "KubeTsk", command=["id"]), "FunctionNotFound", "KubeTsk"),
    ],
    ids=["another engine", "known by name only", "removed", "unknown"],
)
async def test_what_cannot_run_here_fails_by_name_before_anything_runs(
    context: ControllerContext, culprit: Object, reason: str, complaint: str
) -> None:
    status = await run(context, phase("first", "Echo"), culprit, defer=phase("last", "Echo"))
    assert status["state"] == "failed"
    assert [each["reason"] for each in status["errors"]] == [reason]
    assert complaint in status["error"]["message"]
    entry = status["actions"][0]
    ran = [*(entry.get("phases") or ()), *([entry["deferPhase"]] if entry.get("deferPhase") else ())]
    assert not [each for each in ran if each["state"] in ("running", "complete")]


async def test_old_versions_run_with_a_warning_and_new_ones_only_if_asked_for(context: ControllerContext) -> None:
    wait = {"allOf": [{"condition": "true", "objectReference": TARGET}]}
    status = await run(
        context,
        phase("old", "Wait", timeout="5s", conditions=wait),
        phase("new", "Wait", timeout="5s", conditions=wait, funcVersion="v1.0.0"),
        phase("task", "KubeTask", image="i", command=["true"]),
        preferredVersion="v0.1.0",
    )
    assert status["state"] == "complete", status
    assert [each["funcVersion"] for each in status["actions"][0]["phases"]] == ["v0.0.0", "v1.0.0", "v0.1.0"]
    assert {"HintNotAvailable"} <= {each["code"] for each in status["warnings"]}
