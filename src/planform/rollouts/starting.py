"""Making Rollouts: one for each revision that a policy holds and that has none yet. Pure.

A Rollout is identified by its revision and that revision's number, and named after them: making it twice is making it
once. It carries a snapshot of its policy, and lives as long as the revision that it is about. Revisions of several
Compositions that a new function revision makes have one Rollout, and so one verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from planform.api.authors import authority_annotations
from planform.api.kinds import Object
from planform.api.names import COMPOSITION_REVISION, ROLLOUT, ROLLOUT_ACTION, ROLLOUT_FINALIZER
from planform.api.rollouts import Action, Rollback, RolloutPolicy
from planform.apimachinery.names import LABEL_LENGTH, child_name
from planform.compositions.released import DEFAULT_ROLLBACK, Record
from planform.compositions.revisions import number_of
from planform.rollouts.durations import parse_duration

COMPOSITION_LABEL: Final = "rollout.planform.dev/composition"
ROLLOUT_LABEL: Final = "rollout.planform.dev/rollout"
DEFAULT_ROLLBACK_AGE: Final = timedelta(hours=168)
_SUFFIX: Final = 4


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One entry of a Rollout's `changes`, and the reference to the revision that the Rollout lives as long as."""

    entry: Object
    owner: Object


def rollout_name(composition: str, revision: str, number: int, attempt: int) -> str:
    """`db-r7-0b1c`, and a number behind it for another attempt."""
    digest = revision.rpartition("-")[2][:_SUFFIX]
    name = f"{composition}-r{number}-{digest}" + (f"-{attempt}" if attempt > 1 else "")
    return name if len(name) <= LABEL_LENGTH else child_name(composition, revision, str(number), str(attempt))


def new_change(
    composition: Mapping[str, Any],
    stable: Mapping[str, Any] | None,
    target: Mapping[str, Any],
    *,
    cause: Object | None = None,
) -> PlannedChange:
    """One Composition on its way to `target`."""
    metadata = composition["metadata"]
    change: Object = {
        "composition": metadata["name"],
        "uid": metadata["uid"],
        "to": target["metadata"]["name"],
        "toNumber": number_of(target),
    }
    if stable is not None:
        change |= {"from": stable["metadata"]["name"], "fromNumber": number_of(stable)}
    if cause:
        change["cause"] = cause
    owner = {
        "apiVersion": COMPOSITION_REVISION.api_version,
        "kind": COMPOSITION_REVISION.kind,
        "name": target["metadata"]["name"],
        "uid": target["metadata"]["uid"],
    }
    return PlannedChange(change, owner)


def new_rollout(changes: Sequence[PlannedChange], policy: Mapping[str, Any], *, attempt: int = 1) -> Object:
    """The Rollout of these changes, which begin, fail and go back together. `policy` is a RolloutPolicy as stored."""
    changes = sorted(changes, key=lambda each: str(each.entry["composition"]))
    first = changes[0].entry
    annotations = authority_annotations(policy)
    name = _name(changes, attempt)
    # A way back waits for nothing, and so for no preview either.
    back = all((each.entry.get("cause") or {}).get("rollback") for each in changes)
    previewed = "preview" in policy["spec"] and not back
    return {
        "apiVersion": ROLLOUT.api_version,
        "kind": ROLLOUT.kind,
        "metadata": {
            "name": name,
            "labels": {COMPOSITION_LABEL: first["composition"][:LABEL_LENGTH].rstrip("-.")},
            "ownerReferences": [each.owner for each in changes],
            "finalizers": [ROLLOUT_FINALIZER],
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "policy": policy["metadata"]["name"],
            "changes": [each.entry for each in changes],
            "attempt": attempt,
            **({"previewRef": {"name": name}} if previewed else {}),
            "strategy": {name: value for name, value in policy["spec"].items() if name != "for"},
        },
    }


def _name(changes: Sequence[PlannedChange], attempt: int) -> str:
    """After its Composition and revision; one of several Compositions after the function that changes them."""
    first = changes[0].entry
    if len(changes) == 1:
        return rollout_name(first["composition"], first["to"], first["toNumber"], attempt)
    function = str((first.get("cause") or {}).get("function") or first["composition"])
    told = [f"{each.entry['to']}/{each.entry['toNumber']}" for each in changes]
    return child_name(function, *told, str(attempt))


def new_action(rollout: Mapping[str, Any], action: Action, reason: str, *, by: str = "planform") -> Object:
    """What the control plane itself decides: named after what it is, so that saying it twice is saying it once."""
    metadata = rollout["metadata"]
    owner = {"apiVersion": ROLLOUT.api_version, "kind": ROLLOUT.kind, "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": ROLLOUT_ACTION.api_version,
        "kind": ROLLOUT_ACTION.kind,
        "metadata": {
            "name": child_name(metadata["name"], action.lower(), metadata["uid"]),
            "labels": {ROLLOUT_LABEL: metadata["name"]},
            "ownerReferences": [owner],
        },
        "spec": {"rollout": metadata["name"], "action": action, "reason": reason[:1024], "by": by},
    }


def is_way_back(target: str, records: Sequence[Record], policy: RolloutPolicy, now: datetime) -> bool:
    """Whether a revision was released within what the policy's `rollback` keeps open: all may go there at once."""
    rollback = policy.spec.rollback or Rollback()
    kept = rollback.revisions if rollback.revisions is not msgspec.UNSET else DEFAULT_ROLLBACK
    age = parse_duration(rollback.max_age) if rollback.max_age else DEFAULT_ROLLBACK_AGE
    own = [each for each in records if each.change.to == target]
    if own and own[-1].verdict != "Completed":
        return False  # it was taken back, and going there again is a change like any other
    # A revision was stable until the one after it was released.
    released: dict[str, datetime] = {}
    for record in records:
        if record.verdict in ("Completed", "Undone") and record.completed is not None:
            released.pop(record.change.to, None)
            if record.change.from_:
                released.pop(record.change.from_, None)
                released[record.change.from_] = record.completed
            if record.verdict == "Completed":
                released[record.change.to] = record.completed
    recent = list(released)[-(kept + 1) :]
    return target in recent and now - released[target] <= age
