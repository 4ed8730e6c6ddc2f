"""What a client remembers of objects: when it answers from it, and that it is never behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.api.kinds import GVK, Object
from planform.client.informer import InformerEvent, ObjectKey, Seen, version_number
from planform.client.protocol import Client
from planform.client.recent import Recent
from planform.client.remembering import RememberingClient
from planform.clock import VirtualClock
from planform.errors import NotFound
from planform.reconcile.sources import Watches
from tests.unit.memory_engine import MemoryEngine, settle

WIDGET = GVK("example.org", "v1", "Widget")
HOME = "default"


def widget(name: str, size: int = 1) -> Object:
    metadata = {"name": name, "namespace": HOME}
    return {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": size}}


class CountingEngine(MemoryEngine):
    def __init__(self) -> None:
        super().__init__()
        self.gets = 0

    async def get(self, *args: object, **options: object) -> Object:
        self.gets += 1
        return await super().get(*args, **options)  # type: ignore[arg-type]


class Setting:
    """An engine, a memory that a watch keeps fresh, and a client that uses it."""

    def __init__(self) -> None:
        self.engine = CountingEngine()
        self.clock = VirtualClock()
        self.recent = Recent()
        self.client: Client = RememberingClient(self.engine, self.recent)
        self.watches = Watches(self.engine, clock=self.clock, rng=Random(1), recent=self.recent)
        self.told: dict[str, int] = {}

    def hear(self, change: InformerEvent) -> None:
        metadata = change.object["metadata"]
        self.told[metadata["name"]] = version_number(metadata["resourceVersion"])

    async def listen(self) -> None:
        await self.watches.subscribe(WIDGET, self.hear).synced()
        await settle()

    async def size(self, name: str = "a") -> int:
        obj = await self.client.get(WIDGET, name, namespace=HOME)
        return int(obj["spec"]["size"])


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    async with setting.watches:
        await setting.listen()
        yield setting


async def test_what_was_written_is_read_without_asking_the_server(setting: Setting) -> None:
    await setting.client.create(widget("a"))
    assert await setting.size() == 1
    await setting.client.update(widget("a", 2))
    assert await setting.size() == 2
    assert setting.engine.gets == 0


async def test_what_was_read_once_follows_the_watch(setting: Setting) -> None:
    await setting.engine.create(widget("a"))
    assert await setting.size() == 1
    await setting.engine.update(widget("a", 5))
    await settle()
    assert await setting.size() == 5
    assert setting.engine.gets == 1


async def test_what_comes_out_belongs_to_the_caller(setting: Setting) -> None:
    await setting.client.create(widget("a"))
    (await setting.client.get(WIDGET, "a", namespace=HOME))["spec"]["size"] = 99
    assert await setting.size() == 1


async def test_objects_that_nobody_asked_for_are_not_kept(setting: Setting) -> None:
    for number in range(10):
        await setting.engine.create(widget(f"other-{number}"))
    await settle()
    assert len(setting.recent) == 0


async def test_the_server_is_asked_while_no_watch_is_open_and_for_kinds_without_one(setting: Setting) -> None:
    await setting.client.create(widget("a"))
    setting.engine.failing = NotFound("the network is gone")
    setting.engine.end_streams()
    await settle()
    setting.engine.failing = None
    setting.engine.objects[WIDGET, HOME, "a"]["spec"]["size"] = 7  # nothing tells of it
    assert await setting.size() == 7
    other = {**widget("a"), "kind": "Gadget"}
    await setting.client.create(other)
    before = setting.engine.gets
    await setting.client.get(GVK("example.org", "v1", "Gadget"), "a", namespace=HOME)
    assert setting.engine.gets == before + 1


async def test_an_object_that_is_gone_is_not_found_and_its_namesake_is_another(setting: Setting) -> None:
    first = await setting.client.create(widget("a"))
    await setting.engine.delete(WIDGET, "a", namespace=HOME)
    await settle()
    with pytest.raises(NotFound):
        await setting.size()
    await setting.engine.create(widget("a", 3))
    second = await setting.client.get(WIDGET, "a", namespace=HOME)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    await setting.client.delete(WIDGET, "a", namespace=HOME)
    with pytest.raises(NotFound):
        await setting.size()


async def test_an_answer_that_is_overtaken_by_news_is_not_believed(setting: Setting) -> None:
    """A write of ours is answered only after a watch has told that the object was deleted since."""
    written = await setting.engine.create(widget("a"))
    await setting.engine.delete(WIDGET, "a", namespace=HOME)
    await settle()
    setting.recent.keep(WIDGET, written)
    with pytest.raises(NotFound):
        await setting.size()
    again = await setting.engine.create(widget("a", 2))
    await setting.engine.update(widget("a", 3))
    await settle()
    setting.recent.keep(WIDGET, again)
    assert await setting.size() == 3


async def test_the_memory_is_bounded_and_forgets_what_was_not_asked_for_the_longest() -> None:
    setting = Setting()
    setting.recent = recent = Recent(max_bytes=2000)
    setting.client = RememberingClient(setting.engine, recent)
    setting.watches = Watches(setting.engine, clock=setting.clock, rng=Random(1), recent=recent)
    async with setting.watches:
        await setting.listen()
        for number in range(100):
            await setting.client.create(widget(f"w{number}"))
            assert await setting.size("w0") == 1
        kept = len(recent)
        assert 5 < kept < 20
        assert setting.engine.gets == 0, "what is asked for again and again stays"
        assert await setting.size("w1") == 1
        assert setting.engine.gets == 1


async def test_watches_of_a_selection_answer_nothing() -> None:
    setting = Setting()
    async with setting.watches:
        await setting.watches.subscribe(WIDGET, setting.hear, labels="app=x").synced()
        await setting.client.create(widget("a"))
        await setting.size()
        assert setting.engine.gets == 1


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["create", "update", "delete", "theirs", "removed", "end", "expire", "wait"]),
            st.integers(0, 2),
        ),
        max_size=30,
    )
)
def test_whatever_happens_a_read_is_never_behind_ones_own_writes_or_what_was_told(steps: list[tuple[str, int]]) -> None:  # noqa: C901  (plays a script)
    async def play() -> None:
        setting = Setting()
        engine, client = setting.engine, setting.client
        wrote: dict[str, int] = {}

        async def time_passes() -> None:
            while True:
                await setting.clock.advance(0.5)

        passing = asyncio.create_task(time_passes())
        async with setting.watches:
            await setting.listen()
            for step, number in steps:
                name = f"w{number}"
                exists = (WIDGET, HOME, name) in engine.objects
                if step == "create" and not exists:
                    wrote[name] = _version(await client.create(widget(name)))
                elif step == "update" and exists:
                    wrote[name] = _version(await client.update(widget(name, engine.version)))
                elif step == "delete" and exists:
                    await client.delete(WIDGET, name, namespace=HOME)
                    wrote[name] = engine.version
                elif step == "theirs":
                    await (engine.update if exists else engine.create)(widget(name, engine.version))
                elif step == "removed" and exists:
                    await engine.delete(WIDGET, name, namespace=HOME)
                elif step in ("end", "expire"):
                    engine.end_streams(forget_history=step == "expire")
                elif step == "wait":
                    for _ in range(number * 5):
                        await asyncio.sleep(0)
                known = max(wrote.get(name, 0), setting.told.get(name, 0))
                try:
                    read = _version(await client.get(WIDGET, name, namespace=HOME))
                except NotFound:
                    assert (WIDGET, HOME, name) not in engine.objects
                else:
                    assert read >= known
            await settle()
            for (_, _, name), there in engine.objects.items():
                assert await client.get(WIDGET, name, namespace=HOME) == there
        passing.cancel()

    asyncio.run(play())


def _version(obj: Object) -> int:
    return version_number(obj["metadata"]["resourceVersion"])


class Telling:
    """A listener that has been told this much."""

    def __init__(self, position: int, seen: dict[ObjectKey, Seen]) -> None:
        self.position = str(position)
        self.is_hearing = True
        self._seen = seen

    def seen(self, key: ObjectKey) -> Seen | None:
        return self._seen.get(key)


def test_the_news_of_one_watch_counts_also_where_another_is_behind() -> None:
    recent, key = Recent(), ObjectKey(HOME, "a")
    known = widget("a")
    known["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    behind, ahead = Telling(7, {key: Seen("u", "7", 1)}), Telling(8, {})
    recent.follow(WIDGET, "", behind)
    recent.follow(WIDGET, HOME, behind)
    recent.keep(WIDGET, known)
    assert recent.get(WIDGET, "a", HOME) == known
    recent.follow(WIDGET, HOME, ahead)  # which was told that it is gone
    assert recent.get(WIDGET, "a", HOME) is None
