"""A fleet of XRs on the embedded engine: made, at rest, changed, moved to a new revision, restarted, deleted.

    python -m bench composition [--quick] [--fleet 10000]

The control plane is a process of its own, driven over HTTPS as users would. Every XR composes four NopResources through
two built-in functions. While the fleet works, somebody else reads one small object again and again. What a fleet takes
is also told beside the time in which a client creates as many objects by hand, in the same run: machines differ, and
the same one from hour to hour.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

import uvloop
import yaml

from bench.report import Report
from planform.api.kinds import Object, gvk
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, XRD
from planform.client.informer import list_pages
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client, Patch, PatchType
from planform.clock import SystemClock

APP = gvk("bench.example.org/v1", "App")
NOP = gvk("nop.crossplane.io/v1alpha1", "NopResource")
RESOURCES = 4
AT_ONCE = 16
MARK = "bench.example.org/mark"


def definition(told: str = "mark") -> Object:
    """An API of Apps with a size, whose status tells one text."""
    properties = {"size": {"type": "integer"}}
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": properties},
            "status": {"type": "object", "properties": {told: {"type": "string"}}},
        },
    }
    version = {"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": XRD.api_version,
        "kind": XRD.kind,
        "metadata": {"name": "apps.bench.example.org"},
        "spec": {
            "group": "bench.example.org",
            "scope": "Namespaced",
            "names": {"kind": "App", "plural": "apps"},
            "versions": [version],
        },
    }


def composition(edition: int) -> Object:
    """Four resources and what makes the XR ready. Each edition is another revision."""
    ready = [{"time": "0s", "conditionType": "Ready", "conditionStatus": "True"}]
    resources = []
    for index in range(RESOURCES):
        patches = [
            {
                "type": "FromCompositeFieldPath",
                "fromFieldPath": "spec.size",
                "toFieldPath": "spec.forProvider.fields.size",
            }
        ]
        if index == 0:
            source = f"metadata.annotations[{MARK}]"
            patches.append({"type": "ToCompositeFieldPath", "fromFieldPath": source, "toFieldPath": "status.mark"})
        base = {
            "apiVersion": NOP.api_version,
            "kind": NOP.kind,
            "spec": {"forProvider": {"conditionAfter": ready, "fields": {"size": 0, "edition": edition}}},
        }
        resources.append({"name": f"part-{index}", "base": base, "patches": patches})
    compose = {
        "step": "compose",
        "functionRef": {"name": "function-patch-and-transform"},
        "input": {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": resources},
    }
    return {
        "apiVersion": COMPOSITION.api_version,
        "kind": COMPOSITION.kind,
        "metadata": {"name": "apps"},
        "spec": {
            "compositeTypeRef": {"apiVersion": APP.api_version, "kind": APP.kind},
            "mode": "Pipeline",
            "pipeline": [compose, {"step": "ready", "functionRef": {"name": "function-auto-ready"}}],
        },
    }


def xr(name: str, **composition_fields: Any) -> Object:
    spec: Object = {"size": 1}
    if composition_fields:
        spec["crossplane"] = composition_fields
    return {
        "apiVersion": APP.api_version,
        "kind": APP.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def is_ready(obj: Object, revision: str = "") -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
        return False
    generation = obj["metadata"].get("generation")
    if any(each.get("observedGeneration") != generation for each in conditions):
        return False
    chosen = (obj["spec"].get("crossplane") or {}).get("compositionRevisionRef") or {}
    return not revision or chosen.get("name") == revision


# -- the control plane and the one who reads beside it


@dataclass
class Server:
    """A running control plane."""

    process: subprocess.Popen[bytes]
    kubeconfig: Path

    def connect(self) -> HTTPSConnection:
        """A plain connection, as the admin."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        [cluster], [user] = config["clusters"], config["users"]
        context = ssl.create_default_context(
            cadata=base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as pem:
            for part in ("client-certificate-data", "client-key-data"):
                pem.write(base64.b64decode(user["user"][part]) + b"\n")
            pem.flush()
            context.load_cert_chain(pem.name)
        return HTTPSConnection(urlsplit(cluster["cluster"]["server"]).netloc, context=context, timeout=30)

    def metrics(self) -> dict[str, float]:
        http = self.connect()
        http.request("GET", "/metrics")
        text = http.getresponse().read().decode()
        http.close()
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    @property
    def resident(self) -> float:
        """Megabytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]

    @property
    def cpu(self) -> float:
        """Seconds of computing so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def control_plane(directory: Path) -> Iterator[Server]:
    directory.mkdir(exist_ok=True)
    kubeconfig = directory / "kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    command = [sys.executable, "-m", "planform", "up", "--data", str(directory), "--listen", "127.0.0.1:0"]
    with (directory.parent / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not kubeconfig.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((directory.parent / "log").read_text()[-2000:])
            time.sleep(0.02)
        yield Server(process, kubeconfig)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[KubernetesClient]:
    connection = find_connection(clock=SystemClock(), path=server.kubeconfig)
    async with KubernetesClient(connection, clock=SystemClock(), rng=Random(1)) as client:
        yield client


@dataclass
class Reader:
    """Somebody else, who reads one object every 25 ms on a connection of their own and notes how long that takes."""

    server: Server
    seconds: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Reader:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _read(self) -> None:
        http = self.server.connect()
        while not self._stop.is_set():
            begun = time.perf_counter()
            http.request("GET", "/api/v1/namespaces/default")
            http.getresponse().read()
            self.seconds.append(time.perf_counter() - begun)
            self._stop.wait(0.025)


def total(found: dict[str, float], prefix: str) -> float:
    return sum(value for name, value in found.items() if name.startswith(prefix))


# -- what is measured


async def in_parallel(work: Sequence[Any], maximum: int = AT_ONCE) -> None:
    """Run coroutines, so many at a time."""
    turns = asyncio.Semaphore(maximum)

    async def one(item: Any) -> None:
        async with turns:
            await item

    await asyncio.gather(*map(one, work))


async def until_ready(client: Client, names: set[str], revision: str = "") -> None:
    """Watch until all of these XRs are ready, and on this revision."""
    waiting = set(names)
    async with client.watch(APP, send_initial_events=True) as events:
        async for event in events:
            if event.type in ("ADDED", "MODIFIED") and is_ready(event.object, revision):
                waiting.discard(event.object["metadata"]["name"])
                if not waiting:
                    return


async def make(client: Client, names: Sequence[str]) -> float:
    """Seconds from the first create until all are ready."""
    begun = time.perf_counter()
    ready = asyncio.create_task(until_ready(client, set(names)))
    await in_parallel([client.create(xr(name)) for name in names])
    await ready
    return time.perf_counter() - begun


async def by_hand(directory: Path, count: int) -> float:
    """Seconds in which a client creates as many objects as the fleet has, which nobody looks after."""
    names = [f"plain-{number:05}" for number in range(count * (1 + RESOURCES))]
    with control_plane(directory) as server:
        async with connected(server) as client:
            begun = time.perf_counter()
            await in_parallel([client.create(plain(name)) for name in names])
            return time.perf_counter() - begun


def plain(name: str) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"size": "0", "edition": "1"}}


async def revision_names(client: Client) -> list[str]:
    found = (await client.list(COMPOSITION_REVISION)).items
    return [each["metadata"]["name"] for each in sorted(found, key=lambda each: each["spec"]["revision"])]


async def has_revisions(client: Client, count: int) -> bool:
    return len(await revision_names(client)) == count


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():  # noqa: ASYNC110 - it is another process that is waited for
        await asyncio.sleep(0.02)


async def settle(server: Server) -> None:
    """Wait until the plane has nothing to do: no reconcile for a second."""
    before = -1.0
    while True:
        now = total(server.metrics(), "planform_reconcile_total")
        if now == before:
            return
        before = now
        await asyncio.sleep(1)


async def newest_version(client: Client) -> str:
    """The store's counter: a list of anything tells it."""
    return (await client.list(gvk("v1", "ConfigMap"))).resource_version


async def reaction(client: Client, count: int) -> list[float]:
    """Seconds from a change of a composed resource to the XR's status that tells of it."""
    parts = [each for each in (await client.list(NOP)).items if "part-0" in str(each["metadata"]["annotations"])]
    chosen = Random(3).sample(parts, count)
    seen: dict[str, asyncio.Event] = {}

    async def listen(listening: asyncio.Event) -> None:
        async with client.watch(APP) as events:
            listening.set()
            async for event in events:
                mark = (event.object.get("status") or {}).get("mark")
                if mark in seen:
                    seen[mark].set()

    listening = asyncio.Event()
    task = asyncio.create_task(listen(listening))
    await listening.wait()
    await asyncio.sleep(1)
    took = []
    for number, part in enumerate(chosen):
        mark = f"mark-{number}"
        seen[mark] = asyncio.Event()
        patch = Patch(PatchType.MERGE, {"metadata": {"annotations": {MARK: mark}}})
        begun = time.perf_counter()
        await client.patch(NOP, part["metadata"]["name"], patch, namespace="default")
        await asyncio.wait_for(seen[mark].wait(), 10)
        took.append(time.perf_counter() - begun)
    task.cancel()
    return took


async def gone(client: Client) -> float:
    """Delete every XR; seconds until neither they nor what they composed is left."""
    names = [obj["metadata"]["name"] async for page in list_pages(client, APP) for obj in page.items]
    begun = time.perf_counter()
    await in_parallel([client.delete(APP, name, namespace="default") for name in names])

    async def is_left() -> bool:
        return not (await client.list(APP, limit=1)).items and not (await client.list(NOP, limit=1)).items

    await until(is_left)
    return time.perf_counter() - begun


def p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100)[-1] * 1000


def lag(before: dict[str, float], after: dict[str, float]) -> float:
    """Milliseconds below which 99 % of the loop's delays lay, as its histogram tells."""
    pattern = re.compile(r'planform_event_loop_lag_seconds_bucket\{le="([^"]+)"\}')
    counts = sorted(
        (float(match[1].replace("+Inf", "inf")), after[name] - before.get(name, 0))
        for name in after
        if (match := pattern.fullmatch(name))
    )
    if not counts or not counts[-1][1]:
        return 0.0
    return next(edge for edge, count in counts if count >= 0.99 * counts[-1][1]) * 1000


async def measure(report: Report, directory: Path, options: argparse.Namespace) -> None:
    alone = await by_hand(directory.parent / "by-hand", options.count)
    count, names = options.count, [f"app-{number:05}" for number in range(options.count)]
    pinned = [f"pinned-{number:03}" for number in range(100)]
    with control_plane(directory) as server:
        async with connected(server) as client:
            await client.create(definition())
            await client.create(composition(1))
            await until(partial(has_revisions, client, 1))
            await settle(server)
            before, cpu = server.metrics(), server.cpu
            with Reader(server) as reader:
                made = await make(client, names)
            report.at_most(f"{count:,} XRs x {RESOURCES}: apply to all Ready", made, 10 * count / 1000, "s")
            report.note(f"{(server.cpu - cpu) / count * 1000:.1f} ms of computing for each XR")
            report.note(f"{made / alone:.2f}x the {alone:.2f} s in which a client creates as many objects by hand")
            report.at_most("meanwhile, p99 of a small read", p99(reader.seconds), 50, "ms")
            report.at_most("meanwhile, p99 of the loop's lag", lag(before, server.metrics()), 50, "ms")
            await settle(server)
            report.at_most("resident memory", server.resident, 200, "MB")
            took = await reaction(client, 200 if options.quick else 500)
            report.note(f"median from a composed change to the XR's status: {median(took) * 1000:.1f} ms")
            report.at_most("p99 from a composed change to the XR's status", p99(took), 50, "ms")
            await at_rest(report, server, client, 10 if options.quick else 60)
            await new_revision(report, server, client, names, pinned, alone)
            await settle(server)
            version = await newest_version(client)
    with control_plane(directory) as server:
        async with connected(server) as client:
            await asyncio.sleep(2)
            await settle(server)
            found = server.metrics()
            report.at_most("restart: writes", int(await newest_version(client)) - int(version), 0, "writes")
            report.at_most("restart: function calls", total(found, "function_run_"), 0, "calls")
            took_to_go = await gone(client)
            report.at_most(f"deletion of {count:,} XRs with their resources", took_to_go, 10 * count / 1000, "s")
    if options.fleet:
        await fleet(report, directory.parent / "fleet", options.fleet, made / count)


async def at_rest(report: Report, server: Server, client: KubernetesClient, seconds: float) -> None:
    await settle(server)
    await asyncio.sleep(2)
    version, found, cpu = await newest_version(client), server.metrics(), server.cpu
    await asyncio.sleep(seconds)
    spent = server.cpu - cpu
    after = server.metrics()
    report.at_most(f"{seconds:g} s at rest: writes", int(await newest_version(client)) - int(version), 0, "writes")
    calls = total(after, "function_run_builtin_total") - total(found, "function_run_builtin_total")
    report.at_most(f"{seconds:g} s at rest: function calls", calls, 0, "calls")
    report.at_most(f"{seconds:g} s at rest: CPU of a core", spent / seconds * 100, 1, "%")


async def new_revision(
    report: Report, server: Server, client: Client, names: list[str], pinned: list[str], alone: float
) -> None:
    [current] = await revision_names(client)
    composition_fields = {"compositionUpdatePolicy": "Manual", "compositionRevisionRef": {"name": current}}
    await in_parallel([client.create(xr(name, **composition_fields)) for name in pinned])
    await until_ready(client, set(pinned))
    await settle(server)
    before = {name: await client.get(APP, name, namespace="default") for name in pinned}
    begun = time.perf_counter()
    await client.apply(composition(2), manager="bench", force=True)
    await until(partial(has_revisions, client, 2))
    await until_ready(client, set(names), (await revision_names(client))[-1])
    took = time.perf_counter() - begun
    report.at_most(f"{len(names):,} XRs move to a new revision", took, 6 * len(names) / 1000, "s")
    report.note(f"{took / alone:.2f}x the time in which a client creates as many objects by hand")
    await settle(server)
    changed = [name for name in pinned if await client.get(APP, name, namespace="default") != before[name]]
    report.at_most("XRs on Manual that changed", len(changed), 0, "XRs")


async def fleet(report: Report, directory: Path, count: int, each: float) -> None:
    with control_plane(directory) as server:
        async with connected(server) as client:
            await client.create(definition())
            await client.create(composition(1))
            await until(partial(has_revisions, client, 1))
            await settle(server)
            took = await make(client, [f"app-{number:05}" for number in range(count)])
            report.note(f"{count:,} XRs took {took:.1f} s, {server.resident:.0f} MB resident")
            report.at_most(f"time for each of {count:,} XRs, beside 1,000", took / count / each, 1.3, "x")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench composition", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer samples and a shorter rest")
    parser.add_argument("--count", type=int, default=1000, help="XRs of the fleet that is measured in detail")
    parser.add_argument("--fleet", type=int, default=0, help="also make a fleet of this size, such as 10000")
    options = parser.parse_args(arguments)
    report = Report("composition")
    with tempfile.TemporaryDirectory(prefix="planform-bench-") as scratch:
        uvloop.run(measure(report, Path(scratch) / "plane", options))
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
