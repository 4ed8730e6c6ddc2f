"""One preview from its beginning to its end: open both sides, go through the XRs a few at a time, class findings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.previews import PreviewSpec, Scope, XrEntry
from planform.client.protocol import Client
from planform.errors import PlanformError
from planform.features import FeatureGates
from planform.pipeline.expectation import plan_digest
from planform.pipeline.pipeline import ReadSettings
from planform.pipeline.running import Pipelines
from planform.preview.candidates import Functions, candidate_of
from planform.preview.classes import Classes, XrResult
from planform.preview.dry_runs import DryRuns
from planform.preview.patience import PatientRunner
from planform.preview.previewing import Previewer
from planform.preview.schema_applies import SchemaApplies
from planform.preview.side_runs import RunWith
from planform.preview.sides import live_side
from planform.xrs.index import Definition

AT_ONCE: Final = 8

Owns = Callable[[Definition, Object], bool]


def _first_of(group: ExceptionGroup[PlanformError]) -> PlanformError:
    """An error of a group, by itself."""
    error = group.exceptions[0]
    return _first_of(error) if isinstance(error, ExceptionGroup) else error


async def _at_once(work: Coroutine[Any, Any, list[XrResult]]) -> list[XrResult]:
    return await work


async def _silent(_: Findings) -> None:
    """Nobody is told."""


@dataclass
class Findings:
    """What a preview, or one shard's part of it, found out."""

    classes: Classes = field(default_factory=Classes)
    entries: list[XrEntry] = field(default_factory=list)
    plan: str = ""
    done: int = 0
    total: int = 0
    notes: list[str] = field(default_factory=list)
    expectations: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def open_previewer(
    spec: PreviewSpec,
    *,
    client: Client,
    functions: Functions,
    pipelines: Pipelines,
    features: FeatureGates,
    dry_run: bool = True,
    ask_first: bool = False,
) -> AsyncIterator[Previewer]:
    """Both sides of a change; functions that only the candidate calls run while the block does."""
    async with AsyncExitStack() as stack:
        dry_runs = DryRuns(client, ask_first=ask_first)
        baseline = await live_side(client, functions.resolver())
        candidate, reach = await candidate_of(spec.change, baseline, dry_runs, functions, stack)
        reads = ReadSettings(
            deny_by_default=features.enabled("DenyExtraResourcesByDefault"),
            requirements_enabled=features.enabled("CompositionFunctionsExtraResources"),
            confined_to="-" if features.enabled("ConfineNamespacedReads") else "",
        )
        around = RunWith(
            dry_runs=dry_runs,
            schemas=SchemaApplies(client),
            pipelines=pipelines,
            reads=reads,
            runner=PatientRunner(pipelines.runner),
            dry_run=dry_run,
        )
        yield Previewer(baseline, candidate, reach, around, include_manual=spec.scope.include_manual)


async def run_preview(
    previewer: Previewer,
    scope: Scope,
    *,
    owns: Owns = lambda _definition, _xr: True,
    at_once: int = AT_ONCE,
    through: Callable[[Coroutine[Any, Any, list[XrResult]]], Awaitable[list[XrResult]]] = _at_once,
    progress: Callable[[Findings], Awaitable[None]] = _silent,
) -> Findings:
    """Look at every XR that the change reaches and that is ours. Cancelling leaves nothing behind."""
    findings = Findings()
    results: dict[tuple[str, str, str], XrResult] = {}
    xrs = previewer.xrs(scope)
    lock, idle = asyncio.Lock(), asyncio.Event()
    idle.set()

    async def following() -> tuple[Definition, Object] | None:
        """The next XR, which counts as under way from here on."""
        async with lock:  # an async generator serves one at a time
            async for found in xrs:
                if found is None:
                    await idle.wait()  # nobody takes another one meanwhile: we hold the lock
                elif owns(*found):
                    findings.total += 1
                    idle.clear()
                    return found
        return None

    async def work() -> None:
        while found := await following():
            for result in await through(previewer.preview(*found)):
                results[result.key] = result
            findings.done += 1
            if findings.done == findings.total:
                idle.set()
            await progress(findings)
            await asyncio.sleep(0)  # whoever else waits for the loop comes first

    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(at_once):
                tasks.create_task(work(), name=f"preview {number}")
    except ExceptionGroup as group:  # of whoever is told of the progress: an XR's own end in its result
        ours = group.subgroup(PlanformError)
        if ours is None:
            raise
        raise _first_of(ours) from None
    for _, result in sorted(results.items()):
        findings.entries.append(findings.classes.add(result))
    findings.classes.summary.pinned = previewer.pinned
    findings.notes = list(previewer.reach.findings)
    findings.plan = plan_digest({"/".join(key): each.expectation for key, each in results.items()})
    return findings
