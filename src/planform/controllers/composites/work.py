"""What a pass over an XR works with, and what it has found out so far."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec

from planform.api.kinds import Object
from planform.client.informer import ObjectKey
from planform.composition.composed_kinds import ComposedKinds
from planform.composition.dependencies import Dependency, Selected
from planform.composition.pipeline import PipelineOutcome, StepTrace
from planform.composition.plan import Plan
from planform.composition.standing import RecordingCredentials, RecordingReader, Standing, dependencies_of
from planform.composition.steps import Step
from planform.composition.xr_status import functions_part
from planform.controllers.composites.choosing import Chosen
from planform.controllers.composites.live_compositions import LiveCompositions
from planform.controllers.composites.observing import Observed
from planform.controllers.composites.rights import NamespaceAccounts
from planform.controllers.pipelines import Pipelines
from planform.controllers.population import Population
from planform.controllers.workbench import Workbench
from planform.functions.runner import FunctionRevision
from planform.functions.sending import observed_digest

_EDITABLE: Final = ("generation", "labels", "annotations", "ownerReferences", "deletionTimestamp")


class Recorder(Protocol):
    """Hears of every run, for the journal; must not wait."""

    def __call__(self, run: FinishedRun, /) -> None: ...


class FinishedRun(msgspec.Struct, frozen=True):
    """A run and what was made of it. `failure` is what went wrong after it, such as a plan that could not be made."""

    xr: Object
    composition: str
    revision: str
    outcome: PipelineOutcome
    plan: Plan | None
    trigger: str
    started: datetime
    seconds: float
    failure: str
    secrets: frozenset[bytes]


@dataclass(frozen=True)
class Tools:
    """What the passes over all XRs share."""

    bench: Workbench
    pipelines: Pipelines
    compositions: LiveCompositions
    population: Population
    record: Recorder | None = None
    accounts: NamespaceAccounts | None = None
    composed_kinds: ComposedKinds = ComposedKinds()  # noqa: RUF009  (frozen)
    parsed: OrderedDict[str, tuple[Step, ...]] = field(default_factory=OrderedDict)


@dataclass
class Pass:
    """What one pass has found out so far."""

    key: ObjectKey
    xr: Object
    standing: Standing | None
    chosen: Chosen
    steps: tuple[Step, ...]
    observed: Observed
    reader: RecordingReader
    secrets: RecordingCredentials

    @cached_property
    def digest(self) -> bytes:
        """Of the observed state, as functions see it; worked out only if somebody asks."""
        return observed_digest(self.observed.state)

    @property
    def uid(self) -> str:
        return str(self.xr["metadata"]["uid"])

    @property
    def edited(self) -> bool | None:
        """See `is_edited`."""
        return is_edited(self.xr, self.standing)

    @property
    def looks_the_same(self) -> bool:
        """Whether functions would see exactly what they saw in the last pass, which had nothing to write."""
        return self._last_observed != b"" and self._last_observed == self.digest

    @property
    def _last_observed(self) -> bytes:
        """What the last pass saw, if that is worth comparing with what there is now, which takes a while to digest."""
        return self.standing.observed if self.standing is not None else b""

    @property
    def is_echo(self) -> bool:
        """Whether all that changed is what the last pass wrote to the XR, and no function looks at that."""
        last = self.standing
        return (
            last is not None
            and last.version == self.xr["metadata"]["resourceVersion"]
            and bool(last.resources)
            and last.resources == self.surroundings
        )

    @cached_property
    def surroundings(self) -> bytes:
        """The digest of all that was observed beside the XR itself."""
        state = self.observed.state
        return observed_digest([state.resources, state.composite.connection_details])

    @property
    def trigger(self) -> str:
        """In a word, why the pipeline is run."""
        last = self.standing
        if last is None or not last.revision:
            return "first run"
        if self.edited is not False:
            return "the XR was changed"
        if last.revision != self.chosen.revision:
            return "another composition revision"
        if not last.settled:
            return "the last pass did not succeed"
        return "something it rests on changed" if self.looks_the_same else "observed state changed"

    def dependencies(self) -> set[Dependency]:
        read = dependencies_of(self.reader.reads, self.secrets.secrets, self.reader.schemas)
        return read | self.observed.secrets

    def is_blind(self, outcome: PipelineOutcome, is_blind: Callable[[FunctionRevision, Object | None], bool]) -> bool:
        """Whether none of the functions that were run looks at what the control plane keeps in the XR."""
        inputs = {step.name: step.input for step in self.steps if step.input_ref is None}
        return all(
            step.step in inputs and step.revision is not None and is_blind(step.revision, inputs[step.step])
            for step in outcome.steps
        )


def is_edited(xr: Object, standing: Standing | None) -> bool | None:
    """Whether somebody changed the XR since it was last carried out; None if that is not known."""
    last: int | None = standing.generation if standing is not None else None
    last = last or ((xr.get("status") or {}).get("planform") or {}).get("generation")
    return None if last is None else bool(last != xr["metadata"].get("generation"))


def version_left(seen: Object, kept: Object, left: Object) -> str:
    """The XR's version after a pass, unless there is something new in it for functions that ignore bookkeeping.

    `seen` is the XR as the functions saw it, `kept` with its references, `left` with its status.
    """
    same = all(left["metadata"].get(name) == kept["metadata"].get(name) for name in _EDITABLE)
    told = functions_part(left.get("status") or {}) != functions_part(seen.get("status") or {})
    return str(left["metadata"]["resourceVersion"]) if same and not told else ""


def is_deterministic(step: StepTrace) -> bool:
    return bool(step.revision and step.revision.deterministic) or bool(
        step.calls and step.calls[-1].response.deterministic
    )


def split_dependencies(depends: set[Dependency]) -> dict[str, Any]:
    """As a Standing keeps them."""
    selected = frozenset([each for each in depends if isinstance(each, Selected)])
    return {"named": frozenset(depends) - selected, "selected": selected}
