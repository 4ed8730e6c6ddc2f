"""Operations: a pipeline that runs once to completion, and what it wants is applied.

An attempt is announced in the status before any function is called, and its end is recorded after everything was
applied. A crash in between therefore shows; the attempt counts as failed and is repeated, which does no harm because
the applies are idempotent and the revisions of functions are those of the first attempt. What was applied belongs to
nobody afterwards: it has no owner and is not deleted with the Operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from planform.api.annotations import is_paused
from planform.api.authors import author_of, service_account, service_account_of
from planform.api.conditions import XrCondition
from planform.api.kinds import Object
from planform.api.metadata import is_deleted, managed_fields_of, name_of, uid_of
from planform.api.names import FUNCTION_REVISION, OPERATION
from planform.client.informer import InformerEvent, ObjectKey
from planform.client.protocol import Client
from planform.client.rights import impersonating
from planform.errors import Conflict, Forbidden, NotFound, PlanformError
from planform.functions.errors import MissingCapability, ResolutionError
from planform.functions.resolution import Resolution
from planform.functions.values import Severity, State
from planform.journal.masking import masked_error
from planform.operations.operations import (
    Phase,
    Progress,
    Reason,
    attempts_allowed,
    field_manager,
    is_earlier_operation,
    merged_references,
    outputs_of,
    progress_of,
    reference_to,
    resources_to_apply,
    retry_delay,
    unnamed,
)
from planform.pipeline.pipeline import PipelineOutcome, ReadSettings
from planform.pipeline.run_secrets import mask_of
from planform.pipeline.running import Pipelines
from planform.pipeline.steps import PipelineInvalid, Step, parse_pipeline
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.events import EventKind
from planform.reconcile.sources import Source, to_self
from planform.reconcile.writes import merge, set_status

NAME: Final = "operations"
MANAGER: Final = f"ops.crossplane.io/{NAME}"
PAUSED: Final = XrCondition("Synced", "False", "ReconcilePaused", "Reconciliation is paused via the pause annotation")
SYNCED: Final = XrCondition("Synced", "True", "ReconcileSuccess")

_REMEMBERED_MANAGERS: Final = 10
_MAX_RUN_SECONDS: Final = 3600.0
_LOOK_AGAIN: Final = 60.0
_WRITE_TRIES: Final = 10
_INTERRUPTED: Final = "the attempt was interrupted before its end"


class OperationController:
    """Runs each Operation until it has succeeded, or failed as often as it may."""

    def __init__(self, context: ControllerContext, pipelines: Pipelines) -> None:
        self._context = context
        self._client = context.client
        self._pipelines = pipelines
        self._reads = ReadSettings(
            deny_by_default=context.features.enabled("DenyExtraResourcesByDefault"),
            requirements_enabled=context.features.enabled("CompositionFunctionsExtraResources"),
        )
        self._waiting: dict[ObjectKey, None] = {}  # Operations whose functions cannot be called yet

    def start(self) -> None:
        controller = self._context.controller(NAME, self.reconcile, timeout=_MAX_RUN_SECONDS)
        self._context.manager.start(
            controller, [Source(OPERATION, to_self), Source(FUNCTION_REVISION, self._waiting_for_functions)]
        )

    def _waiting_for_functions(self, _: InformerEvent) -> Iterable[ObjectKey]:
        return tuple(self._waiting)

    async def reconcile(self, key: ObjectKey) -> Result:
        self._waiting.pop(key, None)
        try:
            operation = await self._client.get(OPERATION, key.name)
        except NotFound:
            return Result()
        progress = progress_of(operation)
        if progress.phase.over or is_deleted(operation):
            return Result()
        if is_paused(operation):
            await self._record(operation, [PAUSED])
            return Result()
        wait = self._seconds_left(progress)
        if wait > 0:
            return Result(requeue_after=wait)
        if progress.phase is Phase.ATTEMPTING:
            progress = replace(progress, failures=progress.failures + 1)
            if progress.failures >= attempts_allowed(operation["spec"]):
                return await self._failed(operation, progress.failures - 1, _INTERRUPTED)
        return await self._begin(key, operation, progress)

    def _seconds_left(self, progress: Progress) -> float:
        """How long the Operation has to wait before it is tried again."""
        if progress.phase is not Phase.RETRYING or progress.since is None:
            return 0.0
        due = progress.since + timedelta(seconds=retry_delay(progress.failures))
        return (due - self._context.clock.now()).total_seconds()

    async def _begin(self, key: ObjectKey, operation: Object, progress: Progress) -> Result:
        """Make sure that every function can be called before the first one is: calls may have effects of their own."""
        locks = {
            each["step"]: each["revision"] for each in (operation.get("status") or {}).get("functionRevisions", ())
        }
        try:
            steps = parse_pipeline(operation["spec"])
        except PipelineInvalid as error:
            await self._cannot_begin(operation, error.reason, str(error))
            return Result()  # only an edit can help
        resolver = self._pipelines.resolver("operation")
        chosen: dict[str, Resolution] = {}
        for step in steps:
            try:
                chosen[step.name] = resolver(_locked(step, locks))
            except ResolutionError as error:
                error.at_step(step.name, step.function)
                if step.name in locks and not error.retryable:
                    return await self._failed(operation, progress.failures, str(error), for_good=True)
                self._waiting[key] = None
                reason = "MissingCapabilities" if isinstance(error, MissingCapability) else error.reason
                await self._cannot_begin(operation, reason, str(error))
                return Result(requeue_after=_LOOK_AGAIN)
        return await self._attempt(operation, progress, steps, chosen)

    async def _cannot_begin(self, operation: Object, reason: str, message: str) -> None:
        await self._record(
            operation,
            [
                XrCondition("Synced", "False", "ReconcileError", message),
                XrCondition("ValidPipeline", "False", reason, message),
            ],
        )
        self._record_event(operation, "Warning", reason, message)

    async def _attempt(
        self, operation: Object, progress: Progress, steps: Sequence[Step], chosen: Mapping[str, Resolution]
    ) -> Result:
        announced = await set_status(
            self._client,
            operation,
            [
                XrCondition("ValidPipeline", "True", "ValidPipeline"),
                XrCondition("Succeeded", "Unknown", Reason.RUNNING),
            ],
            now=self._context.timestamp(),
            manager=MANAGER,
            failures=progress.failures,
            functionRevisions=[
                {"step": step, "function": each.revision.function, "revision": each.revision.name}
                for step, each in chosen.items()
            ],
        )
        try:
            client = await self._acting(operation)
        except Forbidden as error:
            return await self._failed(announced, progress.failures, str(error), for_good=True)
        pipelines = self._pipelines if client is self._client else self._pipelines.acting(client)
        outcome = await pipelines.run(
            steps,
            observed=State(),
            capability="operation",
            cached=False,
            reads=self._reads,
            resolver=lambda step: chosen[step.name],
        )
        self._record_results(announced, outcome)
        outputs, dropped = outputs_of(outcome)
        for step in dropped:
            self._record_event(
                announced, "Warning", "OutputTooLarge", f'the output of step "{step}" is too large to keep'
            )
        if outcome.failure is not None:
            return await self._failed(announced, progress.failures, str(outcome.failure), pipeline=outputs)
        problem = unnamed(outcome)
        if problem:
            return await self._failed(announced, progress.failures, problem, pipeline=outputs)
        if not await self._still_wanted(announced):
            return Result()
        applied, problem = await self._apply(client, announced, outcome)
        references = merged_references((announced.get("status") or {}).get("appliedResourceRefs") or (), applied)
        if problem:
            return await self._failed(
                announced, progress.failures, problem, pipeline=outputs, appliedResourceRefs=references
            )
        await self._record(
            announced,
            [SYNCED, XrCondition("Succeeded", "True", Reason.SUCCESS)],
            failures=progress.failures,
            pipeline=outputs,
            appliedResourceRefs=references,
        )
        self._record_event(announced, "Normal", Reason.SUCCESS, "The pipeline ran, and what it wants was applied")
        return Result()

    async def _still_wanted(self, operation: Object) -> bool:
        """Whether nobody deleted the Operation while its functions ran; then it changes nothing any more."""
        try:
            now = await self._client.get(OPERATION, name_of(operation))
        except NotFound:
            return False
        return uid_of(now) == uid_of(operation) and not is_deleted(now)

    async def _acting(self, operation: Object) -> Client:
        """Reads and writes with the rights of the ServiceAccount that the Operation names, else of its author."""
        author, rights = author_of(operation), self._context.rights
        named = service_account_of(operation)
        if named is None:
            return self._client if author is None else rights.acting(author)
        access = impersonating(*named)
        if author is not None and not await rights.allows(author, access):
            raise Forbidden(f'the Operation names a ServiceAccount, and user "{author.user}" cannot {access}')
        return rights.acting(service_account(*named))

    async def _apply(self, client: Client, operation: Object, outcome: PipelineOutcome) -> tuple[list[Object], str]:
        """Apply in order up to the first that is refused; gives what was applied and what went wrong."""
        applied: list[Object] = []
        manager = field_manager(operation)
        for obj in resources_to_apply(outcome):
            try:
                found = await client.apply(obj, manager=manager, force=True)
            except PlanformError as error:
                masked_error(error, mask_of(outcome))
                return applied, f'cannot apply {obj["kind"]} "{name_of(obj)}": {error}'
            applied.append(reference_to(found))
            await self._forget_earlier_managers(client, found, manager)
        return applied, ""

    async def _forget_earlier_managers(self, client: Client, obj: Object, manager: str) -> None:
        """Drop the claims of earlier Operations, which want nothing any more, once there are several of them: what is
        worked on every hour would otherwise remember every hour. The values stay as they are."""
        entries = managed_fields_of(obj)
        kept = [each for each in entries if not is_earlier_operation(each.get("manager") or "", manager)]
        if len(entries) - len(kept) < _REMEMBERED_MANAGERS:
            return
        try:
            await merge(client, obj, {"metadata": {"managedFields": kept}}, manager=manager)
        except PlanformError:
            pass  # somebody wrote meanwhile, or it may not be done; the next Operation tries again

    async def _failed(
        self, operation: Object, failures: int, message: str, *, for_good: bool = False, **more: Any
    ) -> Result:
        """Record one failure more, and come back unless it was the last that is allowed.

        An Operation that has failed for good is as it should be: there is nothing left to reconcile.
        """
        failures += 1
        over = for_good or failures >= attempts_allowed(operation["spec"])
        await self._record(
            operation,
            [
                SYNCED if over else XrCondition("Synced", "False", "ReconcileError", message),
                XrCondition("Succeeded", "False" if over else "Unknown", Reason.ERROR, message),
            ],
            failures=failures,
            **more,
        )
        self._record_event(operation, "Warning", Reason.ERROR, message)
        return Result() if over else Result(requeue_after=retry_delay(failures))

    async def _record(self, operation: Object, conditions: Sequence[XrCondition], **more: Any) -> None:
        """Write the status, over whatever others wrote to the Operation meanwhile: nobody else writes these fields,
        and an end that is not recorded would make the pipeline run again."""
        for _ in range(_WRITE_TRIES):
            try:
                now = self._context.timestamp()
                await set_status(self._client, operation, conditions, now=now, manager=MANAGER, **more)
                return
            except Conflict:
                uid = uid_of(operation)
                try:
                    operation = await self._client.get(OPERATION, name_of(operation))
                except NotFound:
                    return
                if uid_of(operation) != uid:
                    return
            except NotFound:
                return
        raise Conflict(f'the status of Operation "{name_of(operation)}" could not be written')

    def _record_results(self, operation: Object, outcome: PipelineOutcome) -> None:
        for trace in outcome.steps:
            for warning in trace.warnings:
                self._record_event(operation, "Warning", "RunPipelineStep", f'Pipeline step "{trace.step}": {warning}')
        for one in outcome.results:
            self._context.events.record(
                operation,
                "Normal" if one.result.severity is Severity.NORMAL else "Warning",
                one.result.reason or "RunPipelineStep",
                f'Pipeline step "{one.step}": {one.result.message}',
                by=NAME,
            )

    def _record_event(self, operation: Object, kind: EventKind, reason: str, message: str) -> None:
        self._context.events.record(operation, kind, reason, message, by=NAME)


def _locked(step: Step, locks: Mapping[str, str]) -> Step:
    """A step of a run that is repeated calls the revision that it called first."""
    lock = locks.get(step.name)
    return replace(step, revision_ref=lock, revision_selector=None) if lock else step
