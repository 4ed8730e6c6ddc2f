"""The same fleet on a real API server and on the embedded engine, in one run.

    python -m bench kubernetes [--quick] [--count 500]

`planform controllers` and `planform up` are processes of their own. What the former asks of the API server is counted
by the server's audit log. The bar for time is what a client that does nothing else needs for as many writes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import uvloop
from tests.harness.kubernetes import RealKubernetes, real_kubernetes

from bench.composition import (
    RESOURCES,
    Server,
    composition,
    connected,
    control_plane,
    definition,
    has_revisions,
    in_parallel,
    make,
    newest_version,
    settle,
    until,
)
from bench.report import Report
from planform.api.kinds import gvk
from planform.client.protocol import Client, Patch, PatchType

WRITES = ("create", "update", "patch", "delete", "deletecollection")
BESIDE = ("leases", "events")
PROVIDER = "as a provider"
_AGENT = "planform-controllers/"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


@dataclass
class Figures:
    """What it took to make the fleet, and to leave it alone."""

    seconds: float
    cpu: float
    resident: float
    calls: Counter[str]
    calls_at_rest: Counter[str]
    cpu_at_rest: float

    @property
    def writes(self) -> int:
        return writes_in(self.calls)


def writes_in(calls: Counter[str]) -> int:
    return sum(count for call, count in calls.items() if call.partition(" ")[0] in WRITES)


@dataclass
class Replica(Server):
    """`planform controllers`; its metrics are served without TLS."""

    port: int = 0

    def metrics(self) -> dict[str, float]:
        http = HTTPConnection("127.0.0.1", self.port, timeout=30)
        http.request("GET", "/metrics")
        text = http.getresponse().read().decode()
        http.close()
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}


@dataclass(frozen=True)
class Calls:
    """What the audit log says that the controllers asked for, Leases and Events apart, by verb and resource.

    What NopResources say of themselves, others would say of theirs: a provider.
    """

    file: Path

    def count(self) -> Counter[str]:
        found: Counter[str] = Counter()
        with self.file.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                event = json.loads(line)
                if not event.get("userAgent", "").startswith(_AGENT):
                    continue
                about = event.get("objectRef") or {}
                resource = about.get("resource", "")
                if resource == "nopresources" and about.get("subresource") == "status":
                    found[PROVIDER] += 1
                elif resource not in BESIDE:
                    found[f"{event['verb']} {resource}"] += 1
        return found


@contextmanager
def controllers(cluster: RealKubernetes, directory: Path) -> Iterator[Replica]:
    """The controllers on a cluster, once all of them run."""
    log = directory / "controllers.log"
    command = [sys.executable, "-m", "planform", "controllers", "--kubeconfig", str(cluster.kubeconfig)]
    command += ["--listen", "127.0.0.1:0", "--data", str(directory / "data"), "--function-runtime", "external"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 60
        while "all controllers run" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()[-2000:])
            time.sleep(0.05)
        port = re.search(r"on 127\.0\.0\.1:(\d+)", log.read_text())
        assert port is not None, log.read_text()
        yield Replica(process, cluster.kubeconfig, int(port[1]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


async def fleet(server: Server, count: int, rest: float, calls: Calls | None) -> Figures:
    """Make the XRs and leave them alone for a while."""
    async with connected(server) as client:
        await client.create(definition())
        await client.create(composition(1))
        await until(partial(has_revisions, client, 1))
        await settle(server)
        before, cpu, version = _count(calls), server.cpu, await newest_version(client)
        seconds = await make(client, [f"app-{number:05}" for number in range(count)])
        await settle(server)
        spent, made = server.cpu - cpu, _count(calls) - before
        if calls is None:  # all that is written is written by it, but for the XRs themselves; Events too
            made["patch anything"] = int(await newest_version(client)) - int(version) - count
        await asyncio.sleep(2)
        before, cpu, version = _count(calls), server.cpu, await newest_version(client)
        await asyncio.sleep(rest)
        at_rest = _count(calls) - before
        if calls is None:
            at_rest["patch anything"] = int(await newest_version(client)) - int(version)
        return Figures(seconds, spent, server.resident, made, at_rest, (server.cpu - cpu) / rest * 100)


async def bare(server: Server, writes: int) -> float:
    """Seconds that a client which does nothing else needs for so many writes of small objects."""
    async with connected(server) as client:
        names = [f"bare-{number:03}" for number in range(64)]
        for name in names:
            about = {"name": name, "namespace": "default"}
            await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about})
        begun = time.perf_counter()
        await in_parallel([_write(client, names[number % len(names)], number) for number in range(writes)])
        return time.perf_counter() - begun


async def _write(client: Client, name: str, number: int) -> None:
    patch = Patch(PatchType.MERGE, {"data": {"number": str(number), "padding": "x" * 1000}})
    await client.patch(gvk("v1", "ConfigMap"), name, patch, namespace="default")


def _count(calls: Calls | None) -> Counter[str]:
    return Counter() if calls is None else calls.count()


async def measure(report: Report, directory: Path, options: argparse.Namespace) -> None:
    count, rest = options.count, 10 if options.quick else 60
    (directory / "embedded").mkdir()
    with control_plane(directory / "embedded" / "data") as server:
        here = await fleet(server, count, rest, None)
    policy, log = directory / "policy.json", directory / "audit.log"
    policy.write_text(json.dumps(_POLICY))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking"]
    with (
        real_kubernetes(directory / "cluster", api_flags=flags) as cluster,
        controllers(cluster, directory) as replica,
    ):
        there = await fleet(replica, count, rest, Calls(log))
        limit = await bare(replica, there.writes + there.calls[PROVIDER])
    for name, figures in (("embedded", here), ("Kubernetes", there)):
        report.note(
            f"{name:<10} {count:,} XRs x {RESOURCES}: {figures.seconds:6.1f} s, {figures.cpu:6.1f} s of computing,"
            f" {figures.resident:4.0f} MB"
        )
    report.note(f"embedded: {here.writes / count:.2f} writes to the store for each XR, Events among them")
    shown = ", ".join(f"{number:,} {call}" for call, number in there.calls.most_common(8))
    report.note(f"on Kubernetes, as the audit log counts: {shown}")
    report.note(
        f"as many writes and nothing else: {limit:.1f} s; embedded: {here.seconds / there.seconds:.2f} x the time"
    )
    report.at_most("Kubernetes: apply to all Ready, to the same writes alone", there.seconds / limit, 3)
    report.at_most("Kubernetes: writes for an XR with 4 resources", there.writes / count, 9, "writes")
    report.at_most(f"Kubernetes: writes in {rest} s at rest", writes_in(there.calls_at_rest), 0, "writes")
    report.at_most(f"Kubernetes: CPU of a core in {rest} s at rest", there.cpu_at_rest, 1, "%")
    report.at_most("Kubernetes: resident memory", there.resident, 200, "MB")
    report.at_most("embedded: writes at rest", sum(here.calls_at_rest.values()), 0, "writes")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench kubernetes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a shorter rest")
    parser.add_argument("--count", type=int, default=500)
    options = parser.parse_args(arguments)
    report = Report(f"{options.count:,} XRs on a real API server, beside the embedded engine")
    with tempfile.TemporaryDirectory(prefix="planform-bench-") as directory:
        uvloop.run(measure(report, Path(directory), options))
    return 1 if report.failures else 0
