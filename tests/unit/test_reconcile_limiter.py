"""The concurrency limiter: how many hold a slot, and who is next."""

from __future__ import annotations

import asyncio

import pytest

from planform.reconcile.limiter import PATIENCE, ConcurrencyLimiter, Urgent
from planform.reconcile.queue import IDLE
from planform.reconcile.queue import PATIENCE as PATIENCE_TO_BEGIN


async def take_turns(limiter: ConcurrencyLimiter, name: str, times: int, log: list[str]) -> None:
    async def one() -> None:
        async with limiter.slot(name):
            log.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(one() for _ in range(times)))


async def test_no_more_than_its_turns_are_held_at_a_time() -> None:
    limiter, held, maximum = ConcurrencyLimiter(3), 0, 0

    async def work() -> None:
        nonlocal held, maximum
        async with limiter.slot("a"):
            held += 1
            maximum = max(maximum, held)
            await asyncio.sleep(0)
            held -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert maximum == 3
    assert limiter.free == 3


async def test_ten_thousand_keys_of_one_controller_do_not_delay_the_one_of_another() -> None:
    limiter, log = ConcurrencyLimiter(4), list[str]()
    many = asyncio.create_task(take_turns(limiter, "many", 10_000, log))
    for _ in range(3):
        await asyncio.sleep(0)
    started = len(log)
    await take_turns(limiter, "single", 1, log)
    assert log.index("single") - started < 8
    await many
    assert len(log) == 10_001


async def test_controllers_take_turns() -> None:
    limiter, log = ConcurrencyLimiter(1), list[str]()
    async with limiter.slot("x"):
        work = [asyncio.create_task(take_turns(limiter, name, 3, log)) for name in ("a", "b", "c")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*work)
    assert log == ["a", "b", "c"] * 3


async def test_a_cancelled_waiter_leaves_its_place_and_a_turn_given_to_it_is_not_lost() -> None:
    limiter = ConcurrencyLimiter(1)

    async def wait() -> None:
        async with limiter.slot("a"):
            pass

    async with limiter.slot("a"):
        leaving, given = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
        assert limiter.waiting("a") == 1
    given.cancel()  # its turn has come, but it has not run yet
    await asyncio.gather(leaving, given, return_exceptions=True)
    assert limiter.free == 1
    async with asyncio.timeout(1), limiter.slot("b"):
        pass


async def test_of_a_thousand_woken_at_once_only_a_few_compute_in_each_round_of_the_loop() -> None:
    limiter, woken, steps = ConcurrencyLimiter(4), asyncio.Event(), 0

    async def work() -> int:
        nonlocal steps
        await woken.wait()
        steps += 1
        await asyncio.sleep(0)
        steps += 1
        return steps

    async def request() -> int:
        """What an API request sees: how many steps run while it waits for one round."""
        before = steps
        await asyncio.sleep(0)
        return steps - before

    tasks = [asyncio.create_task(limiter.run("xr", work())) for _ in range(1000)]
    for _ in range(1000):
        await asyncio.sleep(0)
    assert (limiter.waiting("xr"), limiter.free) == (0, 4)  # all have begun, and wait
    woken.set()
    seen = [await request() for _ in range(100)]
    assert 0 < max(seen) <= 4
    await asyncio.gather(*tasks)
    await asyncio.sleep(0)
    assert (steps, limiter.free) == (2000, 4)


async def test_work_that_waits_has_no_turn() -> None:
    limiter, answered = ConcurrencyLimiter(1), asyncio.Event()

    async def slow() -> str:
        await answered.wait()
        return "done"

    task = asyncio.create_task(limiter.run("slow", slow()))
    for _ in range(3):
        await asyncio.sleep(0)
    assert limiter.free == 1
    async with asyncio.timeout(1), limiter.slot("other"):
        answered.set()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not task.done()  # it may go on, but others compute
    assert await task == "done"


async def test_errors_and_cancellation_reach_the_work_and_lose_no_turn() -> None:
    limiter, log = ConcurrencyLimiter(1), list[str]()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    with pytest.raises(KeyError):
        await limiter.run("a", fails())

    async def cleans_up(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.append(name)
            raise

    waiting = asyncio.create_task(limiter.run("a", cleans_up("waiting")))
    for _ in range(3):
        await asyncio.sleep(0)
    async with limiter.slot("b"):
        queueing = asyncio.create_task(limiter.run("a", cleans_up("never begun")))
        await asyncio.sleep(0)
        assert limiter.waiting("a") == 1
        waiting.cancel()
        queueing.cancel()
        await asyncio.wait({queueing})
    await asyncio.wait({waiting})
    assert (waiting.cancelled(), queueing.cancelled()) == (True, True)
    assert log == ["waiting"]
    await asyncio.sleep(0)
    assert (limiter.free, limiter.waiting("a")) == (1, 0)


async def test_time_limits_hold_inside_the_gate() -> None:
    limiter = ConcurrencyLimiter(1)

    async def hangs() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "gave up"
        return "unreachable"

    assert await limiter.run("a", hangs()) == "gave up"


def test_a_limiter_without_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        ConcurrencyLimiter(0)


async def begin(limiter: ConcurrencyLimiter, name: str, keys: list[str], log: list[str], to_begin: Urgent) -> None:
    """Begin work on each of the keys, which it takes in its first slot."""

    async def one() -> None:
        keys.pop()
        log.append(name)

    await asyncio.gather(*(limiter.run(name, one(), to_begin=to_begin) for _ in list(keys)))


class At:
    """As urgent as that, while there are keys if it is about keys."""

    def __init__(self, urgency: int, keys: list[str] | None = None) -> None:
        self._urgency = urgency
        self._keys = keys

    @property
    def urgency(self) -> int:
        return IDLE if self._keys == [] else self._urgency


async def test_who_has_something_more_urgent_begins_first() -> None:
    limiter, log, keys = ConcurrencyLimiter(1), list[str](), ["key"] * 5
    urgent = At(1, keys)
    with limiter.member("urgent", urgent, lambda: True):
        patient = asyncio.create_task(begin(limiter, "patient", ["key"] * 3, log, At(2)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert log == []
        await begin(limiter, "urgent", keys, log, urgent)
        await asyncio.wait_for(patient, 10)
    assert log == ["urgent"] * 5 + ["patient"] * 3


async def test_the_less_urgent_are_not_passed_over_for_ever() -> None:
    maximum = PATIENCE_TO_BEGIN[-1]
    limiter, log, keys = ConcurrencyLimiter(1), list[str](), ["key"] * (3 * maximum)
    urgent = At(0, keys)
    with limiter.member("urgent", urgent, lambda: True):
        others = [asyncio.create_task(begin(limiter, str(each), ["key"], log, At(each, ["key"]))) for each in (1, 2, 3)]
        await asyncio.sleep(0)
        await begin(limiter, "urgent", keys, log, urgent)
        await asyncio.wait_for(asyncio.gather(*others), 10)
    for each in (1, 2, 3):
        assert abs(log.index(str(each)) - PATIENCE_TO_BEGIN[each]) <= 4


async def test_waiting_for_the_urgent_ends_when_the_last_of_them_leaves_or_changes_its_mind() -> None:
    for leaves in (True, False):
        limiter, log, keys = ConcurrencyLimiter(1), list[str](), ["key"]
        with limiter.member("urgent", At(0, keys), lambda: True):
            patient = asyncio.create_task(begin(limiter, "patient", ["key"], log, At(1)))
            for _ in range(3):
                await asyncio.sleep(0)
            assert log == []
            if not leaves:
                keys.clear()
                limiter.reconsider()
                await asyncio.wait_for(patient, 10)
        await asyncio.wait_for(patient, 10)


async def test_the_less_urgent_wait_for_hands_that_are_full_until_those_stand_still() -> None:
    limiter, log, answered = ConcurrencyLimiter(1), list[str](), asyncio.Event()

    async def waits_for_an_answer() -> None:
        log.append("urgent")
        await answered.wait()

    with limiter.member("urgent", At(0), lambda: False):
        in_flight = asyncio.create_task(limiter.run("urgent", waits_for_an_answer(), to_begin=At(0)))
        await asyncio.sleep(0)
        patient = asyncio.create_task(begin(limiter, "patient", ["key"], log, At(1)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert log == ["urgent"]
        await asyncio.wait_for(patient, 10)  # nobody comes forward any more, and nobody says so
        assert log == ["urgent", "patient"]
        answered.set()
        await asyncio.wait_for(in_flight, 10)


async def work_in_steps(name: str, steps: int, log: list[str]) -> None:
    for _ in range(steps):
        log.append(name)
        await asyncio.sleep(0)


async def test_what_has_begun_goes_on_before_more_begins() -> None:
    limiter, log, answered = ConcurrencyLimiter(1), list[str](), asyncio.Event()

    async def in_flight() -> None:
        await answered.wait()
        log.append("begun")

    waits_for_an_answer = asyncio.create_task(limiter.run("xr", in_flight(), to_begin=At(0)))
    for _ in range(3):
        await asyncio.sleep(0)
    async with limiter.slot("other"):
        later = [limiter.run("xr", work_in_steps("later", 1, log), to_begin=At(0)) for _ in range(3)]
        began = asyncio.gather(*later)
        await asyncio.sleep(0)
        answered.set()
        await asyncio.sleep(0)
        assert (limiter.waiting("xr"), log) == (4, [])
    await asyncio.wait_for(asyncio.gather(waits_for_an_answer, began), 10)
    assert log == ["begun", "later", "later", "later"]


async def test_those_who_would_begin_are_not_kept_back_for_ever() -> None:
    limiter, log = ConcurrencyLimiter(1), list[str]()
    busy = [asyncio.create_task(limiter.run("busy", work_in_steps("busy", 2 * PATIENCE, log))) for _ in range(3)]
    await asyncio.sleep(0)
    new = limiter.run("new", work_in_steps("new", 1, log), to_begin=At(0))
    await asyncio.wait_for(new, 10)
    assert PATIENCE - 2 <= log.index("new") <= PATIENCE + 2
    await asyncio.wait_for(asyncio.gather(*busy), 10)
    await asyncio.sleep(0)
    assert (limiter.free, limiter.waiting("busy"), limiter.waiting("new")) == (1, 0, 0)
