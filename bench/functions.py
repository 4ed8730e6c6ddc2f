"""Calling functions as a control plane does, from values to values, each figure beside a peer or a bar.

    python -m bench functions [--seconds 0.3] [--rounds 8]

Servers are processes of their own on loopback; 32 calls are in flight. Rounds of both sides are interleaved, so that
whatever else the machine does hits them alike. What a function's own side costs is in `bench sdk`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

import uvloop
from google.protobuf import json_format
from tests.harness.function_server import function_server
from tests.interop.conftest import Authority

from bench.report import Report
from bench.sdk import IN_FLIGHT, calls_a_second, made_object, one_object_request, served
from planform.builtin.python import function as inline_python
from planform.clock import SystemClock
from planform.functions.cache import CacheOutcome, ResponseCache
from planform.functions.endpoints import ClientTls, FixedEndpoints, Remote
from planform.functions.grpc_transport import GrpcRunner
from planform.functions.inprocess import InProcessRunner
from planform.functions.resolution import Catalogue, Version
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import (
    FunctionRequest,
    FunctionResponse,
    Object,
    Resource,
    ResourceSelector,
    SchemaSelector,
    State,
    respond,
)
from planform.functions.wire import CallerCodec
from planform.pipeline.pipeline import PipelineOutcome, resolver_for, run_pipeline
from planform.pipeline.steps import parse_pipeline
from planform_sdk.proto import v1

STEPS = 7
XRS = 50
_SERIALS = itertools.count(1)


class PassOn:
    """The least a built-in can do."""

    name = "pass-on"
    deterministic = True

    def __call__(self, request: FunctionRequest, /) -> FunctionResponse:
        return respond(request)


class Nothing:
    """A world without objects."""

    async def read(self, selector: ResourceSelector, /) -> Sequence[Object]:
        return []

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        return None


async def runner_calls_a_second(remote: Remote, seconds: float) -> float:
    revision = FunctionRevision("fn", "fn-1", "d")
    async with GrpcRunner(FixedEndpoints({"fn": remote})) as runner:

        async def call() -> None:
            desired = made_object(1)
            desired["metadata"]["annotations"]["serial"] = f"serial-{next(_SERIALS):08}"
            observed = State(Resource({"kind": "X", "metadata": {"uid": str(next(_SERIALS) % IN_FLIGHT)}}))
            request = FunctionRequest(observed, State(resources={"web": Resource(desired)}), tag="t")
            response = await runner.run(revision, request, timeout=20)
            assert response.desired.resources["web"].resource == desired

        await call()
        done, end = 0, time.perf_counter() + seconds

        async def caller() -> None:
            nonlocal done
            while time.perf_counter() < end:
                await call()
                done += 1

        started = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
        return done / (time.perf_counter() - started)


def throughput(report: Report, seconds: float, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        authority = Authority("bench")
        server_side = authority.issue(Path(folder) / "server", "server")
        ours = authority.issue(Path(folder) / "caller", "caller")
        tls = ClientTls(*((ours / name).read_bytes() for name in ("ca.crt", "tls.crt", "tls.key")))
        echo, plain = stack.enter_context(served("echo")), stack.enter_context(served("trivial"))
        secure = stack.enter_context(served("trivial", server_side))
        bare = one_object_request()
        runs: dict[str, Callable[[], Awaitable[float]]] = {
            "bare echo": lambda: calls_a_second(echo, bare, seconds),
            "from values to values": lambda: runner_calls_a_second(Remote(f"localhost:{plain}"), seconds),
            "with mutual TLS": lambda: runner_calls_a_second(Remote(f"localhost:{secure}", tls), seconds),
        }
        figures: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                figures[name].append(_run(run()))
    report.note("calls/s: " + ", ".join(f"{name} {mean(each):,.0f}" for name, each in figures.items()))
    values = sum(figures["from values to values"])
    report.note(f"from values to values, against an echo of bytes: {values / sum(figures['bare echo']):.2f} x")
    report.at_least("a call with mutual TLS, against one without", sum(figures["with mutual TLS"]) / values, 0.8)


def building(report: Report, rounds: int) -> None:
    """Ten observed objects, one of which changes before each request."""
    codec, objects = CallerCodec(), [made_object(number) for number in range(10)]
    turns = itertools.count()

    async def ours(times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            objects[0]["spec"]["replicas"] = next(turns)
            resources = {f"resource-{number}": Resource(each) for number, each in enumerate(objects)}
            await codec.encode(FunctionRequest(State(resources=resources)))
        return (time.perf_counter() - started) / times

    def theirs(times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            objects[0]["spec"]["replicas"] = next(turns)
            message = v1.RunFunctionRequest()
            for number, each in enumerate(objects):
                json_format.ParseDict(each, message.observed.resources[f"resource-{number}"].resource)
            message.SerializeToString()
        return (time.perf_counter() - started) / times

    pairs = [(_run(ours(100)), theirs(10)) for _ in range(rounds)]
    mine, peer = median(one for one, _ in pairs), median(other for _, other in pairs)
    report.note(f"ours {mine * 1e6:,.0f} µs, json_format {peer * 1e6:,.0f} µs")
    report.at_least("building a request of ten objects, one changed", median(b / a for a, b in pairs), 10)


async def piped(runner: FunctionRunner, functions: Sequence[str], **options: Any) -> PipelineOutcome:
    extra = options.pop("step", {})
    steps = [{"step": f"s{number}", "functionRef": {"name": name}, **extra} for number, name in enumerate(functions)]
    catalogue = Catalogue(Version(name, f"{name}-1", deterministic=True) for name in dict.fromkeys(functions))
    observed = options.pop("observed", State(Resource({"kind": "X", "metadata": {"uid": "x"}})))
    return await run_pipeline(
        parse_pipeline({"pipeline": steps}),
        observed=observed,
        resolver=resolver_for(catalogue),
        runner=runner,
        reader=Nothing(),
        clock=SystemClock(),
        **options,
    )


def pipeline(report: Report, rounds: int) -> None:
    """What the pipeline itself costs with ten observed 3 KB objects, and what an unchanged XR costs."""
    observed = State(resources={f"r{number}": Resource(made_object(number)) for number in range(10)})

    async def runs(times: int, cache: ResponseCache | None) -> float:
        runner = InProcessRunner([PassOn()])
        await piped(runner, ["pass-on"] * STEPS, observed=observed, cache=cache)
        started = time.perf_counter()
        for _ in range(times):
            outcome = await piped(runner, ["pass-on"] * STEPS, observed=observed, cache=cache)
        if cache is not None:
            assert all(step.cache is CacheOutcome.HIT for step in outcome.steps)
        return (time.perf_counter() - started) / times

    called = min(_run(runs(20, None)) for _ in range(rounds))
    cached = min(_run(runs(20, ResponseCache(SystemClock()))) for _ in range(rounds))
    report.at_most(f"{STEPS} built-in steps that do nothing, parsing included", called * 1e3, 2.0, "ms")
    report.at_most("the same from the cache", cached * 1e3, 2.0, "ms")


def faults(report: Report, rounds: int) -> None:
    """The p99 of fifty healthy XRs' calls while another function hangs, babbles and never settles.

    First nobody misbehaves: that ratio is the noise of this machine, and the others are to be read beside it.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        good = stack.enter_context(function_server(Path(folder), "good"))
        bad = stack.enter_context(function_server(Path(folder), "bad"))
        places = FixedEndpoints({"good": Remote(good.target), "bad": Remote(bad.target)})
        noise = _run(_latencies(places, {}, rounds))
        report.note(f"p99 of {XRS} XRs alone {noise[0] * 1e3:.0f} ms; once more alone {noise[1] / noise[0]:.2f} x")
        for mode in ({"mode": "hang"}, {"mode": "babble", "size": 100 << 20}, {"mode": "restless"}):
            alone, beside = _run(_latencies(places, mode, rounds))
            report.at_most(f"p99 of {XRS} XRs while a function has mode {mode['mode']!r}", beside / alone, 2.0)


async def _latencies(places: FixedEndpoints, mode: dict[str, Any], rounds: int) -> tuple[float, float]:
    bad_step = {"input": {"apiVersion": "t/v1", "kind": "Mode", **mode}, "timeout": "1s"}
    alone: list[float] = []
    beside: list[float] = []
    async with GrpcRunner(places) as runner:

        async def one() -> float:
            started = time.perf_counter()
            assert (await piped(runner, ["good"])).failure is None
            return time.perf_counter() - started

        async def everyone() -> list[float]:
            return await asyncio.gather(*(one() for _ in range(XRS)))

        for _ in range(3):  # connections, codecs and the server warm up
            await everyone()
        for _ in range(rounds):
            alone += await everyone()
            misbehaving = asyncio.create_task(piped(runner, ["bad"], step=bad_step)) if mode else None
            await asyncio.sleep(0.02)
            beside += await everyone()
            if misbehaving is not None:
                assert (await misbehaving).failure is not None
    return quantiles(alone, n=100)[-1], quantiles(beside, n=100)[-1]


def scripts(report: Report) -> None:
    script = {"apiVersion": "python.fn.crossplane.io/v1beta1", "kind": "Script"}
    request = FunctionRequest(input=script | {"script": "def compose(req, rsp): pass"})

    async def runs() -> list[float]:
        times = []
        for _ in range(6):
            started = time.perf_counter()
            assert (await inline_python.run(request, timeout=20)).fatal is None
            times.append(time.perf_counter() - started)
        return times

    report.at_most("an inline Python script, a sandboxed process per call", median(_run(runs())) * 1e3, 500, "ms")


def _run(work: Any) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(work)


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="bench functions")
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each round of calls")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args(arguments)
    report = Report("functions: calls, pipelines, faults")
    building(report, options.rounds)
    pipeline(report, options.rounds)
    throughput(report, options.seconds, options.rounds)
    faults(report, 2 * options.rounds)
    scripts(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
