"""Running a step again on what it was sent in a recorded run, with any revision of its function. Nothing is written.

The record holds what the step saw: the XR, composed resources, what earlier steps desired, the context, its input and
what it had read. Secret values are not in it, so Secrets are read as they are now. A record in which secret values were
masked elsewhere cannot be run again, nor can one that never came to the step: `NotReplayable` says which.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec
import orjson

from planform.clock import Clock
from planform.errors import PlanformError
from planform.functions.errors import FunctionAnswerInvalid
from planform.functions.resolution import Resolution, Rule, Version
from planform.functions.runner import CredentialSource, FunctionRunner, ResourceReader
from planform.functions.sending import without_server_metadata
from planform.functions.values import Object, Ready, Resource, ResourceSelector, SchemaSelector, State
from planform.journal.records import Part, Read, Run, StepRun
from planform.pipeline.pipeline import PipelineOutcome, ReadSettings, run_pipeline
from planform.pipeline.steps import Step
from planform.telemetry.masking import MASK

_MASK = MASK.encode()


class NotReplayable(PlanformError):
    """A recorded run cannot be run again as it was."""

    reason = "NotReplayable"


class LiveSecrets(Protocol):
    """Secrets as they are now."""

    async def secret(self, namespace: str, name: str, /) -> Object | None: ...

    async def details(self, obj: Object, home: str, /) -> Mapping[str, bytes]:
        """The connection details of an object of an XR in the namespace `home`."""
        ...


@dataclass(frozen=True)
class ReplayContext:
    """What a replay calls and reads with."""

    runner: FunctionRunner
    reader: ResourceReader
    credentials: CredentialSource
    clock: Clock
    reads: ReadSettings = field(default_factory=ReadSettings)


@dataclass(frozen=True)
class Scene:
    """Everything that one step saw in a run. `secrets` are the values in it that must not be shown."""

    step: Step
    observed: State
    desired: State
    context: Object
    reads: Mapping[str, tuple[Read, list[Object]]]
    secrets: frozenset[bytes]
    is_last: bool


def runs_of_function(run: Run, function: str) -> list[int]:
    """The places of the steps in which the run called a function. Raises NotReplayable if it came to none.

    A run in which no function answered is not recorded with what it observed.
    """
    if run.steps and not any(step.iterations for step in run.steps):
        raise NotReplayable(f"no function answered in its latest run: {run.failure}")
    places = [place for place, step in enumerate(run.steps) if step.function == function]
    if not places:
        raise NotReplayable(f"its latest run did not come to the function: {run.failure or 'it had no such step'}")
    return places


async def scene_of(run: Run, place: int, steps: Sequence[Step], live: LiveSecrets) -> Scene:
    """What the step at that place saw. `steps` are those of the composition revision that the run followed."""
    recorded = run.steps[place]
    step = next((each for each in steps if each.name == recorded.step and each.function == recorded.function), None)
    if step is None or run.observed_composite is None:
        raise NotReplayable(f'composition revision "{run.composition_revision}" has no step "{recorded.step}"')
    rebuilding = _Rebuilding(live, run.namespace)
    observed = await rebuilding.observed(run)
    desired, context = rebuilding.before(run.steps[:place], observed)
    reads = {name: (read, await rebuilding.read(read)) for name, read in recorded.reads.items()}
    if recorded.iterations:
        given = (
            None
            if recorded.input is None
            else rebuilding.plain(recorded.input.value, f'the input of step "{step.name}"')
        )
        step = replace(step, input=given, input_ref=None)
    return Scene(step, observed, desired, context, reads, frozenset(rebuilding.secrets), place == len(steps) - 1)


async def replay(scene: Scene, version: Version, around: ReplayContext) -> PipelineOutcome:
    """Run the step with a revision of its function, whatever the step says about revisions.

    What the revision asks for and the run did not is read as it is now. A resource that only a later step completes is
    no failure.
    """
    outcome = await run_pipeline(
        [scene.step],
        observed=scene.observed,
        resolver=lambda _: Resolution(version, Rule.REF),
        runner=around.runner,
        reader=_RecordedReader(scene, around.reader),
        clock=around.clock,
        credentials=around.credentials,
        reads=around.reads,
        context=scene.context,
        desired=scene.desired,
    )
    if isinstance(outcome.failure, FunctionAnswerInvalid) and outcome.steps[0].calls and not scene.is_last:
        return msgspec.structs.replace(outcome, failure=None)
    return outcome


class _Rebuilding:
    """One record on its way back to what it was; collects the secret values that are put in."""

    def __init__(self, live: LiveSecrets, home: str) -> None:
        self._live = live
        self._home = home
        self.secrets: set[bytes] = set()

    async def observed(self, run: Run) -> State:
        assert run.observed_composite is not None
        return State(
            await self._resource(run.observed_composite, "the XR"),
            {key: await self._resource(part, f'resource "{key}"') for key, part in run.observed.items()},
        )

    def before(self, steps: Sequence[StepRun], observed: State) -> tuple[State, Object]:
        """What the steps so far desired, and the context they left."""
        if not steps:
            return State(), {}
        last = steps[-1]
        composite = {} if last.composite is None else self.plain(last.composite.value, "the desired XR")
        resources = {key: self._desired(key, part, last, observed) for key, part in last.resources.items()}
        context = {} if last.context is None else self.plain(last.context.value, "the context")
        return State(Resource(composite), resources), context

    async def read(self, read: Read) -> list[Object]:
        what = f"{read.kind} that the step had read"
        return [
            await self._secret(part.value) if _is_secret(part.value) else self.plain(part.value, what)
            for part in read.found
        ]

    def plain(self, value: Any, what: str) -> Any:
        """The value, if nothing in it was masked."""
        if _MASK in orjson.dumps(value):
            raise NotReplayable(f"secret values are masked in {what}")
        return value

    async def _resource(self, part: Part, what: str) -> Resource:
        obj = await self._secret(part.value) if _is_secret(part.value) else self.plain(part.value, what)
        details = await self._live.details(obj, self._home)
        self.secrets.update(details.values())
        return Resource(obj, details)

    async def _secret(self, recorded: Object) -> Object:
        """A Secret as it is now. What the record holds of it has no values."""
        metadata = recorded["metadata"]
        found = await self._live.secret(metadata.get("namespace") or self._home, metadata["name"])
        if found is None:
            raise NotReplayable(f'Secret "{metadata["name"]}" is gone')
        self.secrets.update(_decoded(value) for value in (found.get("data") or {}).values())
        return without_server_metadata(found)

    def _desired(self, key: str, part: Part, step: StepRun, observed: State) -> Resource:
        obj = part.value
        if _is_secret(obj):
            obj = self._refilled(key, obj, observed)
        recorded_ready = step.ready.get(key)
        ready = Ready.UNSPECIFIED if recorded_ready is None else Ready.TRUE if recorded_ready else Ready.FALSE
        return Resource(self.plain(obj, f'desired resource "{key}"'), {}, ready)

    def _refilled(self, key: str, secret: Object, observed: State) -> Object:
        """A Secret that an earlier step desired: its values are those of the composed one, where that has them."""
        there = observed.resources.get(key)
        values: Mapping[str, str] = (there.resource.get("data") or {}) if there is not None else {}
        data = secret.get("data")
        if not isinstance(data, dict) or not all(name in values for name in data):
            return secret
        return {**secret, "data": {name: values[name] for name in data}}


class _RecordedReader:
    """Answers what the run had read from its record, everything else as it is now."""

    def __init__(self, scene: Scene, live: ResourceReader) -> None:
        self._known = list(scene.reads.values())
        self._live = live

    async def read(self, selector: ResourceSelector, /) -> Sequence[Object]:
        for read, found in self._known:
            if _is_of(read, selector):
                return found
        return await self._live.read(selector)

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        return await self._live.schema(selector)


def _is_of(read: Read, selector: ResourceSelector) -> bool:
    labels = None if selector.match_labels is None else dict(selector.match_labels)
    return (read.api_version, read.kind, read.name, read.labels, read.namespace) == (
        selector.api_version,
        selector.kind,
        selector.match_name,
        labels,
        selector.namespace or "",
    )


def _is_secret(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") == "Secret" and value.get("apiVersion", "v1") == "v1"


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()
