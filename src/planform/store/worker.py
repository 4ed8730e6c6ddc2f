"""A thread that does one thing after the other for an event loop: SQLite behind an async face.

One wake-up in each direction for each piece of work, which matters when the work is a commit of half a millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """Runs what it is given in order. The queue has no bound: the store gives it one piece at a time."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Do `work` in the thread, then call `done` on the loop with its result or its error."""

        def run() -> None:
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = work()
            except BaseException as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                self._loop.call_soon_threadsafe(done, result, failure)

        self._inbox.put(run)

    async def run(self, work: Callable[[], T]) -> T:
        """Do `work` in the thread and wait for it; cancelling stops the waiting, not the work."""
        waiting: asyncio.Future[T] = self._loop.create_future()

        def done(result: T | None, failure: BaseException | None) -> None:
            if waiting.cancelled():
                return
            if failure is not None:
                waiting.set_exception(failure)
            else:
                waiting.set_result(result)  # type: ignore[arg-type]  # without a failure there is a result

        self.submit(work, done)
        return await waiting

    def stop(self) -> None:
        """End the thread after what it was given before; waits for it, so give it nothing long."""
        self._inbox.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (run := self._inbox.get()) is not None:
            run()
            del run
