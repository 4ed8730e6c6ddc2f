"""Rollouts: the ladder of waves, gates with what they measured, what is waited for, and what was done by whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planform.api.kinds import Object
from planform.web import rows
from planform.web.actions import rollout_actions
from planform.web.answers import (
    ChangeRow,
    FailingRow,
    GateRow,
    HistoryRow,
    RolloutDetail,
    RolloutPage,
    RolloutRow,
    WaveRow,
)
from planform.web.context import Looker
from planform.web.mirror import ROLLOUT
from planform.web.overview_views import is_active

Measured = Mapping[tuple[str, str, str], Iterable[tuple[int, float]]]


async def rollout_page(looker: Looker) -> RolloutPage:
    found = [_row(each) for each in looker.mirror.objects["rollouts"].values()]
    active = {each["metadata"]["name"] for each in looker.mirror.objects["rollouts"].values() if is_active(each)}
    found.sort(key=lambda each: each.created, reverse=True)
    found.sort(key=lambda each: each.name not in active)
    return RolloutPage(rows=tuple(found), served=await looker.upstream.serves(ROLLOUT))


def _row(rollout: Object) -> RolloutRow:
    spec, status = rows.mapping(rollout.get("spec")), rows.mapping(rollout.get("status"))
    counts, waiting = rows.mapping(status.get("counts")), rows.mapping(status.get("waiting"))
    changes = [rows.mapping(each) for each in rows.sequence(spec.get("changes"))]
    return RolloutRow(
        name=rows.text(rollout["metadata"].get("name")),
        phase=rows.text(status.get("phase")) or "Pending",
        compositions=tuple(rows.text(each.get("composition")) for each in changes),
        cause=next((cause for each in changes if (cause := _cause(each))), ""),
        created=rows.text(rollout["metadata"].get("creationTimestamp")),
        target=rows.number(counts.get("target")),
        total=rows.number(counts.get("xrs")),
        failed=rows.number(counts.get("failed")),
        waiting=rows.text(waiting.get("for")),
    )


def _cause(change: Mapping[str, Any]) -> str:
    cause = rows.mapping(change.get("cause"))
    if cause.get("function"):
        return f"{rows.text(cause.get('function'))} {rows.text(cause.get('revision'))}".strip()
    return ""


async def rollout_detail(looker: Looker, name: str) -> RolloutDetail:
    rollout = looker.mirror.objects["rollouts"].get(name) or await looker.upstream.client.get(ROLLOUT, name)
    spec, status = rows.mapping(rollout.get("spec")), rows.mapping(rollout.get("status"))
    waiting = rows.mapping(status.get("waiting"))
    return RolloutDetail(
        row=_row(rollout),
        changes=tuple(
            ChangeRow(
                composition=rows.text(each.get("composition")),
                before=rows.text(each.get("from")),
                after=rows.text(each.get("to")),
                cause=_cause(each),
            )
            for each in map(rows.mapping, rows.sequence(spec.get("changes")))
        ),
        counts={rows.text(key): rows.number(value) for key, value in rows.mapping(status.get("counts")).items()},
        waves=_waves(name, spec, status, looker.mirror.measured),
        waiting_for=rows.text(waiting.get("for")),
        waiting_message=rows.text(waiting.get("message")),
        message=rows.text(status.get("message")),
        failing=tuple(_failing(each) for each in map(rows.mapping, rows.sequence(status.get("failing")))),
        history=tuple(_history(each) for each in map(rows.mapping, rows.sequence(status.get("history")))),
        preview=rows.text(rows.mapping(spec.get("previewRef")).get("name")),
        policy=rows.text(rows.mapping(spec.get("policyRef")).get("name") or spec.get("policy")),
        conditions=rows.conditions_of(rollout),
        actions=await rollout_actions(looker, rollout),
    )


def _waves(rollout: str, spec: Mapping[str, Any], status: Mapping[str, Any], measured: Measured) -> tuple[WaveRow, ...]:
    """The waves as the status tells them; those that are only planned come from the strategy."""
    strategy = rows.mapping(spec.get("strategy"))
    planned = {rows.text(each.get("name")): each for each in map(rows.mapping, rows.sequence(strategy.get("waves")))}
    current = rows.mapping(status.get("wave"))
    told = [rows.mapping(each) for each in rows.sequence(status.get("waves"))]
    known = {rows.text(each.get("name")) for each in told}
    told += [each for name, each in planned.items() if name not in known]
    return tuple(_wave(rollout, each, planned.get(rows.text(each.get("name")), {}), current, measured) for each in told)


def _wave(
    rollout: str, wave: Mapping[str, Any], plan: Mapping[str, Any], current: Mapping[str, Any], measured: Measured
) -> WaveRow:
    name = rows.text(wave.get("name"))
    now = current.get("name") == name
    parts = rows.sequence(plan.get("percent"))
    approval = rows.mapping(plan.get("approval"))
    state = rows.text(current.get("state")) if now else ""
    if not state:
        state = "Finished" if wave.get("finished") else "Started" if wave.get("started") else "Waiting"
    needs = ""
    if approval:
        groups = ", ".join(rows.text(each) for each in rows.sequence(approval.get("groups")))
        needs = f"{rows.number(approval.get('count')) or 1} of {groups or 'anybody who may approve'}"
    return WaveRow(
        name=name,
        part=rows.number(current.get("part")) if now else 0,
        parts=len(parts) or 1,
        xrs=rows.number(wave.get("xrs")) if not isinstance(wave.get("xrs"), dict) else 0,
        target=rows.number(wave.get("target")),
        ready=rows.number(wave.get("ready")),
        failed=rows.number(wave.get("failed")),
        started=rows.text(wave.get("started")),
        finished=rows.text(wave.get("finished")),
        state=state,
        until=rows.text(current.get("until")) if now else "",
        soak=rows.text(plan.get("soak")),
        approval=needs,
        gates=tuple(
            gate(each, measured.get((rollout, name, rows.text(each.get("name"))), ()))
            for each in map(rows.mapping, rows.sequence(wave.get("gates")))
        ),
    )


def gate(status: Mapping[str, Any], measured: Iterable[tuple[int, float]]) -> GateRow:
    return GateRow(
        name=rows.text(status.get("name")),
        verdict=rows.text(status.get("verdict")) or "Pending",
        value=rows.text(status.get("value"), 200),
        threshold=rows.text(status.get("threshold"), 200),
        query=rows.text(status.get("query"), 500),
        message=rows.text(status.get("message"), 500),
        measured=rows.number(status.get("measured")),
        series=tuple(value for _, value in measured),
    )


def _failing(status: Mapping[str, Any]) -> FailingRow:
    xr = rows.text(status.get("xr"))
    return FailingRow(
        xr=xr, link=xr_link(xr), since=rows.text(status.get("since")), message=rows.text(status.get("message"))
    )


def xr_link(xr: str) -> str:
    """The link of `XDatabase.example.org team-a/pay`, the form in which status names XRs."""
    kind, _, key = xr.partition(" ")
    if not key or "." not in kind:
        return ""
    namespace, slash, name = key.partition("/")
    return f"/xr/{kind}/{namespace}/{name}" if slash else f"/xr/{kind}/-/{key}"


def _history(status: Mapping[str, Any]) -> HistoryRow:
    return HistoryRow(
        time=rows.text(status.get("time")),
        by=rows.text(status.get("by")),
        action=rows.text(status.get("action")),
        reason=rows.text(status.get("reason")),
        outcome=rows.text(status.get("outcome")),
    )
