"""What a replica answers over HTTP: how it is doing, and its metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import aiohttp
import pytest

from planform.api.kinds import GVK
from planform.clock import VirtualClock
from planform.cluster.endpoint import DISCONNECTED_SECONDS, Health, open_endpoint
from planform.errors import ServiceUnavailable, UsageError
from planform.reconcile.sources import Watches
from planform.telemetry.metrics import MetricsRegistry
from tests.unit.memory_engine import MemoryEngine, settle

WIDGET = GVK("example.org", "v1", "Widget")


class Asker:
    """Asks the endpoint as a kubelet does."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self.port = port

    async def get(self, path: str) -> tuple[int, str]:
        async with self._session.get(f"http://127.0.0.1:{self.port}{path}") as response:
            return response.status, await response.text()


@asynccontextmanager
async def asking(health: Health, metrics: MetricsRegistry | None = None) -> AsyncIterator[Asker]:
    async with (
        open_endpoint("127.0.0.1", 0, health, metrics or MetricsRegistry()) as port,
        aiohttp.ClientSession() as session,
    ):
        yield Asker(session, port)


async def test_health_goes_red_while_a_controller_is_deaf_and_names_the_kind() -> None:
    engine, clock, health = MemoryEngine(), VirtualClock(), Health()
    async with Watches(engine, clock=clock, rng=Random(1)) as watches, asking(health) as asker:
        health.hears("controllers", watches)
        watches.subscribe(WIDGET, lambda _: None)
        await settle()
        assert await asker.get("/healthz") == (200, "ok")
        engine.failing = ServiceUnavailable("away")
        engine.end_streams()
        await settle()
        await clock.advance(DISCONNECTED_SECONDS + 1)
        code, text = await asker.get("/healthz")
        assert (code, "no watch of Widget.example.org" in text) == (500, True)
        assert (await asker.get("/livez"))[0] == 200
        health.forget("controllers")
        assert (await asker.get("/healthz"))[0] == 200


async def test_readiness_says_what_is_missing() -> None:
    health, missing = Health(), ["no certificate yet"]
    health.ready["webhook"] = lambda: missing[0] if missing else None
    async with asking(health) as asker:
        assert await asker.get("/readyz") == (500, "[-]webhook failed: no certificate yet\nreadyz check failed\n")
        missing.clear()
        assert await asker.get("/readyz?verbose") == (200, "[+]webhook ok\nreadyz check passed\n")


async def test_metrics_are_served_and_other_paths_are_not() -> None:
    metrics = MetricsRegistry()
    metrics.counter("planform_things_total", "Things.").labels().inc()
    async with asking(Health(), metrics) as asker:
        code, text = await asker.get("/metrics")
        assert (code, "planform_things_total 1" in text) == (200, True)
        assert (await asker.get("/secrets"))[0] == 404


async def test_an_address_that_is_taken_is_named() -> None:
    async with asking(Health()) as asker:
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{asker.port}"):
            async with open_endpoint("127.0.0.1", asker.port, Health(), MetricsRegistry()):
                pass
