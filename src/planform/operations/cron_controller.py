"""CronOperations: an Operation for each moment of a schedule.

The name of an Operation is that of the CronOperation and the moment it is for, so that no crash and no restart runs a
moment twice. Of moments that passed unnoticed only the latest is made up for, unless it is later than
`startingDeadlineSeconds` allows. Between two moments there is one timer and nothing else.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from planform.api.annotations import is_paused
from planform.api.conditions import XrCondition
from planform.api.kinds import Object
from planform.api.metadata import created_at, is_deleted, name_of
from planform.api.names import CRON_OPERATION, OPERATION, OPERATIONS_GROUP
from planform.client.informer import ObjectKey
from planform.clock import parse_timestamp, timestamp
from planform.errors import Invalid, NotFound
from planform.operations.controller import PAUSED, SYNCED
from planform.operations.families import OperationNameTaken, create_once, delete_all, find_family
from planform.operations.operations import (
    CRON_LABEL,
    Concurrency,
    Family,
    concurrency_of,
    operation_from,
    scheduled_name,
)
from planform.operations.schedules import ScheduleInvalid, parse_schedule
from planform.pipeline.steps import PipelineInvalid, parse_pipeline
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.events import EventKind
from planform.reconcile.sources import Source, to_owner, to_self
from planform.reconcile.writes import set_status

NAME: Final = "cronoperations"
MANAGER: Final = f"ops.crossplane.io/{NAME}"


class CronOperationController:
    """Creates Operations when they are due, and deletes those that are over and not kept."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._client = context.client

    def start(self) -> None:
        self._context.manager.start(
            self._context.controller(NAME, self.reconcile),
            [
                Source(CRON_OPERATION, to_self),
                Source(OPERATION, to_owner(OPERATIONS_GROUP, CRON_OPERATION.kind, cluster_scoped=True)),
            ],
        )

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            cron = await self._client.get(CRON_OPERATION, key.name)
        except NotFound:
            return Result()
        if is_deleted(cron):
            return Result()
        if is_paused(cron):
            await self._status(cron, [PAUSED, XrCondition("Scheduling", "False", "SchedulePaused")])
            return Result()
        spec = cron["spec"]
        try:
            schedule = parse_schedule(spec["schedule"])
            parse_pipeline(spec["operationTemplate"]["spec"])
        except (ScheduleInvalid, PipelineInvalid) as error:
            await self._refuse(cron, error.reason, str(error))
            return Result()  # only an edit can help
        now = self._context.clock.now()
        status = cron.get("status") or {}
        last = parse_timestamp(status.get("lastScheduleTime") or created_at(cron))
        due = schedule.latest(last, now)
        after = Result(requeue_after=(schedule.next(due or last) - now).total_seconds())
        family = await find_family(self._client, cron, CRON_LABEL)
        status_fields: dict[str, Any] = {}
        if due is not None and self._in_time(cron, due, now):
            try:
                started = await self._run(cron, due, family)
            except (Invalid, OperationNameTaken) as error:
                await self._refuse(cron, "CreateOperation", str(error))
                return after
            if started:
                status_fields["lastScheduleTime"] = timestamp(due)
                family = await find_family(self._client, cron, CRON_LABEL)
        success = max(status.get("lastSuccessfulTime") or "", family.last_success)
        if success:
            status_fields["lastSuccessfulTime"] = success
        # The moment is on record before the Operation that proves it can be let go.
        await self._status(
            cron,
            [SYNCED, XrCondition("Scheduling", "True", "ScheduleActive")],
            runningOperationRefs=family.running_references,
            **status_fields,
        )
        await delete_all(self._client, family.expired(spec))
        return after

    def _in_time(self, cron: Object, due: datetime, now: datetime) -> bool:
        deadline = cron["spec"].get("startingDeadlineSeconds")
        if deadline is None or now - due <= timedelta(seconds=deadline):
            return True
        self._record_event(cron, "Warning", "MissedSchedule", f"The run of {timestamp(due)} could not start in time")
        return False

    async def _run(self, cron: Object, due: datetime, family: Family) -> bool:
        """Create the Operation for a moment; False if one that is not over forbids it for now."""
        name = scheduled_name(cron, due)
        others = [each for each in family.unfinished if name_of(each) != name]
        policy = concurrency_of(cron["spec"])
        if others and policy is Concurrency.FORBID:
            running = name_of(others[0])
            self._record_event(cron, "Normal", "OperationRunning", f'The run of {timestamp(due)} waits for "{running}"')
            return False
        if others and policy is Concurrency.REPLACE:
            await delete_all(self._client, others)
        await create_once(self._client, operation_from(cron, name, CRON_LABEL), manager=MANAGER)
        self._record_event(cron, "Normal", "CreateOperation", f'Created Operation "{name}"')
        return True

    async def _refuse(self, cron: Object, reason: str, message: str) -> None:
        await self._status(
            cron,
            [
                XrCondition("Synced", "False", "ReconcileError", message),
                XrCondition("Scheduling", "False", reason, message),
            ],
        )
        self._record_event(cron, "Warning", reason, message)

    async def _status(self, cron: Object, conditions: list[XrCondition], **more: Any) -> None:
        await set_status(self._client, cron, conditions, now=self._context.timestamp(), manager=MANAGER, **more)

    def _record_event(self, cron: Object, kind: EventKind, reason: str, message: str) -> None:
        self._context.events.record(cron, kind, reason, message, by=NAME)
