"""What a reconcile of an XR works with, and what it has found out so far."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec

from planform.api.kinds import Object
from planform.api.metadata import generation_of, resource_version_of, uid_of
from planform.client.informer import ObjectKey
from planform.compositions.usage_index import UsageIndex
from planform.functions.runner import FunctionRevision
from planform.functions.sending import observed_digest
from planform.pipeline.pipeline import PipelineOutcome, StepTrace
from planform.pipeline.plan import Plan
from planform.pipeline.running import Pipelines
from planform.pipeline.steps import Step
from planform.pipeline.xr_status import functions_part
from planform.reconcile.context import ControllerContext
from planform.xrs.choosing import Chosen
from planform.xrs.composed_kinds import ComposedKinds
from planform.xrs.dependencies import Dependency, Selected
from planform.xrs.enforced_plans import EnforcedPlans
from planform.xrs.last_run import LastRun, RecordingCredentials, RecordingReader, dependencies_of
from planform.xrs.live_compositions import LiveCompositions
from planform.xrs.observing import Observed
from planform.xrs.releases import ReleaseGate
from planform.xrs.rights import NamespaceAccounts

_EDITABLE: Final = ("generation", "labels", "annotations", "ownerReferences", "deletionTimestamp")


class Recorder(Protocol):
    """Hears of every run, for the journal; must not wait."""

    def __call__(self, run: FinishedRun, /) -> None: ...


class FinishedRun(msgspec.Struct, frozen=True):
    """A run and what was made of it. `failure` is what went wrong after it, such as a plan that could not be made;
    `errors` say of each resource that could not be applied or deleted why."""

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
    errors: Mapping[str, str] = {}


@dataclass
class CarriedOut:
    """What became of a run so far, for the journal, however far it comes."""

    plan: Plan | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True)
class Tools:
    """What the reconciles of all XRs share."""

    context: ControllerContext
    pipelines: Pipelines
    compositions: LiveCompositions
    usage_index: UsageIndex
    record: Recorder | None = None
    accounts: NamespaceAccounts | None = None
    enforced: EnforcedPlans | None = None
    releases: ReleaseGate | None = None
    composed_kinds: ComposedKinds = ComposedKinds()  # noqa: RUF009  (frozen)
    parsed: OrderedDict[str, tuple[Step, ...]] = field(default_factory=OrderedDict)


@dataclass
class ReconcileState:
    """What one reconcile has found out so far."""

    key: ObjectKey
    xr: Object
    last_run: LastRun | None
    chosen: Chosen
    steps: tuple[Step, ...]
    observed: Observed
    reader: RecordingReader
    secrets: RecordingCredentials
    deviates: bool = False
    """Whether the plan goes beyond its preview, and may."""
    builtins: tuple[str, ...] = ()
    """Built-in functions whose version is another than in the last run, if all other functions are the same."""

    @cached_property
    def digest(self) -> bytes:
        """Of the observed state, as functions see it; worked out only if somebody asks."""
        return observed_digest(self.observed.state)

    @property
    def uid(self) -> str:
        return uid_of(self.xr)

    @property
    def edited(self) -> bool | None:
        """See `is_edited`."""
        return is_edited(self.xr, self.last_run)

    @property
    def looks_the_same(self) -> bool:
        """Whether functions would see exactly what they saw in the last reconcile, which had nothing to write."""
        return self._last_observed != b"" and self._last_observed == self.digest

    @property
    def _last_observed(self) -> bytes:
        """What the last reconcile saw, if that is worth comparing with what there is now, which takes a while to
        digest."""
        return self.last_run.observed if self.last_run is not None else b""

    @property
    def is_self_triggered(self) -> bool:
        """Whether all that changed is what the last reconcile wrote to the XR, and no function looks at that."""
        last = self.last_run
        return (
            last is not None
            and last.version == resource_version_of(self.xr)
            and bool(last.resources)
            and last.resources == self.composed_digest
        )

    @cached_property
    def composed_digest(self) -> bytes:
        """The digest of all that was observed beside the XR itself."""
        state = self.observed.state
        return observed_digest([state.resources, state.composite.connection_details])

    @property
    def trigger(self) -> str:
        """In a word, why the pipeline is run."""
        last = self.last_run
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

    def ignores_control_plane_fields(
        self, outcome: PipelineOutcome, ignores_control_plane_fields: Callable[[FunctionRevision, Object | None], bool]
    ) -> bool:
        """Whether none of the functions that were run looks at what the control plane keeps in the XR."""
        inputs = {step.name: step.input for step in self.steps if step.input_ref is None}
        return all(
            step.step in inputs
            and step.revision is not None
            and ignores_control_plane_fields(step.revision, inputs[step.step])
            for step in outcome.steps
        )


def is_edited(xr: Object, last_run: LastRun | None) -> bool | None:
    """Whether somebody changed the XR since it was last carried out; None if that is not known."""
    last: int | None = last_run.generation if last_run is not None else None
    last = last or ((xr.get("status") or {}).get("planform") or {}).get("generation")
    return None if last is None else bool(last != generation_of(xr))


def version_left(seen: Object, kept: Object, left: Object) -> str:
    """The XR's version after a reconcile, unless there is something new in it for functions that ignore control-plane
    fields.

    `seen` is the XR as the functions saw it, `kept` with its references, `left` with its status.
    """
    same = all(left["metadata"].get(name) == kept["metadata"].get(name) for name in _EDITABLE)
    status_changed = functions_part(left.get("status") or {}) != functions_part(seen.get("status") or {})
    return resource_version_of(left) if same and not status_changed else ""


def is_deterministic(step: StepTrace) -> bool:
    return bool(step.revision and step.revision.deterministic) or bool(
        step.calls and step.calls[-1].response.deterministic
    )


def split_dependencies(depends: set[Dependency]) -> dict[str, Any]:
    """As a LastRun keeps them."""
    selected = frozenset([each for each in depends if isinstance(each, Selected)])
    return {"named": frozenset(depends) - selected, "selected": selected}
