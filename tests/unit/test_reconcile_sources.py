"""Shared watches: how many there are, what each subscriber hears, and what becomes of it in a queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.api.kinds import GVK, Object
from planform.client.informer import InformerEvent, ObjectKey
from planform.client.protocol import EventType
from planform.clock import VirtualClock
from planform.errors import ServiceUnavailable
from planform.reconcile.queue import WorkQueue
from planform.reconcile.sources import Enqueue, Subscription, Watches, to_owner, to_self
from planform.telemetry.metrics import MetricsRegistry
from tests.unit.memory_engine import MemoryEngine, settle

WIDGET = GVK("example.org", "v1", "Widget")
GEAR = GVK("example.org", "v1", "Gear")


def widget(name: str, *, kind: str = "Widget", size: int = 1, owner: str = "", labels: str = "") -> Object:
    metadata: Object = {"name": name, "namespace": "default"}
    if labels:
        metadata["labels"] = {"app": labels}
    if owner:
        reference = {"apiVersion": "example.org/v2", "kind": "Widget", "name": owner, "uid": "u", "controller": True}
        metadata["ownerReferences"] = [reference]
    return {"apiVersion": "example.org/v1", "kind": kind, "metadata": metadata, "spec": {"size": size}}


class Ear:
    """A subscriber that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, change: InformerEvent) -> None:
        self.heard.append(f"{change.type} {change.key.name}")

    def take(self) -> list[str]:
        heard, self.heard = self.heard, []
        return heard


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
async def watches(engine: MemoryEngine, clock: VirtualClock) -> AsyncIterator[Watches]:
    async with Watches(engine, clock=clock, rng=Random(1)) as watches:
        yield watches


async def test_many_subscribers_share_one_list_and_one_watch(engine: MemoryEngine, watches: Watches) -> None:
    await engine.create(widget("a"))
    ears = [Ear() for _ in range(5)]
    subscriptions = [watches.subscribe(WIDGET, ear) for ear in ears]
    for subscription in subscriptions:
        await subscription.synced()
    await settle()
    await engine.create(widget("b"))
    await settle()
    assert engine.watches == 1
    assert [ear.take() for ear in ears] == [["ADDED a", "ADDED b"]] * 5


async def test_the_watch_stops_with_its_last_subscriber_and_starts_anew_with_the_next(
    engine: MemoryEngine, watches: Watches
) -> None:
    first, second = watches.subscribe(WIDGET, Ear()), watches.subscribe(WIDGET, Ear())
    await settle()
    first.close()
    first.close()
    await settle()
    assert (len(watches), engine.open_watches) == (1, 1)
    second.close()
    await settle()
    assert (len(watches), engine.open_watches) == (0, 0)
    await engine.create(widget("a"))
    ear = Ear()
    async with watches.subscribe(WIDGET, ear) as again:
        await again.synced()
        assert ear.take() == ["ADDED a"]


async def test_other_namespaces_and_selectors_are_other_watches(engine: MemoryEngine, watches: Watches) -> None:
    await engine.create(widget("a", labels="x"))
    await engine.create(widget("b"))
    everything, labelled, elsewhere = Ear(), Ear(), Ear()
    watches.subscribe(WIDGET, everything)
    watches.subscribe(WIDGET, labelled, labels="app=x")
    watches.subscribe(WIDGET, elsewhere, namespace="other")
    await settle()
    assert len(watches) == 3
    assert (everything.take(), labelled.take(), elsewhere.take()) == (["ADDED a", "ADDED b"], ["ADDED a"], [])


async def test_a_late_subscriber_hears_of_everything_and_no_change_twice(
    engine: MemoryEngine, watches: Watches
) -> None:
    for name in ("a", "b", "c"):
        await engine.create(widget(name))
    early, late = Ear(), Ear()
    await watches.subscribe(WIDGET, early).synced()
    await settle()
    early.take()
    subscription = watches.subscribe(WIDGET, late)
    await engine.update(widget("b", size=2))  # arrives by the watch while the late one still lists
    await engine.delete(WIDGET, "c", namespace="default")
    await subscription.synced()
    await settle()
    assert early.take() == ["MODIFIED b", "DELETED c"]
    assert sorted(late.take()) == ["ADDED a", "ADDED b"]
    await engine.update(widget("a", size=2))
    await settle()
    assert (early.take(), late.take()) == (["MODIFIED a"], ["MODIFIED a"])


async def test_a_stream_that_ends_is_resumed_without_listing_again(
    engine: MemoryEngine, watches: Watches, clock: VirtualClock
) -> None:
    ear = Ear()
    await watches.subscribe(WIDGET, ear).synced()
    await settle()
    engine.end_streams()
    await engine.create(widget("meanwhile"))
    await settle()
    await clock.advance(1)
    await settle()
    assert ear.take() == ["ADDED meanwhile"]
    assert engine.lists == 1


async def test_after_an_expiry_only_what_changed_is_told(
    engine: MemoryEngine, watches: Watches, clock: VirtualClock
) -> None:
    for name in ("same", "edited", "gone", "recreated"):
        await engine.create(widget(name))
    ear = Ear()
    await watches.subscribe(WIDGET, ear).synced()
    await settle()
    ear.take()
    engine.end_streams()
    await engine.update(widget("edited", size=2))
    await engine.delete(WIDGET, "gone", namespace="default")
    await engine.delete(WIDGET, "recreated", namespace="default")
    await engine.create(widget("recreated"))
    await engine.create(widget("new"))
    engine.end_streams(forget_history=True)
    await settle()
    await clock.advance(2)
    await settle()
    assert sorted(ear.take()) == [
        "ADDED new",
        "ADDED recreated",
        "DELETED gone",
        "DELETED recreated",
        "MODIFIED edited",
    ]
    assert engine.lists == 2


async def test_a_server_that_fails_is_asked_less_and_less_often(
    engine: MemoryEngine, watches: Watches, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await engine.create(widget("a"))
    engine.failing = ServiceUnavailable("down")
    ear = Ear()
    with caplog.at_level(logging.WARNING):
        watches.subscribe(WIDGET, ear)
        await settle()
        for _ in range(3600):
            await clock.advance(1)
    assert len(caplog.records) == 1
    engine.failing = None
    await clock.advance(30)
    await settle()
    assert ear.take() == ["ADDED a"]


async def test_a_kind_that_is_no_longer_served_has_no_objects(
    engine: MemoryEngine, watches: Watches, clock: VirtualClock
) -> None:
    await engine.create(widget("a"))
    ear = Ear()
    await watches.subscribe(WIDGET, ear).synced()
    await settle()
    engine.unserved.add(WIDGET)
    engine.end_streams()
    await settle()
    await clock.advance(5)
    await settle()
    assert ear.take() == ["ADDED a", "DELETED a"]


async def test_a_kind_of_which_metadata_is_enough_is_watched_by_a_client_of_its_own(
    engine: MemoryEngine, clock: VirtualClock
) -> None:
    thin, early, late = MemoryEngine(), Ear(), Ear()
    await thin.create(widget("a", kind="Gear"))
    async with Watches(engine, clock=clock, rng=Random(1), thin={GEAR: thin}) as watches:
        await watches.subscribe(GEAR, early).synced()
        await watches.subscribe(GEAR, late).synced()
        watches.subscribe(WIDGET, Ear())
        watches.subscribe(GEAR, Ear(), labels="app=mine")
        await settle()
        assert (early.take(), late.take()) == (["ADDED a"], ["ADDED a"])
        assert (engine.lists, thin.lists) == (2, 2)


async def test_a_watch_that_is_down_makes_deaf_and_one_that_is_refused_its_kind_does_not(
    engine: MemoryEngine, clock: VirtualClock, watches: Watches
) -> None:
    engine.unserved.add(GEAR)
    for kind in (WIDGET, GEAR):
        watches.subscribe(kind, Ear())
    await settle()
    assert watches.disconnected(0) == []
    engine.failing = ServiceUnavailable("away")
    engine.end_streams()
    for _ in range(50):
        await clock.advance(1)
        await settle()
    assert [scope.gvk for scope in watches.disconnected(45)] == [WIDGET, GEAR]
    assert watches.disconnected(60) == []
    engine.failing = None
    for _ in range(120):
        await clock.advance(1)
        await settle()
    assert watches.disconnected(45) == []


async def test_waiting_for_a_watch_ends_when_the_subscription_does(engine: MemoryEngine, watches: Watches) -> None:
    engine.failing = ServiceUnavailable("away")
    subscription = watches.subscribe(WIDGET, Ear())
    waiting = asyncio.create_task(subscription.synced())
    await settle()
    assert not waiting.done()
    subscription.close()
    with pytest.raises(ServiceUnavailable, match="has ended"):
        await waiting


async def test_an_error_in_one_handler_does_not_reach_the_others(
    engine: MemoryEngine, watches: Watches, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(change: InformerEvent) -> None:
        raise KeyError("oops")

    ear = Ear()
    watches.subscribe(WIDGET, broken)
    watches.subscribe(WIDGET, ear)
    await settle()
    await engine.create(widget("a"))
    await settle()
    assert ear.take() == ["ADDED a"]
    assert "handling ADDED of Widget.v1.example.org default/a failed" in caplog.text


async def test_watches_are_counted(engine: MemoryEngine, clock: VirtualClock) -> None:
    registry = MetricsRegistry()
    async with Watches(engine, clock=clock, rng=Random(1), metrics=registry) as watches:
        watches.subscribe(WIDGET, Ear())
        await settle()
        assert 'planform_watches{kind="Widget.v1.example.org"} 1' in registry.render()
    assert 'planform_watches{kind="Widget.v1.example.org"} 0' in registry.render()


def drain(queue: WorkQueue[ObjectKey]) -> list[str]:
    names = []
    while queue:
        key = queue.get_nowait()
        queue.done(key)
        names.append(key.name)
    return names


async def test_what_a_user_edits_overtakes_what_was_there_and_what_only_changed_status(
    engine: MemoryEngine, watches: Watches, clock: VirtualClock
) -> None:
    for name in ("old", "status", "edited"):
        await engine.create(widget(name))
    queue: WorkQueue[ObjectKey] = WorkQueue(clock=clock, rng=Random(1))
    watches.subscribe(WIDGET, Enqueue(queue, to_self))
    await settle()
    await engine.update(widget("status") | {"status": {"ready": True}})
    await engine.update(widget("edited", size=2))
    await settle()
    assert drain(queue) == ["edited", "status", "old"]


async def test_what_a_controller_made_comes_after_what_its_user_made(
    engine: MemoryEngine, watches: Watches, clock: VirtualClock
) -> None:
    queue: WorkQueue[ObjectKey] = WorkQueue(clock=clock, rng=Random(1))
    await engine.create(widget("old"))
    watches.subscribe(WIDGET, Enqueue(queue, to_self))
    await settle()
    await engine.create(widget("made", owner="of-a-user"))
    await engine.create(widget("of-a-user"))
    await settle()
    assert drain(queue) == ["of-a-user", "made", "old"]


async def test_an_object_that_changes_hands_wakes_both_owners(
    engine: MemoryEngine, watches: Watches, clock: VirtualClock
) -> None:
    queue: WorkQueue[ObjectKey] = WorkQueue(clock=clock, rng=Random(1))
    watches.subscribe(GEAR, Enqueue(queue, to_owner("example.org", "Widget")))
    await engine.create(widget("gear", kind="Gear", owner="first"))
    await engine.create(widget("stray", kind="Gear"))
    await settle()
    assert drain(queue) == ["first"]
    await engine.update(widget("gear", kind="Gear", owner="second"))
    await settle()
    assert sorted(drain(queue)) == ["first", "second"]


async def test_an_object_found_deleted_after_an_expiry_still_wakes_its_owner(
    engine: MemoryEngine, watches: Watches, clock: VirtualClock
) -> None:
    queue: WorkQueue[ObjectKey] = WorkQueue(clock=clock, rng=Random(1))
    watches.subscribe(GEAR, Enqueue(queue, to_owner("example.org", "Widget")))
    await engine.create(widget("gear", kind="Gear", owner="first"))
    await settle()
    drain(queue)
    engine.end_streams()
    await engine.delete(GEAR, "gear", namespace="default")
    engine.end_streams(forget_history=True)
    await settle()
    await clock.advance(2)
    await settle()
    assert drain(queue) == ["first"]


async def test_owners_are_matched_by_group_kind_and_control() -> None:
    change = InformerEvent("ADDED", widget("gear", kind="Gear", owner="w"))
    assert list(to_owner("example.org", "Widget")(change)) == [ObjectKey("default", "w")]
    assert list(to_owner("example.org", "Widget", cluster_scoped=True)(change)) == [ObjectKey("", "w")]
    assert list(to_owner("other.org", "Widget")(change)) == []
    del change.object["metadata"]["ownerReferences"][0]["controller"]
    assert list(to_owner("example.org", "Widget")(change)) == []
    assert list(to_owner("example.org", "Widget", controller=False)(change)) == [ObjectKey("default", "w")]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.integers(0, 2), st.lists(st.integers(0, 3), max_size=3)
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(CHANGES)
def test_a_change_is_about_the_keys_the_object_leads_to_and_those_it_led_to_before(
    changes: list[tuple[EventType, int, list[int]]],
) -> None:
    class Noting:
        """In place of a queue."""

        pace = 0.0

        def __init__(self) -> None:
            self.keys: list[int] = []

        def add_after(self, key: int, *_: object, **__: object) -> None:
            self.keys.append(key)

    queue, led_to = Noting(), dict[int, list[int]]()
    enqueue: Enqueue[int] = Enqueue(queue, lambda change: change.object["leadsTo"])  # type: ignore[arg-type]
    for kind, number, keys in changes:
        queue.keys.clear()
        enqueue(InformerEvent(kind, {**widget(f"w-{number}"), "leadsTo": keys}))
        assert queue.keys == list(dict.fromkeys(led_to.get(number, []) + keys))
        led_to[number] = [] if kind == "DELETED" else keys
        assert len(enqueue._keys) == sum(map(bool, led_to.values()))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "delete"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(["end", "expire", "fail", "heal", "subscribe", "unsubscribe"]), st.just(0)),
        st.tuples(st.just("advance"), st.integers(0, 40)),
        st.tuples(st.just("turns of the loop"), st.integers(1, 12)),
    ),
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_whatever_happens_every_subscriber_ends_with_what_is_there(steps: list[tuple[str, int]]) -> None:  # noqa: C901  (plays a script)
    """Writes, cut streams, expiries, failures, late subscribers: replaying what one heard gives what a list shows."""

    class Replica:
        def __init__(self) -> None:
            self.objects: dict[ObjectKey, tuple[str, str]] = {}
            self.surprises: list[InformerEvent] = []

        def __call__(self, change: InformerEvent) -> None:
            metadata = change.object["metadata"]
            known = self.objects.pop(change.key, None)
            if (change.type == "ADDED") == (known is not None):
                self.surprises.append(change)
            if change.type == "DELETED":
                if known is not None and known[0] != metadata["uid"]:
                    self.surprises.append(change)
                return
            self.objects[change.key] = (metadata["uid"], metadata["resourceVersion"])

    async def play() -> None:  # noqa: C901  (plays a script)
        engine, clock = MemoryEngine(), VirtualClock()
        async with Watches(engine, clock=clock, rng=Random(1)) as watches:
            subscribed: list[tuple[Replica, Subscription]] = []

            def subscribe() -> None:
                replica = Replica()
                subscribed.append((replica, watches.subscribe(WIDGET, replica)))

            subscribe()
            for step, number in steps:
                name, failing = f"w{number}", engine.failing
                engine.failing = None  # the writer has another line
                if step == "write" and (WIDGET, "default", name) in engine.objects:
                    await engine.update(widget(name, size=engine.version))
                elif step == "write":
                    await engine.create(widget(name))
                elif step == "delete" and (WIDGET, "default", name) in engine.objects:
                    await engine.delete(WIDGET, name, namespace="default")
                elif step == "end":
                    engine.end_streams()
                elif step == "expire":
                    engine.end_streams(forget_history=True)
                elif step == "subscribe":
                    subscribe()
                elif step == "unsubscribe" and len(subscribed) > 1:
                    subscribed.pop(0)[1].close()
                engine.failing = failing
                if step == "fail":
                    engine.failing = ServiceUnavailable("down")
                    engine.end_streams()
                elif step == "heal":
                    engine.failing = None
                elif step == "advance":
                    await clock.advance(number)
                elif step == "turns of the loop":
                    for _ in range(number):
                        await asyncio.sleep(0)
            engine.failing = None
            for _ in range(3):
                await settle()
                await clock.advance(31)
            await settle()
            there = {
                ObjectKey("default", key[2]): (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])
                for key, obj in engine.objects.items()
            }
            for replica, subscription in subscribed:
                await subscription.synced()
                assert (replica.objects, replica.surprises) == (there, [])

    asyncio.run(play())
