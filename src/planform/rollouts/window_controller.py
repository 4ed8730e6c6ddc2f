"""Keeps the status of ChangeWindows: open or not, until when, and what that means.

Between two changes of a window there is one timer, and nothing is written. What Rollouts decide does not rest on this
status: they look at windows themselves, with the time that it is then.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from planform.api.conditions import XrCondition, set_conditions
from planform.api.kinds import Object
from planform.api.names import CHANGE_WINDOW
from planform.client.informer import ObjectKey
from planform.clock import timestamp
from planform.errors import NotFound
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.sources import Source, to_self
from planform.reconcile.writes import merge
from planform.rollouts.windows import WindowInvalid, explained, parse_window, state

NAME: Final = "changewindows"
MANAGER: Final = f"planform-{NAME}"
_LOOK_AGAIN: Final = 300.0
"""Timers count seconds, and windows are about the wall clock: when that jumps, the status is late by this at most."""


class ChangeWindowController:
    """Says of each window how it stands."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._open = context.metrics.gauge(
            "planform_change_window_open", "Whether a window is open.", ["window", "effect"]
        )
        self._effects: dict[str, str] = {}

    def start(self) -> None:
        self._context.manager.start(self._context.controller(NAME, self.reconcile), [Source(CHANGE_WINDOW, to_self)])

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            found = await self._context.client.get(CHANGE_WINDOW, key.name)
        except NotFound:
            self._forget(key.name)
            return Result()
        now = self._context.clock.now()
        try:
            window = parse_window(found)
        except WindowInvalid as error:
            self._forget(key.name)
            message = f"{error}; nobody that it is about is moved"
            await self._write(found, XrCondition("Valid", "False", error.reason, message), reason=message)
            return Result()  # only an edit can help
        stands = state(window, now)
        self._forget(key.name)
        self._effects[key.name] = window.effect
        self._open.labels(key.name, window.effect).set(float(stands.open))
        await self._write(
            found,
            XrCondition("Valid", "True", "WindowValid"),
            open=stands.open,
            nextClose=_stamp(stands.changes) if stands.open else None,
            nextOpen=None if stands.open else _stamp(stands.changes),
            reason=explained(window, stands),
        )
        if stands.changes is None:
            return Result()
        return Result(requeue_after=min((stands.changes - now).total_seconds(), _LOOK_AGAIN))

    def _forget(self, name: str) -> None:
        if name in self._effects:
            self._open.remove(name, self._effects.pop(name))

    async def _write(self, window: Object, condition: XrCondition, **fields: Any) -> None:
        """Write what differs; a field that is None is taken away."""
        before = window.get("status") or {}
        conditions = set_conditions(
            before.get("conditions") or [],
            [condition],
            now=self._context.timestamp(),
            generation=window["metadata"].get("generation"),
        )
        wanted = {"open": None, "nextOpen": None, "nextClose": None, **fields, "conditions": conditions}
        changed = {name: value for name, value in wanted.items() if before.get(name) != value}
        if changed:
            await merge(self._context.client, window, {"status": changed}, manager=MANAGER, subresource="status")


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)
