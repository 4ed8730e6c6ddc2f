"""Runs the actions of an ActionSet: phases in order, the deferPhase last, artifacts at the end.

Before a phase begins, it is written down that it runs, together with the end of the one before: after a crash it is
known what may have had effects. An action that fails leaves the others alone. The deferPhase runs whenever a phase of
its action was started, also when the ActionSet is being deleted, and then within a grace period.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from planform.api.authors import Author
from planform.blueprints.action_status import (
    COMPLETE,
    DEFER,
    FAILED,
    MAX_STATUS,
    RUNNING,
    RunStatus,
    checked_output,
    message_of,
)
from planform.blueprints.arguments import Arguments, argument_problems
from planform.blueprints.calling import CANCEL_SECONDS, call
from planform.blueprints.contract import PhaseContext, PhaseEnvironment, PhaseFunction, Progress
from planform.blueprints.errors import (
    ArgumentInvalid,
    Interrupted,
    OutputInvalid,
    PhaseCancelled,
    PhaseTimedOut,
    PreflightFailed,
)
from planform.blueprints.model import ActionRequest, ObjectReference, reference_of
from planform.blueprints.parameters import parameters, phase_root, secret_values
from planform.blueprints.planning import ActionError, PlannedAction, PlannedPhase
from planform.blueprints.reading import read_action, read_objects
from planform.blueprints.rendering import RenderFailed, Templates
from planform.client.protocol import Client
from planform.client.rights import Access, NoRights, Rights
from planform.client.waits import time_limit
from planform.clock import Clock
from planform.errors import PlanformError
from planform.functions.errors import ResolutionError
from planform.journal.masking import NOTHING_SECRET, RunMask, masked_error
from planform.telemetry.masking import masked_by

GRACE_SECONDS: Final = 60.0
_FLUSH_SECONDS: Final = 1.0
_FINAL: Final = (ArgumentInvalid, RenderFailed, OutputInvalid, ResolutionError)
"""Failures that another attempt would only repeat."""
_READ_BY_PHASES: Final = {"secret": "secrets", "configmap": "configmaps"}


class RunLost(Exception):
    """Somebody else runs this ActionSet now: end at once, and write nothing."""


RecordEvent = Callable[[Literal["Normal", "Warning"], str, str], None]


@dataclass(frozen=True, kw_only=True)
class RunTools:
    """What a run works with. `save` returns once the status is stored; it raises if somebody else owns the run now."""

    client: Client
    clock: Clock
    here: PhaseEnvironment
    templates: Templates
    save: Callable[[], Awaitable[None]]
    record_event: RecordEvent
    log: Callable[[str, str, str], None] = lambda action, phase, line: None
    observe: Callable[[PhaseFunction, str, float], None] = lambda function, outcome, seconds: None
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]] = lambda work, name: asyncio.create_task(
        work, name=name
    )
    grace: float = GRACE_SECONDS
    rights: Rights = field(default_factory=NoRights)
    whose: Callable[[ActionRequest], Author | None] = lambda request: None
    """With whose rights an action is carried out; None is the control plane's own, for an administrator's."""
    confirm: Callable[[ActionRequest], Awaitable[None]] | None = None
    """Asked before each phase; raises if those rights may no longer be used."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The ActionSet that runs."""

    name: str
    namespace: str
    uid: str


@dataclass
class _Running:
    """One action on its way."""

    index: int
    planned: PlannedAction
    roots: dict[str, Any] = field(default_factory=dict)
    objects: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The references to objects of each phase, rendered."""


class Run:
    """One run of one ActionSet. `prepare` comes first; what it raises or gives stops the run before it begins."""

    def __init__(
        self, subject: Subject, planned: Sequence[PlannedAction], tools: RunTools, *, sequential: bool = False
    ) -> None:
        self._subject = subject
        self._tools = tools
        self._sequential = sequential
        self._actions = [_Running(index, each) for index, each in enumerate(planned)]
        self._cores: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flusher: asyncio.Task[None] | None = None
        self.status: RunStatus

    async def prepare(self, times: Sequence[str]) -> list[ActionError]:
        """Read what all actions need and render their references to objects; gives everything that is wrong.

        `times` are what `.Time` is for each action. Raises what is worth another try; nothing has happened then.
        """
        found = await asyncio.gather(
            *(self._prepare(action, time) for action, time in zip(self._actions, times, strict=True))
        )
        return [action_error for action_errors in found for action_error in action_errors]

    async def execute(self, status: RunStatus) -> None:
        """Run everything that is not done yet, and close the status, which the caller then stores.

        Cancelling it (the process ends) leaves the status as it is stored: whoever starts next sees what was running.
        """
        self.status = status
        try:
            if self._sequential:
                for action in self._actions:
                    if not await self._run_action(action):
                        break
            elif len(self._actions) == 1:
                await self._run_action(self._actions[0])
            else:
                async with asyncio.TaskGroup() as tasks:
                    for action in self._actions:
                        tasks.create_task(self._run_action(action), name=f"action {action.planned.request.name}")
        finally:
            if self._flusher is not None:
                self._flusher.cancel()
        status.ended()

    def cancel(self) -> None:
        """The ActionSet is being deleted, or shall end: phases that run are ended, deferPhases still run."""
        if not self._cancelled:
            self._ending.set_result(None)
            for core in list(self._cores):
                core.cancel()

    @property
    def _cancelled(self) -> bool:
        return self._ending.done()

    async def _prepare(self, action: _Running, time: str) -> list[ActionError]:
        request = action.planned.request
        try:
            found = await read_action(self._client(action), request, self._subject.namespace)
        except PlanformError as error:
            if error.retryable:
                raise
            return [ActionError(error, request.name)]
        action.roots = parameters(request, found, time)
        action_errors = []
        for place, planned in self._places(action):
            try:
                references = {}
                for alias, reference in planned.phase.objects.items():
                    where = f'phase "{planned.phase.name}": objects.{alias}'
                    rendered = self._tools.templates.render(dict(reference), action.roots, where=where)
                    references[alias] = reference_of(rendered)
                    await self._check_readable(action, references[alias], where)
                action.objects[place] = references
            except PlanformError as error:
                action_errors.append(ActionError(error, request.name, planned.phase.name))
        return action_errors

    def _client(self, action: _Running) -> Client:
        author = self._tools.whose(action.planned.request)
        return self._tools.client if author is None else self._tools.rights.acting(author)

    async def _confirm_rights(self, action: _Running) -> None:
        if self._tools.confirm is not None:
            await self._tools.confirm(action.planned.request)

    async def _check_readable(self, action: _Running, reference: ObjectReference, where: str) -> None:
        """What a phase will read may be denied to the author now, before anything has happened."""
        author, plural = self._tools.whose(action.planned.request), _READ_BY_PHASES.get(reference.kind.lower())
        if author is None or plural is None:
            return
        access = Access("get", "", plural, reference.namespace or self._subject.namespace, reference.name)
        if not await self._tools.rights.allows(author, access):
            raise PreflightFailed(f'{where}: user "{author.user}" cannot {access}')

    def _places(self, action: _Running) -> list[tuple[int, PlannedPhase]]:
        places = list(enumerate(action.planned.phases))
        return places if action.planned.defer is None else [*places, (DEFER, action.planned.defer)]

    async def _run_action(self, action: _Running) -> bool:
        """All of one action; whether it succeeded."""
        name, entry = action.planned.request.name, self.status.action(action.index)
        self._tools.record_event("Normal", "Started Action", f"Executing action {name}")
        succeeded = await self._recall(action) and await self._core_phases(action)
        defer = action.planned.defer
        if defer is not None and self._wants_defer(action):
            succeeded = await self._defer_phase(action, defer) and succeeded
        if succeeded and "artifacts" not in entry:
            succeeded = self._render_artifacts(action)
        if not succeeded:
            self._tools.record_event("Warning", f"ActionSetFailed Action: {name}", self._first_error(name))
        return succeeded

    def _wants_defer(self, action: _Running) -> bool:
        if self.status.phase(action.index, DEFER)["state"] in (COMPLETE, FAILED):
            return False  # it ran before the control plane was restarted
        return self.status.started(action.index) or (not action.planned.phases and not self._cancelled)

    async def _core_phases(self, action: _Running) -> bool:
        if self._cancelled:
            self._cancel_running_phase(action)
            return False
        core = self._tools.spawn(self._run_phases(action), f"phases of {action.planned.request.name}")
        self._cores.add(core)
        try:
            ended = await self._ends(core)
        finally:
            self._cores.discard(core)
        if not ended or core.cancelled():
            self._cancel_running_phase(action)
        else:
            _raise_unless_reported(core)
        return all(entry["state"] == COMPLETE for entry in self.status.action(action.index)["phases"])

    async def _ends(self, work: asyncio.Task[None]) -> bool:
        """Wait for a task's end; False if the ActionSet was cancelled and the grace period did not see it.

        Cancelling this (the process ends) cancels the task.
        """
        try:
            await asyncio.wait({work, self._ending}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                async with time_limit(self._tools.clock, self._tools.grace):
                    await asyncio.wait({work})
        except TimeoutError:
            return False
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work}, timeout=CANCEL_SECONDS)
            raise
        return True

    def _cancel_running_phase(self, action: _Running) -> None:
        error = PhaseCancelled("the ActionSet was cancelled or deleted")
        for place, planned in enumerate(action.planned.phases):
            if self.status.phase(action.index, place)["state"] == RUNNING:
                self._failed(action, place, planned, error)
                return
        self.status.add_error(ActionError(error, action.planned.request.name))

    async def _run_phases(self, action: _Running) -> None:
        """The phases that are not done; what the first failure raises is in the status already."""
        for place, planned in enumerate(action.planned.phases):
            state = self.status.phase(action.index, place)["state"]
            if state == COMPLETE:
                continue
            if state == FAILED:
                return  # before the control plane was restarted
            if self._cancelled:  # and the phase before did not mind
                self._cancel_running_phase(action)
                return
            await self._phase(action, place, planned, interrupted=state == RUNNING)

    async def _recall(self, action: _Running) -> bool:
        """Give templates what phases left that ended before the control plane was restarted; whether that went well."""
        for place, planned in self._places(action):
            entry = self.status.phase(action.index, place)
            if entry["state"] != COMPLETE:
                continue
            try:
                secrets, config_maps = await self._objects(action, place)
            except PlanformError as error:
                self.status.add_error(ActionError(error, action.planned.request.name, planned.phase.name))
                return False
            self._enter(action, place, planned.phase.name, phase_root(secrets, config_maps, entry.get("output")))
        return True

    async def _defer_phase(self, action: _Running, defer: PlannedPhase) -> bool:
        interrupted = self.status.phase(action.index, DEFER)["state"] == RUNNING
        work = self._tools.spawn(
            self._phase(action, DEFER, defer, interrupted=interrupted),
            f"deferPhase of {action.planned.request.name}",
        )
        if not await self._ends(work):
            work.cancel()
            error = PhaseTimedOut(
                f"the ActionSet was cancelled, and its deferPhase took longer than {self._tools.grace:g} s"
            )
            self._failed(action, DEFER, defer, error)
        else:
            _raise_unless_reported(work)
        return bool(self.status.phase(action.index, DEFER)["state"] == COMPLETE)

    async def _phase(self, action: _Running, place: int, planned: PlannedPhase, *, interrupted: bool) -> None:
        """One phase, to success; raises what it failed with, once that is in the status."""
        phase, kind = planned.phase, "deferPhase" if place == DEFER else "Phase"
        try:
            function = planned.function()
            if interrupted and not function.resumable and place != DEFER:
                raise Interrupted(
                    f'the control plane stopped while phase "{phase.name}" ran, and {function.title} is not resumable'
                )
            await self._confirm_rights(action)
            secrets, config_maps = await self._objects(action, place)
            root = phase_root(secrets, config_maps)
            self._enter(action, place, phase.name, root)
            self._tools.record_event("Normal", f"Started {kind}", f"Executing phase {phase.name}")
            output = await self._attempts(action, place, planned, function, resumed=interrupted)
        except asyncio.CancelledError:
            raise
        except PlanformError as error:
            self._failed(action, place, planned, masked_error(error, _mask_of(action)))
            raise
        root["Output"] = output or {}
        self.status.phase_complete(action.index, place, output)
        if not self.status.fits():
            del self.status.phase(action.index, place)["output"]
            error_ = OutputInvalid(
                f'{function.title}: with the output of phase "{phase.name}" the status has more than'
                f" {MAX_STATUS} bytes, which are all that can be kept"
            )
            self._failed(action, place, planned, error_)
            raise error_
        self._tools.record_event("Normal", f"Ended {kind}", f"Completed phase {phase.name}")

    def _enter(self, action: _Running, place: int, name: str, root: dict[str, Any]) -> None:
        if place == DEFER:
            action.roots["DeferPhase"], action.roots["CurrentPhase"] = root, None
        else:
            action.roots["Phases"][name], action.roots["CurrentPhase"] = root, root

    async def _objects(self, action: _Running, place: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        references = action.objects.get(place) or {}
        if not references:
            return {}, {}
        return await read_objects(self._client(action), references, self._subject.namespace)

    async def _attempts(
        self, action: _Running, place: int, planned: PlannedPhase, function: PhaseFunction, *, resumed: bool
    ) -> dict[str, Any] | None:
        phase, clock = planned.phase, self._tools.clock
        attempt = int(self.status.phase(action.index, place).get("attempts") or 0) if resumed else 0
        while True:
            attempt += 1
            self.status.phase_running(action.index, place, attempt)
            await self._tools.save()
            began, outcome = clock.monotonic(), FAILED
            try:
                output = await self._attempt(action, place, planned, function, attempt, resumed)
                outcome = COMPLETE
                return output
            except PlanformError as error:
                masked_error(error, _mask_of(action))
                if attempt > phase.retry.limit or isinstance(error, _FINAL):
                    raise
                text = f"phase {phase.name} failed and is tried again: {message_of(error)}"
                self._tools.record_event("Warning", "Retrying Phase", text)
                self._tools.log(action.planned.request.name, phase.name, text)
            finally:
                self._tools.observe(function, outcome, clock.monotonic() - began)
            await clock.sleep(phase.retry.delay(attempt))

    async def _attempt(
        self,
        action: _Running,
        place: int,
        planned: PlannedPhase,
        function: PhaseFunction,
        attempt: int,
        resumed: bool,
    ) -> dict[str, Any] | None:
        phase = planned.phase
        if attempt > 1:  # the phase before, or the attempt before, may have ended long ago
            await self._confirm_rights(action)
        args = dict(phase.args)
        if not function.renders_itself:
            args = self._tools.templates.render(args, action.roots, where=f'phase "{phase.name}": args')
        problems = argument_problems(function.title, args, required=function.required, supported=function.arguments)
        if problems:
            raise ArgumentInvalid("; ".join(problems))
        context = self._context(action, place, planned, function, attempt, resumed)
        with masked_by(lambda text: _mask_of(action).text(text)):
            output = await call(function, context, Arguments(args, of=function.title), phase.timeout)
        return checked_output(output, function.title)

    def _context(
        self, action: _Running, place: int, planned: PlannedPhase, function: PhaseFunction, attempt: int, resumed: bool
    ) -> PhaseContext:
        loop = asyncio.get_running_loop()
        request, phase, templates = action.planned.request, planned.phase, self._tools.templates

        def render(value: Any, *, data: Any = None, missing_key: str = "error") -> Any:
            seen = action.roots if data is None else data
            return templates.render(value, seen, where=f'phase "{phase.name}"', missing_key=missing_key)

        def on_loop(work: Callable[[], None]) -> None:
            try:
                here = asyncio.get_running_loop() is loop
            except RuntimeError:
                here = False
            if here:
                work()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(work)

        def progress(reported: Progress) -> None:
            on_loop(lambda: self._progress(action.index, place, reported))

        def log(line: str) -> None:
            on_loop(lambda: self._tools.log(request.name, phase.name, _mask_of(action).text(line)))

        return PhaseContext(
            client=self._client(action),
            author=self._tools.whose(request),
            clock=self._tools.clock,
            here=self._tools.here,
            function=function.name,
            version=function.version,
            actionset=self._subject.name,
            namespace=self._subject.namespace,
            uid=self._subject.uid,
            action=request.name,
            action_index=action.index,
            phase=phase.name,
            attempt=attempt,
            resumed=resumed,
            deferred=place == DEFER,
            params=action.roots,
            renderer=render,
            on_progress=progress,
            on_log=log,
        )

    def _progress(self, action: int, place: int, reported: Progress) -> None:
        if self.status.phase_progress(action, place, reported) and self._flusher is None:
            self._flusher = asyncio.create_task(self._flush(), name=f"progress of {self._subject.name}")

    async def _flush(self) -> None:
        """Store progress, at most once a second."""
        await self._tools.clock.sleep(_FLUSH_SECONDS)
        self._flusher = None
        try:
            await self._tools.save()
        except (PlanformError, RunLost):
            pass  # the next save of the run says what is wrong

    def _failed(self, action: _Running, place: int, planned: PlannedPhase, error: PlanformError) -> None:
        self.status.phase_failed(action.index, place)
        self.status.add_error(ActionError(error, action.planned.request.name, planned.phase.name))

    def _render_artifacts(self, action: _Running) -> bool:
        makers = [
            {"phase": each.phase.name, "func": each.chosen.function.name, "funcVersion": each.chosen.version}
            for each in action.planned.all_phases
            if each.chosen is not None
        ]
        artifacts = {}
        try:
            for name, template in action.planned.action.outputs.items():
                made = self._tools.templates.render(dict(template), action.roots, where=f"outputArtifacts.{name}")
                artifacts[name] = {**made, "producedBy": makers}
        except PlanformError as error:
            self.status.add_error(ActionError(masked_error(error, _mask_of(action)), action.planned.request.name))
            return False
        if artifacts:
            self.status.artifacts(action.index, artifacts)
        return True

    def _first_error(self, action: str) -> str:
        errors = self.status.wire.get("errors") or ()
        return next((each["message"] for each in errors if each.get("action") == action), "the action did not complete")


def _raise_unless_reported(work: asyncio.Task[None]) -> None:
    """Raise what a task ended with, unless it is in the status."""
    error = work.exception()
    if error is not None and not isinstance(error, PlanformError):
        raise error


def _mask_of(action: _Running) -> RunMask:
    """Over all that is said of an action: what its Secrets and its profile's hold is nobody else's business."""
    values = frozenset(secret_values(action.roots))
    return RunMask(values, ()) if values else NOTHING_SECRET
