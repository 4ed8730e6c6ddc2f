"""Which of a Rollout's XRs ChangeWindows, or their owners, hold back now. Pure but for what the xrs has heard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from planform.api.rollout_gates import NOT_BEFORE_LABEL
from planform.api.rollouts import Rollout
from planform.rollouts.durations import parse_duration
from planform.rollouts.members import Members
from planform.rollouts.watched_xrs import WatchedXrs
from planform.rollouts.waves import waves_of
from planform.rollouts.windows import DEFAULT_MAX_HOLD, Decision, XrFacts, admits
from planform.rollouts.xr_facts import XrView


@dataclass(frozen=True, slots=True)
class Held:
    """How many XRs whose turn it is may not be moved now, why, and when that may be otherwise."""

    count: int = 0
    message: str = ""
    until: datetime | None = None


def decision_for(rollout: Rollout, view: XrView, xrs: WatchedXrs, now: datetime) -> Decision:
    """Whether an XR may be moved now."""
    labels = xrs.namespace_labels(view.home) if view.home else None
    strategy = rollout.spec.strategy
    held_since = rollout.metadata.creation_timestamp
    return admits(
        xrs.windows.values(),
        XrFacts(view.labels, labels),
        now,
        held_since=datetime.fromisoformat(held_since) if held_since else None,
        max_hold=parse_duration(strategy.max_hold) if strategy.max_hold else DEFAULT_MAX_HOLD,
    )


def is_free(xrs: WatchedXrs, view: XrView) -> bool:
    """Whether nothing can hold the XR, which is what most are."""
    return not xrs.windows and NOT_BEFORE_LABEL not in view.labels


def held_by_windows(rollout: Rollout, members: Members, xrs: WatchedXrs, now: datetime) -> Held:
    """Of the XRs whose turn it was when the Rollout was last looked at, those that are held."""
    status = rollout.status
    position = status.wave if status else None
    if not position:
        wave, part = 0, 0
    else:
        names = [each.name for each in waves_of(rollout.spec.strategy)]
        wave, part = names.index(position.name) if position.name in names else 0, position.part - 1
    count, message, until = 0, "", None
    for view in members.candidates(wave, part, put_off=False):
        if is_free(xrs, view):
            continue
        decision = decision_for(rollout, view, xrs, now)
        if not decision.admitted:
            count, message = count + 1, message or decision.message
            if decision.look_again is not None:
                until = decision.look_again if until is None else min(until, decision.look_again)
    return Held(count, message, until)
