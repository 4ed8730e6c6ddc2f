"""The embedded engine beside raw SQLite and beside kube-apiserver with etcd, in one run on one machine.

    python -m bench engine [--quick]

Both servers check tokens and RBAC for an ordinary user, validate, and track managedFields; etcd and SQLite sync every
commit. The load over HTTPS comes from wrk, 32 connections, distinct objects of about 1.6 KB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import orjson
import uvloop
from tests.harness.kubernetes import real_kubernetes

from bench.report import Report
from bench.store import plain_writes
from planform.api.kinds import gvk
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.app import settle_process
from planform.clock import SystemClock
from planform.store import open_store

WRITERS = 64
CONNECTIONS = 32
TOKEN = "bench-token-for-loopback"
CONFIG_MAP = gvk("v1", "ConfigMap")


def config_map(name: str, *, size: int = 1500) -> dict[str, Any]:
    line = "x" * 60
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "bench"}},
        "data": {f"key-{number}": line for number in range(size // 75)},
    }


# -- LocalClient beside raw SQLite


async def local_creates(directory: Path, count: int) -> float:
    clock = SystemClock()
    async with await open_store(directory, clock=clock) as store:
        client = LocalClient(open_engine(store, clock))
        settle_process()  # as a control plane does
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        numbers = iter(range(count))

        async def writer() -> None:
            for number in numbers:
                await client.create(config_map(f"c{number}", size=2000))

        started = time.perf_counter()
        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        return count / (time.perf_counter() - started)


def bench_local(report: Report, count: int, rounds: int) -> None:
    ratios, rates = [], []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as scratch:
            raw = plain_writes(Path(scratch) / "raw.db", count)
            ours = uvloop.run(local_creates(Path(scratch) / f"store{number}", count))
        ratios.append(ours / raw)
        rates.append((ours, raw))
    ours, raw = (median(rate[side] for rate in rates) for side in (0, 1))
    report.note(f"LocalClient {ours:,.0f} creates/s, raw SQLite batch-64 {raw:,.0f} writes/s")
    report.at_least(f"LocalClient durable creates, {WRITERS} writers / raw SQLite", median(ratios), 0.25)


# -- over HTTPS


@dataclass(frozen=True)
class Target:
    name: str
    url: str
    token: str
    ca: Path
    pid: int = 0

    def get(self, path: str) -> Any:
        import urllib.request

        context = ssl.create_default_context(cafile=str(self.ca))
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, context=context) as answer:
            return orjson.loads(answer.read())


@contextmanager
def planform(directory: Path, *arguments: str) -> Iterator[tuple[Target, float]]:
    """A control plane in a process of its own, and how long it took from exec to ready."""
    directory.mkdir(parents=True, exist_ok=True)
    tokens = directory / "tokens.csv"
    tokens.write_text(f"{TOKEN},bench,bench,\n{TOKEN}-admin,root,root,system:masters\n")
    log = directory / "log"
    started = time.perf_counter()
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "planform",
                "up",
                "--data",
                str(directory / "data"),
                "--listen",
                "127.0.0.1:0",
                "--token-file",
                str(tokens),
                "--log-level",
                "error",
                *arguments,
            ],
            stderr=output,
        )
    try:
        while " is ready at " not in (text := log.read_text()):
            if process.poll() is not None:
                raise RuntimeError(f"planform did not start: {text}")
            time.sleep(0.001)
        took = time.perf_counter() - started
        url = text.split(" is ready at ")[1].split()[0]
        yield Target("planform", url, TOKEN, directory / "data" / "pki" / "ca.crt", process.pid), took
    finally:
        process.terminate()
        process.wait(30)


_LUA = """
local counter, id = 0, 0
local threads = 0
function setup(thread) thread:set("id", threads); threads = threads + 1 end
function init(args)
  token, mode, prefix, count = args[1], args[2], args[3], tonumber(args[4])
  headers = {["Authorization"] = "Bearer " .. token, ["Content-Type"] = "application/json", ["User-Agent"] = "bench/1"}
  data = {}
  for n = 1, 20 do data[n] = string.format('"key-%d":"%s"', n, string.rep("x", 60)) end
  data = table.concat(data, ",")
end
function request()
  counter = counter + 1
  if mode == "create" then
    local metadata = string.format('{"name":"%s-%d-%d","labels":{"app":"bench"}}', prefix, id, counter)
    local body = '{"apiVersion":"v1","kind":"ConfigMap","metadata":' .. metadata .. ',"data":{' .. data .. '}}'
    return wrk.format("POST", "/api/v1/namespaces/default/configmaps", headers, body)
  end
  return wrk.format("GET", "/api/v1/namespaces/default/configmaps/" .. prefix .. "-" .. (counter % count), headers)
end
local failures = 0
function response(status) if status ~= 200 and status ~= 201 then failures = failures + 1; last = status end end
function done(summary, latency)
  io.write(string.format("\\nRESULT %f %f %f %d\\n", summary.requests / summary.duration * 1e6,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000, summary.errors.status))
end
"""


def wrk(target: Target, scratch: Path, mode: str, prefix: str, count: int, seconds: int, connections: int) -> Load:
    program = shutil.which("wrk")
    assert program is not None, "bench_https looks for it first"
    script = scratch / "load.lua"
    script.write_text(_LUA)
    done = subprocess.run(
        [
            program,
            "-t1",
            f"-c{connections}",
            f"-d{seconds}s",
            "-s",
            str(script),
            target.url,
            "--",
            target.token,
            mode,
            prefix,
            str(count),
        ],
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=True,
    )
    rate, p50, p99, failures = done.stdout.split("RESULT ")[1].split()[:4]
    if int(failures):
        raise RuntimeError(f"{target.name}: {failures} requests of {mode} failed\n{done.stdout}")
    return Load(float(rate), float(p50), float(p99))


@dataclass(frozen=True)
class Load:
    rate: float
    p50: float
    p99: float


def admin(target: Target) -> str:
    return f"{TOKEN}-admin" if target.name == "planform" else "admin-token-for-tests"


def prepare(target: Target, user: str) -> None:
    """Let the ordinary user work with config maps in the default namespace, by a Role and a binding."""
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]
    base = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    role = {"metadata": {"name": "bench"}, "rules": rules}
    binding = {
        "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bench"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    for path, body in ((f"{base}/roles", role), (f"{base}/rolebindings", binding)):
        post(target, path, body, admin(target))
    for number in range(100):
        post(target, "/api/v1/namespaces/default/configmaps", config_map(f"read-{number}"), target.token)


def post(target: Target, path: str, body: Any, token: str) -> None:
    import urllib.request

    context = ssl.create_default_context(cafile=str(target.ca))
    request = urllib.request.Request(
        target.url + path,
        data=orjson.dumps(body),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, context=context).close()


def _has_wrk() -> bool:
    """Whether the program that makes the load is there; where the machine is ours, Debian's is installed."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", "wrk"]):
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300, check=False)
    return shutil.which("wrk") is not None


def bench_https(report: Report, seconds: int, rounds: int) -> None:
    if not _has_wrk():
        report.note("requests over HTTPS are left out: they need wrk (apt-get install wrk)")
        return
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        with real_kubernetes(scratch / "kubernetes") as cluster, planform(scratch / "planform") as (ours, _):
            theirs = Target("kube-apiserver", cluster.url, cluster.user_token, cluster.ca_file)
            prepare(ours, "bench")
            prepare(theirs, cluster.user_name)
            results: dict[tuple[str, str], list[Load]] = {}
            for number in range(rounds):
                for mode, prefix in (("create", f"r{number}"), ("get", "read")):
                    for target in (theirs, ours):
                        load = wrk(target, scratch, mode, prefix, 100, seconds, CONNECTIONS)
                        results.setdefault((target.name, mode), []).append(load)
    for mode, bar in (("create", 1.7), ("get", 3.0)):
        pairs = list(zip(results["planform", mode], results["kube-apiserver", mode], strict=True))
        for index, label in ((0, "planform"), (1, "kube-apiserver + etcd")):
            loads = [pair[index] for pair in pairs]
            report.note(
                f"{mode}: {label} {median(load.rate for load in loads):,.0f}/s, "
                f"p50 {median(load.p50 for load in loads):.1f} ms, p99 {median(load.p99 for load in loads):.1f} ms"
            )
        ratio = median(ours.rate / theirs.rate for ours, theirs in pairs)
        report.at_least(f"{mode}s over HTTPS, {CONNECTIONS} connections / kube-apiserver", ratio, bar)


# -- watch fan-out


WATCHERS, EVENTS = 200, 500


class _Watcher(asyncio.Protocol):
    """Counts events as cheaply as Python can, so that the server is what is measured."""

    MARK = b'{"type":"'

    def __init__(self, request: bytes, begun: asyncio.Future[None], done: asyncio.Future[None]) -> None:
        self._request = request
        self.begun, self.done = begun, done
        self._seen = 0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]  # a stream's transport

    def data_received(self, data: bytes) -> None:
        if not self.begun.done():
            self.begun.set_result(None)
        edge = self._tail + data[: len(self.MARK) - 1]  # a mark may be cut in two
        self._seen += data.count(self.MARK) + (self.MARK in edge)
        self._tail = data[-(len(self.MARK) - 1) :]
        if self._seen >= EVENTS and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(f"a watch ended after {self._seen} events"))


async def fan_out(target: Target) -> float:
    """Deliveries a second from the first write to the last event at the last of the watchers."""
    context = ssl.create_default_context(cafile=str(target.ca))
    host, port = target.url.removeprefix("https://").split(":")
    head = f"Host: {host}\r\nAuthorization: Bearer {target.token}\r\n"
    version = target.get("/api/v1/namespaces/default/configmaps?limit=1")["metadata"]["resourceVersion"]
    path = f"/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={version}"

    loop = asyncio.get_running_loop()
    request = f"GET {path} HTTP/1.1\r\n{head}\r\n".encode()
    watchers = [_Watcher(request, loop.create_future(), loop.create_future()) for _ in range(WATCHERS)]
    for watcher in watchers:
        await loop.create_connection(lambda watcher=watcher: watcher, host, int(port), ssl=context)  # type: ignore[misc]  # a factory

    async def write(connection: int, numbers: range) -> None:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        for number in numbers:
            body = json.dumps(config_map(f"fan-{connection}-{number}")).encode()
            writer.write(
                f"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\n{head}"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()

    await asyncio.gather(*(watcher.begun for watcher in watchers))
    started = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for connection in range(CONNECTIONS):
            share = EVENTS // CONNECTIONS + (connection < EVENTS % CONNECTIONS)
            tasks.create_task(write(connection, range(share)))
        for watcher in watchers:
            await watcher.done
    return WATCHERS * EVENTS / (time.perf_counter() - started)


def bench_watch(report: Report, rounds: int) -> None:
    rates = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name, planform(Path(name)) as (ours, _):
            prepare(ours, "bench")
            rates.append(uvloop.run(fan_out(ours)))
    report.at_least(f"{WATCHERS} watchers x {EVENTS} events over HTTPS", median(rates), 50_000, "deliveries/s")


# -- start, memory and latency at size


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


async def fill(directory: Path, count: int) -> int:
    """Objects of 2 KB stored JSON, managedFields included; returns their mean size."""
    clock = SystemClock()
    async with await open_store(directory, clock=clock, synchronous="NORMAL") as store:
        client = LocalClient(open_engine(store, clock))
        if not await _has_namespace(client):
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        numbers = iter(range(count))

        async def writer() -> None:
            for number in numbers:
                await client.create(config_map(f"big-{number}", size=1425))

        await asyncio.gather(*(writer() for _ in range(256)))
        rows = store.list("configmaps", "default", limit=100)
        return sum(len(entry.value) for _, entry in rows) // len(rows)


async def _has_namespace(client: LocalClient) -> bool:
    return bool((await client.list(gvk("v1", "Namespace"))).items)


async def get_p99(target: Target, prefix: str, count: int, gets: int) -> float:
    """The 99th percentile, in ms, of gets one after another over one connection."""
    context = ssl.create_default_context(cafile=str(target.ca))
    host, port = target.url.removeprefix("https://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    times = []
    for number in range(gets):
        name = f"{prefix}-{number * 7919 % count}"
        started = time.perf_counter()
        writer.write(
            f"GET /api/v1/namespaces/default/configmaps/{name} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {TOKEN}-admin\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(head.decode())
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        times.append(time.perf_counter() - started)
    writer.close()
    return quantiles(times, n=100)[98] * 1000


def bench_size(report: Report, objects: int, gets: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        with planform(scratch / "empty"):
            pass
        starts, memory = [], 0.0
        for _ in range(5):
            with planform(scratch / "empty") as (target, took):
                starts.append(took)
                memory = resident_mb(target.pid)
        report.at_most("start to ready", median(starts), 0.7, "s")
        report.at_most("resident memory, empty, controllers loaded", memory, 80, "MB")
        uvloop.run(fill(scratch / "small" / "data" / "store", 1000))
        size = uvloop.run(fill(scratch / "large" / "data" / "store", objects))
        with planform(scratch / "large") as (large, took), planform(scratch / "small") as (small, _):
            report.note(f"{objects:,} objects of {size:,} bytes each")
            report.at_most(f"start to ready with {objects:,} objects", took, 3.0, "s")
            time.sleep(2)
            ratios = []
            for _ in range(5):
                one = uvloop.run(get_p99(small, "big", 1000, gets))
                two = uvloop.run(get_p99(large, "big", objects, gets))
                ratios.append(two / one)
            report.note(f"p99 of a get: {one:.2f} ms with 1,000 objects, {two:.2f} ms with {objects:,}")
            report.at_most(f"p99 of a get, {objects:,} objects / 1,000", median(ratios), 1.2)
            report.at_most(f"resident memory with {objects:,} objects", resident_mb(large.pid), 600, "MB")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller sizes")
    parser.add_argument("--only", choices=("local", "https", "watch", "size"))
    options = parser.parse_args(arguments)
    report = Report(f"engine, on {os.cpu_count()} cores")
    quick = options.quick
    parts: dict[str, Callable[[], None]] = {
        "local": lambda: bench_local(report, 6_400 if quick else 12_800, 1 if quick else 5),
        "https": lambda: bench_https(report, 4 if quick else 8, 1 if quick else 3),
        "watch": lambda: bench_watch(report, 1 if quick else 3),
        "size": lambda: bench_size(report, 20_000 if quick else 100_000, 1000 if quick else 3000),
    }
    for name, run in parts.items():
        if options.only in (None, name):
            run()
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
