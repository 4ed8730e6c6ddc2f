"""What an object itself says is wrong with it: problems, a call that has not ended, a deletion that waits. Pure.

Every command that shows how an object is shows these, so that none of them says less than another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from planform.api.metadata import deleted_at, finalizers_of, is_deleted
from planform.api.names import (
    ACTION_SET_FINALIZER,
    CLAIM_FINALIZER,
    COMPOSITE_FINALIZER,
    DEFINED_FINALIZER,
    IN_USE_FINALIZER,
    OFFERED_FINALIZER,
    ROLLOUT_FINALIZER,
    USAGE_FINALIZER,
)
from planform.clock import parse_timestamp

_HOLDERS: Final[Mapping[str, str]] = {
    "foregroundDeletion": "the garbage collector, until what it owns is gone",
    "orphan": "the garbage collector, until what it owns has let go of it",
    "kubernetes": "the namespace controller, until everything in it is gone",
    COMPOSITE_FINALIZER: "planform's XR controller",
    CLAIM_FINALIZER: "planform's claim controller, until its XR is gone",
    "finalizer.managedresource.crossplane.io": "its provider, until the external resource is gone",
    OFFERED_FINALIZER: "planform's XRD controller, until no claim is left",
    DEFINED_FINALIZER: "planform's XRD controller, until no XR is left",
    USAGE_FINALIZER: "planform's Usage controller, until its user is gone",
    ACTION_SET_FINALIZER: "planform's ActionSet controller, until its phases have ended",
    ROLLOUT_FINALIZER: "planform's rollout controller, until all XRs are back",
    IN_USE_FINALIZER: "planform's Composition controller, until no XR uses it or no RolloutPolicy holds it",
}
"""Who takes which finalizer away, and when."""


def problems_of(obj: Mapping[str, Any] | None, now: datetime) -> list[str]:
    """All of it, what hangs now first; empty for an object that has nothing to complain about."""
    if obj is None:
        return []
    return [*deletion(obj, now), *running_call(obj, now), *status_problems(obj)]


def status_problems(obj: Mapping[str, Any]) -> Iterator[str]:
    """`status.planform.problems`, each with the resource or the step it is about."""
    found = _planform(obj).get("problems")
    for each in found if isinstance(found, list) else ():
        if not isinstance(each, Mapping) or not each.get("message"):
            continue
        if each.get("resource"):
            where = f'resource "{each["resource"]}": '
        else:
            where = f'step "{each["step"]}": ' if each.get("step") else ""
        yield where + " ".join(str(each["message"]).split())


def running_call(obj: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """`status.planform.runningCall`: a function that has been asked and has not answered yet."""
    call = _planform(obj).get("runningCall")
    if not isinstance(call, Mapping):
        return
    started, deadline = _moment(call.get("since")), _moment(call.get("deadline"))
    if started is None:
        return
    revision = f" (revision {call['revision']})" if call.get("revision") else ""
    text = f'step "{call.get("step")}": function "{call.get("function")}"{revision} has not answered'
    text += f" for {age(started, now)}"
    if deadline is not None and deadline > now:
        text += f"; its deadline is in {age(now, deadline)}"
    elif deadline is not None:
        text += f"; its deadline passed {age(deadline, now)} ago: do the controllers run?"
    yield text


def deletion(obj: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Since when it is being deleted, and who holds that up."""
    if not is_deleted(obj):
        return
    since = _moment(deleted_at(obj))
    # of a pod the timestamp is when its time will be over
    waited = f" for {age(since, now)}" if since is not None and since <= now else ""
    held = [*finalizers_of(obj), *((obj.get("spec") or {}).get("finalizers") or ())]
    if not held:
        yield f"being deleted{waited}; no finalizer holds it"
    for finalizer in held:
        yield f"being deleted{waited}; held by finalizer {finalizer} ({holder(str(finalizer))})"


def holder(finalizer: str) -> str:
    """Who has to take a finalizer away."""
    known = _HOLDERS.get(finalizer)
    if known is not None:
        return known
    domain = finalizer.partition("/")[0]
    return f"whoever runs {domain}" if "." in domain else "whoever set it"


def age(since: datetime, now: datetime) -> str:
    """As people say it: `12s`, `5m3s`, `2h10m`, `3d4h`."""
    seconds = max(0, int((now - since).total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds % 3600 // 60}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3600}h"


def _planform(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    status = obj.get("status")
    own = status.get("planform") if isinstance(status, Mapping) else None
    return own if isinstance(own, Mapping) else {}


def _moment(text: Any) -> datetime | None:
    try:
        return parse_timestamp(str(text)) if text else None
    except ValueError:
        return None
