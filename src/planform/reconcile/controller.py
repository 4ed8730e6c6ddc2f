"""The reconcile loop: take a key, reconcile it within its time, decide when to come back.

This is the one place of the process, beside the server's edge, that catches every error: whatever goes wrong with one
key is logged once, with the key, and the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Generic, NamedTuple

from planform.client.fairness import flow
from planform.client.informer import version_number
from planform.client.waits import Backoff, TimeLimits
from planform.client.written_versions import collect_written_versions
from planform.clock import Clock
from planform.errors import Conflict, Forbidden, PlanformError
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.queue import FED_BY_ITSELF, K, QueueClosed, WorkQueue
from planform.telemetry.logs import fields
from planform.telemetry.metrics import MetricsRegistry
from planform.telemetry.tracing import PropagatingTracer, Tracer

CONFLICT_BACKOFF = Backoff(first=0.01, maximum=10, jitter=0.5)
"""Two writers met: one of them reads again and tries at once, and soon they no longer meet."""

_RESTING = 16
"""So many workers without work are kept; the next key then needs no new one."""

_logger = logging.getLogger(__name__)


class Result(NamedTuple):
    """How a reconcile ended well.

    `requeue_after` asks to come back after that many seconds without any change. `observed_resource_version` is the
    version of the key's own object up to which everything is known and done, the reconcile's own writes included:
    hearing of it is no reason to come back.
    """

    requeue_after: float | None = None
    observed_resource_version: str = ""


class ReconcileTimedOut(PlanformError):
    """A reconcile took longer than its controller allows; what it had begun was cancelled."""

    reason = "ReconcileTimedOut"
    retryable = True

    def __init__(self, controller: str, key: object, seconds: float) -> None:
        super().__init__(f"reconciling {key} took longer than {seconds:g} s in controller {controller}")


class ReconcileCancelled(PlanformError):
    """A reconcile ended as cancelled although nobody cancelled it; it is tried again."""

    reason = "ReconcileCancelled"
    retryable = True

    def __init__(self, controller: str, key: object, cause: BaseException) -> None:
        words = f": {cause}" if str(cause) else ""
        super().__init__(f"reconciling {key} was cancelled from within in controller {controller}{words}")


class Controller(Generic[K]):
    """Reconciles the keys of its queue, several at a time but each by one worker at a time.

    `concurrency` bounds the reconciles that have begun; how many of them compute at a time is the limiter's business. A
    slot is acquired before a key is chosen, so that it is the most urgent one at that moment. Errors:

    - Conflict: somebody else wrote first; comes back quietly and soon.
    - PlanformError that is `retryable`: comes back after the backoff. So does Forbidden, for a permission may be given
      and nobody tells of that.
    - any other PlanformError: nothing will help but a change; looks again after `give_up_seconds` all the same.
    - anything else is a mistake in our code: logged with its traceback, comes back after the backoff.

    What a failed reconcile wrote itself, such as why it failed, brings its key back no sooner than the backoff.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result]],
        *,
        clock: Clock,
        rng: Random,
        limiter: ConcurrencyLimiter,
        metrics: MetricsRegistry | None = None,
        tracer: Tracer | None = None,
        concurrency: int = 100,
        timeout: float = 120.0,
        backoff: Backoff = Backoff(first=1, maximum=30),  # noqa: B008  (frozen)
        give_up_seconds: float = 300.0,
        fed_by_itself: float = FED_BY_ITSELF,
        on_failure: Callable[[K, Exception], Awaitable[None]] | None = None,
    ) -> None:
        """`on_failure` tells the users of a key why reconciling it raised; it is not called for a Conflict."""
        self.name = name
        self.queue: WorkQueue[K] = WorkQueue(clock=clock, rng=rng, backoff=backoff, fed_by_itself=fed_by_itself)
        self._reconcile = reconcile
        self._clock = clock
        self._limiter = limiter
        self._tracer = None if isinstance(tracer, PropagatingTracer) else tracer
        self._free_worker_slots = concurrency  # what has begun, and who waits to begin, has one each
        self._is_awaited = False  # whether a worker waits for the next key, and for a slot to take it
        self._resting: list[asyncio.Future[None]] = []  # workers that may be needed again soon
        self._over = asyncio.Event()
        self._timeout = timeout
        self._time_limits = TimeLimits(clock, timeout)
        self._give_up_seconds = give_up_seconds
        self._on_failure = on_failure
        self._reported: dict[K, str] = {}  # the last error logged of each key that fails; cleared when it succeeds
        self._metrics = _ControllerMetrics(metrics if metrics is not None else MetricsRegistry(), name, self.queue)

    async def run(self) -> None:
        """Work until `close`; then wait for what has begun. Cancelling cancels that too."""
        try:
            with self._limiter.member(self.name, self.queue, self._has_free_worker_slots):
                async with asyncio.TaskGroup() as workers:  # leaving it waits for them
                    try:
                        async with self.queue:
                            self._start_worker(workers)
                            await self._over.wait()
                    finally:
                        self._dismiss()
        finally:
            self._metrics.remove()

    def _has_free_worker_slots(self) -> bool:
        return self._free_worker_slots > 0

    def close(self) -> None:
        """Take no more keys; `run` returns when those in hand are done."""
        self.queue.close()
        self._over.set()
        self._dismiss()
        self._limiter.reconsider()

    def _dismiss(self) -> None:
        """Wake the workers that rest: the queue is closed, and so they end."""
        for rested in self._resting:
            if not rested.done():
                rested.set_result(None)

    # -- workers: one at a time waits for a key and a slot, and when it has them another takes its place

    def _start_worker(self, workers: asyncio.TaskGroup) -> None:
        """Have a worker that rests, or a new one, wait for the next key; if no worker slot is free, nobody does."""
        self._is_awaited = self._free_worker_slots > 0 and not self.queue.is_closed
        if not self._is_awaited:
            return
        self._free_worker_slots -= 1
        while self._resting:
            rested = self._resting.pop()
            if not rested.done():
                rested.set_result(None)
                return
        workers.create_task(self._work_in_slots(workers), name=f"reconcile {self.name}")

    async def _work_in_slots(self, workers: asyncio.TaskGroup) -> None:
        try:
            while True:
                await self.queue.ready()
                try:
                    await self._limiter.run(self.name, self._work(workers), to_begin=self.queue)
                finally:
                    self._free_worker_slots += 1
                    if not self._is_awaited:
                        self._start_worker(workers)
                if len(self._resting) == _RESTING or self.queue.is_closed:
                    return
                _forget_cancellations()
                rested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._resting.append(rested)
                await rested
        except QueueClosed:
            pass

    async def _work(self, workers: asyncio.TaskGroup) -> None:
        self._start_worker(workers)
        try:
            key = self.queue.get_nowait()
        except LookupError:
            return
        own: set[str] = set()
        try:
            with fields(controller=self.name, key=str(key)), flow(self.name), collect_written_versions() as own:
                await self._attempt(key)
        finally:
            self.queue.done(key, own=[version_number(version) for version in own])

    async def _attempt(self, key: K) -> None:
        started = self._clock.monotonic()
        try:
            result = await self._within_time(key, started + self._timeout)
        except asyncio.CancelledError as error:
            if self.queue.is_closed:
                raise
            # Nobody ends this controller: something within the reconcile was cancelled, and the key is still wanted.
            outcome = self._failed(key, ReconcileCancelled(self.name, key, error))
        except Exception as error:
            outcome = self._failed(key, error)
            if outcome != "conflict":
                await self._report_failure(key, error)
        else:
            outcome = "success"
            self.queue.forget(key)
            self._reported.pop(key, None)
            if result.observed_resource_version:
                self.queue.set_observed_version(key, version_number(result.observed_resource_version))
            if result.requeue_after is not None:
                self.queue.add_after(key, result.requeue_after)
        self._metrics.observe(outcome, self._clock.monotonic() - started)

    async def _within_time(self, key: K, deadline: float) -> Result:
        try:
            async with self._time_limits.one():
                if self._tracer is None:
                    return await self._reconcile(key)
                with self._tracer.span("reconcile", attributes={"controller": self.name, "key": str(key)}):
                    return await self._reconcile(key)
        except TimeoutError as error:
            if self._clock.monotonic() < deadline:
                raise  # one of the reconciler's own limits
            raise ReconcileTimedOut(self.name, key, self._timeout) from error

    def _failed(self, key: K, error: Exception) -> str:
        """Decide when to come back and say what happened, once; gives the outcome for the metrics."""
        errors = list(_leaves(error))
        if all(isinstance(leaf, Conflict) for leaf in errors):
            self.queue.add_rate_limited(key, backoff=CONFLICT_BACKOFF)
            return "conflict"
        explained = [leaf for leaf in errors if isinstance(leaf, PlanformError)]
        if len(explained) < len(errors):
            self._report(key, logging.ERROR, error, trace=True)
            self.queue.add_rate_limited(key)
            return "error"
        if any(leaf.retryable or isinstance(leaf, Forbidden) for leaf in explained):
            self._report(key, logging.WARNING, explained[0])
            self.queue.add_rate_limited(key)
            return "retry"
        self._report(key, logging.ERROR, explained[0])
        self.queue.give_up(key, self._give_up_seconds)
        return "gave_up"

    async def _report_failure(self, key: K, error: Exception) -> None:
        """What cannot be told, because the engine fails or somebody writes at the same moment, was logged all the same,
        and is told when the key fails again."""
        if self._on_failure is None:
            return
        try:
            async with self._time_limits.one():
                await self._on_failure(key, error)
        except (PlanformError, TimeoutError) as second:
            _logger.debug("cannot tell of %s that it failed: %s", key, second)

    def _report(self, key: K, level: int, error: Exception, *, trace: bool = False) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._reported.get(key) != text:
            self._reported[key] = text
            _logger.log(level, "reconciling %s failed: %s", key, error, exc_info=error if trace else None)


def _leaves(error: Exception) -> Iterator[Exception]:
    """The errors inside an ExceptionGroup, which is what tasks that fail together raise."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _forget_cancellations() -> None:
    """A worker that stays begins its next key as a new task would.

    In Python 3.11, a TaskGroup whose task fails while the group waits for it leaves a request for cancellation with its
    parent, and a time limit that finds such a request ends as cancelled: the key of a later reconcile would be lost.
    """
    worker = asyncio.current_task()
    while worker is not None and worker.cancelling():
        worker.uncancel()


class _ControllerMetrics:
    """One controller's share of the metrics that all controllers have."""

    def __init__(self, registry: MetricsRegistry, name: str, queue: WorkQueue[K]) -> None:
        self._name = name
        self._total = registry.counter(
            "planform_reconcile_total", "Reconciles, by controller and how they ended.", ["controller", "outcome"]
        )
        self._seconds = registry.histogram(
            "planform_reconcile_seconds", "How long a reconcile took, waiting included.", ["controller"]
        )
        self._keys = registry.gauge(
            "planform_queue_keys", "Keys of a controller's queue, by what they wait for.", ["controller", "state"]
        )
        self._oldest = registry.gauge(
            "planform_queue_oldest_seconds", "How long the first key of the slowest line has waited.", ["controller"]
        )
        self._queue = queue
        self._took = self._seconds.labels(name)
        self._forget = registry.before_render(self._refresh)

    def observe(self, outcome: str, seconds: float) -> None:
        self._total.labels(self._name, outcome).inc()
        self._took.observe(seconds)

    def remove(self) -> None:
        """The controller has stopped: its gauges would lie from now on. What it counted stays."""
        self._forget()
        for state in ("ready", "delayed", "processing"):
            self._keys.remove(self._name, state)
        self._oldest.remove(self._name)

    def _refresh(self) -> None:
        queue = self._queue
        for state, count in (("ready", len(queue)), ("delayed", queue.delayed), ("processing", queue.processing)):
            self._keys.labels(self._name, state).set(count)
        self._oldest.labels(self._name).set(queue.oldest_wait())
