"""Phase functions that run commands in pods, on a real API server with a node whose exec and log streams work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ACTION_SET
from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment
from planform.blueprints.controller import ActionSetController
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.blueprints.functions import Policy, builtin_functions
from planform.blueprints.functions.markers import MARKER
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.client.kubeconfig import find_connection
from planform.clock import SystemClock
from planform.errors import NotFound
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import eventually, kubernetes_context, read
from tests.harness.kubelet import POD, Kubelet, kubelet
from tests.harness.kubernetes import RealKubernetes
from tests.harness.phases import PhaseRunner, file_profile

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]
SERVICE_ACCOUNT = GroupVersionKind("", "v1", "ServiceAccount")
NAMESPACE = GroupVersionKind("", "v1", "Namespace")


@dataclass
class Stage:
    """A node, and phases that run in a namespace of their own."""

    context: ControllerContext
    kubelet: Kubelet
    runner: PhaseRunner

    @property
    def namespace(self) -> str:
        return self.runner.namespace

    async def pod(self, name: str = "timer", *containers: str) -> Object:
        """A pod on the node that runs until the end of the test."""
        made = await self.context.client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "nodeName": self.kubelet.node,
                    "containers": [{"name": each, "image": "i"} for each in containers or (name,)],
                },
            }
        )

        async def runs() -> bool:
            found = await self.context.client.get(POD, name, namespace=self.namespace)
            return bool((found.get("status") or {}).get("phase") == "Running")

        await eventually(runs, f"pod {name} runs")
        return made

    @property
    def override(self) -> Object:
        """There is no scheduler."""
        return {"nodeName": self.kubelet.node}


@pytest.fixture
async def stage(kubernetes_engine: RealKubernetes, unique: str, tmp_path: Path) -> AsyncIterator[Stage]:
    connection = find_connection(clock=SystemClock(), path=kubernetes_engine.kubeconfig)
    async with (
        kubernetes_context(kubernetes_engine) as context,
        kubelet(kubernetes_engine, context.client, unique) as node,
    ):
        await context.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})

        async def admits_pods() -> bool:
            return await read(context.client, SERVICE_ACCOUNT, "default", unique) is not None

        await eventually(admits_pods, "the namespace has its service account")
        # The cluster's garbage collector takes pods away whose ActionSet does not exist.
        owner = await context.client.create(
            {
                "apiVersion": ACTION_SET.api_version,
                "kind": ACTION_SET.kind,
                "metadata": {"name": "run", "namespace": unique},
                "spec": {"actions": []},
            }
        )
        runner = PhaseRunner(
            client=context.client,
            clock=context.clock,
            namespace=unique,
            uid=owner["metadata"]["uid"],
            here=PhaseEnvironment(engine="kubernetes", connection=connection),
            policy=Policy(directories=(tmp_path,)),
        )
        yield Stage(context, node, runner)
        await context.client.delete_collection(POD, namespace=unique)
        await context.client.delete(NAMESPACE, unique)


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


async def test_a_command_runs_in_a_container_and_its_output_is_read(stage: Stage) -> None:
    await stage.pod()
    script = f"""echo hello; echo '{MARKER} {{"key":"k","value":"v"}}'; echo careful >&2"""
    output = await stage.runner.run(
        "KubeExec", namespace=stage.namespace, pod="timer", container="timer", command=shell(script)
    )
    assert output == {"k": "v"}
    assert {"hello", "careful"} <= set(stage.runner.log)
    assert stage.kubelet.protocols == ["v5.channel.k8s.io"]


async def test_a_command_that_fails_tells_its_exit_code_and_last_words(stage: Stage) -> None:
    await stage.pod()
    with pytest.raises(PhaseFailed, match="ended with exit code 4: broken") as failure:
        await stage.runner.run(
            "KubeExec", namespace=stage.namespace, pod="timer", command=shell("echo broken >&2; exit 4")
        )
    assert failure.value.details == {"exitCode": 4}
    with pytest.raises(PhaseFailed, match=r'no container "other" \(it has: timer\)'):
        await stage.runner.run("KubeExec", namespace=stage.namespace, pod="timer", container="other", command=["id"])
    with pytest.raises(NotFound):
        await stage.runner.run("KubeExec", namespace=stage.namespace, pod="nobody", command=["id"])


async def test_v010_feeds_standard_input_and_bounds_the_time(stage: Stage) -> None:
    await stage.pod("two", "first", "second")
    script = f"""n=$(wc -c); echo '{MARKER} {{"key":"n","value":"'$n'"}}'"""
    args: dict[str, Any] = {"namespace": stage.namespace, "pod": "two"}
    output = await stage.runner.run("KubeExec", "v0.1.0", **args, command=shell(script), stdin="x" * 300_000)
    assert output == {"n": "300000"}
    assert stage.kubelet.execs[-1][1] == "first"
    with pytest.raises(PhaseFailed, match=r"took longer than 0\.3 s"):
        await stage.runner.run("KubeExec", "v0.1.0", **args, command=["sleep", "60"], timeout="300ms")


async def test_kube_exec_all_runs_everywhere_and_tells_every_failure(stage: Stage) -> None:
    for pod in ("a", "b"):
        await stage.pod(pod, "one", "two")
    script = f"""echo '{MARKER} {{"key":"ran","value":"yes"}}'"""
    args: dict[str, Any] = {"namespace": stage.namespace, "pods": "a b", "containers": "one two"}
    assert await stage.runner.run("KubeExecAll", **args, command=shell(script)) == {"ran": "yes"}
    assert sorted((pod, container) for pod, container, _ in stage.kubelet.execs) == [
        ("a", "one"),
        ("a", "two"),
        ("b", "one"),
        ("b", "two"),
    ]
    with pytest.raises(PhaseFailed, match="4 of 4 commands failed"):
        await stage.runner.run("KubeExecAll", **args, command=["false"])


async def test_a_task_runs_in_a_pod_that_is_gone_afterwards(stage: Stage) -> None:
    script = f"""echo "in $NAME"; printf '{MARKER} {{"key":"a","value":"1"}}'"""
    output = await stage.runner.run(
        "KubeTask",
        "v0.1.0",
        image="i",
        command=shell(script),
        environment={"NAME": "a pod"},
        podOverride=stage.override,
        podLabels={"team": "a"},
    )
    assert output == {"a": "1"}
    assert "in a pod" in stage.runner.log
    await _no_pods(stage)


async def test_a_log_that_breaks_off_is_read_again_and_nothing_is_lost_or_told_twice(stage: Stage) -> None:
    stage.kubelet.broken_logs = 2
    script = (
        f"""for i in 1 2 3 4 5; do echo "line $i"; sleep 0.2; done; echo '{MARKER} {{"key":"last","value":"word"}}'"""
    )
    output = await stage.runner.run(
        "KubeTask", image="i", command=shell(script), podOverride=stage.override, namespace=stage.namespace
    )
    assert output == {"last": "word"}
    assert [line for line in stage.runner.log if line.startswith("line")] == [f"line {i}" for i in range(1, 6)]
    assert stage.kubelet.broken_logs == 0


async def test_a_task_that_fails_or_is_cancelled_leaves_no_pod(stage: Stage) -> None:
    common: dict[str, Any] = {"image": "i", "podOverride": stage.override, "namespace": stage.namespace}
    with pytest.raises(PhaseFailed, match="exit code 9"):
        await stage.runner.run("KubeTask", **common, command=shell("exit 9"))
    task = asyncio.create_task(stage.runner.run("KubeTask", **common, command=shell("echo begun; sleep 300")))

    async def begun() -> bool:
        return "begun" in stage.runner.log

    await eventually(begun, "the task runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _no_pods(stage)


async def test_a_task_replaces_the_pod_that_an_earlier_run_left(stage: Stage) -> None:
    common: dict[str, Any] = {"image": "i", "podOverride": stage.override, "namespace": stage.namespace}
    task = asyncio.create_task(stage.runner.run("KubeTask", **common, command=shell("echo first; sleep 300")))

    async def first() -> bool:
        return "first" in stage.runner.log

    await eventually(first, "the first run is under way")
    output = await stage.runner.run(
        "KubeTask", **common, command=shell(f"""echo '{MARKER} {{"key":"run","value":"second"}}'""")
    )
    assert output == {"run": "second"}
    with pytest.raises(
        PhaseFailed
    ):  # its pod was ended, and it takes the new one for neither its own nor its to delete
        await task


async def test_prepare_data_mounts_claims_and_fails_only_if_told_to(stage: Stage) -> None:
    stage.runner.params["PVC"] = {"Name": "claim", "Namespace": stage.namespace}
    common: dict[str, Any] = {"image": "i", "podOverride": stage.override, "namespace": stage.namespace}
    task = asyncio.create_task(stage.runner.run("PrepareData", **common, command=shell("echo up; sleep 0.5; exit 3")))

    async def up() -> bool:
        return "up" in stage.runner.log

    await eventually(up, "the pod runs")
    (pod,) = (await stage.context.client.list(POD, namespace=stage.namespace)).items
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "claim"
    assert pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] == "/mnt/prepare_data/claim"
    assert await task == {}
    with pytest.raises(PhaseFailed, match="exit code 3"):
        await stage.runner.run("PrepareData", **common, command=shell("exit 3"), failOnError="true")


async def test_two_containers_share_a_volume_and_one_gives_the_output(stage: Stage) -> None:
    output = await stage.runner.run(
        "MultiContainerRun",
        namespace=stage.namespace,
        backgroundImage="i",
        backgroundCommand=["true"],
        outputImage="i",
        outputCommand=shell(f"""echo '{MARKER} {{"key":"dir","value":"'$SHARED_DIR'"}}'"""),
        sharedVolumeDir="/shared",
        podOverride=stage.override,
    )
    assert output == {"dir": "/shared"}


@pytest.mark.parametrize("version", ["v0.0.0", "v1.0.0"])
async def test_files_of_a_container_are_backed_up_and_restored(stage: Stage, tmp_path: Path, version: str) -> None:
    inside = tmp_path / "container"
    (inside / "sub").mkdir(parents=True)
    (inside / "sub" / "f").write_bytes(bytes(range(256)) * 4000)
    stage.kubelet.paths["/var/lib/app"] = inside
    stage.runner.params["Profile"] = file_profile(str(tmp_path / "location"))
    await stage.pod()
    target: dict[str, Any] = {"namespace": stage.namespace, "pod": "timer", "container": "timer"}
    made = await stage.runner.run(
        "BackupData", version, **target, includePath="/var/lib/app", backupArtifactPrefix="app"
    )
    assert made["fileCount"] == "1"
    (inside / "sub" / "f").write_bytes(b"destroyed")
    await stage.runner.run(
        "RestoreData", version, **target, image="i", backupArtifactPrefix="app", backupTag=made["backupTag"]
    )
    assert (inside / "sub" / "f").read_bytes() == bytes(range(256)) * 4000


async def test_files_of_every_pod_are_backed_up_restored_and_forgotten(stage: Stage, tmp_path: Path) -> None:
    inside = tmp_path / "container"
    inside.mkdir()
    (inside / "f").write_text("precious")
    stage.kubelet.paths["/var/lib/app"] = inside
    pods = ["db-0", "db-1"]
    for pod in pods:
        await stage.pod(pod, "db")
    stage.runner.params |= {
        "Profile": file_profile(str(tmp_path / "location")),
        "StatefulSet": {"Name": "db", "Namespace": stage.namespace, "Pods": pods},
    }
    common: dict[str, Any] = {"namespace": stage.namespace, "backupArtifactPrefix": "db"}
    made = await stage.runner.run("BackupDataAll", **common, container="db", includePath="/var/lib/app")
    (inside / "f").unlink()
    info: dict[str, Any] = {**common, "backupInfo": made["BackupAllInfo"]}
    await stage.runner.run("RestoreDataAll", **info, image="i", pods="db-1")
    assert (inside / "f").read_text() == "precious"
    freed = await stage.runner.run("DeleteDataAll", **info, reclaimSpace="true")
    assert freed == {"spaceFreed": str(2 * len("precious"))}
    with pytest.raises(ArgumentInvalid, match='backupInfo has no pod "db-7"'):
        await stage.runner.run("RestoreDataAll", **info, image="i", pods="db-7")


async def test_a_volume_is_copied_and_restored_through_pods_that_mount_it(stage: Stage, tmp_path: Path) -> None:
    inside = tmp_path / "volume"
    inside.mkdir()
    (inside / "f").write_text("precious")
    stage.kubelet.paths["/mnt/vol_data/claim"] = inside
    stage.runner.params["Profile"] = file_profile(str(tmp_path / "location"))
    common: dict[str, Any] = {"namespace": stage.namespace, "podOverride": stage.override}
    made = await stage.runner.run("CopyVolumeData", **common, volume="claim", dataArtifactPrefix="volumes")
    assert made["backupArtifactLocation"] == f"volumes/{stage.namespace}/claim"
    (inside / "f").unlink()
    await stage.runner.run(
        "RestoreData",
        "v1.0.0",
        **common,
        volumes={"claim": "/mnt/vol_data/claim"},
        backupArtifactPrefix=made["backupArtifactLocation"],
        backupTag=made["backupTag"],
    )
    assert (inside / "f").read_text() == "precious"
    await _no_pods(stage)


async def test_a_pod_needs_an_image(stage: Stage) -> None:
    with pytest.raises(ArgumentInvalid, match='"image" is needed on Kubernetes'):
        await stage.runner.run("KubeTask", "v0.1.0", command=["true"])


async def test_the_designs_blueprint_runs_as_it_is_printed(stage: Stage, tmp_path: Path) -> None:
    """The blueprint of the design on function versions, with its pinned version, through an ActionSet."""
    script = tmp_path / "tail_datetime.sh"
    script.write_text(f"""#!/bin/sh\necho '{MARKER} {{"key":"now","value":"noon"}}'\n""")
    script.chmod(0o755)
    stage.kubelet.paths["/bin/tail_datetime.sh"] = script
    await stage.pod("timer")
    args = {"namespace": stage.namespace, "pod": "timer", "container": "timer"}
    tail = {
        "func": "KubeExec",
        "funcVersion": "v0.1.0",
        "name": "tail",
        "args": {**args, "command": ["sh", "-c", "/bin/tail_datetime.sh\n"]},
    }
    client, namespace = stage.context.client, stage.namespace
    kinds = {"apiVersion": "cr.kanister.io/v1alpha1", "metadata": {"name": "timer", "namespace": namespace}}
    await client.create({**kinds, "kind": "Blueprint", "actions": {"tail": {"phases": [tail]}}})
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    registry.register(builtin_functions(Policy()))
    ActionSetController(stage.context, PhaseCatalogue(registry), here=stage.runner.here).start()
    target = {"apiVersion": "v1", "resource": "pods", "kind": "Pod", "name": "timer", "namespace": namespace}
    action = {"name": "tail", "blueprint": "timer", "object": target}
    made = await client.create({**kinds, "kind": "ActionSet", "spec": {"actions": [action]}})

    async def over() -> Object | None:
        found = await client.get(
            GroupVersionKind("cr.kanister.io", "v1alpha1", "ActionSet"), "timer", namespace=namespace
        )
        return found if (found.get("status") or {}).get("state") in ("complete", "failed") else None

    status = (await eventually(over, f"ActionSet {made['metadata']['name']} is over"))["status"]
    assert status["state"] == "complete", status
    (phase,) = status["actions"][0]["phases"]
    assert (phase["funcVersion"], phase["resolution"]["source"], phase["output"]) == ("v0.1.0", "Pin", {"now": "noon"})


async def _no_pods(stage: Stage) -> None:
    async def none() -> bool:
        return not (await stage.context.client.list(POD, namespace=stage.namespace)).items

    await eventually(none, "no pod is left")
