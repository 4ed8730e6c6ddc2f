"""Running a pipeline: every step sees the same observed state and what the steps before it desire.

This is the single implementation that the reconciler, `render`, diff and preview share. It reads and calls only through
what it is given, and nothing it finds makes it raise: a failed step ends the run, and the outcome says which one, why,
and how far the run had come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import msgspec

from planform.clock import Clock
from planform.errors import PlanformError
from planform.functions.cache import CacheOutcome, ResponseCache
from planform.functions.calling import Call, call_once
from planform.functions.errors import (
    CredentialsUnavailable,
    FatalResult,
    FunctionAnswerInvalid,
    FunctionError,
    InputUnavailable,
    without_frames,
)
from planform.functions.read_policy import IsNamespaced, ReadPolicy
from planform.functions.requirements import RequirementsLoop, RunReader
from planform.functions.resolution import Catalogue, Request, Resolution, resolve
from planform.functions.runner import CredentialSource, FunctionRevision, FunctionRunner, ResourceReader
from planform.functions.sending import observed_digest, snapshot
from planform.functions.tracebacks import traceback_lines
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Requirements,
    Resource,
    ResourceSelector,
    Result,
    Severity,
    State,
    WatchedResource,
)
from planform.journal.masking import NOTHING_SECRET, masked_error
from planform.pipeline.run_secrets import RunSecrets, masked_conditions, masked_results, masked_warnings
from planform.pipeline.steps import Step
from planform.telemetry.masking import masked_by
from planform.telemetry.tracing import PropagatingTracer, Span, Tracer

StepResolver = Callable[[Step], Resolution]
AroundCall = Callable[[Step, FunctionRevision, float], AbstractAsyncContextManager[None]]
"""Surrounds each call of a function that may take a while, with the seconds it may take."""
"""Says which revision a step calls; raises ResolutionError."""


class StepResult(msgspec.Struct, frozen=True):
    """A result and the step it came from."""

    step: str
    result: Result


class StepCondition(msgspec.Struct, frozen=True):
    """A condition and the step it came from."""

    step: str
    condition: Condition


class Changes(msgspec.Struct, frozen=True):
    """What a step made of the desired state it was sent, by names of composed resources."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    composite: bool = False
    context: tuple[str, ...] = ()
    """Keys of the context that it set, changed or removed."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.composite or self.context)


_NO_CHANGES: Final = Changes()


class StepTrace(msgspec.Struct, frozen=True):
    """How one step went. `calls` holds each request and answer; the last is the one that counted."""

    step: str
    function: str
    resolution: Resolution | None = None
    seconds: float = 0.0
    calls: tuple[Call, ...] = ()
    reads: Mapping[str, ResourceSelector] = {}
    changes: Changes = _NO_CHANGES
    warnings: tuple[str, ...] = ()
    error: FunctionError | None = None

    @property
    def revision(self) -> FunctionRevision | None:
        return self.resolution.revision if self.resolution else None

    @property
    def iterations(self) -> int:
        return len(self.calls)

    @property
    def cache(self) -> CacheOutcome | None:
        """How the cache took the last call; None if there was no call."""
        return self.calls[-1].cache if self.calls else None


class PipelineOutcome(msgspec.Struct, frozen=True):
    """What a run gives. With a `failure`, the desired state is that of the last step that went well: show it, never
    apply it."""

    desired: State
    context: Object
    results: tuple[StepResult, ...]
    conditions: tuple[StepCondition, ...]
    requirements: Mapping[str, Requirements]
    """By step, as the steps ended up requiring: seeds of the next run, and what this XR depends on."""
    watched: tuple[WatchedResource, ...]
    ttl: float | None
    """Seconds after which the run is to be repeated; None if only a change can alter its outcome."""
    steps: tuple[StepTrace, ...]
    failure: FunctionError | None = None
    secrets: RunSecrets | None = None
    """What is secret in it. Nothing that the outcome says has any of it; what is said later has to pass its mask."""

    @property
    def traceback(self) -> list[str]:
        """The lines of the failed step's traceback, if its function sent one."""
        for trace in self.steps:
            if trace.error is not None and trace.calls:
                lines = traceback_lines(trace.calls[-1].response.results)
                return [self.secrets.text(line) for line in lines] if self.secrets is not None else lines
        return []


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What holds for the reads of every step: the feature gates, and what they need to know."""

    deny_by_default: bool = False
    requirements_enabled: bool = True
    confined_to: str = ""
    is_namespaced: IsNamespaced | None = None

    def policy(self, step: Step) -> ReadPolicy:
        return ReadPolicy(
            step.allowed, self.deny_by_default, self.requirements_enabled, self.confined_to, self.is_namespaced
        )


def resolver_for(
    catalogue: Catalogue, *, capability: str = "composition", selectors_enabled: bool = True
) -> StepResolver:
    """A resolver that looks steps up in a catalogue as it is now."""

    def resolve_step(step: Step) -> Resolution:
        request = Request(
            step.function,
            capability,
            ref=step.revision_ref,
            selector=step.revision_selector,
            selectors_enabled=selectors_enabled,
        )
        return resolve(catalogue, request)

    return resolve_step


async def run_pipeline(
    pipeline: Sequence[Step],
    *,
    observed: State,
    resolver: StepResolver,
    runner: FunctionRunner,
    reader: ResourceReader,
    clock: Clock,
    credentials: CredentialSource | None = None,
    cache: ResponseCache | None = None,
    reads: ReadSettings = ReadSettings(),  # noqa: B008  # frozen
    seeds: Mapping[str, Requirements] | None = None,
    context: Object | None = None,
    desired: State | None = None,
    digest: Callable[[], bytes] | None = None,
    tracer: Tracer | None = None,
    around_calls: AroundCall | None = None,
) -> PipelineOutcome:
    """Run the steps in order. Never raises a FunctionError: the outcome's `failure` is it.

    With `digest`, `observed` is a snapshot already, and this gives its digest; functions that answer at once need none.
    """
    if digest is None:
        observed = snapshot(observed)
        digest = lru_cache(partial(observed_digest, observed))
    run = _Run(
        observed=observed,
        observed_digest=digest,
        resolver=resolver,
        runner=runner,
        reader=RunReader(reader),
        clock=clock,
        credentials=credentials,
        cache=cache,
        reads=reads,
        seeds=seeds or {},
        desired=desired or State(),
        context=context or {},
        around_calls=around_calls,
    )
    if isinstance(tracer, PropagatingTracer):
        tracer = None  # it keeps nothing of what it would be told
    with masked_by(run.secrets.text):
        for step in pipeline:
            if tracer is None:
                went_well = await run.take(step)
            else:
                with tracer.span("step", attributes={"step": step.name, "function": step.function}) as span:
                    went_well = await run.take(step)
                    run.describe(span)
            if not went_well:
                break
        else:
            run.check_desired()
    return run.outcome()


class _Run:
    """One run on its way from step to step."""

    def __init__(
        self,
        *,
        observed: State,
        observed_digest: Callable[[], bytes],
        resolver: StepResolver,
        runner: FunctionRunner,
        reader: RunReader,
        clock: Clock,
        credentials: CredentialSource | None,
        cache: ResponseCache | None,
        reads: ReadSettings,
        seeds: Mapping[str, Requirements],
        desired: State,
        context: Object,
        around_calls: AroundCall | None,
    ) -> None:
        self._observed = observed
        self._around_calls = around_calls
        self._observed_digest = observed_digest
        self._resolver = resolver
        self._runner = runner
        self._reader = reader
        self._clock = clock
        self._credentials = credentials
        self._cache = cache
        self._reads = reads
        self._seeds = seeds
        self._desired = desired
        self._context = context
        self._results: list[StepResult] = []
        self._conditions: list[StepCondition] = []
        self._requirements: dict[str, Requirements] = {}
        self._watched: dict[WatchedResource, None] = {}
        self._ttl: float | None = None
        self._traces: list[StepTrace] = []
        self._failure: FunctionError | None = None
        self.secrets = RunSecrets(observed)

    async def take(self, step: Step) -> bool:
        """Carry out one step; False if it failed and the run is over."""
        started = self._clock.monotonic()
        resolution: Resolution | None = None
        loop: RequirementsLoop | None = None
        changes, failure = _NO_CHANGES, None
        try:
            resolution = self._resolver(step)
            loop = self._loop(step, resolution.revision, started + step.timeout)
            response = await loop.run(await self._request(step))
            changes = self._accept(step, resolution.revision, response)
        except FunctionError as error:
            revision = resolution.revision if resolution else None
            failure = without_frames(error.at_step(step.name, step.function, revision))
        calls = tuple(loop.calls) if loop else ()
        self.secrets.asked(call.request for call in calls)
        heard = dict.fromkeys([warning for call in calls if (warning := call.warning)])
        self._failure = failure
        self._traces.append(
            StepTrace(
                step.name,
                step.function,
                resolution,
                seconds=self._clock.monotonic() - started,
                calls=calls,
                reads=dict(loop.asked) if loop else {},
                changes=changes,
                warnings=(*step.warnings, *(resolution.warnings if resolution else ()), *heard),
                error=failure,
            )
        )
        return failure is None

    def describe(self, span: Span) -> None:
        """Say of the step that was just carried out how it went."""
        trace = self._traces[-1]
        span.set(
            revision=trace.revision.name if trace.revision else "",
            iterations=trace.iterations,
            cache=trace.cache or "",
            error=str(trace.error) if trace.error is not None else "",
        )

    def _loop(self, step: Step, revision: FunctionRevision, deadline: float) -> RequirementsLoop:
        async def call(request: FunctionRequest, timeout: float) -> Call:
            cache = None if revision.quick else self._cache
            once = partial(
                call_once, revision, request, runner=self._runner, cache=cache, clock=self._clock, timeout=timeout
            )
            if revision.quick or self._around_calls is None:
                return await once()
            async with self._around_calls(step, revision, timeout):
                return await once()

        return RequirementsLoop(
            call,
            reader=self._reader,
            policy=self._reads.policy(step),
            clock=self._clock,
            deadline=deadline,
            observed_digest=b"" if revision.quick else self._observed_digest(),
            bootstrap=step.bootstrap,
            seeds=self._seeds.get(step.name),
            max_iterations=step.max_iterations,
        )

    async def _request(self, step: Step) -> FunctionRequest:
        request = FunctionRequest(self._observed, self._desired, step.input, self._context)
        if step.input_ref is not None:
            request.input = await self._shared_input(step)
        for each in step.credentials:
            request.credentials[each.name] = data = await self._secret(each.namespace, each.secret)
            self.secrets.sent(data)
        return request

    async def _shared_input(self, step: Step) -> Object:
        """The object an inputRef names, as if it stood in the step: its name, and nothing the API server added."""
        ref = step.input_ref
        assert ref is not None
        what = f'input {ref.kind} ({ref.api_version}) "{ref.name}"'
        try:
            found = await self._reader.read(
                ResourceSelector(ref.api_version, ref.kind, ref.name, None, ref.namespace or None)
            )
        except PlanformError as error:
            raise InputUnavailable(f"{what} could not be read: {error.message}", hint=error.hint) from error
        if not found:
            raise InputUnavailable(f"{what} does not exist", hint="create it, or correct the step's inputRef")
        obj = found[0].resource
        metadata = {key: value for key, value in obj.get("metadata", {}).items() if key in ("name", "namespace")}
        return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}

    async def _secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        what = f'Secret "{name}" in namespace "{namespace}"'
        if self._credentials is None:
            raise CredentialsUnavailable(f"{what} is needed, and no credentials were given")
        try:
            data = await self._credentials.read(namespace, name)
        except PlanformError as error:
            raise CredentialsUnavailable(f"{what} could not be read: {error.message}", hint=error.hint) from error
        if data is None:
            raise CredentialsUnavailable(f"{what} does not exist", hint="create it, or correct the step's credentials")
        return data

    def _accept(self, step: Step, revision: FunctionRevision, response: FunctionResponse) -> Changes:
        """Take over an answer. Raises FatalResult, with what the answer said before it kept."""
        self.secrets.desired(response.desired)
        self._conditions += [StepCondition(step.name, each) for each in response.conditions]
        for result in response.results:
            if result.severity is Severity.FATAL:
                raise FatalResult(result.message, revision=revision, step=step.name)
            self._results.append(StepResult(step.name, result))
        changes = _changes(self._desired, response.desired, self._context, response.context)
        self._desired = response.desired
        self._context = response.context
        if not response.requirements.empty:
            self._requirements[step.name] = response.requirements
        for watched in response.requirements.watch_resources:
            self._watched[watched] = None
        deterministic = revision.deterministic or response.deterministic
        if not deterministic and response.ttl is not None and response.ttl > 0:
            self._ttl = response.ttl if self._ttl is None else min(self._ttl, response.ttl)
        return changes

    def check_desired(self) -> None:
        """Fail the step that last touched a resource which cannot be one. Later steps may complete what earlier began,
        so this is looked at when all have run."""
        for name, resource in self._desired.resources.items():
            problem = _problem(name, resource)
            if problem:
                self._blame(name, problem)
                return

    def _blame(self, name: str, problem: str) -> None:
        index = max((i for i, trace in enumerate(self._traces) if name in _touched(trace.changes)), default=0)
        trace = self._traces[index]
        error = FunctionAnswerInvalid(problem, revision=trace.revision, step=trace.step)
        self._failure = error
        self._traces[index] = msgspec.structs.replace(trace, error=error)

    def outcome(self) -> PipelineOutcome:
        results, conditions, traces = tuple(self._results), tuple(self._conditions), tuple(self._traces)
        has_messages = results or conditions or self._failure is not None or any(trace.warnings for trace in traces)
        if has_messages and (mask := self.secrets.mask) is not NOTHING_SECRET:
            results, conditions = masked_results(results, mask), masked_conditions(conditions, mask)
            traces = tuple(masked_warnings(trace, mask) for trace in traces)
            if self._failure is not None:
                masked_error(self._failure, mask)
        return PipelineOutcome(
            desired=self._desired,
            context=self._context,
            results=results,
            conditions=conditions,
            requirements=self._requirements,
            watched=tuple(self._watched),
            ttl=self._ttl,
            steps=traces,
            failure=self._failure,
            secrets=self.secrets,
        )


def _changes(before: State, after: State, context_before: Object, context_after: Object) -> Changes:
    old, new = before.resources, after.resources
    same_names = old.keys() == new.keys()
    return Changes(
        added=() if same_names else tuple(sorted(new.keys() - old.keys())),
        changed=tuple(
            sorted([name for name, one in new.items() if (was := old.get(name, one)) is not one and one != was])
        ),
        removed=() if same_names else tuple(sorted(old.keys() - new.keys())),
        composite=before.composite != after.composite,
        context=() if context_before == context_after else _changed_keys(context_before, context_after),
    )


def _changed_keys(before: Object, after: Object) -> tuple[str, ...]:
    return tuple(
        sorted(
            key
            for key in before.keys() | after.keys()
            if key not in before or key not in after or before[key] != after[key]
        )
    )


def _touched(changes: Changes) -> tuple[str, ...]:
    return changes.added + changes.changed


def _problem(name: str, resource: Resource) -> str:
    if not name:
        return "a desired resource has no name in the composition"
    for key in ("apiVersion", "kind"):
        value = resource.resource.get(key)
        if not isinstance(value, str) or not value:
            return f'desired resource "{name}" has no {key}'
    metadata = resource.resource.get("metadata", {})
    return "" if isinstance(metadata, dict) else f'the metadata of desired resource "{name}" is not an object'
