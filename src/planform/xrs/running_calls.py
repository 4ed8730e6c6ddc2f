"""Tells users of an XR of a function that has not answered for long, while it has not.

Most calls end before anybody could look; only one that takes `SLOW_SECONDS` is written to the XR's status, once, as
`status.planform.runningCall`. Whatever the run comes to is written without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from planform.api.kinds import Object
from planform.clock import Clock, timestamp
from planform.errors import PlanformError
from planform.functions.runner import FunctionRevision
from planform.pipeline.steps import Step

SLOW_SECONDS: Final = 5.0
"""A call that has not ended by then is shown."""

_logger = logging.getLogger(__name__)


class RunningCalls:
    """The calls of one run, one after the other. `write` puts what it is given into the XR's status."""

    def __init__(self, write: Callable[[Object], Awaitable[None]], clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._is_writing = False

    @asynccontextmanager
    async def __call__(self, step: Step, revision: FunctionRevision, timeout: float) -> AsyncIterator[None]:
        """Around one call."""
        showing = asyncio.create_task(self._show(step, revision, timeout), name="a call that takes long")
        try:
            yield
        finally:
            # A write that has begun is seen to its end: what the run comes to is written after it, and takes it back.
            if not self._is_writing:
                showing.cancel()
            await asyncio.wait([showing])

    async def _show(self, step: Step, revision: FunctionRevision, timeout: float) -> None:
        since = self._clock.now()
        await self._clock.sleep(SLOW_SECONDS)
        self._is_writing = True
        try:
            await self._write(
                {
                    "step": step.name,
                    "function": step.function,
                    "revision": revision.name,
                    "since": timestamp(since),
                    "deadline": timestamp(since + timedelta(seconds=timeout)),
                }
            )
        except PlanformError as error:  # the XR is gone, or another now; the run will find out
            _logger.debug("a call that takes long was not shown: %s", error)
        finally:
            self._is_writing = False
