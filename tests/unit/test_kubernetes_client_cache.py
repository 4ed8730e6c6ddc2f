"""Read caches: what they hold, what they find, and that one's own writes are visible."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.api.kinds import GVK, Object
from planform.client.cache import Cache, by_label, by_owner_uid
from planform.client.cached import CachedClient
from planform.client.informer import ObjectKey
from planform.client.protocol import Client
from planform.clock import VirtualClock
from planform.errors import NotFound, Timeout
from tests.unit.memory_engine import MemoryEngine, settle

WIDGET = GVK("example.org", "v1", "Widget")


def widget(name: str, *, app: str = "", owner: str = "", size: int = 1) -> Object:
    metadata: Object = {"name": name, "namespace": "default", "managedFields": [{"manager": "x"}]}
    if app:
        metadata["labels"] = {"app": app}
    if owner:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Owner", "name": "o", "uid": owner}]
    return {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": size}}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
async def cache(engine: MemoryEngine, clock: VirtualClock) -> AsyncIterator[Cache]:
    for name, app, owner in (("a", "x", "u1"), ("b", "x", "u2"), ("c", "", "u1")):
        await engine.create(widget(name, app=app, owner=owner))
    indexes = {"app": by_label("app"), "owner": by_owner_uid, "size": lambda obj: [str(obj["spec"]["size"])]}
    async with Cache(engine, WIDGET, clock=clock, rng=Random(1), indexes=indexes) as cache:
        await cache.synced()
        await settle()
        yield cache


async def names(found: object) -> list[str]:
    return [obj["metadata"]["name"] for obj in await found]  # type: ignore[misc]  # any of the three reads


async def test_reads_are_answered_without_asking_the_server(engine: MemoryEngine, cache: Cache) -> None:
    engine.failing = None
    lists = engine.lists
    assert await names(cache.list()) == ["a", "b", "c"]
    assert await names(cache.list(labels="app=x")) == ["a", "b"]
    assert await names(cache.list(namespace="other")) == []
    assert (await cache.get("a", namespace="default"))["spec"] == {"size": 1}
    with pytest.raises(NotFound, match=r'Widget.example.org "z" not found'):
        await cache.get("z", namespace="default")
    assert engine.lists == lists


async def test_what_comes_out_belongs_to_the_caller_and_has_no_managed_fields(cache: Cache) -> None:
    first = await cache.get("a", namespace="default")
    assert "managedFields" not in first["metadata"]
    first["spec"]["size"] = 99
    assert (await cache.get("a", namespace="default"))["spec"] == {"size": 1}


async def test_indexes_follow_every_change(engine: MemoryEngine, cache: Cache) -> None:
    assert await names(cache.find("app", "x")) == ["a", "b"]
    assert await names(cache.find("owner", "u1")) == ["a", "c"]
    await engine.update(widget("a", app="y", owner="u2", size=7))
    await engine.delete(WIDGET, "b", namespace="default")
    await settle()
    assert await names(cache.find("app", "x")) == []
    assert await names(cache.find("app", "y")) == ["a"]
    assert await names(cache.find("owner", "u2")) == ["a"]
    assert await names(cache.find("size", "7")) == ["a"]
    assert set(cache._indexes["app"]) == {"y"}  # nothing is kept for values that nobody has


async def test_a_metadata_only_cache_keeps_nothing_else(engine: MemoryEngine, clock: VirtualClock) -> None:
    await engine.create(widget("a", app="x"))
    async with Cache(engine, WIDGET, clock=clock, rng=Random(1), metadata_only=True) as cache:
        await cache.synced()
        (only,) = await cache.list(labels="app=x")
    assert set(only) == {"apiVersion", "kind", "metadata"}


async def test_a_read_waits_for_ones_own_write(engine: MemoryEngine, cache: Cache) -> None:
    written = await engine.update(widget("a", size=2))
    cache.wrote(written)
    assert (await cache.get("a", namespace="default"))["spec"] == {"size": 2}
    created = await engine.create(widget("new"))
    cache.wrote(created)
    assert await names(cache.list()) == ["a", "b", "c", "new"]
    await engine.delete(WIDGET, "new", namespace="default")
    cache.deleted("new", created["metadata"]["uid"], namespace="default")
    assert await names(cache.list()) == ["a", "b", "c"]


async def test_a_read_of_another_key_does_not_wait(engine: MemoryEngine, cache: Cache) -> None:
    engine.end_streams()
    await settle()
    cache.wrote(await engine.update(widget("a", size=2)))
    assert (await cache.get("b", namespace="default"))["spec"] == {"size": 1}


async def test_waiting_ends_when_the_watch_falls_silent(
    engine: MemoryEngine, cache: Cache, clock: VirtualClock
) -> None:
    written = await engine.update(widget("a", size=2))
    written["metadata"]["resourceVersion"] = "1000"  # a write that the watch never shows
    cache.wrote(written)
    reading = asyncio.create_task(cache.get("a", namespace="default"))
    await settle()
    await clock.advance(9)
    assert not reading.done()
    await clock.advance(1)
    await settle()
    with pytest.raises(Timeout, match="did not see default/a within 10 s"):
        await reading


async def test_waiting_for_a_version_ends_with_the_deletion_of_its_object(engine: MemoryEngine, cache: Cache) -> None:
    written = await engine.update(widget("a", size=2))
    await engine.delete(WIDGET, "a", namespace="default")
    await cache.wait_for(ObjectKey("default", "a"), written["metadata"]["resourceVersion"])
    await settle()
    with pytest.raises(NotFound):
        await cache.get("a", namespace="default")


async def test_a_relist_makes_up_for_what_the_watch_missed(
    engine: MemoryEngine, cache: Cache, clock: VirtualClock
) -> None:
    engine.end_streams()
    written = await engine.update(widget("a", size=2))
    await engine.delete(WIDGET, "c", namespace="default")
    engine.end_streams(forget_history=True)
    cache.wrote(written)
    reading = asyncio.create_task(cache.get("a", namespace="default"))
    await settle()
    await clock.advance(2)
    assert (await reading)["spec"] == {"size": 2}
    await settle()
    found = await cache.list()
    assert [(obj["metadata"]["name"], obj["spec"]["size"]) for obj in found] == [("a", 2), ("b", 1)]


async def test_an_object_outside_the_selector_is_not_waited_for(engine: MemoryEngine, clock: VirtualClock) -> None:
    await engine.create(widget("a", app="x"))
    async with Cache(engine, WIDGET, clock=clock, rng=Random(1), labels="app=x") as cache:
        await cache.synced()
        cache.wrote(await engine.create(widget("b", app="y")))
        assert await names(cache.list()) == ["a"]


async def test_a_cached_client_reads_its_own_writes(engine: MemoryEngine, cache: Cache) -> None:
    client: Client = CachedClient(engine, {WIDGET: cache})
    lists = engine.lists
    await client.create(widget("d"))
    assert len((await client.list(WIDGET)).items) == 4
    obj = await client.get(WIDGET, "d", namespace="default")
    obj["spec"]["size"] = 5
    await client.update(obj)
    assert (await client.get(WIDGET, "d", namespace="default"))["spec"] == {"size": 5}
    await client.delete(WIDGET, "d", namespace="default")
    with pytest.raises(NotFound):
        await client.get(WIDGET, "d", namespace="default")
    assert engine.lists == lists


async def test_an_object_created_and_deleted_before_the_cache_saw_it_is_not_found(
    engine: MemoryEngine, cache: Cache
) -> None:
    client = CachedClient(engine, {WIDGET: cache})
    await client.create(widget("d"))
    await client.delete(WIDGET, "d", namespace="default")
    with pytest.raises(NotFound):
        await client.get(WIDGET, "d", namespace="default")


async def test_a_cached_client_asks_the_server_when_its_cache_is_behind(
    engine: MemoryEngine, cache: Cache, clock: VirtualClock
) -> None:
    client = CachedClient(engine, {WIDGET: cache})
    written = await engine.update(widget("a", size=2))
    written["metadata"]["resourceVersion"] = "1000"
    cache.wrote(written)
    reading = asyncio.create_task(client.get(WIDGET, "a", namespace="default"))
    await settle()
    await clock.advance(10)
    assert (await reading)["spec"] == {"size": 2}


def test_a_cache_of_some_objects_cannot_stand_for_all(engine: MemoryEngine, clock: VirtualClock) -> None:
    some = Cache(engine, WIDGET, clock=clock, rng=Random(1), namespace="default")
    with pytest.raises(ValueError, match="does not hold all objects"):
        CachedClient(engine, {WIDGET: some})


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["create", "update", "delete", "end", "expire", "wait"]), st.integers(0, 3)),
        max_size=30,
    )
)
def test_whatever_happens_to_the_watch_a_cached_client_reads_what_it_wrote(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        engine, clock = MemoryEngine(), VirtualClock()

        async def time_passes() -> None:
            while True:
                await clock.advance(0.5)

        passing = asyncio.create_task(time_passes())
        indexes = {"owner": by_owner_uid}
        async with Cache(engine, WIDGET, clock=clock, rng=Random(1), indexes=indexes, wait_seconds=3600) as cache:
            client = CachedClient(engine, {WIDGET: cache})
            await cache.synced()
            for step, number in steps:
                name = f"w{number}"
                exists = (WIDGET, "default", name) in engine.objects
                if step == "create" and not exists:
                    await client.create(widget(name, owner=str(number % 2)))
                elif step == "update" and exists:
                    await client.update(widget(name, owner=str(engine.version % 2), size=engine.version))
                elif step == "delete" and exists:
                    await client.delete(WIDGET, name, namespace="default")
                elif step == "end":
                    engine.end_streams()
                elif step == "expire":
                    engine.end_streams(forget_history=True)
                elif step == "wait":
                    for _ in range(number * 5):
                        await asyncio.sleep(0)
                there = await engine.list(WIDGET)
                cached = await client.list(WIDGET)
                assert [_told(obj) for obj in cached.items] == [_told(obj) for obj in there.items]
                for owner in ("0", "1"):
                    found = [_told(obj) for obj in await cache.find("owner", owner)]
                    assert found == [_told(obj) for obj in there.items if owner in by_owner_uid(obj)]
        passing.cancel()

    asyncio.run(play())


def _told(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["name"], obj["metadata"]["resourceVersion"]
