"""The two views of the store: what is staged decides, what is committed is shown."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from planform.clock import VirtualClock
from planform.errors import StoreClosed, StoreFailed
from planform.store import Change, ChangeType, Compacted, Entry, HistoryLimits, Key, Store, Write, open_store
from planform.telemetry.metrics import MetricsRegistry


def key(name: str, namespace: str = "default", resource: str = "widgets.example.org") -> Key:
    return Key(resource, namespace, name)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await open_store(None, clock=VirtualClock()) as opened:
        yield opened


async def fill(store: Store, *keys: Key) -> None:
    for each in keys:
        await store.stage(each, each.name.encode())


async def test_a_staged_write_is_seen_by_head_at_once_and_by_get_only_after_the_commit(store: Store) -> None:
    committing = store.stage(key("a"), b"1")
    assert store.head(key("a")) == Entry(1, b"1")
    assert store.get(key("a")) is None
    assert store.revision == 0
    assert await committing == 1
    assert store.get(key("a")) == store.head(key("a")) == Entry(1, b"1")
    assert store.revision == 1


async def test_a_staged_deletion_hides_the_object_from_head_only(store: Store) -> None:
    await store.stage(key("a"), b"1")
    committing = store.stage(key("a"), None)
    assert store.head(key("a")) is None
    assert store.get(key("a")) == Entry(1, b"1")
    assert await committing == 2
    assert store.get(key("a")) is None


async def test_next_revision_is_what_the_next_write_gets(store: Store) -> None:
    for _ in range(3):
        expected = store.next_revision()
        assert await store.stage(key("a"), b"x") == expected
    assert store.next_revision() == 4


async def test_writes_of_one_turn_of_the_loop_share_a_commit(store: Store) -> None:
    batches: list[list[int]] = []
    store.subscribe(lambda changes: batches.append([change.rv for change in changes]))
    await asyncio.gather(*(store.stage(key(f"n{number}"), b"x") for number in range(50)))
    assert batches == [list(range(1, 51))]


async def test_a_batch_larger_than_one_statement_is_committed_whole(tmp_path: Path) -> None:
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        await asyncio.gather(*(store.stage(key(f"n{number:04}"), b"x") for number in range(2500)))
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        assert store.revision == store.count("widgets.example.org") == 2500


async def test_changes_say_what_they_replaced(store: Store) -> None:
    seen: list[Change] = []
    store.subscribe(seen.extend)
    await asyncio.gather(store.stage(key("a"), b"1"), store.stage(key("a"), b"2"), store.stage(key("a"), None))
    await store.stage(key("a"), b"4")
    await store.stage(key("a"), None, last=b"5: gone")
    assert [(c.rv, c.type, c.value, c.previous, c.previous_rv) for c in seen] == [
        (1, ChangeType.ADDED, b"1", None, 0),
        (2, ChangeType.MODIFIED, b"2", b"1", 1),
        (3, ChangeType.DELETED, b"2", b"2", 2),
        (4, ChangeType.ADDED, b"4", None, 0),
        (5, ChangeType.DELETED, b"5: gone", b"4", 4),
    ]


async def test_deleting_what_is_not_there_is_refused_and_uses_no_resource_version(store: Store) -> None:
    with pytest.raises(ValueError, match=r"widgets\.example\.org default/a: it is not there"):
        store.stage(key("a"), None)
    assert store.next_revision() == 1


async def test_a_group_of_writes_is_one_batch_and_may_touch_a_key_twice(store: Store) -> None:
    writes = [Write(key("a"), b"1"), Write(key("b"), b"2"), Write(key("a"), None, b"3"), Write(key("a"), b"4")]
    assert await store.stage_many(writes) == 4
    assert store.get(key("a")) == Entry(4, b"4")
    assert store.get(key("b")) == Entry(2, b"2")


async def test_a_refused_group_stages_none_of_its_writes(store: Store) -> None:
    pending = store.stage(key("a"), b"old")
    with pytest.raises(ValueError, match="not there"):
        store.stage_many([Write(key("a"), b"new"), Write(key("b"), b"x"), Write(key("missing"), None)])
    assert store.head(key("a")) == Entry(1, b"old")
    assert store.head(key("b")) is None
    assert store.next_revision() == 2
    assert await pending == 1
    with pytest.raises(ValueError, match="empty"):
        store.stage_many([])


async def test_settled_waits_for_the_commit_of_the_head_and_not_longer(store: Store) -> None:
    await store.settled(key("a"))
    store.stage(key("a"), b"1")
    await store.settled(key("a"))
    assert store.get(key("a")) == Entry(1, b"1")


async def test_a_cancelled_writer_does_not_take_its_write_back(store: Store) -> None:
    store.stage(key("a"), b"1").cancel()
    assert await store.stage(key("b"), b"2") == 2
    assert store.get(key("a")) == Entry(1, b"1")


async def test_subscribers_hear_of_a_batch_before_its_writers(store: Store) -> None:
    order: list[str] = []
    stop = store.subscribe(lambda changes: order.append("subscriber"))
    store.stage(key("a"), b"1").add_done_callback(lambda _: order.append("writer"))
    await store.settled(key("a"))
    await asyncio.sleep(0)
    assert order == ["subscriber", "writer"]
    stop()
    await store.stage(key("a"), b"2")
    assert order == ["subscriber", "writer"]


async def test_a_broken_subscriber_does_not_keep_a_batch_from_the_others(store: Store) -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    seen: list[Change] = []

    def broken(changes: Sequence[Change]) -> None:
        raise RuntimeError("index is broken")

    store.subscribe(broken)
    store.subscribe(seen.extend)
    await store.stage(key("a"), b"1")
    assert len(seen) == 1
    assert reported == ["index is broken"]


async def test_lists_are_in_bytewise_order_of_namespace_then_name(store: Store) -> None:
    keys = [key("é", "b"), key("z", "b"), key("a-1", "b"), key("a", "b"), key("x", "a"), key("b", "a-b"), key("c", "")]
    await fill(store, *keys)
    expected = sorted(keys, key=lambda each: (each.namespace.encode(), each.name.encode()))
    assert store.keys("widgets.example.org") == expected
    assert [each for each, _ in store.list("widgets.example.org", "b")] == [k for k in expected if k.namespace == "b"]
    assert store.count("widgets.example.org") == 7
    assert store.count("widgets.example.org", "b") == 4
    assert store.count("widgets.example.org", "nowhere") == store.count("nothing") == 0
    assert store.list("nothing") == store.list("widgets.example.org", "nowhere") == []


@pytest.mark.parametrize("namespace", [None, "b"])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_joined_are_the_list(store: Store, namespace: str | None, limit: int) -> None:
    await fill(store, *(key(name, space) for space in ("a", "b", "c") for name in "qwerty"))
    joined: list[Key] = []
    while page := store.keys("widgets.example.org", namespace, start=joined[-1] if joined else None, limit=limit):
        assert len(page) <= limit
        joined += page
    assert joined == store.keys("widgets.example.org", namespace)


async def test_a_page_may_start_after_an_object_that_is_gone(store: Store) -> None:
    await fill(store, key("a"), key("c"), key("b", "later"))
    assert store.keys("widgets.example.org", start=key("b")) == [key("c"), key("b", "later")]
    assert store.keys("widgets.example.org", start=key("a", "gone")) == [key("b", "later")]
    assert store.keys("widgets.example.org", "default", start=key("a", "zzz")) == []


async def test_a_snapshot_stays_as_it_was_while_others_write(store: Store) -> None:
    await fill(store, *(key(name, space) for space in ("a", "b") for name in "abc"))
    pinned, one = store.snapshot("widgets.example.org"), store.snapshot("widgets.example.org", "a")
    before = store.list("widgets.example.org")
    await store.stage(key("b", "a"), b"changed")
    await store.stage(key("c", "a"), None)
    await fill(store, key("new", "a"), key("only", "c"))
    assert pinned.rv == 6
    assert list(pinned) == before
    assert [items for part in pinned.slices(4) for items in part] == before
    assert len(pinned) == 6
    assert list(one) == before[:3]
    assert pinned.page(after=before[1][0], limit=2) == before[2:4]
    assert pinned.remaining(before[1][0]) == 4
    assert store.get(key("b", "a")) == Entry(7, b"changed")


async def test_a_list_at_an_old_resource_version_is_what_the_list_was(store: Store) -> None:
    lists: dict[int, list[tuple[Key, Entry]]] = {0: []}
    for number in range(60):
        target = key(f"n{number % 7}", "ab"[number % 2], "xy"[number % 3 == 0])
        await store.stage(target, None if store.get(target) and number % 4 == 0 else str(number).encode())
        lists[store.revision] = store.list("x")
    for rv, expected in lists.items():
        shown = await store.list_at("x", None, rv)
        assert (shown.rv, list(shown)) == (rv, expected)
        assert list(await store.list_at("x", "a", rv)) == [item for item in expected if item[0].namespace == "a"]
    with pytest.raises(ValueError, match="has not been reached"):
        await store.list_at("x", None, store.revision + 1)


async def test_a_list_below_the_floor_is_refused(store: Store) -> None:
    await fill(store, *(key("a") for _ in range(10)))
    await store.compact(6)
    assert store.floor == 5
    assert [entry.rv for _, entry in await store.list_at("widgets.example.org", None, 5)] == [5]
    with pytest.raises(Compacted) as refusal:
        await store.list_at("widgets.example.org", None, 4)
    assert (refusal.value.requested, refusal.value.floor) == (4, 5)


async def test_a_list_at_an_old_version_is_not_touched_by_writes_while_it_is_read() -> None:
    async with await open_store(None, clock=VirtualClock(), history=HistoryLimits(ring_events=1)) as store:
        await fill(store, key("a"), key("b"), key("c"), key("a"), key("b"))
        reading = asyncio.ensure_future(store.list_at("widgets.example.org", None, 2))
        await asyncio.sleep(0)
        await asyncio.gather(store.stage(key("a"), None), store.stage(key("c"), b"x"), store.stage(key("new"), b"x"))
        assert [(each.name, entry.rv) for each, entry in await reading] == [("a", 1), ("b", 2)]


async def test_compaction_leaves_only_what_is_current_or_kept(store: Store) -> None:
    await fill(store, key("a"), key("a"), key("b"), key("a"))
    await store.stage(key("b"), None)
    await store.compact(6)
    database = sqlite3.connect(store.path)
    assert database.execute("SELECT rv FROM log").fetchall() == [(4,)]
    database.close()


async def test_resources_are_those_that_hold_objects(store: Store) -> None:
    await fill(store, key("a", resource="b"), key("a", resource="a"), key("a", resource="c"))
    await store.stage(key("a", resource="c"), None)
    assert store.resources() == ["a", "b"]


async def test_everything_is_there_again_after_a_restart_and_versions_go_on(tmp_path: Path) -> None:
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        await fill(store, key("a"), key("b"), key("a"), key("c", "other", "gadgets"))
        await store.stage(key("b"), None, last=b"gone")
        shown = store.list("widgets.example.org"), store.list("gadgets")
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        assert (store.list("widgets.example.org"), store.list("gadgets")) == shown
        assert store.revision == 5
        assert await store.stage(key("b"), b"back") == 6


async def test_versions_go_on_even_if_the_last_change_was_a_deletion_that_is_compacted(tmp_path: Path) -> None:
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        await fill(store, key("a"))
        await store.stage(key("a"), None)
        await store.compact(99)
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        assert (store.revision, store.floor, store.resources()) == (2, 2, [])
        assert await store.stage(key("a"), b"3") == 3


async def test_closing_commits_what_is_staged_and_refuses_the_rest(tmp_path: Path) -> None:
    store = await open_store(tmp_path, clock=VirtualClock())
    committing = store.stage(key("a"), b"1")
    await store.close()
    await store.close()
    assert await committing == 1
    with pytest.raises(StoreClosed):
        store.stage(key("a"), b"2")
    with pytest.raises(StoreClosed):
        store.watch()
    with pytest.raises(StoreClosed):
        await store.check()
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        assert store.get(key("a")) == Entry(1, b"1")


async def test_a_cancelled_close_still_closes(tmp_path: Path) -> None:
    store = await open_store(tmp_path, clock=VirtualClock())
    committing = store.stage(key("a"), b"1")
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(store.close(), store.close())
    assert closing.cancelled()
    assert await committing == 1
    await (await open_store(tmp_path, clock=VirtualClock())).close()


async def test_a_key_that_cannot_be_stored_fails_its_batch_and_no_later_one(store: Store) -> None:
    with pytest.raises(StoreFailed, match="surrogates not allowed; the write did not happen"):
        await store.stage(key("\ud800"), b"1")
    assert store.head(key("\ud800")) is None
    assert await store.stage(key("a"), b"1") == 1


async def test_metrics_tell_commits_and_objects() -> None:
    metrics = MetricsRegistry()
    async with await open_store(None, clock=VirtualClock(), metrics=metrics) as store:
        await fill(store, key("a"), key("b"))
        text = metrics.render()
        await store.stage(key("a"), None)
        await store.stage(key("b"), None)
        later = metrics.render()
    assert "planform_store_writes_total 2" in text
    assert "planform_store_commit_seconds_count 2" in text
    assert 'planform_store_objects{resource="widgets.example.org"} 2' in text
    assert "widgets.example.org" not in later
