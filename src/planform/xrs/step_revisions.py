"""Tells users of an XR when a step of its pipeline begins to run another revision of its function.

It looks at finished runs. The first run of an XR is no news, and what happened while no control plane ran is not told.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from planform.api.metadata import uid_of
from planform.reconcile.events import Events
from planform.xrs.context import FinishedRun

NAME: Final = "composites"
REASON: Final = "FunctionRevisionChanged"
_REMEMBERED: Final = 50_000


class StepRevisions:
    """What each XR's steps ran last; of XRs that have not run for long, nothing."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._known: OrderedDict[str, tuple[tuple[str, str], ...]] = OrderedDict()

    def finished(self, run: FinishedRun) -> None:
        """Take note of a run; an event for each step that another revision ran than before."""
        uid = uid_of(run.xr)
        ran = tuple((step.step, step.revision.name) for step in run.outcome.steps if step.revision is not None)
        before = self._known.pop(uid, ran)
        if before != ran:
            self._record_events(run, dict(before))
            kept = [each for each in before if each[0] not in dict(ran)]  # a run that failed did not come to them
            ran = (*ran, *kept)
        self._known[uid] = ran
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _record_events(self, run: FinishedRun, before: dict[str, str]) -> None:
        for step in run.outcome.steps:
            was = before.get(step.step)
            if step.revision is None or was is None or was == step.revision.name:
                continue
            message = (
                f'Pipeline step "{step.step}" runs revision "{step.revision.name}" of function "{step.function}" now,'
                f' no longer "{was}"'
            )
            self._events.record(run.xr, "Normal", REASON, message, by=NAME, slot=step.step)
