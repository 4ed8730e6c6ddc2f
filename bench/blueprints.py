"""Blueprints: many ActionSets at once, and choosing the versions of their functions.

    python -m bench blueprints [--actionsets 500] [--phases 3] [--resolves 10000]

ActionSets run on the embedded engine with its store on disk, as `planform up` has it; events are written too.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop
from tests.harness.contexts import embedded_context

from bench.report import Report
from planform.api.kinds import Object
from planform.api.names import ACTION_SET, BLUEPRINT
from planform.blueprints.arguments import Arguments
from planform.blueprints.catalogue import Ask, PhaseCatalogue
from planform.blueprints.contract import PhaseContext, PhaseFunction
from planform.blueprints.controller import ActionSetController
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.blueprints.versions import parse_versions
from planform.functions.resolution import Catalogue, Default, Request, Version, resolve

VERSIONS = """
releases: ["0.1", "0.2", "0.3"]
functions:
  Echo:
    stable: v0.1.0
    versions:
      v0.0.0: {introducedIn: "0.1", promotedIn: "0.1"}
      v0.1.0: {introducedIn: "0.1", promotedIn: "0.2"}
      v0.2.0: {introducedIn: "0.2"}
"""


async def echo(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
    """The least a phase can do."""
    return {"text": args.text("text")}


def catalogue() -> PhaseCatalogue:
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    for version in ("v0.0.0", "v0.1.0", "v0.2.0"):
        registry.register(PhaseFunction(name="Echo", run=echo, version=version, required=("text",)))
    return PhaseCatalogue(registry, versions=parse_versions(VERSIONS), release="0.2")


def blueprint(phases: int) -> Object:
    """Each phase says what the one before said."""
    made = [{"func": "Echo", "name": "p0", "args": {"text": "{{ .Object.metadata.name }}"}}]
    for number in range(1, phases):
        text = f"{{{{ .Phases.p{number - 1}.Output.text }}}}"
        made.append({"func": "Echo", "name": f"p{number}", "args": {"text": text}})
    output = {"last": {"keyValue": {"text": f"{{{{ .Phases.p{phases - 1}.Output.text }}}}"}}}
    return {
        "apiVersion": BLUEPRINT.api_version,
        "kind": BLUEPRINT.kind,
        "metadata": {"name": "echo", "namespace": "default"},
        "actions": {"echo": {"phases": made, "outputArtifacts": output}},
    }


def action_set(number: int) -> Object:
    target = {"apiVersion": "v1", "resource": "configmaps", "name": "target", "namespace": "default"}
    return {
        "apiVersion": ACTION_SET.api_version,
        "kind": ACTION_SET.kind,
        "metadata": {"name": f"run-{number}", "namespace": "default"},
        "spec": {"actions": [{"name": "echo", "blueprint": "echo", "object": target}]},
    }


async def seconds_to_complete(count: int, phases: int, directory: Path) -> float:
    """From the first ActionSet's creation until the last one is complete."""
    async with embedded_context(directory) as context:
        client = context.client
        target = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "target", "namespace": "default"}}
        await client.create(target)
        await client.create(blueprint(phases))
        ActionSetController(context, catalogue()).start()
        left = count
        async with client.watch(ACTION_SET, send_initial_events=True) as changes:
            began = time.perf_counter()
            creating = asyncio.gather(*(client.create(action_set(number)) for number in range(count)))
            async for change in changes:
                state = (change.object.get("status") or {}).get("state")
                if state == "failed":
                    raise SystemExit(f"an ActionSet failed: {change.object['status']['error']}")
                left -= state == "complete"
                if not left:
                    break
            took = time.perf_counter() - began
            await creating
        return took


def seconds_to_resolve(count: int) -> tuple[float, float]:
    """Asking a catalogue, which remembers, and deciding each time anew."""
    known = catalogue()
    asks = [Ask("Echo"), Ask("Echo", pin="v0.2.0"), Ask("Echo", hint="v0.0.0"), Ask("Echo", hint="v9.0.0")]
    began = time.perf_counter()
    for number in range(count):
        known.resolve(asks[number % len(asks)])
    remembered = time.perf_counter() - began
    versions = Catalogue(
        Version("Echo", f"v0.{n}.0", stable=n == 1, capabilities=frozenset({"phase"})) for n in range(3)
    )
    requests = [
        Request(each.function, capability="phase", pin=each.pin, hint=each.hint, default=Default.UNVERSIONED)
        for each in asks
    ]
    began = time.perf_counter()
    for number in range(count):
        resolve(versions, requests[number % len(requests)])
    return remembered, time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench blueprints", description=__doc__.splitlines()[0])
    parser.add_argument("--actionsets", type=int, default=500)
    parser.add_argument("--phases", type=int, default=3)
    parser.add_argument("--resolves", type=int, default=10_000)
    options = parser.parse_args(arguments)
    report = Report("Blueprints")
    with tempfile.TemporaryDirectory() as directory:
        took = uvloop.run(seconds_to_complete(options.actionsets, options.phases, Path(directory)))
    report.at_most(f"{options.actionsets} ActionSets of {options.phases} phases to complete", took, 6.0, "s")
    remembered, anew = seconds_to_resolve(options.resolves)
    report.at_most(f"{options.resolves:,} resolves of a phase's version", remembered, 0.2, "s")
    report.at_most(f"{options.resolves:,} resolves, each decided anew", anew, 0.6, "s")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
