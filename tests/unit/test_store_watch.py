"""Watches: each change once, in order, from any resource version that is kept, and nobody waits for a slow reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from planform.clock import VirtualClock
from planform.store import ChangeType, Compacted, HistoryLimits, Key, Lagging, Store, Watch, open_store

SMALL_RING = HistoryLimits(ring_events=8)


def key(name: str, namespace: str = "default", resource: str = "widgets") -> Key:
    return Key(resource, namespace, name)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await open_store(None, clock=VirtualClock(), history=SMALL_RING) as opened:
        yield opened


async def write(store: Store, count: int, target: Key | None = None) -> None:
    for _ in range(count):
        await store.stage(target or key("a"), str(store.next_revision()).encode())


async def read(watch: Watch, upto: int) -> list[int]:
    """The resource versions that a watch gives until it has come to `upto`."""
    seen: list[int] = []
    async with asyncio.timeout(10):
        while watch.position < upto:
            seen += [change.rv for change in await anext(watch)]
    return seen


async def test_a_watch_from_now_gives_only_what_comes(store: Store) -> None:
    await write(store, 3)
    async with store.watch("widgets", None, None) as watch:
        await write(store, 2)
        assert await read(watch, 5) == [4, 5]


async def test_from_now_is_the_moment_of_the_call_not_of_the_first_read(store: Store) -> None:
    watch = store.watch("widgets")
    await write(store, 2)
    assert await read(watch, 2) == [1, 2]


@pytest.mark.parametrize("since", [0, 1, 5, 91, 92, 93, 99, 100])
async def test_a_watch_resumes_after_any_resource_version_whether_from_log_or_ring(store: Store, since: int) -> None:
    await write(store, 100)
    async with store.watch("widgets", None, since) as watch:
        assert await read(watch, 100) == list(range(since + 1, 101))
        await write(store, 3)
        assert await read(watch, 103) == [101, 102, 103]


async def test_log_and_ring_give_the_same_changes(store: Store) -> None:
    def facts(watch_batches: list[tuple[object, ...]], count: int) -> list[tuple[object, ...]]:
        assert len(watch_batches) == count
        return watch_batches

    async with store.watch(None, None, 0) as live:
        await write(store, 5)
        await store.stage(key("b", "other", "gadgets"), b"x")
        await store.stage(key("a"), None, last=b"gone")
        await write(store, 12, key("c"))
        first = [(c.rv, c.key, c.type, c.value, c.previous, c.previous_rv) for c in await anext(live)]
    replayed: list[tuple[object, ...]] = []
    async with store.watch(None, None, 0) as again:
        while again.position < store.revision:
            replayed += [(c.rv, c.key, c.type, c.value, c.previous, c.previous_rv) for c in await anext(again)]
    assert facts(replayed, 19)[: len(first)] == first
    assert replayed[6][2] is ChangeType.DELETED


async def test_a_watch_gives_only_its_resource_and_namespace(store: Store) -> None:
    watches = [store.watch(*scope) for scope in [("widgets", "x"), ("widgets", None), (None, None), (None, "x")]]
    for _ in range(2):  # the first round is read as history, the second is pushed
        start = store.revision
        for target in [key("a", "x"), key("a", "y"), key("a", "x", "gadgets"), key("a", "x")]:
            await store.stage(target, b"v")
        found = [[rv - start for rv in await read(watch, store.revision)] for watch in watches]
        assert found == [[1, 4], [1, 2, 4], [1, 2, 3, 4], [1, 3, 4]]


async def test_changes_that_gather_come_as_one_batch(store: Store) -> None:
    async with store.watch("widgets") as watch:
        await write(store, 1)
        assert [change.rv for change in await anext(watch)] == [1]
        await write(store, 5)
        assert [change.rv for change in await anext(watch)] == [2, 3, 4, 5, 6]


async def test_a_future_resource_version_is_silent_until_it_is_reached(store: Store) -> None:
    async with store.watch("widgets", None, 4) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await write(store, 4)
        await asyncio.sleep(0)
        assert not waiting.done()
        await write(store, 2)
        assert [change.rv for change in await waiting] + await read(watch, 6) == [5, 6]


async def test_a_watch_below_the_floor_is_refused(store: Store) -> None:
    await write(store, 20)
    await store.compact(11)
    with pytest.raises(Compacted) as refusal:
        store.watch("widgets", None, 9)
    assert refusal.value.floor == 10
    assert await read(store.watch("widgets", None, 10), 20) == list(range(11, 21))


async def test_a_watch_that_compaction_overtakes_says_so(store: Store) -> None:
    await write(store, 30)
    watch = store.watch("widgets", None, 3)
    await store.compact(20)
    with pytest.raises(Compacted):
        await anext(watch)


async def test_a_slow_watcher_is_closed_and_can_resume_without_loss(store: Store) -> None:
    async with store.watch("widgets", buffer=5) as slow, store.watch("widgets", buffer=100) as quick:
        await write(store, 1)
        seen = await read(slow, 1)
        assert await read(quick, 1) == [1]
        await write(store, 6)
        with pytest.raises(Lagging) as lagging:
            await anext(slow)
        with pytest.raises(Lagging):
            await anext(slow)
        assert lagging.value.position == 1
        assert store.watches == 1
        assert await read(quick, 7) == [2, 3, 4, 5, 6, 7]
    assert seen + await read(store.watch("widgets", None, lagging.value.position), 7) == [1, 2, 3, 4, 5, 6, 7]


async def test_a_backlog_larger_than_the_buffer_does_not_close_a_watch(store: Store) -> None:
    await write(store, 50)
    async with store.watch("widgets", None, 0, buffer=3) as watch:
        assert await read(watch, 50) == list(range(1, 51))


async def test_a_batch_larger_than_the_buffer_does_not_close_a_reader_that_is_up_to_date(store: Store) -> None:
    async with store.watch("widgets", buffer=3) as watch:
        await write(store, 1)
        assert await read(watch, 1) == [1]
        await asyncio.gather(*(store.stage(key(f"n{number}"), b"x") for number in range(20)))
        assert await read(watch, 21) == list(range(2, 22))


async def test_large_changes_are_recalled_a_few_at_a_time(store: Store) -> None:
    for number in range(12):
        await store.stage(key(f"n{number}"), bytes(1 << 20))
    assert [change.rv for change in await store.recall(0, 256)] == [1, 2, 3, 4]
    async with store.watch("widgets", None, 0) as watch:
        assert await read(watch, 12) == list(range(1, 13))


async def test_history_hands_over_to_the_future_while_others_write(tmp_path: Path) -> None:
    async with await open_store(tmp_path, clock=VirtualClock(), history=SMALL_RING, synchronous="OFF") as store:
        await write(store, 600)

        async def writer(name: str) -> None:
            for _ in range(150):
                await store.stage(key(name), b"x")

        async def reader(since: int) -> list[int]:
            async with store.watch("widgets", None, since, buffer=10_000) as watch:
                return await read(watch, 1200)

        starts = [0, 1, 255, 256, 300, 591, 592, 599, 600]
        async with asyncio.TaskGroup() as tasks:
            readers = [tasks.create_task(reader(since)) for since in starts]
            for name in "wxyz":
                tasks.create_task(writer(name))
        for since, done in zip(starts, readers, strict=True):
            assert done.result() == list(range(since + 1, 1201))


async def test_cancelling_a_wait_loses_nothing(store: Store) -> None:
    await write(store, 40)
    async with store.watch("widgets", None, 0) as watch:
        for _ in range(3):  # first in the middle of reading the log
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert await read(watch, 40) == list(range(1, 41))
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        waiting.cancel()
        await write(store, 1)
        assert await read(watch, 41) == [41]


async def test_closing_a_watch_or_the_store_ends_the_iteration(store: Store) -> None:
    async def drain(watch: Watch) -> int:
        return len([batch async for batch in watch])

    first, second, third = store.watch("widgets"), store.watch("gadgets"), store.watch("idle")
    readers = [asyncio.ensure_future(drain(watch)) for watch in (first, second)]
    await asyncio.sleep(0)
    first.close()
    first.close()
    await store.close()
    assert await asyncio.gather(*readers) == [0, 0]
    assert await drain(third) == 0
    assert store.watches == 0


async def test_the_position_of_an_idle_watch_follows_the_store(store: Store) -> None:
    async with store.watch("widgets", None, None) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        await write(store, 3, key("a", resource="gadgets"))
        assert watch.position == 3
        await write(store, 1)
        assert [change.rv for change in await waiting] == [4]


@pytest.mark.parametrize(
    ("limits", "seconds", "floor"),
    [
        (HistoryLimits(keep_for=timedelta(minutes=5), keep_events=1000), 301, 2000),
        (HistoryLimits(keep_for=timedelta(minutes=5), keep_events=1000), 299, 0),
        (HistoryLimits(keep_for=timedelta(minutes=5), keep_events=10_000), 3600, 0),
        (HistoryLimits(max_bytes=10_000), 0, 2000),
    ],
    ids=["old and beyond the count goes", "young stays", "few stay", "too much goes at any age"],
)
async def test_history_is_compacted_by_age_count_and_size(limits: HistoryLimits, seconds: int, floor: int) -> None:
    clock = VirtualClock()
    async with await open_store(None, clock=clock, history=limits) as store:
        for _ in range(4):
            await asyncio.gather(*(store.stage(key(f"n{number}"), b"0123456789") for number in range(500)))
        await clock.advance(seconds)
        await asyncio.gather(*(store.stage(key(f"n{number}"), b"0123456789") for number in range(1000)))
        await asyncio.gather(*(store.stage(key(f"n{number}"), b"0123456789") for number in range(10)))
        await store.compaction()
        assert store.floor == pytest.approx(floor, abs=512)
        assert await store.check() == []
        assert await read(store.watch("widgets", None, store.floor), 3010) == list(range(store.floor + 1, 3011))
