"""Function packages on the embedded engine: installed, and a fleet moved from one revision to another and back.

    python -m bench packages [--count 1000]

A real registry serves a function of 10 MB in two versions, written with the SDK; the control plane pulls it and runs
it as processes, called over mutual TLS. Every XR composes a ConfigMap through it. Seconds of computing are those of the
control plane and all that it started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import uvloop
from tests.e2e.registries import serving_registry

from bench.composition import Server, connected, control_plane, definition, in_parallel, settle, until
from bench.report import Report
from planform.api.kinds import Object, gvk
from planform.api.names import COMPOSITION, FUNCTION
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.packages.blobs import BlobStore
from planform.packages.building import Program, Source, assemble
from planform.packages.credentials import Credentials
from planform.packages.layers import File
from planform.packages.payloads import Payload, RuntimeKind
from planform.packages.references import parse_reference
from planform.packages.registry import RegistryClient
from planform.packages.xpkg import package_of

APP = gvk("bench.example.org/v1", "App")
NAME = "function-bench"
CHANNEL = "release-channel"
MEGABYTES = 10
VERSIONS = ("v1.0.0", "v1.1.0")
CODE = '''"""Composes a ConfigMap that says which version made it."""

from typing import Any

from planform_sdk import Ready, Request, Response, function
from planform_sdk.__main__ import serve


@function(deterministic=True)
def compose(req: Request[Any], rsp: Response) -> None:
    size = req.observed.composite.resource["spec"]["size"]
    data = {"version": "VERSION", "size": str(size)}
    rsp.desired.resources["settings"] = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
    rsp.desired.resources["settings"].ready = Ready.TRUE
    rsp.desired.composite.resource["status"] = {"version": "VERSION"}


serve(compose)
'''


async def publish(address: str, directory: Path) -> str:
    """Push every version; gives the repository."""
    blobs, repository = BlobStore(directory), f"{address}/bench/{NAME}"
    about = {"apiVersion": "meta.pkg.crossplane.io/v1", "kind": "Function", "metadata": {"name": NAME}}
    package = package_of([("meta", {**about, "spec": {"capabilities": ["composition"]}})])
    async with RegistryClient(blobs, Credentials()) as registry:
        for version in VERSIONS:
            ballast = Random(version).randbytes(MEGABYTES << 20)
            files = (
                File("app/main.py", CODE.replace("VERSION", version).encode()),
                File("app/ballast", ballast),
            )
            program = Program(Payload(RuntimeKind.PROCESS, ("python", "app/main.py"), ("app",)), files)
            image = assemble(blobs, Source(package), program)
            await registry.push(image, parse_reference(f"{repository}:{version}"))
    return repository


def composition() -> Object:
    step = {
        "step": "compose",
        "functionRef": {"name": NAME},
        "functionRevisionSelector": {"matchLabels": {CHANNEL: "stable"}},
    }
    return {
        "apiVersion": COMPOSITION.api_version,
        "kind": COMPOSITION.kind,
        "metadata": {"name": "apps"},
        "spec": {
            "compositeTypeRef": {"apiVersion": APP.api_version, "kind": APP.kind},
            "mode": "Pipeline",
            "pipeline": [step],
        },
    }


def function(repository: str, version: str, channel: str) -> Object:
    return {
        "apiVersion": FUNCTION.api_version,
        "kind": FUNCTION.kind,
        "metadata": {"name": NAME, "labels": {CHANNEL: channel}},
        "spec": {"package": f"{repository}:{version}", "revisionHistoryLimit": 4, "activeRevisionLimit": 2},
    }


def xr(name: str) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": APP.api_version, "kind": APP.kind, "metadata": metadata, "spec": {"size": 1}}


async def until_version(client: Client, names: set[str], version: str) -> None:
    """Watch until all of these XRs are ready and were composed by this version."""
    waiting = set(names)
    async with client.watch(APP, send_initial_events=True) as events:
        async for event in events:
            status = event.object.get("status") or {}
            ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
            if event.type in ("ADDED", "MODIFIED") and ready and status.get("version") == version:
                waiting.discard(event.object["metadata"]["name"])
                if not waiting:
                    return


def computing(server: Server) -> float:
    """Seconds that the control plane and everything below it have computed so far."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def is_below(pid: int) -> bool:
        while pid and pid != server.process.pid:
            pid = parents.get(pid, 0)
        return bool(pid)

    return sum(seconds for pid, seconds in spent.items() if is_below(pid))


@asynccontextmanager
async def measured(report: Report, server: Server, name: str, bar: float, count: int) -> AsyncIterator[None]:
    begun, computed = time.perf_counter(), computing(server)
    yield
    took = time.perf_counter() - begun
    report.at_most(name, took, bar, "s")
    each = f", {(computing(server) - computed) / count * 1000:.1f} ms for each XR" if count > 1 else ""
    report.note(f"{computing(server) - computed:.1f} s of computing{each}")


async def is_active(client: Client, count: int) -> bool:
    """Whether so many revisions serve."""
    found = (await client.get(FUNCTION, NAME)).get("status") or {}
    active = found.get("activeRevisions") or ()
    return len(active) == count and all(each["healthy"] for each in active)


async def measure(report: Report, directory: Path, repository: str, count: int) -> None:
    names = {f"app-{number:05}" for number in range(count)}
    scale = count / 1000
    old, new = VERSIONS
    with control_plane(directory) as server:
        async with connected(server) as client:
            await client.create(definition("version"))
            await client.create(composition())
            await until(partial(has_revision, client))
            await client.create(xr("first"))
            await settle(server)
            async with measured(report, server, f"install of {MEGABYTES} MB to the first successful call", 3, 1):
                await client.create(function(repository, old, "stable"))
                await until_version(client, {"first"}, old)
            ready = asyncio.create_task(until_version(client, names, old))
            await in_parallel([client.create(xr(name)) for name in sorted(names)])
            await ready
            await client.apply(function(repository, new, "alpha"), manager="bench", force=True)
            await until(partial(is_active, client, 2))
            await settle(server)
            for version, channel, words in ((new, "stable", "to another revision"), (old, "alpha", "back")):
                async with measured(report, server, f"{count:,} XRs move {words} by relabelling", 8 * scale, count):
                    await client.apply(function(repository, new, channel), manager="bench", force=True)
                    await until_version(client, names, version)
                await settle(server)
            async with measured(report, server, f"function diff over {count:,} XRs", 15 * scale, count):
                told = await asyncio.to_thread(diff, server)
            report.at_least("XRs that it compared", told["changed"], count + 1, "XRs")


async def has_revision(client: Client) -> bool:
    pages = [page async for page in list_pages(client, gvk("apiextensions.crossplane.io/v1", "CompositionRevision"))]
    return any(page.items for page in pages)


def diff(server: Server) -> dict[str, int]:
    old, new = (f"{NAME}:{version}" for version in VERSIONS)
    command = [sys.executable, "-m", "planform", "function", "diff", old, new, "-o", "json"]
    done = subprocess.run(
        [*command, "--kubeconfig", str(server.kubeconfig)], stdout=subprocess.PIPE, check=True, timeout=300
    )
    summary: dict[str, int] = json.loads(done.stdout)["summary"]
    return summary


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench packages", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fleet of 200")
    parser.add_argument("--count", type=int, default=1000, help="XRs of the fleet")
    options = parser.parse_args(arguments)
    count = 200 if options.quick else options.count
    report = Report("packages")
    with (
        tempfile.TemporaryDirectory(prefix="planform-bench-") as scratch,
        serving_registry(Path(scratch) / "registry") as address,
    ):
        repository = uvloop.run(publish(address, Path(scratch) / "blobs"))
        uvloop.run(measure(report, Path(scratch) / "plane", repository, count))
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
