"""ActionSets: each runs once, in a task of its own beside the reconciles.

A reconcile decides about everything before anything starts: all Blueprints are read, every phase of every action gets
its version, everything they need is found. Then one write says that the ActionSet runs, who runs it, with which
versions, and as what its actions are written; it also adds the finalizer that makes deletion wait for deferPhases.
From then on the run goes by what it wrote, whatever becomes of the Blueprint.

A process that ends leaves its ActionSets as they are. The next one finds them running with a runner that is not itself
and goes on: at a phase whose function says that it can be run again, or by failing that phase and running the
deferPhase.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import finalizers_of, is_deleted, name_of, namespace_of, uid_of
from planform.api.names import ACTION_SET, ACTION_SET_FINALIZER, BLUEPRINT
from planform.blueprints.action_status import OVER, RUNNING, RunStatus, begun, locks_of, message_of, refused
from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment
from planform.blueprints.errors import BlueprintError, PhaseCancelled, PhaseFailed, PreflightFailed
from planform.blueprints.execution import GRACE_SECONDS, Run, RunLost, RunTools, Subject
from planform.blueprints.logs import PhaseLogs
from planform.blueprints.metrics import ActionMetrics
from planform.blueprints.model import (
    LOCKS_ANNOTATION,
    ActionSet,
    Blueprint,
    encode_locks,
    is_cancelled,
    parse_action,
    parse_action_set,
    parse_blueprint,
)
from planform.blueprints.parameters import go_timestamp
from planform.blueprints.planning import ActionError, PlannedAction, locks_wanted, plan, plan_again
from planform.blueprints.rendering import Templates
from planform.blueprints.rights import ActionRights, decide_rights
from planform.blueprints.runs import MANAGER, ControllerWithRuns, LiveRun, is_loss
from planform.client.informer import InformerEvent, ObjectKey, key_of
from planform.client.waits import Backoff
from planform.errors import NotFound, PlanformError
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.events import EventKind
from planform.reconcile.sources import Source, to_self
from planform.reconcile.writes import merge, remove_finalizer

NAME: Final = "actionsets"
MAX_AT_ONCE: Final = 200
"""ActionSets that run at a time; the others wait as pending."""

_LOOK_AGAIN: Final = 10.0

_logger = logging.getLogger(__name__)


class ActionSetController:
    """Runs ActionSets. `here` is where their phases run, `grace` how long a deletion waits for phases to end."""

    def __init__(
        self,
        context: ControllerContext,
        catalogue: PhaseCatalogue,
        *,
        here: PhaseEnvironment | None = None,
        logs: PhaseLogs | None = None,
        grace: float = GRACE_SECONDS,
        max_at_once: int = MAX_AT_ONCE,
        runner: str = "",
    ) -> None:
        self._context = context
        self._client = context.client
        self._catalogue = catalogue
        self._here = here if here is not None else PhaseEnvironment()
        self.logs = logs if logs is not None else PhaseLogs(context.clock)
        self._grace = grace
        self._max_at_once = max_at_once
        self._runner = runner or uuid.uuid4().hex
        self._templates = Templates(lambda: context.clock.now().timestamp())
        self._metrics = ActionMetrics(context.metrics)
        self._runs: dict[str, LiveRun] = {}
        self._waiting: dict[ObjectKey, None] = {}
        self._lost: set[str] = set()  # uids of ActionSets that another process took from this one
        self._controller = ControllerWithRuns(
            NAME,
            self.reconcile,
            clock=context.clock,
            rng=context.rng,
            limiter=context.limiter,
            metrics=context.metrics,
            tracer=context.tracer,
            concurrency=context.concurrency,
            backoff=Backoff(first=1, maximum=60),
        )

    def start(self) -> None:
        self._context.manager.start(self._controller, [Source(ACTION_SET, self._keys)])

    def _keys(self, change: InformerEvent) -> Iterable[ObjectKey]:
        if change.type == "DELETED":
            self.logs.forget(uid_of(change.object))
        return to_self(change)

    @property
    def running(self) -> int:
        return len(self._runs)

    async def reconcile(self, key: ObjectKey) -> Result:
        self._waiting.pop(key, None)
        try:
            obj: Object | None = await self._client.get(ACTION_SET, key.name, namespace=key.namespace)
        except NotFound:
            obj = None
        try:
            await self._decide(key, obj)
        except NotFound:
            pass  # deleted meanwhile, before anything was started
        return Result()

    async def _decide(self, key: ObjectKey, obj: Object | None) -> None:
        """Begin, go on, end or leave alone."""
        uid = uid_of(obj) if obj is not None else ""
        for other in [each for each in self._runs.values() if each.key == key and each.uid != uid]:
            other.run.cancel()  # it is gone, or another one has its name
        if obj is None:
            return
        live, state = self._runs.get(uid), str((obj.get("status") or {}).get("state") or "")
        if uid in self._lost:
            return
        if is_deleted(obj):
            if live is not None:
                live.run.cancel()
            elif state == RUNNING and ACTION_SET_FINALIZER in finalizers_of(obj):
                await self._go_on(obj, cancelled=True)
            else:
                await self._finalize(obj)
            return
        cancelled = is_cancelled(obj)
        if live is not None:
            if cancelled:
                live.run.cancel()
        elif state in OVER:
            await self._finalize(obj)
        elif cancelled and state != RUNNING:
            await self._refuse(obj, [ActionError(PhaseCancelled("the ActionSet was cancelled before it began"))])
        elif len(self._runs) >= self._max_at_once:
            self._waiting[key] = None
        elif state == RUNNING:
            await self._go_on(obj, cancelled=cancelled)
        else:
            await self._begin(obj)

    async def _finalize(self, obj: Object) -> None:
        await remove_finalizer(self._client, obj, ACTION_SET_FINALIZER, manager=MANAGER)

    async def _begin(self, obj: Object) -> None:
        """Decide whether all of it can run, say so in one write, and start."""
        try:
            wanted = parse_action_set(obj)
        except BlueprintError as error:
            await self._refuse(obj, [ActionError(error)])
            return
        self._catalogue.refresh()
        objects, blueprints, action_errors = await self._blueprints(obj, wanted)
        planned = plan(wanted.actions, blueprints, self._catalogue, self._here)
        action_errors = action_errors or list(planned.action_errors)
        if action_errors:
            await self._refuse(obj, action_errors)
            return
        try:
            rights = await decide_rights(self._context.rights, obj, objects)
        except PreflightFailed as error:
            await self._refuse(obj, [ActionError(error)])
            return
        live = self._live(obj, planned.actions, wanted, rights)
        live.blueprints = objects
        started_at = go_timestamp(self._context.clock.now())
        action_errors = await live.run.prepare([started_at] * len(wanted.actions))
        if action_errors:
            await self._refuse(obj, action_errors)
            return
        spec = obj.get("spec") or {}
        status = begun(spec, planned.actions, runner=self._runner, started_at=started_at, now=self._context.timestamp)
        self._warn(obj, planned.actions, status)
        if not status.fits():
            await self._refuse(
                obj, [ActionError(PreflightFailed("the actions are too large to be kept in the status"))]
            )
            return
        await self._launch(live, obj, status)

    async def _go_on(self, obj: Object, *, cancelled: bool) -> None:
        """Take over a run whose process has ended."""
        status = RunStatus(obj["status"], self._context.timestamp)
        try:
            entries, snapshots = status.wire["actions"], status.wire["snapshots"]
            spec = {**(obj.get("spec") or {}), "actions": [each["request"] for each in snapshots]}
            wanted = parse_action_set({"spec": spec})
            actions = [
                parse_action(entry["name"], each["action"]) for entry, each in zip(entries, snapshots, strict=True)
            ]
            planned = plan_again(wanted.actions, actions, locks_of(status.wire), self._catalogue)
            objects, _, _ = await self._blueprints(obj, wanted)
            rights = await decide_rights(self._context.rights, obj, objects)
            live = self._live(obj, planned, wanted, rights)
            action_errors = await live.run.prepare([str(entry.get("startedAt") or "") for entry in entries])
        except (BlueprintError, KeyError, TypeError, ValueError) as error:
            text = f"the control plane stopped, and what it left cannot be taken up: {error}"
            action_errors = [ActionError(PhaseFailed(text))]
        if action_errors:
            for action_error in action_errors:
                status.add_error(action_error)
            status.ended()
            await self._store_end(obj, status)
            return
        _logger.info("going on with ActionSet %s, which another process began", key_of(obj))
        status.wire["runner"] = self._runner
        if cancelled:
            live.run.cancel()
        await self._launch(live, obj, status)

    async def _blueprints(
        self, obj: Object, wanted: ActionSet
    ) -> tuple[list[Object], dict[str, Blueprint], list[ActionError]]:
        """The Blueprints that there are of those that are asked for, and what is wrong with them."""
        objects: list[Object] = []
        found: dict[str, Blueprint] = {}
        action_errors: list[ActionError] = []
        for name in dict.fromkeys(request.blueprint for request in wanted.actions if request.blueprint):
            try:
                blueprint = await self._client.get(BLUEPRINT, name, namespace=namespace_of(obj))
                found[name] = await self._bound(blueprint)
                objects.append(blueprint)
            except NotFound:
                continue
            except BlueprintError as error:
                action_errors.append(ActionError(PreflightFailed(f'Blueprint "{name}": {error}')))
        return objects, found, action_errors

    async def _bound(self, obj: Object) -> Blueprint:
        """The Blueprint; one that keeps its versions gets them here if admission on this engine is not ours."""
        blueprint = parse_blueprint(obj)
        locks = locks_wanted(blueprint, self._catalogue)
        if not blueprint.locks_versions or locks == blueprint.locks:
            return blueprint
        await merge(
            self._client, obj, {"metadata": {"annotations": {LOCKS_ANNOTATION: encode_locks(locks)}}}, manager=MANAGER
        )
        return replace(blueprint, locks=locks)

    def _live(
        self, obj: Object, planned: tuple[PlannedAction, ...], wanted: ActionSet, rights: ActionRights
    ) -> LiveRun:
        uid = uid_of(obj)
        live = LiveRun(self._context, obj, self._runner)

        def record_event(kind: EventKind, reason: str, message: str) -> None:
            self._record_event(obj, kind, reason, message)
            for blueprint in live.blueprints if kind == "Warning" else ():
                self._record_event(blueprint, kind, reason, f"ActionSet {live.key}: {message}")

        def log(action: str, phase: str, line: str) -> None:
            self.logs.append(uid, action, phase, line)

        tools = RunTools(
            client=self._client,
            clock=self._context.clock,
            here=self._here,
            templates=self._templates,
            save=live.save,
            record_event=record_event,
            log=log,
            observe=self._metrics.phase,
            spawn=self._spawn,
            grace=self._grace,
            rights=self._context.rights,
            whose=rights.whose,
            confirm=lambda request: rights.confirm(self._context.rights, request),
        )
        subject = Subject(name=name_of(obj), namespace=namespace_of(obj), uid=uid)
        live.run = Run(subject, planned, tools, sequential=wanted.sequential)
        return live

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._context.limiter.run(NAME, work), name=name)

    async def _launch(self, live: LiveRun, obj: Object, status: RunStatus) -> None:
        finalizers = finalizers_of(obj)
        if ACTION_SET_FINALIZER not in finalizers and not is_deleted(obj):
            obj["metadata"]["finalizers"] = [*finalizers, ACTION_SET_FINALIZER]
        live.owns(await self._client.update({**obj, "status": status.wire}, manager=MANAGER), status)
        self._runs[live.uid] = live
        self._metrics.running(len(self._runs))
        self._controller.spawn(self._context.limiter.run(NAME, self._run(live, status)), f"actionset {live.key}")

    async def _run(self, live: LiveRun, status: RunStatus) -> None:
        """Run to the end and store it; until then the ActionSet counts as run by us, or a reconcile would go on too."""
        try:
            await self._execute(live, status)
            await live.finish()
            self._ended(live.obj, status.state)
        except RunLost:
            _logger.warning("ActionSet %s is run by another process", live.key)
            self._lost.add(live.uid)
        except PlanformError as error:
            _logger.error("the end of ActionSet %s could not be stored: %s", live.key, error)
            self._controller.queue.add_after(live.key, _LOOK_AGAIN)
        finally:
            del self._runs[live.uid]
            self._metrics.running(len(self._runs))
            if self._waiting:
                key = next(iter(self._waiting))
                del self._waiting[key]
                self._controller.queue.add(key)

    async def _execute(self, live: LiveRun, status: RunStatus) -> None:
        try:
            await live.run.execute(status)
        except Exception as error:  # our own mistake must not leave an ActionSet that runs for ever
            if is_loss(error):
                raise RunLost from error
            _logger.exception("running ActionSet %s failed", live.key)
            status.add_error(ActionError(PhaseFailed(f"internal error: {error!r}")))
            status.ended()

    def _ended(self, obj: Object, state: str) -> None:
        self._metrics.ended(state)
        if state == "complete":
            self._record_event(obj, "Normal", "Update Complete", f"Updated ActionSet '{name_of(obj)}' Status->complete")

    async def _refuse(self, obj: Object, action_errors: list[ActionError]) -> None:
        """Nothing of it was started, and nothing will be."""
        status = refused(obj.get("spec") or {}, action_errors, self._context.timestamp)
        await self._store_end(obj, status)
        for action_error in action_errors:
            reason = f"ActionSetFailed Action: {action_error.action}" if action_error.action else "ActionSetFailed"
            self._record_event(obj, "Warning", reason, message_of(action_error.error))

    async def _store_end(self, obj: Object, status: RunStatus) -> None:
        metadata = obj["metadata"]
        finalizers = [each for each in metadata.get("finalizers") or () if each != ACTION_SET_FINALIZER]
        stored = {**obj, "metadata": {**metadata, "finalizers": finalizers}, "status": status.wire}
        await self._client.update(stored, manager=MANAGER)
        self._ended(obj, status.state)

    def _warn(self, obj: Object, planned: tuple[PlannedAction, ...], status: RunStatus) -> None:
        """Tell what users should know about the versions: status, event, log and metric, each once."""
        for action in planned:
            for each in action.all_phases:
                for warning in each.chosen.warnings if each.chosen is not None else ():
                    self._metrics.warned(warning)
                    if not status.warn(action.request.name, each.phase.name, warning):
                        continue
                    self._record_event(
                        obj, "Normal" if warning.is_news_only else "Warning", warning.code, warning.message
                    )
                    level = logging.INFO if warning.is_news_only else logging.WARNING
                    _logger.log(level, "ActionSet %s, action %s: %s", key_of(obj), action.request.name, warning.message)

    def _record_event(self, obj: Object, kind: EventKind, reason: str, message: str) -> None:
        self._context.events.record(obj, kind, reason, message, by=NAME)
