"""`planform rollout` against a control plane that runs: every command as a process, and what it prints."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.control_plane import Program, RunningPlane, manifest

pytestmark = pytest.mark.timeout(120)


def xrd(group: str) -> dict[str, Any]:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": free}}
    version = {"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.crossplane.io/v2",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": f"apps.{group}"},
        "spec": {"group": group, "names": {"kind": "App", "plural": "apps"}, "versions": [version]},
    }


def composition(group: str, name: str, word: str) -> dict[str, Any]:
    base = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"word": word}}
    resource = {"name": "one", "base": base, "readinessChecks": [{"type": "None"}]}
    step = {
        "step": "compose",
        "functionRef": {"name": "function-patch-and-transform"},
        "input": {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": [resource]},
    }
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": name},
        "spec": {
            "compositeTypeRef": {"apiVersion": f"{group}/v1", "kind": "App"},
            "mode": "Pipeline",
            "pipeline": [step],
        },
    }


def policy(name: str, composition: str) -> dict[str, Any]:
    canary = {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}, "soak": "1h"}
    return {
        "apiVersion": "rollout.planform.dev/v1alpha1",
        "kind": "RolloutPolicy",
        "metadata": {"name": name},
        "spec": {"for": {"compositions": {"names": [composition]}}, "waves": [canary]},
    }


def until(check: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 40
    while not (found := check()):
        assert time.monotonic() < deadline, what
        time.sleep(0.3)
    return found


def test_a_rollout_from_its_plan_to_its_undoing(
    plane: RunningPlane, planform: Program, namespace: str, tmp_path: Path
) -> None:
    group, name = f"{namespace}.example.org", f"{namespace}-db"

    def apply(*objects: dict[str, Any]) -> None:
        planform("apply", "-f", "-", stdin=manifest(*objects))

    def rollout() -> dict[str, Any]:
        found: dict[str, Any] = planform("rollout", "status", name, "-o", "json").json()
        return found

    def is_in(phase: str) -> Callable[[], bool]:
        return lambda: rollout()["status"].get("phase") == phase

    def soaks() -> bool:
        ours = [
            each
            for each in planform("rollout", "list", "-o", "json").json()
            if each["spec"]["changes"][0]["composition"] == name
        ]
        return bool(ours) and ((ours[-1].get("status") or {}).get("wave") or {}).get("state") == "Soaking"

    apply(xrd(group), composition(group, name, "1"))
    planform("wait", f"compositeresourcedefinition/apps.{group}", "--for", "condition=Established")
    for number in range(3):
        labels = {"canary": "true"} if number == 0 else {}
        metadata = {"name": f"x{number}", "namespace": namespace, "labels": labels}
        apply({"apiVersion": f"{group}/v1", "kind": "App", "metadata": metadata, "spec": {}})
        planform("wait", f"apps.{group}/x{number}", "--for", "condition=Ready")
    apply(policy(namespace, name))
    planned = planform("rollout", "plan", namespace, "-o", "json").json()
    assert [(each["wave"], each["xrs"]) for each in planned["waves"]] == [("canary", 1), ("rest", 2)]

    apply(composition(group, name, "2"))
    until(soaks, "the canary soaks")
    assert "wave 1/2 canary" in planform("rollout", "status", name).out
    assert rollout()["status"]["counts"]["target"] == 1
    archive = tmp_path / "all.tar.gz"
    refused = planform("export", str(archive), "--without-secrets", code=1).err
    assert "are under way: Crossplane knows nothing of that" in refused and "--force" in refused
    planform("export", str(archive), "--without-secrets", "--force")
    assert archive.exists()
    assert "undo" not in planform("rollout", "undo", name, code=1).out
    planform("rollout", "abort", name, "--wait", "--reason", "p99 doubled")
    assert rollout()["status"]["phase"] == "Aborted"
    over = planform("rollout", "status", name).out
    assert "Aborted" in over and "soak" not in over and "wave 1/2" not in over
    [abort] = planform("rollout", "history", name, "-o", "json").json()
    assert (abort["action"], abort["reason"]) == ("Abort", "p99 doubled")

    planform("rollout", "retry", name)
    until(soaks, "the canary soaks again")
    assert rollout()["spec"]["attempt"] == 2
    planform("rollout", "promote", name, "--full")
    until(is_in("Completed"), "everybody has moved")
    over = planform("rollout", "status", name).out
    assert "soak" not in over and "3/3" not in over.splitlines()[0]
    assert "has ended" in planform("rollout", "pause", name, code=1).err
    planform("rollout", "undo", name, "--wait")
    assert rollout()["status"]["phase"] == "Undone"
    assert [each["action"] for each in planform("rollout", "history", name, "-o", "json").json()][-1] == "Undo"
    assert planform("rollout", "status", "nothing", "-o", "json", code=1).out == ""
