"""What an ActionSet does and did, for people: a table of its phases, lines as they change, a picture drawn anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from planform.api.kinds import Object
from planform.api.metadata import name_of, namespace_of
from planform.blueprints.action_status import COMPLETE, FAILED, PENDING, RUNNING
from planform.cli.output import table

HEADERS: Final = ("ACTION", "PHASE", "STATE", "PROGRESS", "FUNCTION", "VERSION", "CHOSEN BY")
_COLOURS: Final = {COMPLETE: "green", FAILED: "red", RUNNING: "yellow"}
_MARKS: Final = {COMPLETE: "✓", FAILED: "✗", RUNNING: "▸", PENDING: "·"}


def state_of(obj: Object) -> str:
    return str((obj.get("status") or {}).get("state") or PENDING)


def phases_of(obj: Object) -> Iterator[tuple[str, Object, bool]]:
    """Action, phase and whether that is its deferPhase, in the order in which they run."""
    for action in (obj.get("status") or {}).get("actions") or ():
        for phase in action.get("phases") or ():
            yield action["name"], phase, False
        if action.get("deferPhase"):
            yield action["name"], action["deferPhase"], True


def summary(obj: Object) -> Iterator[str]:
    """Everything that `status` shows."""
    status = obj.get("status") or {}
    yield f"{namespace_of(obj)}/{name_of(obj)}: {state_of(obj)}{_percent(status)}"
    rows = [_row(action, phase, defer) for action, phase, defer in phases_of(obj)]
    if rows:
        yield table(HEADERS, rows)
    yield from _artifacts(status)
    for warning in status.get("warnings") or ():
        yield f"warning: {warning['message']}"
    yield from problems(obj)


def problems(obj: Object) -> Iterator[str]:
    """What went wrong, with where it did."""
    status = obj.get("status") or {}
    errors = status.get("errors") or ([status["error"]] if status.get("error") else [])
    for error in errors:
        where = "/".join(filter(None, (error.get("action"), error.get("phase"))))
        yield f"error: {where + ': ' if where else ''}{error['message']}"


def picture(obj: Object, *, width: int = 120, height: int = 40) -> list[str]:
    """The phases with a mark each, in a terminal of this size; of more than fit, those that run or have failed."""
    head = f"{name_of(obj)}: {state_of(obj)}{_percent(obj.get('status') or {})}"
    phases = list(phases_of(obj))
    if len(phases) > height - 2:
        phases = [each for each in phases if each[1]["state"] in (RUNNING, FAILED)][: height - 2]
    return [head[:width], *(_drawn(action, phase, width) for action, phase, _ in phases)]


def _drawn(action: str, phase: Mapping[str, Any], width: int) -> str:
    state = str(phase["state"])
    percent = (phase.get("progress") or {}).get("progressPercent")
    far = f" {percent} %" if state == RUNNING and percent not in (None, "0") else ""
    text = f" {action}/{phase['name']} {phase.get('func', '')} {phase.get('funcVersion', '')}{far}"
    return f"  {click.style(_MARKS.get(state, '?'), fg=_COLOURS.get(state))}{text[: width - 3]}"


class Changes:
    """Lines about what became different since the object was seen before."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, str]] = {}

    def since(self, obj: Object) -> Iterator[str]:
        for number, (action, phase, _) in enumerate(phases_of(obj)):
            percent = str((phase.get("progress") or {}).get("progressPercent") or "")
            now = (str(phase["state"]), percent)
            before = self._seen.get(number, (PENDING, ""))
            self._seen[number] = now
            if now[0] != before[0]:
                yield f"{action}/{phase['name']}: {now[0]}"
            elif now != before and now[0] == RUNNING:
                yield f"{action}/{phase['name']}: {percent} %"


def _row(action: str, phase: Mapping[str, Any], defer: bool) -> tuple[object, ...]:
    percent = (phase.get("progress") or {}).get("progressPercent")
    resolution = phase.get("resolution") or {}
    reason = resolution.get("reason")
    chosen = f"{resolution.get('source', '')} ({reason})" if reason else resolution.get("source")
    name = f"{phase['name']} (defer)" if defer else phase["name"]
    far = f"{percent} %" if percent is not None else ""
    return action, name, phase["state"], far, phase.get("func"), phase.get("funcVersion"), chosen


def _artifacts(status: Mapping[str, Any]) -> Iterator[str]:
    for action in status.get("actions") or ():
        for name, artifact in (action.get("artifacts") or {}).items():
            values = [f"{key}={value}" for key, value in (artifact.get("keyValue") or {}).items()]
            values += [f"kopiaSnapshot={artifact['kopiaSnapshot']}"] if artifact.get("kopiaSnapshot") else []
            yield f"artifact {action['name']}/{name}: {' '.join(values)}"


def _percent(status: Mapping[str, Any]) -> str:
    percent = (status.get("progress") or {}).get("percentCompleted")
    return f", {percent} %" if percent is not None and status.get("state") == RUNNING else ""
