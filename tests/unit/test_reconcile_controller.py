"""The reconcile loop and the manager: what happens to a key, whatever its reconcile does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from planform.client.informer import ObjectKey
from planform.client.waits import Backoff
from planform.clock import SystemClock, VirtualClock
from planform.errors import BadRequest, Conflict, Forbidden, ServiceUnavailable
from planform.reconcile.controller import Controller, Result
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import Manager, open_manager
from planform.reconcile.queue import Priority
from planform.reconcile.sources import Source, Watches, to_owner, to_self
from planform.telemetry.metrics import MetricsRegistry
from tests.unit.memory_engine import MemoryEngine, settle
from tests.unit.test_reconcile_sources import GEAR, WIDGET, widget

DONE = Result()


def controller(
    reconcile: Callable[[Any], Awaitable[Result]], clock: VirtualClock, name: str = "test", **options: Any
) -> Controller[Any]:
    options = (
        dict[str, Any]()
        | {"limiter": ConcurrencyLimiter(4), "backoff": Backoff(first=1, maximum=30, jitter=0), "timeout": 60.0}
        | options
    )
    return Controller(name, reconcile, clock=clock, rng=Random(1), **options)


@asynccontextmanager
async def running(controller: Controller[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(controller.run())
    await settle()
    try:
        yield
    finally:
        controller.close()
        await settle()
        assert task.done(), "the controller did not end"
        task.result()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def failing_times(clock: VirtualClock, error: Callable[[], Exception], hours: float) -> list[float]:
    """When a key that always fails is tried within so many hours."""
    moments: list[float] = []

    async def reconcile(key: str) -> Result:
        moments.append(clock.monotonic())
        raise error()

    subject = controller(reconcile, clock)
    async with running(subject):
        subject.queue.add("a")
        await settle()
        while clock.monotonic() < hours * 3600:
            await clock.advance(clock.next_deadline or 1)
            await settle()
    return moments


async def test_a_retryable_error_backs_off_up_to_the_cap(clock: VirtualClock) -> None:
    moments = await failing_times(clock, lambda: ServiceUnavailable("down"), hours=1)
    assert moments[:7] == [0, 1, 3, 7, 15, 31, 61]
    assert 120 < len(moments) < 130


async def test_what_is_forbidden_is_tried_again_soon_for_nobody_tells_when_it_is_allowed(clock: VirtualClock) -> None:
    moments = await failing_times(clock, lambda: Forbidden("not you"), hours=0.1)
    assert moments[:7] == [0, 1, 3, 7, 15, 31, 61]


async def test_an_error_that_only_a_change_can_cure_is_tried_again_rarely(clock: VirtualClock) -> None:
    moments = await failing_times(clock, lambda: BadRequest("no such field"), hours=0.5)
    assert moments[:3] == [0, 300, 600]


async def test_a_failing_key_is_logged_once_until_its_error_changes(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    errors = iter([ServiceUnavailable("down")] * 5 + [ServiceUnavailable("still down")] * 5)
    with caplog.at_level(logging.WARNING):
        await failing_times(clock, lambda: next(errors, ServiceUnavailable("still down")), hours=0.1)
    assert [record.getMessage() for record in caplog.records] == [
        "reconciling a failed: down",
        "reconciling a failed: still down",
    ]


async def test_a_mistake_in_the_code_is_logged_with_its_traceback_and_tried_again(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    moments = await failing_times(clock, lambda: KeyError("spec"), hours=0.01)
    assert len(moments) > 3
    assert len(caplog.records) == 1
    assert "KeyError" in caplog.text and "Traceback" in caplog.text


async def test_a_conflict_comes_back_soon_and_is_no_news(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    left = 3

    async def reconcile(key: str) -> Result:
        nonlocal left
        left -= 1
        if left >= 0:
            raise ExceptionGroup("tasks", [Conflict("modified"), Conflict("modified")])
        return DONE

    subject = controller(reconcile, clock)
    with caplog.at_level(logging.INFO):
        async with running(subject):
            subject.queue.add("a")
            await settle()
            await clock.advance(0.2)
            await settle()
            assert left == -1
            assert subject.queue.failures("a") == 0
    assert not caplog.records


async def test_a_reconcile_may_ask_to_come_back(clock: VirtualClock) -> None:
    moments = []

    async def reconcile(key: str) -> Result:
        moments.append(clock.monotonic())
        return Result(requeue_after=60)

    subject = controller(reconcile, clock)
    async with running(subject):
        subject.queue.add("a")
        await settle()
        for _ in range(3):
            await clock.advance(60)
            await settle()
    assert moments == [0, 60, 120, 180]


async def test_a_reconcile_that_hangs_is_cancelled_and_tried_again(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    begun = 0

    async def reconcile(key: str) -> Result:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()
        return DONE

    subject = controller(reconcile, clock, timeout=30.0)
    task = asyncio.create_task(subject.run())
    subject.queue.add("a")
    await settle()
    await clock.advance(30)
    await settle()
    assert "reconciling a took longer than 30 s in controller test" in caplog.text
    await clock.advance(1)
    await settle()
    assert begun == 2
    task.cancel()
    await settle()
    assert task.cancelled()


async def test_each_key_is_in_one_pair_of_hands_and_no_change_is_missed(clock: VirtualClock) -> None:
    world = dict.fromkeys("abc", 0)
    acted: dict[str, int] = {}
    in_hand: set[str] = set()
    rng = Random(7)

    async def reconcile(key: str) -> Result:
        assert key not in in_hand
        in_hand.add(key)
        seen = world[key]
        for _ in range(rng.randrange(5)):
            await asyncio.sleep(0)
        acted[key] = seen
        in_hand.discard(key)
        return DONE

    subject = controller(reconcile, clock)
    async with running(subject):
        for _ in range(300):
            key = rng.choice("abc")
            world[key] += 1
            subject.queue.add(key)
            await asyncio.sleep(0)
        await settle()
    assert acted == world


async def test_no_more_reconciles_are_begun_than_allowed_and_few_compute(clock: VirtualClock) -> None:
    begun, release = 0, asyncio.Event()

    async def reconcile(key: int) -> Result:
        nonlocal begun
        begun += 1
        await release.wait()
        return DONE

    subject = controller(reconcile, clock, limiter=ConcurrencyLimiter(1), concurrency=10)
    async with running(subject):
        for key in range(50):
            subject.queue.add(key)
        await settle()
        assert begun == 10
        release.set()
        for _ in range(5):
            await settle()
        assert begun == 50


async def test_few_workers_are_kept_when_there_is_no_work(clock: VirtualClock) -> None:
    release, done = asyncio.Event(), 0

    async def reconcile(key: int) -> Result:
        nonlocal done
        await release.wait()
        done += 1
        return DONE

    def workers() -> int:
        return sum(task.get_name() == "reconcile test" for task in asyncio.all_tasks())

    subject = controller(reconcile, clock, concurrency=50)
    async with running(subject):
        for burst in (1, 2, 3):
            release.clear()
            for key in range(50):
                subject.queue.add(key)
            for _ in range(3):
                await settle()
            assert workers() == 50
            release.set()
            for _ in range(3):
                await settle()
            assert (done, subject.queue.processing) == (50 * burst, 0)
            assert 1 <= workers() < 20
    assert workers() == 0


async def test_a_reconcile_that_ends_as_cancelled_costs_no_hand_and_is_tried_again(clock: VirtualClock) -> None:
    done = list[int]()

    async def reconcile(key: int) -> Result:
        await asyncio.sleep(0)
        if key % 2:
            raise asyncio.CancelledError  # as of something that it waited for
        done.append(key)
        return DONE

    subject = controller(reconcile, clock, concurrency=2)
    async with running(subject):
        for key in range(20):
            subject.queue.add(key)
        for _ in range(3):
            await settle()
        assert (done, subject.queue.processing) == (list(range(0, 20, 2)), 0)
        assert [subject.queue.failures(key) for key in range(20)] == [0, 1] * 10


async def test_a_mistake_of_the_loop_itself_ends_the_controller_also_while_others_work(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def reconcile(key: str) -> Result:
        if key == "slow":
            begun.set()
            await asyncio.Event().wait()
        return DONE

    def mistaken(outcome: str, seconds: float) -> None:
        if outcome == "success":
            raise RuntimeError("a mistake")

    subject = controller(reconcile, clock, concurrency=4)
    monkeypatch.setattr(subject._metrics, "observe", mistaken)
    task = asyncio.create_task(subject.run())
    subject.queue.add("slow")
    await begun.wait()
    subject.queue.add("quick")
    done, _ = await asyncio.wait([task], timeout=5)
    assert done and isinstance(task.exception(), ExceptionGroup)


async def test_what_one_reconcile_leaves_behind_in_its_task_does_not_cost_another_its_key() -> None:
    async def fails() -> None:
        raise ServiceUnavailable("down")

    async def reconcile(key: str) -> Result:
        with suppress(ExceptionGroup):
            if key == "grouped":
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(fails())
        if key == "slow":
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        return DONE

    subject = Controller(
        "test", reconcile, clock=SystemClock(), rng=Random(1), limiter=ConcurrencyLimiter(4), concurrency=2
    )
    async with running(subject):
        for _ in range(4):  # until each worker has had it
            subject.queue.add("grouped")
            await settle()
        subject.queue.add("slow")
        await asyncio.sleep(0.05)
        assert subject.queue.failures("slow") == 1


async def test_work_that_does_not_heed_being_cancelled_ends_with_its_reconcile(clock: VirtualClock) -> None:
    async def reconcile(key: str) -> Result:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return DONE

    subject = controller(reconcile, clock)
    task = asyncio.create_task(subject.run())
    subject.queue.add("stubborn")
    await settle()
    task.cancel()
    subject.queue.add("next")
    await settle()
    assert task.cancelled()
    assert [each for each in asyncio.all_tasks() if each.get_name() == "reconcile test"] == []


async def test_the_most_urgent_key_is_chosen_when_a_turn_is_free_not_before(clock: VirtualClock) -> None:
    limiter, order = ConcurrencyLimiter(1), list[str]()

    async def reconcile(key: str) -> Result:
        order.append(key)
        return DONE

    subject = controller(reconcile, clock, limiter=limiter)
    async with limiter.slot("somebody else"):
        task = asyncio.create_task(subject.run())
        subject.queue.add("old", priority=Priority.BACKGROUND)
        await settle()
        subject.queue.add("edited", priority=Priority.USER)
    await settle()
    assert order == ["edited", "old"]
    subject.close()
    await task


async def test_two_controllers_share_the_gate_fairly(clock: VirtualClock) -> None:
    limiter, order = ConcurrencyLimiter(1), list[str]()

    async def reconcile(key: str) -> Result:
        order.append(key)
        await asyncio.sleep(0)
        if key == "single":
            served.set()
        return DONE

    served = asyncio.Event()
    busy, idle = (
        controller(reconcile, clock, "busy", limiter=limiter),
        controller(reconcile, clock, "idle", limiter=limiter),
    )
    async with running(busy), running(idle):
        for number in range(200):
            busy.queue.add(f"busy-{number}")
        for _ in range(20):
            await asyncio.sleep(0)
        before = len(order)
        idle.queue.add("single")
        await served.wait()
        assert len(order) - before <= 4
        while busy.queue:
            await settle()


async def test_a_controller_counts_what_it_does_and_its_gauges_go_with_it(clock: VirtualClock) -> None:
    registry = MetricsRegistry()

    async def reconcile(key: str) -> Result:
        if key == "bad":
            raise ServiceUnavailable("down")
        return DONE

    subject = controller(reconcile, clock, metrics=registry)
    async with running(subject):
        subject.queue.add("good")
        subject.queue.add("bad")
        await settle()
        text = registry.render()
        assert 'planform_reconcile_total{controller="test",outcome="success"} 1' in text
        assert 'planform_reconcile_total{controller="test",outcome="retry"} 1' in text
        assert 'planform_reconcile_seconds_count{controller="test"} 2' in text
        assert 'planform_queue_keys{controller="test",state="delayed"} 1' in text
    assert "planform_queue_keys{" not in registry.render()


@asynccontextmanager
async def a_manager(engine: MemoryEngine, clock: VirtualClock) -> AsyncIterator[Manager]:
    async with (
        Watches(engine, clock=clock, rng=Random(1)) as watches,
        open_manager(watches, clock=clock, grace_seconds=30) as manager,
    ):
        yield manager


async def test_controllers_start_and_stop_at_run_time_with_their_watches(clock: VirtualClock) -> None:
    engine, reconciled = MemoryEngine(), list[str]()

    async def reconcile(key: ObjectKey) -> Result:
        reconciled.append(str(key))
        return DONE

    async with a_manager(engine, clock) as manager:
        await engine.create(widget("a"))
        own = Source(WIDGET, to_self)
        assert manager.start(controller(reconcile, clock), [own])
        assert not manager.start(controller(reconcile, clock), [own])
        await manager.synced("test")
        await settle()
        assert reconciled == ["default/a"]
        gears = Source(GEAR, to_owner("example.org", "Widget"))
        assert manager.watch("test", gears)
        assert not manager.watch("test", gears)
        await settle()
        await engine.create(widget("gear", kind="Gear", owner="a"))
        await settle()
        assert reconciled == ["default/a", "default/a"]
        assert manager.unwatch("test", gears)
        assert not manager.unwatch("test", gears)
        await settle()
        assert (set(manager.sources("test")), engine.open_watches) == ({own}, 1)
        assert await manager.stop("test")
        assert not await manager.stop("test")
        await engine.create(widget("b"))
        await settle()
        assert (manager.names, engine.open_watches, len(reconciled)) == ((), 0, 2)


async def test_a_controller_that_is_being_stopped_is_not_started_beside_itself(clock: VirtualClock) -> None:
    engine, release = MemoryEngine(), asyncio.Event()

    async def reconcile(key: ObjectKey) -> Result:
        await release.wait()
        return DONE

    await engine.create(widget("a"))
    own = Source(WIDGET, to_self)
    async with a_manager(engine, clock) as manager:
        manager.start(controller(reconcile, clock), [own])
        await settle()
        stopping = asyncio.create_task(manager.stop("test"))
        await settle()
        assert not manager.start(controller(reconcile, clock), [own])
        assert not manager.watch("test", own)
        release.set()
        assert await stopping
        assert manager.start(controller(reconcile, clock), [own])


async def test_a_stopping_manager_waits_for_the_reconciles_in_hand(clock: VirtualClock) -> None:
    engine, ended = MemoryEngine(), list[str]()
    release = asyncio.Event()

    async def reconcile(key: ObjectKey) -> Result:
        await release.wait()
        ended.append(key.name)
        return DONE

    async def serve() -> None:
        async with a_manager(engine, clock) as manager:
            manager.start(controller(reconcile, clock), [Source(WIDGET, to_self)])
            await asyncio.Event().wait()

    await engine.create(widget("a"))
    task = asyncio.create_task(serve())
    await settle()
    task.cancel()
    await settle()
    assert not task.done()
    release.set()
    await settle()
    assert ended == ["a"]
    assert task.cancelled()
    assert engine.open_watches == 0


async def test_a_reconcile_that_does_not_end_holds_a_shutdown_no_longer_than_its_grace(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    engine, cancelled = MemoryEngine(), list[str]()

    async def reconcile(key: ObjectKey) -> Result:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(key.name)
        return DONE

    async def serve() -> None:
        async with a_manager(engine, clock) as manager:
            manager.start(controller(reconcile, clock, timeout=3600.0), [Source(WIDGET, to_self)])
            await settle()

    await engine.create(widget("a"))
    task = asyncio.create_task(serve())
    for _ in range(3):
        await settle()
    await clock.advance(29)
    assert not task.done()
    await clock.advance(1)
    await settle()
    assert task.done()
    assert cancelled == ["a"]
    assert "cancelling the reconciles of test after 30 s" in caplog.text


async def test_a_mistake_in_a_controller_ends_the_manager_with_its_error(clock: VirtualClock) -> None:
    class Broken(Controller[Any]):
        async def run(self) -> None:
            raise ZeroDivisionError

    async def reconcile(key: object) -> Result:
        return DONE

    with pytest.raises(ExceptionGroup) as caught:
        async with a_manager(MemoryEngine(), clock) as manager:
            manager.start(Broken("broken", reconcile, clock=clock, rng=Random(1), limiter=ConcurrencyLimiter()))
            await asyncio.Event().wait()
    assert caught.group_contains(ZeroDivisionError, depth=None)
