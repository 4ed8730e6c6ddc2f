"""What `planform wait` can wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planform.api.kinds import Object
from planform.api.metadata import generation_of
from planform.cli.objects.problems import problems_of
from planform.clock import SystemClock
from planform.errors import PlanformError, UsageError


@dataclass(frozen=True)
class Goal:
    """A state of one object, where None means that it does not exist."""

    text: str
    met: str
    is_met: Callable[[Object | None], bool]
    waits_for_creation: bool = False


class WaitTimedOut(PlanformError):
    """The time is over; the message says what the object looked like at the end."""

    reason = "WaitTimedOut"

    def __init__(self, what: str, goal: Goal, last: Object | None, seconds: float) -> None:
        missed = {"delete": "was not deleted", "create": "was not created"}.get(goal.text, f"did not reach {goal.text}")
        found = "".join(f"\n  {each}" for each in problems_of(last, SystemClock().now()))
        super().__init__(f"{what} {missed} within {seconds:g} s{_state(last)}{found}")
        self.hint = "planform describe shows its conditions and events"


def parse_goal(text: str) -> Goal:
    """Raises UsageError for anything but the four forms."""
    word, _, rest = text.partition("=")
    if text == "delete":
        return Goal(text, "deleted", lambda obj: obj is None)
    if text == "create":
        return Goal(text, "created", lambda obj: obj is not None, waits_for_creation=True)
    if word == "condition" and rest:
        name, _, status = rest.partition("=")
        return Goal(text, "condition met", lambda obj: _condition(obj, name, status or "True"))
    if word == "jsonpath" and rest:
        from planform.apimachinery.jsonpath import JsonPathError, compile_jsonpath

        close = rest.rfind("}")
        path, value = (rest[: close + 1], rest[close + 1 :]) if close >= 0 else rest.partition("=")[::2]
        try:
            find = compile_jsonpath(path)
        except JsonPathError as error:
            raise UsageError(str(error), hint="as in --for jsonpath='{.status.phase}'=Ready") from error
        wanted = value.lstrip("=")

        def reached(obj: Object | None) -> bool:
            found = find(obj) if obj is not None else []
            return bool(found) and (not wanted or all(_text(value) == wanted for value in found))

        return Goal(text, "condition met", reached)
    raise UsageError(
        f'cannot wait for "{text}"', hint="use condition=TYPE[=STATUS], jsonpath={PATH}[=VALUE], create or delete"
    )


def _condition(obj: Object | None, name: str, status: str) -> bool:
    for condition in ((obj or {}).get("status") or {}).get("conditions") or ():
        if str(condition.get("type", "")).lower() == name.lower():
            observed = condition.get("observedGeneration")
            if observed is not None and observed < generation_of(obj):
                return False
            return str(condition.get("status", "")).lower() == status.lower()
    return False


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _state(last: Object | None) -> str:
    if last is None:
        return " (it does not exist)"
    conditions = (last.get("status") or {}).get("conditions") or ()
    shown = [f"{c.get('type')}={c.get('status')}{' ' + c['message'] if c.get('message') else ''}" for c in conditions]
    return f" (now: {'; '.join(shown)})" if shown else ""
