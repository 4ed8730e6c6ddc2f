"""Events: the same thing is told once, and nobody tells of one object without end."""

from __future__ import annotations

import asyncio

from planform.api.kinds import Object
from planform.api.names import EVENT
from planform.clock import VirtualClock
from planform.reconcile.events import EVENT_BURST, EVENT_REFILL_SECONDS, Events
from planform.telemetry.metrics import MetricsRegistry
from tests.unit.memory_engine import MemoryEngine


class Told:
    """Events about XRs, written to an engine in memory."""

    def __init__(self) -> None:
        self.clock, self.engine = VirtualClock(), MemoryEngine()
        self.events = Events(self.engine, clock=self.clock, metrics=MetricsRegistry())

    def tell(self, message: str, *, uid: str = "1", slot: str = "", by: str = "composite/apps") -> None:
        about: Object = {"apiVersion": "example.org/v1", "kind": "App", "metadata": {"name": "one", "uid": uid}}
        self.events.record(about, "Warning", "Failed", message, by=by, slot=slot)

    async def messages(self) -> list[str]:
        writing = asyncio.create_task(self.events.run())
        await self.events.written()
        writing.cancel()
        return [each["message"] for each in (await self.engine.list(EVENT)).items]


async def test_who_says_something_new_each_time_is_held_to_a_rate_for_each_object() -> None:
    told = Told()
    for number in range(100):
        told.tell(f"request {number}")
    told.tell("another matter", uid="2")
    told.tell("another controller", by="claim/apps")
    assert len(await told.messages()) == EVENT_BURST + 2
    await told.clock.advance(2 * EVENT_REFILL_SECONDS)
    for number in range(100, 200):
        told.tell(f"request {number}")
    assert len(await told.messages()) == EVENT_BURST + 4


async def test_functions_cannot_use_up_what_the_control_plane_has_to_say() -> None:
    told = Told()
    for number in range(100):
        told.tell(f"request {number}", slot=f"step#{number}")
    told.tell("cannot compose")
    messages = await told.messages()
    assert "cannot compose" in messages and len(messages) < EVENT_BURST


async def test_what_was_dropped_is_told_later_if_it_still_holds() -> None:
    told = Told()
    for number in range(EVENT_BURST + 1):
        told.tell(f"request {number}")
    told.tell(f"request {EVENT_BURST}")
    assert f"request {EVENT_BURST}" not in await told.messages()
    await told.clock.advance(EVENT_REFILL_SECONDS)
    told.tell(f"request {EVENT_BURST}")
    assert f"request {EVENT_BURST}" in await told.messages()
