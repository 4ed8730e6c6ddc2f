"""Compositions become revisions: made, numbered, adopted, judged, counted and, when nobody needs them, deleted.

One pass looks at a Composition and all of its revisions. Deleting a Composition needs nothing here: its revisions go
with their owner.

A new revision is judged in the pass that makes it, before anything else is written, because XRs wait for that. How many
XRs use a revision changes with every XR that moves: such counts are written at most once a second for each Composition,
and not at all before all XRs are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.names import (
    COMPOSITION,
    COMPOSITION_NAME_LABEL,
    COMPOSITION_REVISION,
    EXTENSIONS_GROUP,
    is_paused,
)
from planform.api.owners import controller_of, controller_reference
from planform.client.informer import Change, ObjectKey
from planform.composition.modes import InvalidComposition, pipeline_of, unused_part
from planform.composition.pinning import is_pinned, pinned
from planform.composition.revisions import (
    TOOL_LABELS,
    RevisionPlan,
    composition_label,
    is_controlled_by,
    newest_first,
    number_of,
    plan_revisions,
    rights_to_take,
    superfluous,
)
from planform.composition.steps import PipelineInvalid, parse_pipeline
from planform.composition.xr import XrCondition
from planform.controllers.function_catalogue import LiveFunctions
from planform.controllers.population import Population
from planform.controllers.workbench import Workbench
from planform.controllers.writing import merge, set_status
from planform.errors import AlreadyExists, ApiError, Conflict, NotFound, PlanformError
from planform.functions.errors import ResolutionError
from planform.functions.resolution import Catalogue, Request, resolve
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source, to_owner, to_self

NAME: Final = "compositions"
MANAGER: Final = "apiextensions.crossplane.io/composition"
COUNTS_EVERY: Final = 1.0
"""Seconds between two writes of how many XRs use the revisions of one Composition."""

_CAPABILITY: Final = "composition"
_IGNORED: Final = "the feature gate FunctionRevisionSelectors is off: what it says of function revisions is ignored"
_SYNCED: Final = XrCondition("Synced", "True", "ReconcileSuccess")


class RevisionNotOurs(PlanformError):
    """A revision that should be the Composition's is somebody else's."""

    reason = "RevisionNotOurs"

    def __init__(self, revision: Mapping[str, Any], composition: str) -> None:
        name, controller = revision["metadata"]["name"], controller_of(revision)
        owner = (
            f'controlled by {controller["kind"]} "{controller["name"]}"' if controller else "not labelled as its own"
        )
        super().__init__(f'composition revision "{name}" of composition "{composition}" is {owner}')
        self.hint = f"delete it, and it is made again: kubectl delete compositionrevision {name}"


class CompositionController:
    """Reconciles Compositions. `ignored_labels` are patterns of labels that make no new revision."""

    def __init__(
        self,
        bench: Workbench,
        population: Population,
        functions: LiveFunctions,
        *,
        ignored_labels: Iterable[str] = TOOL_LABELS,
    ) -> None:
        self._bench = bench
        self._client = bench.client
        self._population = population
        self._functions = functions
        self._ignored_labels = tuple(ignored_labels)
        self._used_functions: dict[str, frozenset[str]] = {}  # by Composition; also, which Compositions there are
        self._counted: dict[str, float] = {}  # when counts of a Composition were last written
        self._knows_functions = False
        self._selectors_enabled = bench.features.enabled("FunctionRevisionSelectors")
        self._controller: Controller[ObjectKey] | None = None

    def start(self) -> None:
        if self._controller is not None:
            return
        self._controller = self._bench.controller(NAME, self.reconcile)
        self._population.subscribe(self.population_changed, self.population_completed)
        self._functions.subscribe(self._functions_changed)
        sources = (Source(COMPOSITION, to_self), Source(COMPOSITION_REVISION, _to_composition))
        self._bench.plane.start(self._controller, sources)

    def population_changed(self, composition: str) -> None:
        """XRs came to a Composition, left it, or moved from one of its revisions to another."""
        if self._controller is not None and composition in self._used_functions:
            self._controller.queue.add_after(ObjectKey("", composition), self._until_counts(composition))

    def population_completed(self) -> None:
        """All XRs are known from now on: revisions can be counted, and some may have to go."""
        self._look_again(self._used_functions)

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            composition = await self._client.get(COMPOSITION, key.name)
        except NotFound:
            self._used_functions.pop(key.name, None)
            self._counted.pop(key.name, None)
            return Result()
        if composition["metadata"].get("deletionTimestamp"):
            return Result()
        if is_paused(composition):
            await self._tell(composition, XrCondition("Synced", "False", "ReconcilePaused"))
            return Result()
        if not self._knows_functions:  # judging by half of them would refuse now what is accepted a moment later
            await self._functions.synced()
            self._knows_functions = True
        label = f"{COMPOSITION_NAME_LABEL}={composition_label(key.name)}"
        listed = (await self._client.list(COMPOSITION_REVISION, labels=label)).items
        plan = plan_revisions(composition, listed, ignored_labels=self._ignored_labels)
        try:
            revisions = await self._carry_out(composition, plan, listed)
        except Conflict:
            raise
        except PlanformError as error:
            await self._refuse(composition, error)
            raise
        return await self._settle(composition, plan, revisions)

    # -- revisions

    async def _carry_out(self, composition: Object, plan: RevisionPlan, listed: Sequence[Object]) -> list[Object]:
        """Do what was planned; gives the revisions that are ours now, the newest first."""
        revisions = {each["metadata"]["name"]: each for each in listed}
        for stray in plan.adopt:
            owners = [*(stray["metadata"].get("ownerReferences") or ()), controller_reference(composition)]
            adopted = await merge(self._client, stray, {"metadata": {"ownerReferences": owners}}, manager=MANAGER)
            revisions[adopted["metadata"]["name"]] = adopted
        if plan.current is not None and plan.renumber is not None:
            current = revisions[plan.current["metadata"]["name"]]
            renumbered = await merge(self._client, current, {"spec": {"revision": plan.renumber}}, manager=MANAGER)
            revisions[renumbered["metadata"]["name"]] = renumbered
        if plan.current is not None:
            current = revisions[plan.current["metadata"]["name"]]
            taken = rights_to_take(composition, current)
            if taken:
                kept = await merge(self._client, current, {"metadata": {"annotations": taken}}, manager=MANAGER)
                revisions[kept["metadata"]["name"]] = kept
        if plan.create is not None:
            created = await self._create(composition, plan.create)
            revisions[created["metadata"]["name"]] = created
        name, uid = composition["metadata"]["name"], composition["metadata"]["uid"]
        return newest_first(each for each in revisions.values() if is_controlled_by(each, name, uid))

    async def _create(self, composition: Object, revision: Object) -> Object:
        name = revision["metadata"]["name"]
        if self._selectors_enabled and is_pinned(revision["spec"]):
            self._used_functions.setdefault(composition["metadata"]["name"], frozenset())
            self._used_functions[composition["metadata"]["name"]] |= frozenset(_functions_of(revision))
            revision = {**revision, "spec": pinned(revision["spec"], self._functions.catalogue)}
        try:
            created = await self._client.create(revision, manager=MANAGER)
        except AlreadyExists as error:
            found = await self._client.get(COMPOSITION_REVISION, name)
            if is_controlled_by(found, composition["metadata"]["name"], composition["metadata"]["uid"]):
                raise Conflict(f'composition revision "{name}" was made meanwhile') from error
            raise RevisionNotOurs(found, composition["metadata"]["name"]) from error
        message = f'made revision {number_of(created)}, "{name}"'
        self._bench.events.record(composition, "Normal", "CreateRevision", message, by=NAME)
        if unused := unused_part(created["spec"]):
            self._bench.events.record(composition, "Warning", "UnusedResources", unused, by=NAME)
        counts = self._population.users(composition["metadata"]["name"]) if self._population.complete() else None
        return await self._judge(created, counts)

    async def _collect(self, composition: Object, revisions: list[Object]) -> list[Object]:
        """Delete the revisions that nobody needs; gives those that are left."""
        if not self._population.complete():
            return revisions
        name = composition["metadata"]["name"]
        gone = superfluous(
            composition,
            revisions,
            used=self._population.users(name),
            selectors=self._population.selectors(name),
        )
        left = {each["metadata"]["name"]: each for each in revisions}
        for revision in gone:
            metadata = left.pop(revision["metadata"]["name"])["metadata"]
            try:
                await self._client.delete(COMPOSITION_REVISION, metadata["name"], uid=metadata["uid"])
            except NotFound:
                continue
            message = f'deleted revision {number_of(revision)}, "{metadata["name"]}", which nobody uses'
            self._bench.events.record(composition, "Normal", "DeleteRevision", message, by=NAME)
        return list(left.values())

    # -- what is told about them

    async def _settle(self, composition: Object, plan: RevisionPlan, revisions: list[Object]) -> Result:
        name = composition["metadata"]["name"]
        revisions = await self._collect(composition, revisions)
        self._used_functions[name] = frozenset(each for one in revisions for each in _functions_of(one))
        counts, wait = self._counts(composition, revisions)
        for revision in revisions:
            with suppress(NotFound):  # it went meanwhile, and hearing of that brings us back
                await self._judge(revision, counts)
        more: Object = {"revisions": len(revisions)}
        if counts is not None:
            more["composites"] = sum(counts.values())
        if revisions:
            more["latestRevision"] = {"name": revisions[0]["metadata"]["name"], "revision": number_of(revisions[0])}
        # What is true of the newest revision is true of the Composition. Argo CD waits until it says so itself.
        verdicts = [self._verdict(revisions[0])] if revisions else []
        await self._tell(composition, self._synced(composition, plan), *verdicts, **more)
        return Result(requeue_after=wait)

    def _synced(self, composition: Object, plan: RevisionPlan) -> XrCondition:
        if plan.foreign:
            error = RevisionNotOurs(plan.foreign[0], composition["metadata"]["name"])
            condition = XrCondition("Synced", "False", "ReconcileError", str(error))
            if _is_news(condition, composition):
                self._bench.events.record(composition, "Warning", error.reason, str(error), by=NAME)
            return condition
        if plan.awaits:
            message = f'composition revision "{plan.awaits}" of a deleted composition of this name is still there'
            return XrCondition("Synced", "False", "ReconcileError", message)
        return _SYNCED

    async def _refuse(self, composition: Object, error: PlanformError) -> None:
        self._bench.events.record(composition, "Warning", error.reason, str(error), by=NAME)
        text = "the API server refuses the revision; see the events" if isinstance(error, ApiError) else str(error)
        await self._tell(composition, XrCondition("Synced", "False", "ReconcileError", text))

    async def _judge(self, revision: Object, counts: Mapping[str, int] | None = None) -> Object:
        """Say whether the revision's pipeline can be run and, if counted, how many XRs use it."""
        verdict = self._verdict(revision)
        more = {} if counts is None else {"composites": counts.get(revision["metadata"]["name"], 0)}
        told = await set_status(
            self._client, revision, (_SYNCED, verdict), now=self._bench.timestamp(), manager=MANAGER, **more
        )
        if _is_news(verdict, revision):
            if verdict.message:
                self._bench.events.record(revision, "Warning", verdict.reason, verdict.message, by=NAME)
            elif _conditions(revision):
                message = "all functions of the pipeline can compose again"
                self._bench.events.record(revision, "Normal", verdict.reason, message, by=NAME)
        return told

    def _verdict(self, revision: Object) -> XrCondition:
        return judge(revision, self._functions.catalogue, selectors_enabled=self._selectors_enabled)

    async def _tell(self, composition: Object, *conditions: XrCondition, **more: Any) -> None:
        now = self._bench.timestamp()
        await set_status(self._client, composition, conditions, now=now, manager=MANAGER, **more)

    # -- when to look again

    def _counts(
        self, composition: Object, revisions: Sequence[Object]
    ) -> tuple[Mapping[str, int] | None, float | None]:
        """How many XRs use each revision, or None if that must not be written now; and after how long it may be."""
        if not self._population.complete():
            return None, None
        name = composition["metadata"]["name"]
        counts = self._population.users(name)
        told = {each["metadata"]["name"]: _composites(each) for each in revisions}
        if _composites(composition) == sum(counts.values()) and told == {each: counts.get(each, 0) for each in told}:
            return counts, None
        wait = self._until_counts(name)
        if wait > 0:
            return None, wait
        self._counted[name] = self._bench.clock.monotonic()
        return counts, None

    def _until_counts(self, composition: str) -> float:
        last = self._counted.get(composition)
        return 0.0 if last is None else max(0.0, last + COUNTS_EVERY - self._bench.clock.monotonic())

    def _functions_changed(self, functions: frozenset[str]) -> None:
        self._look_again(name for name, used in self._used_functions.items() if used & functions)

    def _look_again(self, compositions: Iterable[str]) -> None:
        if self._controller is not None:
            for name in compositions:
                self._controller.queue.add(ObjectKey("", name))


def judge(revision: Mapping[str, Any], functions: Catalogue, *, selectors_enabled: bool = True) -> XrCondition:
    """Whether the function revision that each step of the pipeline chooses can compose.

    A function that is not installed is no reason against it: it may come, and XRs say so while it has not.
    """
    try:
        steps = parse_pipeline(_runnable(revision))
    except (InvalidComposition, PipelineInvalid) as error:
        return XrCondition("ValidPipeline", "False", error.reason, str(error))
    lacking = set()
    for step in steps:
        wanted = Request(
            step.function,
            ref=step.revision_ref,
            selector=step.revision_selector,
            selectors_enabled=selectors_enabled,
        )
        try:
            version = resolve(functions, wanted).version
        except ResolutionError:
            continue
        if not version.can(_CAPABILITY):
            lacking.add(f'"{version.id}" of function "{step.function}"')
    if lacking:
        message = f'without the capability "{_CAPABILITY}": {", ".join(sorted(lacking))}'
        return XrCondition("ValidPipeline", "False", "MissingCapabilities", message)
    chooses = any(step.revision_ref or step.revision_selector is not None for step in steps)
    ignored = not selectors_enabled and (chooses or bool(revision["spec"].get("pinFunctions")))
    return XrCondition("ValidPipeline", "True", "ValidPipeline", _IGNORED if ignored else "")


def _functions_of(revision: Mapping[str, Any]) -> Iterable[str]:
    try:
        return [step.function for step in parse_pipeline(_runnable(revision))]
    except (InvalidComposition, PipelineInvalid):
        return ()


def _runnable(revision: Mapping[str, Any]) -> Object:
    """The spec as a pipeline, whatever its mode."""
    return {**revision["spec"], "pipeline": pipeline_of(revision["spec"], revision["metadata"]["name"])}


def _to_composition(change: Change) -> Iterable[ObjectKey]:
    """The Composition that owns a revision, and the one whose label it carries, which may still have to adopt it."""
    yield from _owners(change)
    label = (change.object["metadata"].get("labels") or {}).get(COMPOSITION_NAME_LABEL)
    if label:
        yield ObjectKey("", label)


_owners = to_owner(EXTENSIONS_GROUP, COMPOSITION.kind, cluster_scoped=True)


def _conditions(obj: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = (obj.get("status") or {}).get("conditions") or ()
    return found


def _is_news(condition: XrCondition, obj: Mapping[str, Any]) -> bool:
    """Whether the object does not say this of itself yet; only then is there anything to tell by an event."""
    said = next((each for each in _conditions(obj) if each["type"] == condition.type), {})
    return (said.get("status"), said.get("message", "")) != (condition.status, condition.message)


def _composites(obj: Mapping[str, Any]) -> int | None:
    count: int | None = (obj.get("status") or {}).get("composites")
    return count
