"""The status of ChangeWindows: true at every moment, and written only when it changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import CHANGE_WINDOW
from planform.client.protocol import Patch, PatchType
from planform.clock import VirtualClock
from planform.errors import Invalid
from planform.reconcile.context import ControllerContext
from planform.rollouts.window_controller import ChangeWindowController
from tests.controllers.conftest import ENGINES
from tests.harness.contexts import embedded_context, eventually, kubernetes_context
from tests.rollouts.test_windows import weekly, window

EVENING = datetime(2026, 11, 18, 20, tzinfo=UTC)
BANKING: Object = {"timeZone": "Europe/Zurich", "recurring": weekly("09:00", "15:00", "Mon", "Tue", "Wed", "Thu")}


@pytest.fixture(params=ENGINES)
async def context(request: pytest.FixtureRequest) -> AsyncIterator[ControllerContext]:
    if request.param == "kubernetes":
        async with kubernetes_context(request.getfixturevalue("kubernetes_engine")) as opened:
            yield opened
            await opened.client.delete_collection(CHANGE_WINDOW)
    else:
        async with embedded_context() as opened:
            yield opened


async def stands(context: ControllerContext, name: str, **wanted: Any) -> Object:
    """The window's status as soon as it says all this."""

    async def check() -> Object | None:
        status = (await context.client.get(CHANGE_WINDOW, name)).get("status") or {}
        return status if status and all(status.get(key) == value for key, value in wanted.items()) else None

    return await eventually(check, f"{name}: {wanted}", seconds=10)


async def test_a_window_says_how_it_stands_and_follows_an_edit(context: ControllerContext) -> None:
    ChangeWindowController(context).start()
    await context.client.create(window("Deny", "freeze", once={"to": "2100-01-01T00:00:00Z"}, reason="audit"))
    status = await stands(context, "freeze", open=True)
    assert status["nextClose"] == "2100-01-01T00:00:00Z"
    assert status["reason"] == 'ChangeWindow "freeze" forbids changes until 2100-01-01 00:00 UTC: audit'
    past = Patch(PatchType.MERGE, {"spec": {"once": {"to": "2020-01-01T00:00:00Z"}}})
    await context.client.patch(CHANGE_WINDOW, "freeze", past)
    status = await stands(context, "freeze", open=False)
    assert "nextClose" not in status
    assert "nextOpen" not in status


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "needs recurring or once"),
        ({"once": {"from": "2027-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}}, "must be before"),
        ({"recurring": weekly("9:00", "15:00")}, "from"),
        ({"recurring": weekly("09:00", "25:00")}, "to"),
        ({"recurring": weekly("09:00", "15:00", "Monday")}, "Monday"),
        ({"recurring": weekly("09:00", "15:00"), "timeZone": "../etc/passwd"}, "timeZone"),
    ],
)
async def test_a_window_that_cannot_be_is_refused(context: ControllerContext, spec: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        await context.client.create(window("Allow", "wrong", **spec))
    with pytest.raises(Invalid, match="effect"):
        await context.client.create(window("Maybe", "wrong", once={"to": "2100-01-01T00:00:00Z"}))


async def test_a_zone_that_there_is_not_is_told_by_the_window(context: ControllerContext) -> None:
    ChangeWindowController(context).start()
    await context.client.create(window("Allow", "mars", timeZone="Mars/Olympus", recurring=weekly("09:00", "15:00")))
    status = await stands(context, "mars")
    assert [(each["type"], each["status"], each["reason"]) for each in status["conditions"]] == [
        ("Valid", "False", "WindowInvalid")
    ]
    assert 'there is no time zone "Mars/Olympus"' in status["reason"]


async def test_it_opens_and_closes_by_the_clock_and_writes_nothing_in_between() -> None:
    clock = VirtualClock(EVENING)
    async with embedded_context(clock=clock) as context:
        ChangeWindowController(context).start()
        await context.client.create(window("Allow", "banking-days", **BANKING))
        closed = await stands(context, "banking-days", open=False, nextOpen="2026-11-19T08:00:00Z")
        assert "nextClose" not in closed
        before = (await context.client.get(CHANGE_WINDOW, "banking-days"))["metadata"]["resourceVersion"]
        for _ in range(11):
            await clock.advance(3600)
        assert (await context.client.get(CHANGE_WINDOW, "banking-days"))["metadata"]["resourceVersion"] == before
        await clock.advance(3600 + 1)
        await stands(context, "banking-days", open=True, nextClose="2026-11-19T14:00:00Z")
        assert 'planform_change_window_open{window="banking-days",effect="Allow"} 1' in context.metrics.render()
        await clock.advance(6 * 3600)
        await stands(context, "banking-days", open=False, nextOpen="2026-11-23T08:00:00Z")
        await context.client.delete(CHANGE_WINDOW, "banking-days")

        async def gone() -> bool:
            return "banking-days" not in context.metrics.render()

        await eventually(gone, "its metric", seconds=10)
