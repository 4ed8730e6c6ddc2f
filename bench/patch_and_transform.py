"""How long the built-in patch-and-transform takes: ten resources, forty patches, everything observed.

python -m bench patch_and_transform [--calls 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.harness.programs import ProgramMissing
from tests.interop.published import serving

from bench.report import Report
from planform.builtin.patch_and_transform import function
from planform.functions.values import FunctionRequest, Object, Ready, Resource, State

RESOURCES = 10
IN_FLIGHT = 32


def bucket(index: int) -> Object:
    """About 3 KB, as a provider's managed resource has it."""
    return {
        "apiVersion": "s3.aws.example.org/v1beta1",
        "kind": "Bucket",
        "metadata": {
            "labels": {f"label-{n}": f"value-{n}" for n in range(8)},
            "annotations": {
                f"example.org/annotation-{n}": "text of some length, as annotations have" for n in range(8)
            },
        },
        "spec": {
            "forProvider": {
                "region": "eu-central-1",
                "rules": [
                    {"id": f"rule-{n}", "enabled": True, "days": n * 30, "filter": {"prefix": f"logs/{n}", "tags": []}}
                    for n in range(10)
                ],
                "tags": {f"tag-{n}": f"value {index}" for n in range(10)},
            },
            "providerConfigRef": {"name": "default"},
        },
    }


def patches() -> list[Object]:
    """Four: a copy, a format, a combination and a way back, which is what compositions mostly have."""
    upper: Object = {"type": "string", "string": {"type": "Convert", "convert": "ToUpper"}}
    named: Object = {"type": "string", "string": {"type": "Format", "fmt": "%s-bucket"}}
    combined: Object = {
        "variables": [{"fromFieldPath": "metadata.name"}, {"fromFieldPath": "spec.parameters.size"}],
        "strategy": "string",
        "string": {"fmt": "%s-%v"},
    }
    return [
        {"fromFieldPath": "spec.parameters.region", "toFieldPath": "spec.forProvider.region"},
        {"fromFieldPath": "spec.parameters.team", "toFieldPath": "metadata.labels[team]", "transforms": [upper, named]},
        {
            "type": "CombineFromComposite",
            "combine": combined,
            "toFieldPath": "metadata.annotations[example.org/id]",
            "policy": {"fromFieldPath": "Required"},
        },
        {"type": "ToCompositeFieldPath", "fromFieldPath": "status.atProvider.arn", "toFieldPath": "status.arn"},
    ]


def request() -> FunctionRequest:
    """One XR whose resources all exist and are ready."""
    xr = {
        "apiVersion": "example.org/v1",
        "kind": "XStorage",
        "metadata": {"name": "storage", "uid": "0b7e2f0e-5a0e-4a0e-9d1c-0a1b2c3d4e5f"},
        "spec": {"parameters": {"region": "us-east-1", "team": "blue", "size": 12}},
    }
    names = [f"bucket-{index}" for index in range(RESOURCES)]
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "atProvider": {"arn": "arn:example:s3:::bucket"}}
    observed: dict[str, Any] = {}
    for index, name in enumerate(names):
        found = bucket(index)
        found["metadata"]["name"] = f"storage-{name}"
        observed[name] = Resource({**found, "status": ready})
    templates = [{"name": name, "base": bucket(index), "patches": patches()} for index, name in enumerate(names)]
    spec = {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": templates}
    return FunctionRequest(observed=State(Resource(xr), observed), input=spec)


async def published(asked: FunctionRequest, calls: int) -> float:
    """Calls a second of the Go function, as our runner makes them. Raises ProgramMissing."""
    with tempfile.TemporaryDirectory() as directory:
        async with serving("function-patch-and-transform", Path(directory)) as go:
            answer = await go(asked)
            assert answer.fatal is None and len(answer.desired.resources) == RESOURCES

            async def caller() -> None:
                for _ in range(calls // IN_FLIGHT):
                    await go(asked)

            started = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(IN_FLIGHT):
                    tasks.create_task(caller())
            return calls // IN_FLIGHT * IN_FLIGHT / (time.perf_counter() - started)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    calls = parser.parse_args(arguments).calls
    asked = request()

    started = time.perf_counter()
    answer = function(asked)
    first = time.perf_counter() - started
    assert answer.fatal is None and len(answer.desired.resources) == RESOURCES
    assert all(each.ready is Ready.TRUE for each in answer.desired.resources.values())

    times = []
    for _ in range(calls):
        started = time.perf_counter()
        function(asked)
        times.append(time.perf_counter() - started)
    report = Report("patch-and-transform: 10 resources of 3 KB, 40 patches")
    report.note(f"first call, which compiles the input: {first * 1e6:,.0f} µs")
    report.note(
        f"later calls: median {median(times) * 1e6:,.0f} µs, p99 {sorted(times)[int(calls * 0.99)] * 1e6:,.0f} µs"
    )
    report.at_most("one warm call, median", median(times) * 1e6, 1000, "µs")
    try:
        peer = asyncio.run(published(asked, calls))
    except ProgramMissing as error:
        report.note(f"not compared with the Go function: {error}")
    else:
        report.note(f"{calls / sum(times):,.0f} calls/s; the Go function over gRPC: {peer:,.0f} calls/s")
        report.at_least("throughput, of that of the Go function over gRPC", calls / sum(times) / peer, 1.0)
    return 1 if report.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
