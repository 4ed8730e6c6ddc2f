"""How long a preview takes over many XRs of four resources each, beside composing the same XRs once.

    python -m bench preview [--xrs 1000] [--quick]

The limit is 8 ms for an XR with built-in functions (8 s for 1,000). The ratio is to creating the same XRs and waiting
until all are ready, in the same process.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from collections.abc import Sequence
from typing import Any

from tests.controllers.composing import Platform, a_platform
from tests.harness.contexts import embedded_context

from bench.report import Report
from planform.api.kinds import Object, gvk
from planform.preview.candidate_functions import InstalledFunctions
from planform.preview.sessions import Findings, open_previewer, run_preview

LIMIT_SECONDS_PER_XR = 0.008


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench preview", description=__doc__)
    parser.add_argument("--xrs", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="100 XRs")
    options = parser.parse_args(arguments)
    return asyncio.run(_run(100 if options.quick else options.xrs))


async def _run(count: int) -> int:
    async with embedded_context() as context, a_platform(context, "bench") as platform:
        await platform.compose(*_steps("1"))
        started = time.perf_counter()
        xrs = [await platform.create(f"x{number}", spec={"size": str(number)}) for number in range(count)]
        await asyncio.gather(*(platform.ready(xr) for xr in xrs))
        composing = time.perf_counter() - started
        await platform.at_rest(xrs[0], xrs[-1])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report = Report(f"preview of {count} XRs, {composing:.2f} s to compose them")
        for name, value in (("nothing changes", "1"), ("one field of each resource changes", "2")):
            started = time.perf_counter()
            found = await _preview(platform, platform.composition(*_steps(value)))
            seconds = time.perf_counter() - started
            assert found.classes.summary.xrs == count
            report.at_most(name, seconds, max(1.0, LIMIT_SECONDS_PER_XR * count), "s")
            report.note(f"{seconds / count * 1000:.1f} ms for an XR, {seconds / composing:.2f} of composing it")
        few = min(count, 30)
        started = time.perf_counter()
        await _preview(platform, platform.composition(*_steps("2")), sample=few)
        report.at_most(f"{few} of them, one field of each resource", time.perf_counter() - started, 1.0, "s")
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report.note(f"memory above rest: {(after - before) / 1024:.0f} MiB")
        return 1 if report.failures else 0


async def _preview(platform: Platform, candidate: Object, *, sample: int = 0) -> Findings:
    from planform.api.previews import PreviewedChange, PreviewSpec, Scope
    from planform.features import FeatureGates

    controllers = platform.controllers
    assert controllers is not None
    functions = InstalledFunctions(
        platform.client, lambda: controllers.functions.catalogue, controllers.temporary_activation
    )
    spec = PreviewSpec(change=PreviewedChange(manifests=[candidate]), scope=Scope(sample=sample))
    async with open_previewer(
        spec,
        client=platform.client,
        functions=functions,
        pipelines=controllers.pipelines,
        features=FeatureGates({}),
    ) as previewer:
        return await run_preview(previewer, spec.scope)


def _steps(value: str) -> tuple[Object, ...]:
    resources: list[Any] = [
        {
            "name": f"r{number}",
            "base": {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind, "data": {"fixed": value}},
            "patches": [{"type": "FromCompositeFieldPath", "fromFieldPath": "spec.size", "toFieldPath": "data.size"}],
            "readinessChecks": [{"type": "None"}],
        }
        for number in range(4)
    ]
    return (
        {
            "step": "compose",
            "functionRef": {"name": "function-patch-and-transform"},
            "input": {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": resources},
        },
        {"step": "ready", "functionRef": {"name": "function-auto-ready"}},
    )


CONFIG_MAP = gvk("v1", "ConfigMap")
