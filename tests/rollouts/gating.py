"""A bench for gates: a web server that a test decides about, and facts of a wave."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from planform.api.kinds import Object
from planform.api.rollout_gates import Gate
from planform.client.protocol import Client
from planform.client.web_requests import Reach
from planform.clock import Clock
from planform.rollouts.gates.measurements import WaveFacts
from planform.rollouts.gates.tools import GateTools

MOVE = datetime(2026, 1, 1, tzinfo=UTC)
LOOPBACK = Reach(("127.0.0.1",), whose="rollouts", opened_by="--rollout-addresses")
ROLLOUT: Object = {
    "apiVersion": "rollout.planform.dev/v1alpha1",
    "kind": "Rollout",
    "metadata": {"name": "db-r7", "uid": "6b0f4a1e-0000-4000-8000-000000000001"},
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def gate(**fields: Any) -> Gate:
    return msgspec.convert({"name": "errors", **fields}, Gate)


def facts(*xrs: Object, rollout: Object = ROLLOUT, **more: Any) -> WaveFacts:
    return WaveFacts(rollout=rollout, wave="canary", since=more.pop("since", MOVE), xrs=xrs, **more)


def xr(name: str, **status: Any) -> Object:
    return {
        "apiVersion": "example.org/v1",
        "kind": "XDatabase",
        "metadata": {"name": name, "managedFields": [{}]},
        "status": status,
    }


def tools(client: Client, clock: Clock, **more: Any) -> GateTools:
    return GateTools(client=client, clock=clock, **{"reach": LOOPBACK, **more})


def secret(name: str, **data: str) -> Object:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        "data": encoded,
    }


@dataclass
class Site:
    """A web server: what it was asked, and how it answers."""

    url: str = ""
    answer: Handler | None = None
    heard: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)


@asynccontextmanager
async def site(answer: Handler | None = None) -> AsyncIterator[Site]:
    """Serve on loopback; without a handler every answer is 200."""
    served = Site(answer=answer)

    async def handle(request: web.Request) -> web.StreamResponse:
        served.heard.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        return await served.answer(request) if served.answer else web.json_response({"ok": True})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        listening = web.TCPSite(runner, "127.0.0.1", 0)
        await listening.start()
        assert runner.addresses
        served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield served
    finally:
        await runner.cleanup()
