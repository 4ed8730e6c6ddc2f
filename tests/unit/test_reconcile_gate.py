"""The CPU gate: how many hold a turn, and who is next."""

from __future__ import annotations

import asyncio

import pytest

from planform.reconcile.gate import Gate, aside


async def take_turns(gate: Gate, name: str, times: int, log: list[str]) -> None:
    async def one() -> None:
        async with gate.turn(name):
            log.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(one() for _ in range(times)))


async def test_no_more_than_its_turns_are_held_at_a_time() -> None:
    gate, held, most = Gate(3), 0, 0

    async def work() -> None:
        nonlocal held, most
        async with gate.turn("a"):
            held += 1
            most = max(most, held)
            await asyncio.sleep(0)
            held -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 3
    assert gate.free == 3


async def test_ten_thousand_keys_of_one_controller_do_not_delay_the_one_of_another() -> None:
    gate, log = Gate(4), list[str]()
    many = asyncio.create_task(take_turns(gate, "many", 10_000, log))
    for _ in range(3):
        await asyncio.sleep(0)
    started = len(log)
    await take_turns(gate, "single", 1, log)
    assert log.index("single") - started < 8
    await many
    assert len(log) == 10_001


async def test_controllers_take_turns() -> None:
    gate, log = Gate(1), list[str]()
    async with gate.turn("x"):
        work = [asyncio.create_task(take_turns(gate, name, 3, log)) for name in ("a", "b", "c")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*work)
    assert log == ["a", "b", "c"] * 3


async def test_a_cancelled_waiter_leaves_its_place_and_a_turn_given_to_it_is_not_lost() -> None:
    gate = Gate(1)

    async def wait() -> None:
        async with gate.turn("a"):
            pass

    async with gate.turn("a"):
        leaving, given = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
        assert gate.waiting("a") == 1
    given.cancel()  # its turn has come, but it has not run yet
    await asyncio.gather(leaving, given, return_exceptions=True)
    assert gate.free == 1
    async with asyncio.timeout(1), gate.turn("b"):
        pass


async def test_a_reconcile_that_waits_puts_its_turn_aside() -> None:
    gate, answered = Gate(1), asyncio.Event()
    log = []

    async def slow() -> None:
        async with gate.turn("slow"):
            async with aside():
                await answered.wait()
            log.append("slow goes on")
            assert gate.free == 0

    task = asyncio.create_task(slow())
    await asyncio.sleep(0)
    async with gate.turn("other"):
        answered.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        log.append("other computes")
    await task
    assert log == ["other computes", "slow goes on"]
    assert gate.free == 1


@pytest.mark.parametrize("failure", [ValueError("x"), asyncio.CancelledError()])
async def test_a_wait_that_fails_loses_no_turn(failure: BaseException) -> None:
    gate = Gate(2)
    with pytest.raises(type(failure)):
        async with gate.turn("a"), aside():
            raise failure
    assert gate.free == 2


async def test_putting_aside_what_one_does_not_hold_does_nothing() -> None:
    async with aside():
        pass
    gate = Gate(1)
    async with gate.turn("a"), aside(), aside():
        assert gate.free == 1
    assert gate.free == 1


def test_a_gate_without_turns_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one turn"):
        Gate(0)
