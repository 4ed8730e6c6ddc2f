"""Who is told of a Rollout: once for each thing that happened, signed, again after a failure, and without secrets."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from planform.api.kinds import Object
from planform.api.names import EVENT, ROLLOUT
from planform.api.rollouts import Rollout
from planform.client.protocol import Patch, PatchType
from planform.client.web_requests import Reach
from planform.clock import VirtualClock
from planform.reconcile.context import ControllerContext
from planform.rollouts.notification_bodies import body_of, due, happened
from planform.rollouts.notifications import ATTEMPTS, DELIVERED_ANNOTATION, NotificationController
from tests.harness.contexts import embedded_context, eventually
from tests.rollouts.gating import Site, secret, site, tools

KEY = "c4n4ry-s1gn1ng-k3y"


def rollout(status: Object | None = None, **notify: Any) -> Object:
    return {
        "apiVersion": ROLLOUT.api_version,
        "kind": ROLLOUT.kind,
        "metadata": {"name": "db-r7"},
        "spec": {
            "policy": "databases",
            "changes": [{"composition": "db", "from": "db-a", "to": "db-b", "toNumber": 2}],
            "strategy": {"notify": [notify] if notify else []},
        },
        **({"status": status} if status else {}),
    }


def read(obj: Object, uid: str = "u") -> Rollout:
    return msgspec.convert({**obj, "metadata": {**obj["metadata"], "uid": uid}}, Rollout, strict=False)


RUNNING: Object = {"phase": "Running", "started": "2026-01-01T00:00:00Z", "counts": {"xrs": 10, "target": 2}}
WAVE: Object = {"index": 0, "name": "prod", "part": 1, "state": "Waiting"}


@pytest.mark.parametrize(
    ("status", "events"),
    [
        ({"phase": "Pending"}, []),
        (RUNNING, ["Started"]),
        ({**RUNNING, "wave": WAVE, "waiting": {"for": "Approval", "message": "approve it"}}, ["Started", "Waiting"]),
        ({**RUNNING, "waiting": {"for": "Concurrency", "message": "50 move"}}, ["Started"]),
        ({"phase": "AwaitingApproval", "waiting": {"for": "Approval", "message": "2 deletes"}}, ["Waiting"]),
        ({**RUNNING, "phase": "Paused", "reason": "Failed", "message": "gate"}, ["Started", "Waiting", "Failed"]),
        ({**RUNNING, "phase": "Aborting", "reason": "Failed", "message": "gate"}, ["Started", "Failed"]),
        ({**RUNNING, "phase": "Aborted", "reason": "Failed", "message": "g"}, ["Started", "Failed", "Aborted"]),
        ({**RUNNING, "phase": "Aborted", "reason": "Abort", "message": "alice"}, ["Started", "Aborted"]),
        ({**RUNNING, "phase": "Completed"}, ["Started", "Completed"]),
        ({**RUNNING, "phase": "Failed", "reason": "Gone"}, ["Started", "Failed"]),
    ],
)
def test_what_happened_follows_from_the_status(status: Object, events: list[str]) -> None:
    assert [each.event for each in happened(read(rollout(status)))] == events


def test_each_thing_is_told_once_to_those_who_asked_for_it() -> None:
    told = read(rollout({**RUNNING, "phase": "Completed"}, url="https://a.example", on=["Completed", "Failed"]))
    [delivery] = due(told, frozenset())
    assert delivery.happened.event == "Completed"
    assert due(told, frozenset({delivery.id})) == []
    assert due(told, frozenset())[0].id == delivery.id, "the id stays the same"
    other = read(rollout({**RUNNING, "phase": "Completed"}, url="https://a.example"), uid="another")
    assert delivery.id not in {each.id for each in due(other, frozenset())}


def test_another_wave_that_waits_is_told_again() -> None:
    waits = {**RUNNING, "waiting": {"for": "Approval", "message": "approve it"}}
    one, two = (
        {
            each.id
            for each in due(read(rollout({**waits, "wave": {**WAVE, "name": name}}, url="https://a")), frozenset())
        }
        for name in ("dev", "prod")
    )
    assert len(one & two) == 1, "it started only once"
    assert len(one | two) == 3


def test_a_body_for_slack_is_a_text_in_which_names_make_no_links() -> None:
    failed = {**RUNNING, "phase": "Aborted", "reason": "Failed", "message": "<!channel> & <http://x|y>"}
    told = read(rollout(failed, url="https://a", format="Slack", on=["Failed"]))
    [delivery] = due(told, frozenset())
    body = json.loads(body_of(delivery, told, time="2026-01-01T00:00:00Z"))
    assert list(body) == ["text"]
    assert "&lt;!channel&gt; &amp; &lt;http://x|y&gt;" in body["text"]


@pytest.fixture
async def context() -> AsyncIterator[ControllerContext]:
    async with embedded_context(clock=VirtualClock()) as opened:
        yield opened


@pytest.fixture
async def server() -> AsyncIterator[Site]:
    async with site() as served:
        yield served


async def begin(context: ControllerContext, status: Object, **notify: Any) -> None:
    await context.client.create(secret("hook", key=KEY))
    await context.client.create(rollout(**notify))
    await context.client.patch(ROLLOUT, "db-r7", Patch(PatchType.MERGE, {"status": status}), subresource="status")


async def delivered(context: ControllerContext, count: int) -> None:
    async def check() -> bool:
        found = await context.client.get(ROLLOUT, "db-r7")
        return len((found["metadata"].get("annotations") or {}).get(DELIVERED_ANNOTATION, "").split()) == count

    await eventually(check, f"{count} delivered", seconds=10)


SIGNED = {"secretRef": {"namespace": "default", "name": "hook"}}


async def test_a_request_is_signed_and_carries_what_there_is_to_know(context: ControllerContext, server: Site) -> None:
    NotificationController(context, tools(context.client, context.clock)).start()
    await begin(context, RUNNING, url=f"{server.url}/hook", **SIGNED)
    await delivered(context, 1)
    [(method, path, headers, body)] = server.heard
    assert (method, path, headers["X-Planform-Event"]) == ("POST", "/hook", "Started")
    stamp = headers["X-Planform-Timestamp"]
    expected = hmac.new(KEY.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["X-Planform-Signature"] == f"sha256={expected}"
    said = json.loads(body)
    assert (said["event"], said["rollout"], said["policy"], said["counts"]["target"]) == (
        "Started",
        "db-r7",
        "databases",
        2,
    )
    assert said["id"] == headers["Idempotency-Key"]
    assert "Rollout db-r7 of db started" in said["text"]


async def test_a_restart_tells_nothing_twice(context: ControllerContext, server: Site) -> None:
    NotificationController(context, tools(context.client, context.clock)).start()
    await begin(context, {**RUNNING, "phase": "Completed"}, url=server.url)
    await delivered(context, 2)
    await context.manager.stop("rolloutnotifications")
    version = (await context.client.get(ROLLOUT, "db-r7"))["metadata"]["resourceVersion"]
    NotificationController(context, tools(context.client, context.clock)).start()
    await context.manager.synced("rolloutnotifications")
    await context.clock.advance(60)  # type: ignore[attr-defined]  # virtual
    assert len(server.heard) == 2
    assert (await context.client.get(ROLLOUT, "db-r7"))["metadata"]["resourceVersion"] == version


async def test_a_receiver_that_is_down_is_asked_again_with_the_same_id(
    context: ControllerContext, server: Site
) -> None:
    async def down(_: web.Request) -> web.Response:
        return web.Response(status=503 if len(server.heard) < 3 else 200)

    server.answer = down
    NotificationController(context, tools(context.client, context.clock)).start()
    await begin(context, RUNNING, url=server.url)
    await _advancing(context, lambda: len(server.heard) >= 3)
    await delivered(context, 1)
    assert len({headers["Idempotency-Key"] for _, _, headers, _ in server.heard}) == 1


async def test_it_is_given_up_at_last_and_an_event_says_so(context: ControllerContext, server: Site) -> None:
    async def down(_: web.Request) -> web.Response:
        return web.Response(status=500)

    server.answer = down
    NotificationController(context, tools(context.client, context.clock)).start()
    await begin(context, RUNNING, url=f"{server.url}/hook", **SIGNED)
    await _advancing(context, lambda: len(server.heard) >= ATTEMPTS)
    await delivered(context, 1)
    [message] = await _events(context)
    assert message == f"notify[0] was not told of Started: {server.url}/hook answered 500"
    await context.clock.advance(3600)  # type: ignore[attr-defined]  # virtual
    assert len(server.heard) == ATTEMPTS


@pytest.mark.parametrize("status", [400, 404, 302])
async def test_a_receiver_that_refuses_is_not_asked_again(
    context: ControllerContext, server: Site, status: int
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": "http://169.254.169.254/"})

    server.answer = refuse
    NotificationController(context, tools(context.client, context.clock)).start()
    await begin(context, RUNNING, url=server.url)
    await delivered(context, 1)
    assert len(server.heard) == 1
    assert len(await _events(context)) == 1


async def test_an_address_in_a_secret_and_the_key_show_nowhere(
    context: ControllerContext, server: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    canary = "c4n4ry-p4th"
    closed = Reach(whose="rollouts", opened_by="--rollout-addresses")
    NotificationController(context, tools(context.client, context.clock, reach=closed)).start()
    await context.client.create(secret("address", key=KEY, url=f"{server.url}/{canary}"))
    await begin(context, RUNNING, secretRef={"namespace": "default", "name": "address"})
    await delivered(context, 1)
    assert not server.heard
    [message] = await _events(context)
    assert "may not be called" in message
    everything = (
        message + caplog.text + context.metrics.render() + json.dumps(await context.client.get(ROLLOUT, "db-r7"))
    )
    assert canary not in everything
    assert KEY not in everything


async def test_an_address_in_a_secret_is_called(context: ControllerContext, server: Site) -> None:
    NotificationController(context, tools(context.client, context.clock)).start()
    await context.client.create(secret("address", url=f"{server.url}/T0/B0"))
    await begin(context, RUNNING, secretRef={"namespace": "default", "name": "address"}, format="Slack")
    await delivered(context, 1)
    [(_, path, headers, body)] = server.heard
    assert path == "/T0/B0"
    assert "X-Planform-Signature" not in headers
    assert list(json.loads(body)) == ["text"]


async def _advancing(context: ControllerContext, check: Any) -> None:
    async def step() -> bool:
        await context.clock.advance(30)  # type: ignore[attr-defined]  # virtual
        return bool(check())

    await eventually(step, "the retries", seconds=20)


async def _events(context: ControllerContext) -> list[str]:
    await context.events.written()
    found = (await context.client.list(EVENT, namespace="default")).items
    return [each["message"] for each in found if each["reason"] == "NotificationFailed"]
