"""The work queue under a virtual clock: what is handed out, when, and what is left in memory."""

from __future__ import annotations

import asyncio
import math
import time
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.client.waits import Backoff, TimeLimits, time_limit
from planform.clock import SystemClock, VirtualClock
from planform.reconcile.queue import ANY_VERSION, FED_BY_ITSELF, IDLE, PATIENCE, Priority, QueueClosed, WorkQueue

NO_JITTER = Backoff(first=1, maximum=30, jitter=0)


def make_queue(clock: VirtualClock, backoff: Backoff = NO_JITTER) -> WorkQueue[str]:
    return WorkQueue(clock=clock, rng=Random(1), backoff=backoff)


def drain(queue: WorkQueue[str]) -> list[str]:
    keys = []
    while queue:
        key = queue.get_nowait()
        queue.done(key)
        keys.append(key)
    return keys


async def test_a_key_added_many_times_is_handed_out_once() -> None:
    queue = make_queue(VirtualClock())
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert drain(queue) == ["a", "b"]


async def test_a_key_in_hand_is_not_handed_out_again_until_it_is_done() -> None:
    queue = make_queue(VirtualClock())
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert (len(queue), queue.processing) == (0, 0)


async def test_a_waiting_worker_is_woken_by_an_add() -> None:
    queue = make_queue(VirtualClock())
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    assert await asyncio.gather(*waiting) == ["a", "b"]


async def test_a_cancelled_worker_passes_its_wake_up_on() -> None:
    queue = make_queue(VirtualClock())
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"


async def test_a_key_that_a_user_changed_goes_first() -> None:
    queue = make_queue(VirtualClock())
    queue.add("start-up", priority=Priority.BACKGROUND)
    queue.add("dependent")
    queue.add("edited", priority=Priority.USER)
    assert drain(queue) == ["edited", "dependent", "start-up"]


async def test_a_waiting_key_rises_and_never_sinks() -> None:
    queue = make_queue(VirtualClock())
    queue.add("a", priority=Priority.NORMAL)
    queue.add("b", priority=Priority.BACKGROUND)
    queue.add("b", priority=Priority.USER)
    queue.add("b", priority=Priority.BACKGROUND)
    assert drain(queue) == ["b", "a"]


@pytest.mark.parametrize("priority", [Priority.NORMAL, Priority.FOLLOW_UP, Priority.BACKGROUND])
async def test_urgent_keys_do_not_starve_the_others(priority: Priority) -> None:
    queue = make_queue(VirtualClock())
    queue.add("patient", priority=priority)
    for number in range(100):
        queue.add(f"urgent-{number}", priority=Priority.USER)
    assert drain(queue).index("patient") == PATIENCE[priority]


async def test_no_line_starves_another_that_is_overtaken() -> None:
    queue = make_queue(VirtualClock())
    for number in range(1000):
        for priority in Priority:
            queue.add(f"{priority.name}-{number}", priority=priority)
    order = drain(queue)
    lines = [key.partition("-")[0] for key in order]
    for priority in (Priority.NORMAL, Priority.FOLLOW_UP, Priority.BACKGROUND):
        places = [place for place, line in enumerate(lines) if line == priority.name]
        gaps = [after - before for before, after in pairwise([-1, *places])]
        assert max(gaps) <= PATIENCE[priority] + len(Priority)


async def test_the_priority_of_a_key_added_while_in_hand_is_kept() -> None:
    queue = make_queue(VirtualClock())
    queue.add("a")
    queue.get_nowait()
    queue.add("a", priority=Priority.USER)
    queue.add("b")
    queue.done("a")
    assert drain(queue) == ["a", "b"]


async def test_a_delayed_key_comes_at_its_time_and_the_earliest_wish_counts() -> None:
    clock = VirtualClock()
    queue = make_queue(clock)
    queue.add_after("a", 60)
    queue.add_after("b", 30)
    queue.add_after("a", 10)
    queue.add_after("a", 90)
    await clock.advance(9.9)
    assert len(queue) == 0
    await clock.advance(0.1)
    assert drain(queue) == ["a"]
    await clock.advance(1000)
    assert drain(queue) == ["b"]


async def test_handing_a_key_out_fulfils_its_wish_for_later() -> None:
    clock = VirtualClock()
    queue = make_queue(clock)
    queue.add_after("a", 60)
    queue.add("a")
    assert drain(queue) == ["a"]
    await clock.advance(120)
    assert drain(queue) == []


async def test_a_delay_of_nothing_is_no_delay() -> None:
    queue = make_queue(VirtualClock())
    queue.add_after("a", 0)
    assert drain(queue) == ["a"]


async def test_failures_wait_longer_and_longer_up_to_a_cap_and_start_anew_after_success() -> None:
    queue = make_queue(VirtualClock())
    assert [queue.add_rate_limited("a") for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert queue.failures("a") == 7
    queue.forget("a")
    assert queue.add_rate_limited("a") == 1


async def test_an_hour_of_backoff_takes_milliseconds_and_the_same_seed_gives_the_same_run() -> None:
    async def run() -> list[float]:
        clock = VirtualClock()
        moments = []
        async with make_queue(clock, Backoff(first=0.5, maximum=300)) as queue:
            queue.add("a")
            while clock.monotonic() < 3600:
                while not queue:
                    await clock.advance(clock.next_deadline or 0)
                queue.done(queue.get_nowait())
                moments.append(clock.monotonic())
                queue.add_rate_limited("a")
        return moments

    started = time.perf_counter()
    first = await run()
    assert time.perf_counter() - started < 0.5
    assert 15 < len(first) < 40
    assert first == await run()


async def test_there_is_one_timer_for_all_delayed_keys_and_none_at_rest() -> None:
    clock = VirtualClock()
    queue = make_queue(clock)
    before = len(asyncio.all_tasks())
    for number in range(1000):
        queue.add_after(str(number), 1000 - number)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before + 1
    await clock.advance(1000)
    assert len(drain(queue)) == 1000
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before


async def test_wishes_that_are_overtaken_leave_nothing_in_memory() -> None:
    queue = make_queue(VirtualClock())
    for number in range(10_000):
        queue.add_after("a", 10_000 - number)
    assert len(queue._schedule) < 100
    queue.close()


async def test_a_closed_queue_wakes_everyone_and_takes_nothing() -> None:
    clock = VirtualClock()
    queue = make_queue(clock)
    queue.add("in-hand")
    queue.get_nowait()
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("later", 5)
    queue.close()
    with pytest.raises(QueueClosed):
        await getter
    queue.add("x")
    queue.done("in-hand")
    await clock.advance(10)
    assert (len(queue), queue.delayed, queue.processing) == (0, 0, 0)


async def test_the_oldest_wait_is_known() -> None:
    clock = VirtualClock()
    queue = make_queue(clock)
    assert queue.oldest_wait() == 0
    queue.add("a", priority=Priority.BACKGROUND)
    await clock.advance(7)
    queue.add("b", priority=Priority.USER)
    assert queue.oldest_wait() == 7


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "after", "get", "done", "tick"]), st.integers(0, 4)), max_size=60))
def test_no_key_is_lost_doubled_or_in_two_hands(steps: list[tuple[str, int]]) -> None:
    """Whatever the order: a key added after it was last handed out is handed out again once its worker is done."""

    async def play() -> None:
        clock = VirtualClock()
        owed: set[str] = set()
        in_hand: set[str] = set()
        async with make_queue(clock) as queue:
            for step, number in steps:
                key = str(number)
                if step == "add":
                    queue.add(key)
                    owed.add(key)
                elif step == "after":
                    queue.add_after(key, number)
                    owed.add(key)
                elif step == "tick":
                    await clock.advance(number)
                elif step == "get" and queue:
                    got = queue.get_nowait()
                    assert got in owed and got not in in_hand
                    in_hand.add(got)
                    owed.discard(got)
                elif step == "done" and key in in_hand:
                    in_hand.discard(key)
                    queue.done(key)
            for key in in_hand:
                queue.done(key)
            await clock.advance(5)
            assert set(drain(queue)) == owed

    asyncio.run(play())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "add", "get", "done"]), st.integers(0, 6), st.sampled_from(Priority)),
        max_size=80,
    )
)
def test_the_urgency_of_a_queue_is_that_of_its_most_urgent_key(steps: list[tuple[str, int, Priority]]) -> None:
    async def play() -> None:
        ready: dict[str, Priority] = {}
        in_hand: dict[str, Priority | None] = {}
        async with make_queue(VirtualClock()) as queue:
            for step, number, priority in steps:
                key = str(number)
                if step == "add":
                    lines = in_hand if key in in_hand else ready
                    before = lines.get(key)
                    lines[key] = priority if before is None else min(before, priority)
                    queue.add(key, priority=priority)
                elif step == "get" and queue:
                    got = queue.get_nowait()
                    del ready[got]
                    in_hand[got] = None
                elif step == "done" and key in in_hand:
                    again = in_hand.pop(key)
                    if again is not None:
                        ready[key] = again
                    queue.done(key)
                assert queue.urgency == min(ready.values(), default=IDLE)
        assert queue.urgency == IDLE

    asyncio.run(play())


def test_jitter_only_shortens_a_wait() -> None:
    rng = Random(3)
    delays = [Backoff(first=1, maximum=10, jitter=0.5).delay(20, rng) for _ in range(200)]
    assert 5 <= min(delays) < 6 and 9 < max(delays) <= 10
    assert Backoff(first=1, maximum=10, jitter=0).delay(10**6, rng) == 10


async def test_a_time_limit_follows_its_clock() -> None:
    clock = VirtualClock()

    async def wait() -> None:
        async with time_limit(clock, 60):
            await clock.sleep(120)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await clock.advance(59)
    assert not task.done()
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await task


async def test_each_of_several_blocks_with_one_time_limit_has_its_own_time() -> None:
    limits, ended = TimeLimits(SystemClock(), 0.05), dict[str, float]()

    async def wait(name: str, seconds: float) -> str:
        try:
            async with limits.one():
                await asyncio.sleep(seconds)
        except TimeoutError:
            return f"{name} ran out"
        finally:
            ended[name] = asyncio.get_running_loop().time()
        return f"{name} is done"

    begun = asyncio.get_running_loop().time()
    first = [asyncio.create_task(wait(name, seconds)) for name, seconds in (("hangs", 60), ("quick", 0.01))]
    await asyncio.sleep(0.03)
    second = asyncio.create_task(wait("later", 60))
    assert await asyncio.gather(*first, second) == ["hangs ran out", "quick is done", "later ran out"]
    assert ended["hangs"] - begun >= 0.045
    assert ended["later"] - begun >= 0.075
    assert await wait("afterwards", 60) == "afterwards ran out"


async def test_a_cancellation_that_meets_a_time_limit_is_not_mistaken_for_it() -> None:
    limits = TimeLimits(SystemClock(), 0.01)

    async def waits() -> None:
        async with limits.one():
            await asyncio.sleep(60)

    async def ends_itself() -> None:
        async with limits.one():
            task.cancel()
            time.sleep(0.02)  # noqa: ASYNC251  (so that both come at once)
            await asyncio.sleep(60)

    for work in (waits, ends_itself):
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_block_that_ends_although_its_time_is_up_leaves_no_cancellation_behind() -> None:
    limits, task = TimeLimits(SystemClock(), 0.01), asyncio.current_task()
    async with limits.one():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
    assert task is not None and task.cancelling() == 0
    with pytest.raises(ValueError, match="its own"):
        async with limits.one():
            raise ValueError("its own")


async def test_several_blocks_with_one_time_limit_follow_a_virtual_clock() -> None:
    clock = VirtualClock()
    limits = TimeLimits(clock, 60)

    async def wait() -> None:
        async with limits.one():
            await clock.sleep(120)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await clock.advance(59)
    assert not task.done()
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await task


async def test_a_block_within_its_time_limit_leaves_no_task() -> None:
    before = len(asyncio.all_tasks())
    async with time_limit(VirtualClock(), 60):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before


async def test_what_is_told_of_a_version_at_which_a_key_rests_does_not_bring_it_back() -> None:
    queue = make_queue(VirtualClock())
    queue.add("a", version=5)
    key = await queue.get()
    queue.add(key, version=6)  # the worker's own write, heard of while it works
    queue.set_observed_version(key, 6)
    queue.done(key)
    queue.add(key, version=6)  # and once more afterwards
    queue.add_after(key, 1, version=6)
    assert (len(queue), queue.delayed) == (0, 0)


@pytest.mark.parametrize("version", [7, ANY_VERSION])
async def test_anything_newer_than_where_it_rests_brings_a_key_back(version: float) -> None:
    queue = make_queue(VirtualClock())
    for before_the_end in (True, False):
        queue.add("a", version=5)
        key = await queue.get()
        if before_the_end:
            queue.add(key, version=version)
        queue.set_observed_version(key, 6)
        queue.done(key)
        if not before_the_end:
            queue.add(key, version=version)
        assert drain(queue) == ["a"]


async def test_a_wish_for_later_survives_that_a_key_rests_if_it_is_about_something_else() -> None:
    clock = VirtualClock()
    async with make_queue(clock) as queue:
        queue.add("a", version=5)
        key = await queue.get()
        queue.add_after(key, 3)
        queue.add(key, version=6)
        queue.set_observed_version(key, 6)
        queue.done(key)
        assert drain(queue) == ["a"]


async def test_the_pace_of_a_queue_follows_how_long_its_keys_are_in_hand() -> None:
    clock = VirtualClock()
    queue = make_queue(clock)
    for seconds in [0.5] * 40 + [0.0] * 80:
        queue.add("a")
        key = await queue.get()
        await clock.advance(seconds)
        queue.done(key)
        if seconds:
            fastest = queue.pace
    assert fastest == pytest.approx(0.5, rel=0.1)
    assert queue.pace < 0.01


async def test_a_queue_is_as_urgent_as_the_most_urgent_key_that_it_could_hand_out() -> None:
    queue = make_queue(VirtualClock())
    assert queue.urgency == IDLE
    for priority in (Priority.BACKGROUND, Priority.FOLLOW_UP, Priority.NORMAL, Priority.USER):
        queue.add(priority.name, priority=priority)
        assert queue.urgency == priority
    await queue.get()
    assert queue.urgency == Priority.NORMAL


# -- what was written for a key


def attempt(queue: WorkQueue[str], *own: float, fails: bool = False) -> None:
    """Work on the only key that is ready, of which the watch tells while it is in hand, as a local engine's does."""
    key = queue.get_nowait()
    for version in own:
        queue.add_after(key, 0, change=version)
    if fails:
        queue.add_rate_limited(key)
    else:
        queue.forget(key)
    queue.done(key, own=own)


async def test_what_a_failed_attempt_wrote_brings_its_key_back_only_after_the_backoff() -> None:
    clock = VirtualClock()
    queue = make_queue(clock)
    queue.add("a")
    attempts, version = 0, 0
    for _ in range(600):
        while queue:
            attempts, version = attempts + 1, version + 2
            attempt(queue, version, version + 1, fails=True)
            queue.add_after("a", 0, change=version)  # and once more later, as a watch over a network does
        await clock.advance(0.1)
    assert attempts == 6  # at 0, 1, 3, 7, 15 and 31 s


async def test_what_others_write_brings_a_failed_key_back_at_once() -> None:
    clock = VirtualClock()
    queue = make_queue(clock)
    queue.add("a")
    attempt(queue, 7, fails=True)
    assert not queue
    queue.add_after("a", 0, change=8)
    assert len(queue) == 1
    queue.get_nowait()
    queue.add_after("a", 0, change=9)
    queue.add_after("a", 0, change=10)
    queue.add_rate_limited("a")
    queue.done("a", own=[10])
    assert len(queue) == 1, "9 was written by somebody else"


async def test_a_key_that_was_given_up_comes_back_after_the_backoff_for_what_was_written_for_it() -> None:
    clock = VirtualClock()
    queue = make_queue(clock)
    queue.add("a")
    queue.get_nowait()
    queue.give_up("a", 300)
    queue.done("a", own=[7])
    queue.add_after("a", 0, change=7)
    await clock.advance(0.9)
    assert not queue
    await clock.advance(0.2)
    assert drain(queue) == ["a"]
    await clock.advance(1000)
    assert not queue, "coming back fulfilled the wish for later"


async def test_what_a_successful_attempt_wrote_brings_its_key_back_at_once_but_not_for_ever() -> None:
    clock = VirtualClock()
    queue = make_queue(clock)
    queue.add("a")
    attempts = 0
    for _ in range(600):
        while queue:
            attempts += 1
            attempt(queue, attempts)
        await clock.advance(0.1)
    assert FED_BY_ITSELF < attempts <= FED_BY_ITSELF + 7
    queue.add("a")
    assert len(queue) == 1, "somebody else's wish does not wait"
    for _ in range(FED_BY_ITSELF):
        attempts += 1
        attempt(queue, attempts)
        assert len(queue) == 1, "and begins a new count"


async def test_a_queue_whose_keys_are_counted_elsewhere_lets_them_feed_themselves() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=VirtualClock(), rng=Random(1), fed_by_itself=math.inf)
    queue.add("a")
    for version in range(1, 100):
        attempt(queue, version)
        assert len(queue) == 1


async def test_a_key_at_rest_leaves_nothing_behind_of_what_was_written_for_it() -> None:
    queue = make_queue(VirtualClock())
    queue.add("a")
    attempt(queue, 7)
    attempt(queue)
    left = [each for each in (queue._own, queue._held, queue._fed, queue._changes, queue._news) if each]
    assert not queue and not left
