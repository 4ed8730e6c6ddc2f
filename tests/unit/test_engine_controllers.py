"""The engine's built-in controllers on a clock of their own: what happens by itself, and when."""

from __future__ import annotations

import pytest

from planform.api.kinds import gvk
from planform.apiserver.admission.chain import Admission
from planform.clock import VirtualClock, timestamp
from planform.errors import Forbidden, NotFound
from tests.harness.embedded import CONFIG_MAP, NAMESPACE, Embedded, embedded_engine

EVENT = gvk("v1", "Event")
SERVICE_ACCOUNT = gvk("v1", "ServiceAccount")
HOUR = 3600.0


def event(name: str, clock: VirtualClock) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "a"},
        "lastTimestamp": timestamp(clock.now()),
        "reason": "Test",
    }


async def names(engine: Embedded) -> list[str]:
    return [item["metadata"]["name"] for item in (await engine.client.list(EVENT)).items]


async def test_an_event_goes_an_hour_after_it_was_last_written() -> None:
    clock = VirtualClock()
    async with embedded_engine(clock=clock) as engine:
        await engine.client.create(event("first", clock))
        await clock.advance(HOUR / 2)
        await engine.client.create(event("second", clock))
        await clock.advance(HOUR / 2 - 5)
        assert await names(engine) == ["first", "second"]
        await clock.advance(10)
        await engine.gone(EVENT, "first")
        assert await names(engine) == ["second"]
        again = await engine.client.get(EVENT, "second", namespace="default")
        await engine.client.update({**again, "count": 2})
        await clock.advance(HOUR - 10)
        assert await names(engine) == ["second"]
        await clock.advance(20)
        await engine.gone(EVENT, "second")


async def test_without_events_nothing_waits_for_one() -> None:
    clock = VirtualClock()
    async with embedded_engine(clock=clock) as engine:
        async with engine.client.watch(SERVICE_ACCOUNT, namespace="default") as changes:
            await anext(changes)  # the last thing a fresh engine does by itself
        before = engine.core.store.revision
        await clock.advance(24 * HOUR)
        assert engine.core.store.revision == before


async def test_every_namespace_has_a_service_account_and_gets_it_back() -> None:
    async with embedded_engine() as engine:
        await engine.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        async with engine.client.watch(SERVICE_ACCOUNT, namespace="team") as changes:
            first = (await anext(changes)).object
            await engine.client.delete(SERVICE_ACCOUNT, "default", namespace="team")
            assert (await anext(changes)).type == "DELETED"
            second = (await anext(changes)).object
        assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_a_namespace_goes_with_everything_in_it() -> None:
    async with embedded_engine() as engine:
        await engine.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        for number in range(120):
            metadata = {"name": f"c{number}", "namespace": "team"}
            await engine.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        await engine.client.delete(NAMESPACE, "team")
        await engine.gone(NAMESPACE, "team", "")
        assert (await engine.client.list(CONFIG_MAP, namespace="team")).items == []
        with pytest.raises(NotFound, match='namespaces "team" not found'):
            await engine.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


async def test_a_kind_that_refuses_does_not_keep_a_namespace_from_being_emptied_of_the_rest() -> None:
    class KeepsConfigMaps:
        armed = True

        def admit(self, admission: Admission, /) -> None:
            if self.armed and admission.operation == "DELETE" and admission.kind.kind == "ConfigMap":
                raise Forbidden("ConfigMaps stay")

    guard = KeepsConfigMaps()
    async with embedded_engine() as engine:
        engine.core.admission = (guard,)
        await engine.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "full"}})
        for kind in ("ConfigMap", "Secret", "ServiceAccount"):
            await engine.client.create(
                {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": "full"}}
            )
        await engine.client.delete(NAMESPACE, "full")
        await engine.gone(gvk("v1", "Secret"), "x", "full")
        await engine.gone(gvk("v1", "ServiceAccount"), "x", "full")
        assert await engine.client.get(CONFIG_MAP, "x", namespace="full")
        guard.armed = False
        await engine.gone(NAMESPACE, "full", "")
