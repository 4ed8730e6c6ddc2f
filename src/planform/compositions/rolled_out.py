"""What a Composition under a RolloutPolicy says of how its newest revision gets on. Pure.

`RolledOut` is for people and for `kubectl wait`; `Reconciling` and `Stalled` are kstatus' words, by which Argo CD, Flux
and their like know a Composition whose change is on its way (Progressing) from one whose change was stopped (Degraded).
No counts are told here: a Composition changes when its Rollout reaches another wave, not with every XR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planform.api.conditions import XrCondition
from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.api.rollouts import Rollout
from planform.compositions.released import Derived, Record
from planform.compositions.revisions import number_of


def rolled_out(
    ordered: Sequence[Object], derived: Derived, records: Sequence[Record], rollouts: Mapping[str, Rollout]
) -> list[XrCondition]:
    """The conditions of a Composition whose revisions are these, the newest first; none without a policy."""
    if not ordered or not derived.conditions:
        return []
    newest = name_of(ordered[0])
    number = number_of(ordered[0])
    release = derived.conditions[newest]
    if release.status == "True":
        return _conditions("True", "RolledOut", f'revision {number}, "{newest}", is released')
    record = next((each for each in reversed(records) if each.change.to == newest), None)
    if release.reason in ("Held", "InRollout"):
        return _conditions("False", "Progressing", _progress(number, newest, record, rollouts), reconciling=True)
    message = f'revision {number}, "{newest}", is not released: {release.reason}, {release.message}'
    return _conditions("False", release.reason, message, stalled=True)


def _progress(number: int, newest: str, record: Record | None, rollouts: Mapping[str, Rollout]) -> str:
    rollout = rollouts.get(record.rollout) if record is not None else None
    if rollout is None:
        return f'revision {number}, "{newest}", waits for its Rollout'
    text = f'Rollout "{rollout.metadata.name}" of revision {number}, "{newest}", is {rollout.phase}'
    if rollout.status and rollout.status.wave:
        text += f', wave "{rollout.status.wave.name}"'
    if rollout.status and rollout.status.waiting:
        text += f", waiting for {rollout.status.waiting.for_}"
    return text


def _conditions(
    status: str, reason: str, message: str, *, reconciling: bool = False, stalled: bool = False
) -> list[XrCondition]:
    return [
        XrCondition("RolledOut", "True" if status == "True" else "False", reason, message),
        XrCondition("Reconciling", "True" if reconciling else "False", reason),
        XrCondition("Stalled", "True" if stalled else "False", reason, message if stalled else ""),
    ]
