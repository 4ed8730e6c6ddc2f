"""What an XR's status says after a reconcile: conditions, who is to blame, and what the functions want it to say.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planform.api.conditions import SYSTEM_CONDITIONS, XrCondition, set_conditions
from planform.api.kinds import Object
from planform.api.xr import STATUS_FIELDS, listed
from planform.functions.values import Condition, Status, Target
from planform.pipeline.pipeline import PipelineOutcome

READY: Final = "Ready"
SYNCED: Final = "Synced"
RESPONSIVE: Final = "Responsive"

RUNNING_CALL: Final = "runningCall"

_STATUSES: Final = {Status.TRUE: "True", Status.FALSE: "False"}
MAX_PROBLEMS: Final = 10
_MESSAGE_LENGTH: Final = 2000


def synced(unsynced: Sequence[str]) -> XrCondition:
    """Whether everything that is desired was applied."""
    if unsynced:
        return XrCondition(SYNCED, "False", "ReconcileError", f"Unsynced resources: {listed(unsynced)}")
    return XrCondition(SYNCED, "True", "ReconcileSuccess")


def failed(message: str) -> XrCondition:
    return XrCondition(SYNCED, "False", "ReconcileError", message[:_MESSAGE_LENGTH])


def custom_conditions(outcome: PipelineOutcome) -> list[XrCondition]:
    """The functions' own conditions, the last word on each; those of the system are not theirs to set."""
    found = {one.condition.type: one.condition for one in outcome.conditions}
    return [
        XrCondition(each.type, _status(each), each.reason, each.message[:_MESSAGE_LENGTH])
        for each in found.values()
        if each.type not in SYSTEM_CONDITIONS
    ]


def unknown_conditions(xr: Mapping[str, Any], seen: Sequence[XrCondition]) -> list[XrCondition]:
    """After a failure nobody knows about the custom conditions that this run did not come to."""
    known = {each.type for each in seen} | SYSTEM_CONDITIONS
    return [
        XrCondition(
            each["type"], "Unknown", "FatalError", "A fatal error occurred before the status could be determined."
        )
        for each in (xr.get("status") or {}).get("conditions") or ()
        if each["type"] not in known
    ]


def claim_condition_types(xr: Mapping[str, Any], outcome: PipelineOutcome) -> list[str]:
    """The types of conditions that functions meant for the claim as well, now or before."""
    types = list((xr.get("status") or {}).get("claimConditionTypes") or ())
    for one in outcome.conditions:
        condition = one.condition
        if condition.target is Target.COMPOSITE_AND_CLAIM and condition.type not in SYSTEM_CONDITIONS:
            types.append(condition.type)
    return list(dict.fromkeys(types))


def problem(message: str, *, resource: str = "", step: str = "") -> Object:
    """One reason why an XR is not synced or not ready, and where it lies."""
    found: Object = {"message": message[:_MESSAGE_LENGTH]}
    if resource:
        found["resource"] = resource
    if step:
        found["step"] = step
    return found


def unready_problems(unready: Sequence[str], observed: Mapping[str, Object]) -> list[Object]:
    """What each resource that is not ready says about itself."""
    return [problem(_own_words(observed.get(key)), resource=key) for key in sorted(unready)]


def status_of(
    xr: Mapping[str, Any],
    *,
    desired: Mapping[str, Any] | None,
    conditions: Sequence[XrCondition],
    problems: Sequence[Object],
    now: str,
    composition_fields: Mapping[str, Any],
) -> Object:
    """The whole status to apply. `desired` None keeps what the functions last wanted, as after a failed run.

    `composition_fields` holds the control plane's own fields; those it leaves out stay as they are, None removes one.
    Inside `planform` it is the same, but for a call that was running: once there is something else to say, it is over.
    """
    before: Mapping[str, Any] = xr.get("status") or {}
    status: Object = dict(before) if desired is None else {k: v for k, v in desired.items() if k not in STATUS_FIELDS}
    for name in STATUS_FIELDS:
        if name != "planform":
            _set(status, name, composition_fields[name] if name in composition_fields else before.get(name))
    own = {**(before.get("planform") or {}), RUNNING_CALL: None, **(composition_fields.get("planform") or {})}
    own["problems"] = list(problems[:MAX_PROBLEMS]) or None
    status["planform"] = {key: value for key, value in own.items() if value is not None}
    extra = _extra_conditions(desired)
    status["conditions"] = set_conditions(
        before.get("conditions") or [], [*extra, *conditions], now=now, generation=xr["metadata"].get("generation")
    )
    return status


def functions_part(status: Mapping[str, Any]) -> Object:
    """What of a status is the functions' own: they write it, and look at it again in the next run."""
    return {name: value for name, value in status.items() if name not in STATUS_FIELDS and name != "conditions"}


def _set(status: Object, name: str, value: Any) -> None:
    if value is None:
        status.pop(name, None)
    else:
        status[name] = value


def _extra_conditions(desired: Mapping[str, Any] | None) -> list[XrCondition]:
    """Conditions that a function put into the XR's desired status instead of its answer."""
    found = []
    for each in (desired or {}).get("conditions") or ():
        if isinstance(each, dict) and each.get("type") and each["type"] not in SYSTEM_CONDITIONS:
            status: Any = each.get("status") if each.get("status") in ("True", "False") else "Unknown"
            found.append(
                XrCondition(str(each["type"]), status, str(each.get("reason") or "Set"), str(each.get("message") or ""))
            )
    return found


def _status(condition: Condition) -> Any:
    return _STATUSES.get(condition.status, "Unknown")


def _own_words(obj: Object | None) -> str:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    for wanted in (SYNCED, READY):
        for condition in conditions:
            if isinstance(condition, dict) and condition.get("type") == wanted and condition.get("status") != "True":
                words = [str(condition.get(part)) for part in ("reason", "message") if condition.get(part)]
                return f"{wanted} is {condition.get('status')}" + (f": {': '.join(words)}" if words else "")
    return "is not ready"
