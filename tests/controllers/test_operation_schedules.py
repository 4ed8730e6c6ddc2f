"""CronOperations on both engines: an Operation for each moment of a schedule, and never two."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import CRON_OPERATION, OPERATION, PAUSED_ANNOTATION
from planform.client.informer import ObjectKey
from planform.clock import VirtualClock, timestamp
from planform.operations.controller import OperationController
from planform.operations.cron_controller import CronOperationController
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result as Reconciled
from tests.controllers.operating import (
    NOON,
    Calls,
    finish,
    operation,
    operations,
    patched,
    pipeline,
    pipelines,
    said,
    says,
    stored,
    swept,
)
from tests.harness.contexts import embedded_context, eventually, read, until_condition


@pytest.fixture
async def context(context: ControllerContext, unique: str) -> AsyncIterator[ControllerContext]:
    async with swept(context, unique):
        yield context


def cron(name: str, function: str, schedule: str = "*/10 * * * *", **spec: Any) -> Object:
    return {
        "apiVersion": CRON_OPERATION.api_version,
        "kind": CRON_OPERATION.kind,
        "metadata": {"name": name},
        "spec": {"schedule": schedule, "operationTemplate": {"spec": pipeline(function)}, **spec},
    }


async def scheduled(context: ControllerContext, obj: Object, last: datetime = NOON - timedelta(minutes=1)) -> Object:
    """A CronOperation that ran last at that time."""
    made = await context.client.create(obj)
    return await patched(context, made, {"status": {"lastScheduleTime": timestamp(last)}}, subresource="status")


def moment(name: str, when: datetime) -> str:
    return f"{name}-{int(when.timestamp())}"


async def test_an_operation_is_made_for_each_moment_of_the_schedule_and_once(
    context: ControllerContext, unique: str
) -> None:
    clock = VirtualClock(NOON)
    controller, key = CronOperationController(dataclasses.replace(context, clock=clock)), ObjectKey("", unique)
    made = await scheduled(context, cron(unique, unique))
    assert await controller.reconcile(key) == Reconciled(requeue_after=570.0), "it sleeps until 12:10"
    first = moment(unique, NOON.replace(second=0))
    assert [each["metadata"]["name"] for each in await operations(context)] == [first]
    found = await stored(context, made)
    assert found["status"]["lastScheduleTime"] == "2026-06-01T12:00:00Z"
    assert found["status"]["runningOperationRefs"] == [{"name": first}]
    assert says(found, "Scheduling") == ("True", "ScheduleActive")
    again = CronOperationController(dataclasses.replace(context, clock=clock))
    assert await again.reconcile(key) == Reconciled(requeue_after=570.0)
    assert (await stored(context, made))["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    await clock.advance(570)
    await again.reconcile(key)
    assert len(await operations(context)) == 2


async def test_a_crash_before_the_moment_is_on_record_does_not_run_it_twice(
    context: ControllerContext, unique: str
) -> None:
    clock = VirtualClock(NOON)
    controller, key = CronOperationController(dataclasses.replace(context, clock=clock)), ObjectKey("", unique)
    made = await scheduled(context, cron(unique, unique, concurrencyPolicy="Replace"))
    await controller.reconcile(key)
    (before,) = await operations(context)
    last = timestamp(NOON - timedelta(minutes=1))
    await patched(context, made, {"status": {"lastScheduleTime": last}}, subresource="status")
    await controller.reconcile(key)
    (after,) = await operations(context)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_of_missed_moments_only_the_latest_is_made_up_for_unless_it_is_too_late(
    context: ControllerContext, unique: str
) -> None:
    controller = CronOperationController(dataclasses.replace(context, clock=VirtualClock(NOON)))
    await scheduled(context, cron(f"{unique}-a", unique), NOON - timedelta(days=9))
    late = await scheduled(context, cron(f"{unique}-b", unique, startingDeadlineSeconds=20), NOON - timedelta(days=9))
    for name in ("a", "b"):
        result = await controller.reconcile(ObjectKey("", f"{unique}-{name}"))
        assert result.requeue_after == 570.0
    assert [each["metadata"]["name"] for each in await operations(context)] == [
        moment(f"{unique}-a", NOON.replace(second=0))
    ]
    assert "MissedSchedule" in {reason for _, reason, _ in await said(context, late)}


async def test_forbid_waits_for_the_running_operation_and_replace_ends_it(
    context: ControllerContext, unique: str
) -> None:
    controller = CronOperationController(dataclasses.replace(context, clock=VirtualClock(NOON)))
    due, earlier = NOON.replace(second=0), NOON - timedelta(hours=1)
    for policy in ("Forbid", "Replace", "Allow"):
        name = f"{unique}-{policy.lower()}"
        owner = await scheduled(context, cron(name, unique, concurrencyPolicy=policy))
        running = operation(moment(name, earlier), unique)
        running["metadata"] |= {
            "labels": {"ops.crossplane.io/cronoperation": name},
            "ownerReferences": [
                {
                    "apiVersion": CRON_OPERATION.api_version,
                    "kind": CRON_OPERATION.kind,
                    "name": name,
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ],
        }
        await context.client.create(running)
        await controller.reconcile(ObjectKey("", name))
    left = {each["metadata"]["name"] for each in await operations(context)}
    assert left == {
        moment(f"{unique}-forbid", earlier),
        moment(f"{unique}-replace", due),
        moment(f"{unique}-allow", earlier),
        moment(f"{unique}-allow", due),
    }
    await finish(context, moment(f"{unique}-forbid", earlier))
    await controller.reconcile(ObjectKey("", f"{unique}-forbid"))
    assert await read(context.client, OPERATION, moment(f"{unique}-forbid", due)) is not None


async def test_old_operations_are_let_go_and_the_last_success_is_remembered(
    context: ControllerContext, unique: str
) -> None:
    clock = VirtualClock(NOON)
    controller, key = CronOperationController(dataclasses.replace(context, clock=clock)), ObjectKey("", unique)
    made = await scheduled(context, cron(unique, unique, successfulHistoryLimit=1, failedHistoryLimit=0))
    for status in ("True", "False", "True", "True"):
        await controller.reconcile(key)
        due = clock.now().replace(second=0)
        await finish(context, moment(unique, due), status, at=clock.now())
        await controller.reconcile(key)
        await clock.advance(600)
    assert len(await operations(context)) == 1
    found = await stored(context, made)
    assert found["status"]["lastSuccessfulTime"] == "2026-06-01T12:30:30Z"
    assert found["status"]["runningOperationRefs"] == []


async def test_what_cannot_be_scheduled_says_why_and_sets_no_timer(context: ControllerContext, unique: str) -> None:
    controller = CronOperationController(context)
    never = await context.client.create(cron(f"{unique}-never", unique, "0 0 30 2 *"))
    paused = cron(f"{unique}-paused", unique)
    paused["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
    paused = await scheduled(context, paused)
    for obj, reason in ((never, "ScheduleInvalid"), (paused, "SchedulePaused")):
        assert await controller.reconcile(ObjectKey("", obj["metadata"]["name"])) == Reconciled()
        assert says(await stored(context, obj), "Scheduling") == ("False", reason)
    assert not await operations(context)


async def test_time_alone_makes_an_operation_that_runs_at_each_moment() -> None:
    clock = VirtualClock(NOON)
    async with embedded_context(clock=clock) as context:
        function = Calls("hourly")
        OperationController(context, pipelines(context, function)).start()
        CronOperationController(context).start()
        made = await context.client.create(cron("hourly", "hourly", "0 * * * *"))
        await until_condition(context.client, made, "Scheduling")
        for hour in (13, 14, 15):
            await clock.advance(3600)

            async def finished(hour: int = hour) -> bool:
                found = await read(context.client, OPERATION, moment("hourly", NOON.replace(hour=hour, second=0)))
                return found is not None and says(found, "Succeeded") == ("True", "PipelineSuccess")

            await eventually(finished, f"the run of {hour}:00")
        assert len(function.requests) == 3
