"""A control plane with a platform, and the dashboard before it: what browser tests and screenshots look at.

Both are programs of their own, as users have them: the tests can kill one and see what the page says.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import COMPOSITION_REVISION
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Patch, PatchType
from planform.clock import SystemClock
from planform.errors import AlreadyExists, PlanformError
from tests.browser import platform

DATABASE = GroupVersionKind(platform.GROUP, "v1", "Database")
SITE = GroupVersionKind(platform.GROUP, "v1", "Site")


@dataclass
class Program:
    """A child process of ours, with what it printed."""

    process: subprocess.Popen[str]
    lines: list[str]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()


async def start(arguments: Sequence[str], wanted: str, *, seconds: float = 60.0, **more: str) -> tuple[Program, str]:
    """Start `planform ...` and wait for a line that has this in it; gives the line."""
    command = [sys.executable, "-m", "planform", *arguments]
    environment = {**os.environ, "NO_COLOR": "1", **more}
    process = subprocess.Popen(  # noqa: ASYNC220  (starting does not wait)
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, env=environment
    )
    program = Program(process, [])
    loop = asyncio.get_running_loop()
    found: asyncio.Future[str] = loop.create_future()

    def told(line: str) -> None:
        program.lines.append(line)
        if wanted in line and not found.done():
            found.set_result(line)

    def read() -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                loop.call_soon_threadsafe(told, line.rstrip())
        except (RuntimeError, ValueError):
            return  # the loop or the pipe is closed: nobody listens any more

    threading.Thread(target=read, daemon=True).start()
    try:
        return program, await asyncio.wait_for(found, seconds)
    except TimeoutError:
        program.stop()
        raise AssertionError(f"no {wanted!r} in what planform {' '.join(arguments)} said: {program.lines}") from None


@dataclass
class Served:
    """A platform, and the address of its dashboard with a code that works once."""

    client: KubernetesClient
    plane: Program
    dashboard: Program
    kubeconfig: Path
    base: str
    login: str
    port: int


@asynccontextmanager
async def served(
    directory: Path, *, databases: int = 24, read_only: bool = False, arguments: Sequence[str] = ()
) -> AsyncIterator[Served]:
    data, kubeconfig = directory / "data", directory / "kubeconfig"
    async with AsyncExitStack() as stack:
        plane, line = await start(
            ["up", "--data", str(data), "--listen", "127.0.0.1:0", "--kubeconfig", str(kubeconfig)], "is ready at"
        )
        stack.callback(plane.stop)
        port = int(re.findall(r":(\d+) ", line)[0])
        connection = find_connection(clock=SystemClock(), path=kubeconfig, context="")
        client = await stack.enter_async_context(KubernetesClient(connection, clock=SystemClock(), rng=Random(1)))
        await populate(client, databases)
        more = ["--read-only"] if read_only else []
        dashboard, login = await start(
            ["dashboard", "--no-browser", "--kubeconfig", str(kubeconfig), *more, *arguments], "#code="
        )
        stack.callback(dashboard.stop)
        found = Served(client, plane, dashboard, kubeconfig, login.partition("#")[0], login, port)
        stack.callback(lambda: found.plane.stop())  # a test may have started another one in its place
        yield found


async def restart_plane(found: Served, directory: Path) -> None:
    """The control plane again, on its old port."""
    arguments = ["up", "--data", str(directory / "data"), "--listen", f"127.0.0.1:{found.port}"]
    found.plane, _ = await start([*arguments, "--kubeconfig", str(found.kubeconfig)], "is ready at")


async def apply(client: KubernetesClient, *objects: Object) -> None:
    for obj in objects:
        await client.apply(obj, manager="tests", force=True)


async def until_served(client: KubernetesClient, gvk: GroupVersionKind) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            await client.list(gvk, limit=1)
            return
        except PlanformError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


async def populate(client: KubernetesClient, databases: int) -> None:
    for name in ("team-a", "team-b", "team-c"):
        try:
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except AlreadyExists:
            pass
    await apply(client, *platform.definitions(), *platform.secrets())
    await until_served(client, DATABASE)
    await until_served(client, SITE)
    await apply(client, *platform.compositions(1))
    names = ("orders", "users", "ledger", "mail", "search", "carts", "stock", "audit")
    for index in range(databases):
        name = names[index] if index < len(names) else f"db-{index:04d}"
        namespace = ("team-a", "team-b", "team-c")[index % 3]
        labels = {"team": ("payments", "search", "web")[index % 3]}
        policy = "Manual" if index % 4 == 3 else "Automatic"
        spec = {"size": 1 + index % 5, "crossplane": {"compositionUpdatePolicy": policy}}
        await apply(client, platform.database(name, namespace, labels=labels, **spec))
    await apply(client, platform.site("shop", "team-a", size=2), platform.site("blog", "team-c", size=1))
    await until_revised(client, DATABASE, min(databases, 8))
    await apply(client, platform.compositions(2)[0])
    await asyncio.sleep(1.5)
    await trouble(client)
    await change_objects(client)


async def until_revised(client: KubernetesClient, gvk: GroupVersionKind, count: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = (await client.list(gvk)).items
        if sum("compositionRevisionRef" in (each["spec"].get("crossplane") or {}) for each in found) >= count:
            return
        await asyncio.sleep(0.2)


async def trouble(client: KubernetesClient) -> None:
    """XRs that are not well, each in its own way."""
    broken = platform.database("invoices", "team-b", labels={"team": "payments"}, size=3)
    broken["spec"]["crossplane"] = {"compositionRef": {"name": "database-typo"}}
    await apply(client, broken)
    pause = Patch(PatchType.MERGE, {"metadata": {"annotations": {"crossplane.io/paused": "true"}}})
    await client.patch(DATABASE, "users", pause, namespace="team-b")
    hostile = platform.database("hostile", "team-c", note=platform.HOSTILE[0], labels={"team": "web"})
    hostile["metadata"]["annotations"] = {f"example.org/h{at}": text for at, text in enumerate(platform.HOSTILE)}
    await apply(client, hostile)


async def change_objects(client: KubernetesClient) -> None:
    """Objects of rollouts, with the status they would have."""
    found = (await client.list(COMPOSITION_REVISION)).items
    ordered = sorted(
        (each for each in found if each["metadata"]["labels"].get("crossplane.io/composition-name") == "database"),
        key=lambda each: each["spec"]["revision"],
    )
    before, after = ordered[0]["metadata"]["name"], ordered[-1]["metadata"]["name"]
    wanted = [*platform.rollout_objects(datetime.now(UTC), before, after), platform.preview_object(after)]
    for obj in wanted:
        status = obj.pop("status", None)
        try:
            await client.apply(obj, manager="tests", force=True)
            if status is not None:
                await write_status(client, obj, status)
        except PlanformError as error:
            print(f"{obj['kind']} {obj['metadata']['name']}: {error}", file=sys.stderr)


async def write_status(client: KubernetesClient, obj: Object, status: Object) -> None:
    patch = Patch(PatchType.MERGE, {"status": status})
    await client.patch(gvk_of(obj), obj["metadata"]["name"], patch, subresource="status", manager="tests")
