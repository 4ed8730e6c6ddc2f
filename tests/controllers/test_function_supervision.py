"""Functions that end by themselves, and how the configuration of their runtime is followed, up to what users read."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import FUNCTION, FUNCTION_REVISION, RUNTIME_CONFIG
from planform.apiserver.auth.pki import Pki
from planform.client.informer import InformerEvent
from planform.packages.blobs import BlobStore
from planform.packages.building import Source, assemble
from planform.packages.runtimes.logs import last_lines, log_file
from planform.packages.xpkg import package_of
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform
from tests.harness.contexts import all_controllers, condition_of, embedded_context, eventually, until_condition
from tests.harness.packaging import REPOSITORY, Installation, installing, meta, server_program

pytestmark = pytest.mark.timeout(180)

SOURCE = '''"""Says how it was started; without a database, it ends."""

import os
import resource
import sys
from typing import Any

from planform_sdk import Request, Response, function
from planform_sdk.__main__ import serve

if os.environ.get("DATABASE") == "gone":
    print("connecting", flush=True)
    sys.exit("no such database")


@function
def tell(req: Request[Any], rsp: Response) -> None:
    rsp.context["version"] = "VERSION"
    rsp.context["arguments"] = sys.argv[1:]
    rsp.context["memory"] = resource.getrlimit(resource.RLIMIT_DATA)[0]


serve(tell, [each for each in sys.argv[1:] if not each.startswith("--own-")])
'''


@pytest.fixture
async def context() -> AsyncIterator[ControllerContext]:
    async with embedded_context() as context:
        yield context


@pytest.fixture
async def installation(context: ControllerContext, tmp_path: Path) -> AsyncIterator[Installation]:
    (tmp_path / "data").mkdir()
    async with installing(context, tmp_path / "data") as installation:
        yield installation


async def configure(installation: Installation, *, replicas: int = 1, **container: Any) -> Object:
    """Say how the function is run."""
    pod = {"containers": [{"name": "package-runtime", **container}]}
    return await installation.context.client.apply(
        {
            "apiVersion": RUNTIME_CONFIG.api_version,
            "kind": RUNTIME_CONFIG.kind,
            "metadata": {"name": "mine"},
            "spec": {"deploymentTemplate": {"spec": {"replicas": replicas, "template": {"spec": pod}}}},
        },
        manager="user",
        force=True,
    )


async def install(installation: Installation) -> str:
    """Install the function with the configuration; gives the name of its revision."""
    installation.publish(f"{REPOSITORY}:v1", server_program("v1", SOURCE))
    await installation.install("v1", runtimeConfigRef={"name": "mine"})
    [revision] = await installation.until_states({1: "Active"})
    return str(revision["metadata"]["name"])


async def health_of(installation: Installation, revision: str) -> Object:
    found = await installation.context.client.get(FUNCTION_REVISION, revision)
    return condition_of(found, "RuntimeHealthy") or {}


async def test_a_function_that_keeps_on_ending_says_why_on_its_revision_and_in_its_log(
    installation: Installation,
) -> None:
    await configure(installation, env=[{"name": "DATABASE", "value": "gone"}])
    revision = await install(installation)
    message = "it ends by itself (exit code 1); stderr ended with: connecting | no such database"

    async def told() -> bool:
        return bool((await health_of(installation, revision)).get("message") == message)

    await eventually(told, "the crash loop is told")
    function = await installation.until("Healthy", "False", message=f'revision "{revision}": {message}')
    condition = condition_of(function, "Healthy")

    def starts() -> int:
        lines = last_lines(log_file(installation.data / "logs", revision), 0)
        return sum(line.endswith(" connecting") for line in lines)

    async def tried_again(wanted: int = starts() + 2) -> bool:
        return starts() >= wanted

    await eventually(tried_again, "it is started again")
    function = await installation.until("Healthy", "False")
    assert condition_of(function, "Healthy") == condition  # it does not flap
    await configure(installation)
    await installation.until("Healthy", "True")
    assert (await installation.call())["version"] == "v1"


async def test_what_cannot_run_as_configured_is_told_while_what_ran_before_serves(installation: Installation) -> None:
    await configure(installation)
    revision = await install(installation)
    await installation.until("Healthy", "True")
    pids = installation.host.pids(revision)
    await configure(installation, env=[{"name": "DATABASE", "value": "gone"}])

    async def told() -> str:
        health = await health_of(installation, revision)
        return str(health.get("message")) if health.get("status") == "False" else ""

    message = await eventually(told, "it cannot run this way")
    assert message.startswith("as it shall run now, it ends by itself (exit code 1)")
    assert message.endswith("; what ran before still serves")
    assert (await installation.call())["version"] == "v1"
    assert installation.host.pids(revision) == pids
    await configure(installation)
    await installation.until("Healthy", "True")
    assert (await installation.call())["version"] == "v1"


async def test_replicas_arguments_and_memory_are_as_configured(installation: Installation) -> None:
    limits = {"limits": {"memory": "700Mi"}}
    await configure(installation, replicas=2, args=["--own-flag"], resources=limits)
    revision = await install(installation)
    await installation.until("Healthy", "True")

    async def both() -> bool:
        return len({(await installation.call())["arguments"][1] for _ in range(4)}) == 2

    await eventually(both, "two processes take turns")
    assert len(installation.host.pids(revision)) == 2
    told = await installation.call()
    assert told["arguments"][0] == "--own-flag"
    assert told["memory"] == 700 << 20


TELLING = SOURCE.replace('rsp.context["version"] = "VERSION"', 'rsp.desired.composite["status"] = {"words": "VERSION"}')


def children_of(pid: int) -> Iterator[int]:
    """All that a process started, and what these did."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from children_of(child)


def processes_of_the_function() -> list[int]:
    found = []
    for pid in children_of(os.getpid()):
        with suppress(OSError):
            if b"app/main.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


async def test_the_xr_whose_function_was_stopped_says_so_and_goes_on_with_another_process(tmp_path: Path) -> None:
    data = tmp_path / "data"
    blobs = BlobStore(data / "packages" / "blobs")
    package = package_of([("meta", meta("Function", "function-stopped", capabilities=["composition"]))])
    image = assemble(blobs, Source(package), server_program("v1", TELLING))
    blobs.remember(f"{REPOSITORY}:v1", image.descriptor)
    said: list[str] = []

    def hear(change: InformerEvent) -> None:
        condition = condition_of(change.object, "Synced")
        if condition is not None:
            said.append(f"{condition['status']}: {condition.get('message')}")

    async with (
        embedded_context() as context,
        all_controllers(context, data=data, authority=Pki(data / "pki", clock=context.clock)),
    ):
        function = {"apiVersion": FUNCTION.api_version, "kind": "Function", "metadata": {"name": "stopped"}}
        await context.client.create({**function, "spec": {"package": f"{REPOSITORY}:v1"}})
        await until_condition(context.client, function, "Healthy")
        platform = Platform(context.client, "stopped")
        await platform.define()
        await platform.compose({"step": "s", "functionRef": {"name": "stopped"}, "timeout": "2s"})
        xr = await platform.create()
        await platform.until(xr, lambda found: (found.get("status") or {}).get("words") == "v1", "it is composed")
        context.manager.subscribe(platform.kind, hear)
        before = processes_of_the_function()
        assert before
        for pid in before:
            os.kill(pid, signal.SIGSTOP)
        await platform.merge(xr, {"spec": {"again": True}})

        async def told() -> bool:
            return any("False" in each and "its process was stopped (SIGSTOP)" in each for each in said)

        await eventually(told, "the XR's condition names the cause")
        await until_condition(context.client, await platform.get(xr), "Synced")
        after = processes_of_the_function()
        assert after and not set(after) & set(before)
        assert any('step "s": function "stopped"' in each for each in said), said
