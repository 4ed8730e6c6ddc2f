"""Operations of every kind, and ActionSets with their phases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from planform.api.kinds import Object
from planform.web import rows
from planform.web.actions import actionset_actions
from planform.web.answers import OperationRow, Operations, PhaseRow
from planform.web.context import Looker
from planform.web.overview_views import problems

MAX_ROWS: Final = 500
_TOPICS: Final = ("operations", "cronoperations", "watchoperations", "actionsets")


async def operations(looker: Looker) -> Operations:
    found = [obj for topic in _TOPICS for obj in looker.mirror.objects[topic].values()]
    found.sort(key=lambda each: rows.text(each["metadata"].get("creationTimestamp")), reverse=True)
    shown = [await _row(looker, each) for each in found[:MAX_ROWS]]
    kinds = {"Operation", "CronOperation", "WatchOperation", "ActionSet"}
    return Operations(rows=tuple(shown), problems=tuple(each for each in problems(looker.mirror) if each.what in kinds))


async def _row(looker: Looker, obj: Object) -> OperationRow:
    spec, status = rows.mapping(obj.get("spec")), rows.mapping(obj.get("status"))
    state, message = _state(obj)
    progress = rows.text(rows.mapping(status.get("progress")).get("percentCompleted"))
    return OperationRow(
        kind=rows.text(obj.get("kind")),
        namespace=rows.text(obj["metadata"].get("namespace")),
        name=rows.text(obj["metadata"].get("name")),
        state=state,
        message=message,
        created=rows.text(obj["metadata"].get("creationTimestamp")),
        progress=progress,
        schedule=rows.text(spec.get("schedule")) or _watched(spec),
        last=rows.text(status.get("lastScheduleTime") or status.get("lastSuccessfulTime")),
        phases=tuple(_phases(obj)),
        actions=await actionset_actions(looker, obj, state),
    )


def _watched(spec: Mapping[str, Any]) -> str:
    watch = rows.mapping(spec.get("watch"))
    return f"watches {rows.text(watch.get('kind'))}" if watch else ""


def _state(obj: Object) -> tuple[str, str]:
    status = rows.mapping(obj.get("status"))
    if obj.get("kind") == "ActionSet":
        error = rows.mapping(status.get("error"))
        return rows.text(status.get("state")) or "pending", rows.text(error.get("message"))
    if found := rows.condition_of(obj, "Succeeded"):
        said = {"True": "Succeeded", "False": "Failed"}.get(found.status, "Running")
        return said, found.message
    found = rows.condition_of(obj, "Synced", "Scheduling", "Watching", "Ready")
    if found is None:
        return "Pending", ""
    return (found.reason or found.type) if found.status == "True" else f"Not {found.type}", found.message


def _phases(obj: Object) -> Iterator[PhaseRow]:
    status = rows.mapping(obj.get("status"))
    if obj.get("kind") == "ActionSet":
        for action in map(rows.mapping, rows.sequence(status.get("actions"))):
            entries = [*rows.sequence(action.get("phases")), action.get("deferPhase")]
            for entry in filter(None, map(rows.mapping, entries)):
                progress = rows.mapping(entry.get("progress"))
                yield PhaseRow(
                    name=f"{rows.text(action.get('name'))} / {rows.text(entry.get('name'))}",
                    state=rows.text(entry.get("state")),
                    progress=rows.text(progress.get("progressPercent")),
                    detail=rows.text(entry.get("version") or entry.get("function") or action.get("blueprint")),
                )
        return
    for step in map(rows.mapping, rows.sequence(rows.mapping(obj.get("spec")).get("pipeline"))):
        done = next(
            (
                each
                for each in map(rows.mapping, rows.sequence(status.get("pipeline")))
                if each.get("step") == step.get("step")
            ),
            None,
        )
        yield PhaseRow(
            name=rows.text(step.get("step")),
            state="Ran" if done is not None else "",
            progress="",
            detail=rows.text(rows.mapping(step.get("functionRef")).get("name")),
        )
