"""How fast functions are called and requests are built, each beside a peer measured in the same run.

    python -m bench sdk [--seconds 0.3] [--rounds 12]

Servers are processes of their own on loopback; 32 calls are in flight; many short rounds are interleaved and their
sums compared, so that whatever else the machine does hits all alike.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import itertools
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from statistics import mean, median
from typing import Any

import grpc
import grpc.aio
from google.protobuf import json_format
from tests.interop.conftest import Authority, client_credentials

from bench.report import Report
from planform_sdk import Request, Response, function
from planform_sdk.proto import METHODS, v1
from planform_sdk.server import FunctionServer, Settings
from planform_sdk.types import Resource, ResourceMap, RunFunctionRequest, State
from planform_sdk.wire import Codec

IN_FLIGHT = 32
ROUNDS_PER_SERVER = 3
NAMES = [f"resource-{number}" for number in range(5)]
SERIAL = b"serial-00000000"  # replaced before each call, so that no two are alike


def made_object(number: int) -> dict[str, Any]:
    """An object of about 3 KB of JSON, like a Deployment in shape."""
    labels = {f"app.kubernetes.io/label-{i}": f"value-{i}" for i in range(8)}
    containers = [
        {
            "name": f"container-{i}",
            "image": "registry.example/app:1.2.3",
            "env": [{"name": f"VARIABLE_{j}", "value": f"value {j}"} for j in range(8)],
            "ports": [{"containerPort": 8080 + i, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "250m", "memory": "64Mi"}},
        }
        for i in range(2)
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": f"web-{number}",
            "namespace": "default",
            "labels": labels,
            "annotations": {f"example.org/annotation-{i}": "x" * 40 for i in range(8)},
        },
        "spec": {
            "replicas": number,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
        "status": {"replicas": 3, "ratio": 0.5, "conditions": [{"type": "Ready", "status": "True", "message": "fine"}]},
    }


@function
def trivial(req: Request[Any], rsp: Response) -> None:
    """Wants what earlier steps want."""


@function
def five(req: Request[Any], rsp: Response) -> None:
    """Wants each observed object, with one more replica than it has."""
    for name in NAMES:
        wanted = req.observed.resources[name].resource
        wanted["spec"]["replicas"] += 1
        rsp.desired.resources[name] = wanted


async def serve(which: str, certificates: Path | None) -> None:
    """Serve until standard input ends; say the port first."""
    settings = Settings("127.0.0.1:0", insecure=certificates is None, tls_certs_dir=certificates, grace_seconds=0.1)
    if which in ("trivial", "five"):
        server = FunctionServer({"trivial": trivial, "five": five}[which], settings)
        await server.start()
        print(server.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await server.stop()
        return
    bare = grpc.aio.server()
    if which == "echo":
        bare.add_generic_rpc_handlers((_echo(),))
    else:
        _add_upstream(bare)
    print(bare.add_insecure_port("127.0.0.1:0"), flush=True)
    await bare.start()
    await asyncio.to_thread(sys.stdin.read)
    await bare.stop(0.1)


def _echo() -> grpc.GenericRpcHandler:
    async def echo(data: bytes, context: Any) -> bytes:
        return data

    service = METHODS["v1"].split("/")[1]
    methods = {"RunFunction": grpc.unary_unary_rpc_method_handler(echo)}
    return grpc.method_handlers_generic_handler(service, methods)


def _add_upstream(server: grpc.aio.Server) -> None:
    """The function `five` on Crossplane's Python SDK."""
    stubs: Any = import_module("crossplane.function.proto.v1.run_function_pb2_grpc")
    resource: Any = import_module("crossplane.function.resource")
    response: Any = import_module("crossplane.function.response")

    class Five:
        async def RunFunction(self, req: Any, _: Any) -> Any:
            rsp = response.to(req)
            for name in NAMES:
                wanted = resource.struct_to_dict(req.observed.resources[name].resource)
                wanted["spec"]["replicas"] += 1
                resource.update(rsp.desired.resources[name], wanted)
            return rsp

    stubs.add_FunctionRunnerServiceServicer_to_server(Five(), server)


@contextmanager
def served(which: str, certificates: Path | None = None) -> Iterator[int]:
    """Start a server in a process of its own; give its port."""
    command = [sys.executable, "-m", "bench.sdk", "--serve", which]
    command += ["--certificates", str(certificates)] if certificates else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(timeout=20)


async def calls_a_second(port: int, request: bytes, seconds: float, certificates: Path | None = None) -> float:
    target = f"localhost:{port}"
    if certificates is None:
        channel = grpc.aio.insecure_channel(target)
    else:
        channel = grpc.aio.secure_channel(target, client_credentials(certificates))
    async with channel:
        call = channel.unary_unary(METHODS["v1"])
        await call(request, timeout=20)
        done, end = 0, time.perf_counter() + seconds

        async def caller() -> None:
            nonlocal done
            while time.perf_counter() < end:
                await call(request.replace(SERIAL, b"serial-%08d" % next(_SERIALS)), timeout=20)
                done += 1

        started = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
        return done / (time.perf_counter() - started)


_SERIALS = itertools.count(1)


def one_object_request() -> bytes:
    state = State(Resource({"kind": "X"}), ResourceMap({"web": made_object(1)}))
    return Codec().encode_request(RunFunctionRequest(desired=state))


def five_object_request(*, changed: int) -> bytes:
    """A request of five objects, so many of which have a serial number that each call replaces."""
    objects = [made_object(number) for number in range(5)]
    for each in objects[:changed]:
        each["metadata"]["annotations"]["serial"] = SERIAL.decode()
    observed = State(resources=ResourceMap(dict(zip(NAMES, objects, strict=True))))
    return Codec().encode_request(RunFunctionRequest(observed=observed))


def throughput(report: Report, seconds: float, rounds: int) -> None:
    """New servers every few rounds, since a process keeps the luck it had with memory and cores at its start."""
    figures: dict[str, list[float]] = defaultdict(list)
    one, few, all_five = one_object_request(), five_object_request(changed=1), five_object_request(changed=5)
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority("bench")
        server_side = authority.issue(Path(folder) / "server", "server")
        caller_side = authority.issue(Path(folder) / "caller", "caller")
        for first in range(0, rounds, ROUNDS_PER_SERVER):
            with ExitStack() as stack:
                echo, plain, ours, theirs = (
                    stack.enter_context(served(which)) for which in ("echo", "trivial", "five", "upstream")
                )
                secure = stack.enter_context(served("trivial", server_side))
                for _ in range(first, min(rounds, first + ROUNDS_PER_SERVER)):
                    for name, port, request, certificates in (
                        ("echo", echo, one, None),
                        ("trivial", plain, one, None),
                        ("trivial, TLS", secure, one, caller_side),
                        ("five", ours, few, None),
                        ("five, upstream", theirs, few, None),
                        ("all five", ours, all_five, None),
                        ("all five, upstream", theirs, all_five, None),
                    ):
                        figures[name].append(asyncio.run(calls_a_second(port, request, seconds, certificates)))

    def ratio(name: str, peer: str) -> float:
        return sum(figures[name]) / sum(figures[peer])

    report.note("calls/s: " + ", ".join(f"{name} {mean(each):,.0f}" for name, each in figures.items()))
    report.at_least("a trivial function, against a bare echo", ratio("trivial", "echo"), 0.8)
    report.at_least("a trivial function with mutual TLS, against without", ratio("trivial, TLS", "trivial"), 0.8)
    report.at_least("five resources, one changed, against Crossplane's SDK", ratio("five", "five, upstream"), 1.5)
    report.at_least(
        "five resources, all changed, against Crossplane's SDK", ratio("all five", "all five, upstream"), 1.5
    )


def building(report: Report, rounds: int) -> None:
    """Ten observed objects, one of which changes before each request."""
    codec, objects = Codec(), [made_object(number) for number in range(10)]
    names = [f"resource-{number}" for number in range(10)]
    turns = itertools.count()

    def ours() -> bytes:
        turn = next(turns)
        objects[0]["spec"]["replicas"] = turn
        versions = [("uid-0", str(turn)), *((f"uid-{number}", "1") for number in range(1, 10))]
        resources = (Resource(each, version=version) for each, version in zip(objects, versions, strict=True))
        observed = State(resources=ResourceMap(dict(zip(names, resources, strict=True))))
        return codec.encode_request(RunFunctionRequest(observed=observed))

    def theirs() -> bytes:
        objects[0]["spec"]["replicas"] = next(turns)
        message = v1.RunFunctionRequest()
        for name, each in zip(names, objects, strict=True):
            json_format.ParseDict(each, message.observed.resources[name].resource)
        return message.SerializeToString()

    before = copy.deepcopy(objects)
    mine, peer = [], []
    for _ in range(rounds):
        mine.append(_seconds(ours, 200))
        peer.append(_seconds(theirs, 20))
    assert objects[1:] == before[1:]
    report.note(f"ours {median(mine) * 1e6:,.0f} µs, json_format {median(peer) * 1e6:,.0f} µs")
    ratio = median(other / one for one, other in zip(mine, peer, strict=True))
    report.at_least("building a request of ten objects, one changed", ratio, 10)


def _seconds(run: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - started) / times


def footprint(report: Report) -> None:
    """The best of several imports, since the first reads from disk; and what a serving process keeps at rest."""
    program = "import time; t = time.perf_counter(); import planform_sdk; print(time.perf_counter() - t)"
    imports = [float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(3)]
    report.at_most("importing planform_sdk", min(imports), 0.25, "s")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "idle.py"
        file.write_text("from planform_sdk import function\n\n@function\ndef idle(req, rsp): ...\n")
        command = [sys.executable, "-m", "planform_sdk", "serve", str(file), "--insecure"]
        command += ["--network", "unix", "--address", f"{folder}/socket"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            assert process.stderr
            process.stderr.readline()
            status = Path(f"/proc/{process.pid}/status").read_text()
            process.terminate()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    report.at_most("resident memory of an idle function", resident / 1024, 50, "MB")


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="bench sdk")
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each round of calls")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--certificates", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        asyncio.run(serve(options.serve, options.certificates))
        return 0
    report = Report("planform-sdk: calls, requests, footprint")
    building(report, options.rounds)
    throughput(report, options.seconds, options.rounds)
    footprint(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
