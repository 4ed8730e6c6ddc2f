"""The conditions of any object: which it has, what one says, and how some are set without the others flapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from planform.api.kinds import Object
from planform.api.objects import Condition

UPDATE_POLICY_ENFORCED: Final = "CompositionUpdatePolicyEnforced"
SYSTEM_CONDITIONS: Final = frozenset({"Ready", "Synced", "Healthy", "UpToDate", "Responsive", UPDATE_POLICY_ENFORCED})
"""The types that functions cannot set: the control plane says what they mean."""


class XrCondition(msgspec.Struct, frozen=True):
    """A condition to set; its transition time moves only when something else about it does."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


def conditions_of(obj: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    """The conditions as they stand in the object, without what is not one: others' objects may have anything there."""
    status = (obj or {}).get("status")
    found = status.get("conditions") if isinstance(status, Mapping) else None
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list | tuple) else ()


def condition_of(obj: Mapping[str, Any] | None, type_: str) -> Condition | None:
    """The condition of this type, if the object has one."""
    for each in conditions_of(obj):
        if each.get("type") == type_:
            return _typed(each)
    return None


def condition_status(obj: Mapping[str, Any] | None, type_: str) -> str:
    """True, False or Unknown; empty if the object says nothing."""
    found = condition_of(obj, type_)
    return found.status if found is not None else ""


def condition_reason(obj: Mapping[str, Any] | None, type_: str) -> str:
    """Why, as one word; empty if the object says nothing."""
    found = condition_of(obj, type_)
    return found.reason if found is not None else ""


def condition_message(obj: Mapping[str, Any] | None, type_: str) -> str:
    """Why, as a sentence; empty if the object says nothing."""
    found = condition_of(obj, type_)
    return (found.message or "") if found is not None else ""


def is_true(obj: Mapping[str, Any] | None, type_: str) -> bool:
    return condition_status(obj, type_) == "True"


def has_condition(obj: Mapping[str, Any] | None, condition: XrCondition) -> bool:
    """Whether the object has this very condition already, so that it is not news."""
    found = condition_of(obj, condition.type)
    if found is None:
        return False
    told = found.status, found.reason, found.message or ""
    return told == (condition.status, condition.reason, condition.message)


def set_conditions(
    existing: Sequence[Mapping[str, Any]], wanted: Sequence[XrCondition], *, now: str, generation: int | None
) -> list[Object]:
    """The conditions with these set, in order of first appearance; an unchanged one keeps its time."""
    conditions: dict[str, Object] = {str(found["type"]): dict(found) for found in existing}
    for condition in wanted:
        fresh: Object = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "lastTransitionTime": now,
        }
        if condition.message:
            fresh["message"] = condition.message
        if generation is not None:
            fresh["observedGeneration"] = generation
        before = conditions.get(condition.type)
        if before is not None and _content_of(before) == _content_of(fresh):
            fresh["lastTransitionTime"] = before.get("lastTransitionTime", now)
        conditions[condition.type] = fresh
    return list(conditions.values())


def _content_of(condition: Mapping[str, Any]) -> tuple[Any, ...]:
    return condition.get("status"), condition.get("reason"), condition.get("message")


def _typed(condition: Mapping[str, Any]) -> Condition:
    observed = condition.get("observedGeneration")
    return Condition(
        type=str(condition.get("type") or ""),
        status=str(condition.get("status") or ""),
        reason=str(condition.get("reason") or ""),
        message=str(condition.get("message") or ""),
        last_transition_time=str(condition.get("lastTransitionTime") or ""),
        observed_generation=observed if isinstance(observed, int) else msgspec.UNSET,
    )
