"""The status of an ActionSet that runs: what is written down about its actions and phases, as it changes. Pure.

One run owns the status and is the only one to write it. Phases are addressed by their place (which action, which
phase), never by name: two actions of one Blueprint have phases of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from planform.api.kinds import Object
from planform.blueprints.catalogue import Chosen, FunctionWarning
from planform.blueprints.contract import Progress
from planform.blueprints.errors import OutputInvalid, PhaseFailed
from planform.blueprints.model import digest_of
from planform.blueprints.planning import ActionError, PlannedAction

PENDING: Final = "pending"
RUNNING: Final = "running"
FAILED: Final = "failed"
COMPLETE: Final = "complete"
STATES: Final = (PENDING, RUNNING, FAILED, COMPLETE)
OVER: Final = (FAILED, COMPLETE)

MAX_OUTPUT: Final = 512 << 10
MAX_STATUS: Final = 1 << 20
MAX_WARNINGS: Final = 50
MAX_ERRORS: Final = 50
_MAX_MESSAGE_LENGTH: Final = 4096

_BYTES: Final = {
    "uploaded": "sizeUploadedB",
    "downloaded": "sizeDownloadedB",
    "upload_total": "estimatedUploadSizeB",
    "download_total": "estimatedDownloadSizeB",
    "seconds_left": "estinatedTimeSeconds",  # as it is spelled on the wire
}

DEFER: Final = -1
"""The place of an action's deferPhase."""


class RunStatus:
    """A status that only its run changes. `now` gives the time as statuses write it."""

    def __init__(self, wire: Object, now: Callable[[], str]) -> None:
        self.wire = wire
        self._now = now
        self.changes = 0
        """Counts what changed, so that a writer knows whether it has written everything."""

    @property
    def state(self) -> str:
        return str(self.wire.get("state") or "")

    def action(self, action: int) -> Object:
        entry: Object = self.wire["actions"][action]
        return entry

    def phase(self, action: int, phase: int) -> Object:
        entry: Object = self.action(action)["deferPhase"] if phase == DEFER else self.action(action)["phases"][phase]
        return entry

    def phase_running(self, action: int, phase: int, attempt: int) -> None:
        entry = self.phase(action, phase)
        entry["state"] = RUNNING
        entry["attempts"] = attempt
        if attempt == 1:
            self._set_progress(entry, {"progressPercent": "0"})
        self._changed()

    def phase_complete(self, action: int, phase: int, output: Mapping[str, Any] | None) -> None:
        entry = self.phase(action, phase)
        entry["state"] = COMPLETE
        if output:
            entry["output"] = dict(output)
        self._set_progress(entry, {"progressPercent": "100"})
        self._changed()

    def phase_failed(self, action: int, phase: int) -> None:
        self.phase(action, phase)["state"] = FAILED
        self._changed()

    def phase_progress(self, action: int, phase: int, progress: Progress) -> bool:
        """Note how far a phase is; False if that is known. What is said after its end does not count."""
        entry = self.phase(action, phase)
        if entry["state"] != RUNNING:
            return False
        fields: Object = {} if progress.percent is None else {"progressPercent": str(progress.percent)}
        for name, wire in _BYTES.items():
            value = getattr(progress, name)
            if value is not None:
                fields[wire] = int(value)
        if not self._set_progress(entry, fields):
            return False
        self._changed()
        return True

    def artifacts(self, action: int, artifacts: Mapping[str, Any]) -> None:
        self.action(action)["artifacts"] = dict(artifacts)
        self._changed()

    def add_error(self, action_error: ActionError) -> None:
        """Keep an error beside those before it; the first one is `error`."""
        message = message_of(action_error.error)[:_MAX_MESSAGE_LENGTH]
        entry = {"reason": action_error.error.reason, "message": message}
        if action_error.action:
            entry["action"] = action_error.action
        if action_error.phase:
            entry["phase"] = action_error.phase
        errors = self.wire.setdefault("errors", [])
        if entry not in errors and len(errors) < MAX_ERRORS:
            errors.append(entry)
        self.wire.setdefault("error", {"message": message})
        self._changed()

    def ended(self) -> str:
        """Close the status: what only a run needs goes. Gives the state that it ended in."""
        done = all(
            entry["state"] == COMPLETE
            for action in self.wire["actions"]
            for entry in (*action["phases"], *_defer(action))
        )
        self.wire["state"] = COMPLETE if done and not self.wire.get("errors") else FAILED
        for key in ("runner", "snapshots"):
            self.wire.pop(key, None)
        self._changed()
        return self.state

    def started(self, action: int) -> bool:
        """Whether any phase of the action was started."""
        return any(entry["state"] != PENDING for entry in self.action(action)["phases"])

    def warn(self, action: str, phase: str, warning: FunctionWarning) -> bool:
        """Keep a warning once for each action, function and code; False if it is known or too much."""
        warnings = self.wire.setdefault("warnings", [])
        same = {"code": warning.code, "function": warning.function, "version": warning.version, "action": action}
        if any(same.items() <= each.items() for each in warnings) or len(warnings) >= MAX_WARNINGS:
            return False
        more = {
            "phase": phase,
            "message": warning.message,
            "deprecatedIn": warning.deprecated_in,
            "removedIn": warning.removed_in,
            "replacement": warning.replacement,
            "firstSeen": self._now(),
        }
        warnings.append({**same, **{key: value for key, value in more.items() if value}})
        self._changed()
        return True

    def fits(self) -> bool:
        """Whether an object with this status can be stored."""
        return len(orjson.dumps(self.wire)) <= MAX_STATUS

    def _set_progress(self, entry: Object, fields: Object) -> bool:
        before = entry.get("progress") or {}
        after = {**before, **fields}
        if {**before, "lastTransitionTime": ""} == {**after, "lastTransitionTime": ""}:
            return False
        entry["progress"] = {**after, "lastTransitionTime": self._now()}
        return True

    def _changed(self) -> None:
        self.changes += 1
        progress = self.wire.setdefault("progress", {})
        running = next(self._running(), None)
        fields = {**progress, "percentCompleted": str(self._percent())}
        fields.pop("runningPhase", None)
        if running is not None and self.state == RUNNING:
            fields["runningPhase"] = running
        if fields != progress:
            self.wire["progress"] = {**fields, "lastTransitionTime": self._now()}

    def _running(self) -> Iterator[str]:
        for action in self.wire.get("actions") or ():
            for entry in (*action["phases"], *_defer(action)):
                if entry["state"] == RUNNING:
                    yield entry["name"]

    def _percent(self) -> int:
        """The mean over all phases of all actions, deferPhases aside; all of it where there is none."""
        phases = [entry for action in self.wire.get("actions") or () for entry in action["phases"]]
        if not phases:
            return 100 if self.state == COMPLETE else 0
        return sum(int((entry.get("progress") or {}).get("progressPercent") or 0) for entry in phases) // len(phases)


def begun(
    spec: Mapping[str, Any], planned: Sequence[PlannedAction], *, runner: str, started_at: str, now: Callable[[], str]
) -> RunStatus:
    """The status with which a run begins: every phase is pending and bound to its version."""
    actions = [
        _action_entry(wire, each, started_at) for wire, each in zip(spec.get("actions") or (), planned, strict=True)
    ]
    wire: Object = {
        "state": RUNNING,
        "actions": actions,
        "runner": runner,
        "blueprintHash": digest_of([each.action.wire for each in planned]),
        "snapshots": [
            {"request": request, "action": dict(each.action.wire)}
            for request, each in zip(spec.get("actions") or (), planned, strict=True)
        ],
    }
    status = RunStatus(wire, now)
    status._changed()
    return status


def refused(spec: Mapping[str, Any], action_errors: Sequence[ActionError], now: Callable[[], str]) -> RunStatus:
    """The status of an ActionSet of which nothing was started."""
    wire: Object = {
        "state": FAILED,
        "actions": [
            {
                "name": action.get("name", ""),
                "blueprint": action.get("blueprint", ""),
                "object": action.get("object") or {},
                "phases": [],
            }
            for action in spec.get("actions") or ()
            if isinstance(action, Mapping)
        ],
    }
    status = RunStatus(wire, now)
    for action_error in action_errors:
        status.add_error(action_error)
    return status


def _action_entry(wire: Mapping[str, Any], planned: PlannedAction, started_at: str) -> Object:
    entry: Object = {
        "name": planned.request.name,
        "blueprint": planned.request.blueprint,
        "object": dict(wire.get("object") or {}),
        "blueprintHash": planned.action.digest,
        "startedAt": started_at,
        "phases": [_phase_entry(each.phase.name, each.chosen) for each in planned.phases],
    }
    if planned.defer is not None:
        entry["deferPhase"] = _phase_entry(planned.defer.phase.name, planned.defer.chosen)
    return entry


def _phase_entry(name: str, chosen: Chosen | None) -> Object:
    entry: Object = {"name": name, "state": PENDING}
    if chosen is not None:
        resolution = {"requested": chosen.requested, "source": str(chosen.rule), "reason": chosen.reason}
        entry |= {
            "func": chosen.function.name,
            "funcVersion": chosen.version,
            "resolution": {key: value for key, value in resolution.items() if value},
        }
    return entry


def _defer(action: Object) -> Iterator[Object]:
    if action.get("deferPhase"):
        yield action["deferPhase"]


def message_of(error: BaseException) -> str:
    """The text of an error, its facts behind it as JSON."""
    text = str(error) or type(error).__name__
    if isinstance(error, PhaseFailed) and error.details is not None:
        text += f" {orjson.dumps(error.details, default=str).decode()}"
    return text


def checked_output(output: Any, of: str) -> Object | None:
    """What a phase gave, as it is kept: a map of JSON values, or nothing. Raises OutputInvalid."""
    if not output:
        return None
    if not isinstance(output, Mapping) or not all(isinstance(key, str) for key in output):
        raise OutputInvalid(f"{of}: the output must be a map of names, not a {type(output).__name__}")
    try:
        encoded = orjson.dumps(output)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise OutputInvalid(f"{of}: the output is not JSON: {error}") from error
    if len(encoded) > MAX_OUTPUT:
        raise OutputInvalid(f"{of}: the output has {len(encoded)} bytes, and no more than {MAX_OUTPUT} are kept")
    kept: Object = orjson.loads(encoded)
    return kept


def locks_of(status: Mapping[str, Any]) -> list[list[str]]:
    """The versions that the phases of each action are bound to, the deferPhase last."""
    return [
        [str(entry.get("funcVersion") or "") for entry in (*action["phases"], *_defer(action))]
        for action in status.get("actions") or ()
    ]
