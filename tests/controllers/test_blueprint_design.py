"""The blueprint that the design on function versions prints: word for word on a cluster with a node, where it runs in
the pod, and its equivalent on the embedded engine, where a process takes the pod's place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ACTION_SET, BLUEPRINT
from planform.apimachinery import yaml_loader
from planform.blueprints.action_status import OVER
from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment
from planform.blueprints.controller import ActionSetController
from planform.blueprints.functions import Policy, builtin_functions
from planform.blueprints.functions.markers import MARKER
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.cli.main import root
from planform.client.kubeconfig import find_connection
from planform.clock import SystemClock
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import embedded_context, eventually, kubernetes_context, read
from tests.harness.kubelet import POD, kubelet
from tests.harness.kubernetes import RealKubernetes

SERVICE_ACCOUNT = GroupVersionKind("", "v1", "ServiceAccount")

PRINTED = """
actions:
  tail:
    phases:
    - func: KubeExec
      funcVersion: v0.1.0
      name: tail
      args:
        namespace: default
        pod: timer
        container: timer
        command:
        - sh
        - "-c"
        - |
         /bin/tail_datetime.sh
"""
EQUIVALENT = """
actions:
  tail:
    phases:
    - func: KubeTask
      funcVersion: v0.1.0
      name: tail
      args:
        namespace: default
        runtime: process
        command:
        - sh
        - "-c"
        - |
         echo 'MARKER {"key":"now","value":"noon"}'
"""


async def run(context: ControllerContext, text: str, here: PhaseEnvironment) -> dict[str, Any]:
    """The status of an ActionSet of the blueprint, at its end, with the functions of this build."""
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    registry.register(builtin_functions(Policy()))
    ActionSetController(context, PhaseCatalogue(registry), here=here).start()
    kinds = {"apiVersion": "cr.kanister.io/v1alpha1", "metadata": {"name": "timer", "namespace": "default"}}
    await context.client.create({**kinds, "kind": "Blueprint", **yaml_loader.load(text.encode())})
    target = {"kind": "namespace", "name": "default", "namespace": "default"}
    action = {"name": "tail", "blueprint": "timer", "object": target}
    await context.client.create({**kinds, "kind": "ActionSet", "spec": {"actions": [action]}})

    async def over() -> Object | None:
        found = await context.client.get(ACTION_SET, "timer", namespace="default")
        return found if (found.get("status") or {}).get("state") in OVER else None

    status: dict[str, Any] = (await eventually(over, "the ActionSet is over"))["status"]
    for kind in (ACTION_SET, BLUEPRINT):
        await context.client.delete(kind, "timer", namespace="default")
    return status


@pytest.mark.kubernetes
@pytest.mark.xdist_group("kubernetes")
async def test_as_it_is_printed_it_runs_in_the_pod_with_the_version_that_is_pinned(
    kubernetes_engine: RealKubernetes, unique: str, tmp_path: Path
) -> None:
    script = tmp_path / "tail_datetime.sh"
    script.write_text(f"""#!/bin/sh\necho '{MARKER} {{"key":"now","value":"noon"}}'\n""")
    script.chmod(0o755)
    connection = find_connection(clock=SystemClock(), path=kubernetes_engine.kubeconfig)
    async with (
        kubernetes_context(kubernetes_engine) as context,
        kubelet(kubernetes_engine, context.client, unique) as node,
    ):
        node.paths["/bin/tail_datetime.sh"] = script
        await timer_runs(context, unique)
        status = await run(context, PRINTED, PhaseEnvironment(engine="kubernetes", connection=connection))
        await context.client.delete(POD, "timer", namespace="default")
    assert status["state"] == "complete", status
    (phase,) = status["actions"][0]["phases"]
    assert (phase["func"], phase["funcVersion"], phase["resolution"]["source"]) == ("KubeExec", "v0.1.0", "Pin")
    assert phase["output"] == {"now": "noon"}
    assert node.execs == [("timer", "timer", ["sh", "-c", "/bin/tail_datetime.sh\n"])]


async def timer_runs(context: ControllerContext, node: str) -> None:
    """The pod that the blueprint means, on a node; there is no scheduler."""

    async def admitted() -> bool:
        return await read(context.client, SERVICE_ACCOUNT, "default", "default") is not None

    await eventually(admitted, "the namespace has its service account")
    spec = {"nodeName": node, "containers": [{"name": "timer", "image": "i"}]}
    metadata = {"name": "timer", "namespace": "default"}
    await context.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def running() -> bool:
        found = await context.client.get(POD, "timer", namespace="default")
        return bool((found.get("status") or {}).get("phase") == "Running")

    await eventually(running, "the pod runs")


async def test_the_equivalent_runs_a_process_with_the_version_that_is_pinned(tmp_path: Path) -> None:
    async with embedded_context() as context:
        status = await run(context, EQUIVALENT.replace("MARKER", MARKER), PhaseEnvironment(data=tmp_path))
    assert status["state"] == "complete", status
    (phase,) = status["actions"][0]["phases"]
    assert (phase["func"], phase["funcVersion"], phase["resolution"]["source"]) == ("KubeTask", "v0.1.0", "Pin")
    assert phase["output"] == {"now": "noon"}


async def test_where_there_are_no_pods_it_fails_before_anything_starts_and_says_why() -> None:
    async with embedded_context() as context:
        status = await run(context, PRINTED, PhaseEnvironment())
    assert (status["state"], status["errors"][0]["reason"]) == ("failed", "EngineNotSupported")
    assert "KubeExec v0.1.0" in status["error"]["message"]
    assert status["actions"][0]["phases"] == []


def test_the_blueprint_as_it_is_printed_is_valid_for_a_cluster() -> None:
    head = "apiVersion: cr.kanister.io/v1alpha1\nkind: Blueprint\nmetadata: {name: timer}"
    done = CliRunner().invoke(root, ["blueprint", "validate", "-", "--engine", "kubernetes"], input=head + PRINTED)
    assert (done.exit_code, done.stdout) == (0, "blueprint/timer is valid\n")
    assert "KubeExec v0.1.0: is a preview and may change" in click.unstyle(done.stderr)
