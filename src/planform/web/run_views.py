"""One run of a pipeline, a lane for each step, from the journal's record, which is masked already."""

from __future__ import annotations

from typing import Any, Final, Literal

import orjson

from planform.errors import PlanformError
from planform.journal import explaining
from planform.journal.records import Run, StepRun, read_run, read_summaries
from planform.web import rows
from planform.web.answers import (
    FieldDiff,
    PlannedRow,
    ReadRow,
    ResourceDiff,
    ResultRow,
    RunDetail,
    RunPage,
    StepLane,
)
from planform.web.context import Looker
from planform.web.overview_views import Query, one
from planform.web.xr_views import run_row

MAX_FIELDS: Final = 200
_VALUE: Final = 400
_ACTIONS: Final[dict[str, Literal["added", "changed", "removed"]]] = {"added": "added", "removed": "removed"}


async def run_page(looker: Looker, uid: str, query: Query) -> RunPage:
    found = read_summaries(await looker.upstream.runs(uid, limit=one(query, "limit") or "50"))
    return RunPage(rows=tuple(run_row(each) for each in found))


async def run_detail(looker: Looker, uid: str, number: str) -> RunDetail:
    run = read_run(await looker.upstream.runs(uid, f"/{number}"))
    older = newer = 0
    try:
        around = sorted(each.id for each in read_summaries(await looker.upstream.runs(uid, limit="1000")))
    except PlanformError:
        around = []
    if run.id in around:
        place = around.index(run.id)
        older = around[place - 1] if place else 0
        newer = around[place + 1] if place + 1 < len(around) else 0
    group = run.api_version.rpartition("/")[0]
    return RunDetail(
        id=run.id,
        uid=run.uid,
        kind=run.kind,
        group=group,
        namespace=run.namespace,
        name=run.name,
        link=rows.link_of(group, run.kind, run.namespace, run.name)
        if (group, run.kind) in looker.mirror.xr_kinds()
        else "",
        started=run.started.isoformat(),
        seconds=run.seconds,
        trigger=run.trigger,
        composition=run.composition,
        revision=run.composition_revision,
        failure=rows.text(run.failure),
        steps=tuple(_lanes(run)),
        plan=tuple(
            PlannedRow(
                resource=each.resource,
                action=each.action,
                kind=each.kind,
                name=each.name,
                namespace=each.namespace,
                ready=each.ready,
            )
            for each in run.plan or ()
        ),
        planned=run.plan is not None,
        warnings=run.warnings,
        older=older,
        newer=newer,
    )


def _lanes(run: Run) -> list[StepLane]:
    lanes = []
    total = sum(step.seconds for step in run.steps)
    start = max(0.0, run.seconds - total) / 2  # what is no step (observing, planning) is before and after them
    for (step, changes), ready in zip(explaining.changes_by_step(run), explaining.ready_by_step(run), strict=True):
        lanes.append(_lane(step, changes, ready, start))
        start += step.seconds
    return lanes


def _lane(step: StepRun, changes: list[explaining.ResourceChange], ready: dict[str, bool], start: float) -> StepLane:
    return StepLane(
        step=step.step,
        function=step.function,
        revision=step.revision,
        rule=step.rule,
        rejected=tuple((each.id, each.why) for each in step.rejected),
        iterations=step.iterations,
        cache=step.cache,
        start=start,
        seconds=step.seconds,
        changes=tuple(_change(each) for each in changes if each.fields or each.key != explaining.XR),
        reads=tuple(
            ReadRow(name=name, kind=read.kind, found=tuple(_named(part.value) for part in read.found))
            for name, read in step.reads.items()
        ),
        results=tuple(
            ResultRow(severity=each.severity, reason=each.reason, message=rows.text(each.message))
            for each in step.results
        ),
        ready=ready,
        warnings=step.warnings,
        error=rows.text(step.error),
    )


def _named(value: Any) -> str:
    return rows.text(rows.mapping(rows.mapping(value).get("metadata")).get("name"))


def _change(change: explaining.ResourceChange) -> ResourceDiff:
    fields = list(change.fields)
    if not fields and change.action == "added":
        fields = list(explaining.field_changes({}, change.object))
    return ResourceDiff(
        key="XR" if change.key == explaining.XR else change.key,
        kind=change.kind,
        change=_ACTIONS.get(change.action, "changed"),
        fields=tuple(_field(each) for each in fields[:MAX_FIELDS]),
        more=max(0, len(fields) - MAX_FIELDS),
    )


def _field(field: explaining.FieldChange) -> FieldDiff:
    return FieldDiff(
        path=field.path,
        before=_shown(field.before) if field.had else "",
        after=_shown(field.after) if field.has else "",
        kind="changed" if field.had and field.has else "added" if field.has else "removed",
    )


def _shown(value: object) -> str:
    return rows.text(value if isinstance(value, str) else orjson.dumps(value, default=str).decode(), _VALUE)
