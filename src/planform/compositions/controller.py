"""Compositions become revisions: made, numbered, adopted, validated, counted and, when nobody needs them, deleted.

One reconcile looks at a Composition and all of its revisions. Deleting a Composition needs nothing here: its revisions
go with their owner.

A new revision is validated in the reconcile that makes it, before anything else is written, because XRs wait for that.
How many XRs use a revision changes with every XR that moves: such counts are written at most once a second for each
Composition, and not at all before all XRs are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import UNSET

from planform.api.annotations import annotation, annotations_of, is_paused
from planform.api.conditions import XrCondition
from planform.api.kinds import Object
from planform.api.metadata import finalizers_of, is_deleted, labels_of, name_of, uid_of
from planform.api.names import (
    COMPOSITION,
    COMPOSITION_NAME_LABEL,
    COMPOSITION_REVISION,
    EXTENSIONS_GROUP,
    IN_USE_FINALIZER,
)
from planform.api.owners import controller_of, controller_reference, owners_of
from planform.client.informer import InformerEvent, ObjectKey
from planform.compositions.deletion import DeletionHold, deletion_waits
from planform.compositions.live_rollouts import LiveRollouts, RolloutChange
from planform.compositions.pinning import UNPINNED_ANNOTATION, functions_held, held_spec, is_pinned, pinned
from planform.compositions.released import (
    DEFAULT_ROLLBACK,
    Derived,
    Record,
    derive,
    kept_revisions,
    stable_revision,
    verdict_of,
)
from planform.compositions.revisions import (
    TOOL_LABELS,
    RevisionPlan,
    composition_label,
    identity_of,
    is_revision_of,
    newest_first,
    number_of,
    plan_revisions,
    rights_to_take,
    superfluous,
)
from planform.compositions.rolled_out import rolled_out
from planform.compositions.usage_index import UsageIndex
from planform.errors import AlreadyExists, ApiError, Conflict, NotFound, PlanformError
from planform.functions.errors import ResolutionError
from planform.functions.resolution import Catalogue, Request, resolve
from planform.packages.function_catalogue import LiveFunctions
from planform.pipeline.modes import InvalidComposition, pipeline_of, unused_part
from planform.pipeline.steps import PipelineInvalid, parse_pipeline
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source, to_owner, to_self
from planform.reconcile.writes import merge, set_status

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
        name, controller = name_of(revision), controller_of(revision)
        owner = (
            f'controlled by {controller["kind"]} "{controller["name"]}"' if controller else "not labelled as its own"
        )
        super().__init__(f'composition revision "{name}" of composition "{composition}" is {owner}')
        self.hint = f"delete it, and it is made again: kubectl delete compositionrevision {name}"


class CompositionController:
    """Reconciles Compositions. `ignored_labels` are patterns of labels that make no new revision."""

    def __init__(
        self,
        context: ControllerContext,
        usage_index: UsageIndex,
        functions: LiveFunctions,
        *,
        ignored_labels: Iterable[str] = TOOL_LABELS,
        rollouts: LiveRollouts | None = None,
    ) -> None:
        self._context = context
        self._client = context.client
        self._usage_index = usage_index
        self._functions = functions
        self._ignored_labels = tuple(ignored_labels)
        self._used_functions: dict[str, frozenset[str]] = {}  # by Composition; also, which Compositions there are
        self._counted: dict[str, float] = {}  # when counts of a Composition were last written
        self._rollouts = rollouts if rollouts is not None else LiveRollouts(context.manager)
        self._progress: dict[str, tuple[object, ...]] = {}  # of each Rollout, what Compositions tell of it
        self._hold = DeletionHold(context.client, manager=MANAGER)
        self._knows_functions = False
        self._selectors_enabled = context.features.enabled("FunctionRevisionSelectors")
        self._controller: Controller[ObjectKey] | None = None

    def start(self) -> None:
        if self._controller is not None:
            return
        self._controller = self._context.controller(NAME, self.reconcile)
        self._usage_index.subscribe(self.usage_changed, self.usage_index_completed)
        self._functions.subscribe(self._functions_changed)
        self._rollouts.start()
        self._rollouts.subscribe(self._rollouts_changed)
        sources = (Source(COMPOSITION, to_self), Source(COMPOSITION_REVISION, _to_composition))
        self._context.manager.start(self._controller, sources)

    def usage_changed(self, composition: str) -> None:
        """XRs came to a Composition, left it, or moved from one of its revisions to another."""
        if self._controller is not None and composition in self._used_functions:
            self._controller.queue.add_after(ObjectKey("", composition), self._until_counts(composition))

    def usage_index_completed(self) -> None:
        """All XRs are known from now on: revisions can be counted, and some may have to go."""
        self._look_again(self._used_functions)

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            composition = await self._client.get(COMPOSITION, key.name)
        except NotFound:
            self._used_functions.pop(key.name, None)
            self._counted.pop(key.name, None)
            return Result()
        if is_deleted(composition):
            return await self._deleted(composition)
        if is_paused(composition):
            await self._set_status(composition, XrCondition("Synced", "False", "ReconcilePaused"))
            return Result()
        await self._know()
        composition = await self._hold.settle(composition, held=self._rollouts.policy(composition)[0] is not None)
        listed = await self._listed(key.name)
        if await self._pin_stable(composition, listed):
            listed = await self._listed(key.name)
        held = self._held_spec(composition, listed)
        plan = plan_revisions(composition, listed, ignored_labels=self._ignored_labels, held_spec=held)
        try:
            revisions = await self._carry_out({**composition, "spec": held}, plan, listed)
        except Conflict:
            raise
        except PlanformError as error:
            await self._refuse(composition, error)
            raise
        return await self._settle(composition, plan, revisions)

    async def _know(self) -> None:
        """Judging by half of the functions would refuse now what is accepted a moment later, and half of what was
        decided may say that what is held is released."""
        if not self._knows_functions:
            await self._functions.synced()
            await self._rollouts.synced()
            self._knows_functions = True

    async def _deleted(self, composition: Object) -> Result:
        """Somebody deleted it. As long as a policy keeps it no revision is made or collected, but what is decided about
        those that XRs use goes on being told: a way back is never closed."""
        if IN_USE_FINALIZER not in finalizers_of(composition):
            return Result()
        await self._know()
        name, uid = name_of(composition), uid_of(composition)
        ours = newest_first(each for each in await self._listed(name) if is_revision_of(each, name, uid))
        policy, _ = self._rollouts.policy(composition)
        used = self._usage_index.users(name) if self._usage_index.complete() else None
        if policy is None or (used is not None and not used):
            await self._hold.finalize(*ours, composition)  # a deletion in the foreground waits for the revisions
            return Result()
        self._used_functions[name] = frozenset(each for one in ours for each in _functions_of(one))
        ours = await self._hold.settle_revisions(ours, held=True, used=used)
        derived = self._derive(composition, ours)
        for revision in ours:
            with suppress(NotFound):
                await self._validate(revision, used, derived.conditions.get(name_of(revision)))
        waits = deletion_waits(policy.metadata.name)
        if _is_news(waits, composition):
            self._context.events.record(composition, "Warning", waits.reason, waits.message, by=NAME)
        more = {} if used is None else {"composites": sum(used.values())}
        await self._set_status(composition, waits, **more)
        return Result()

    # -- revisions

    async def _listed(self, composition: str) -> list[Object]:
        label = f"{COMPOSITION_NAME_LABEL}={composition_label(composition)}"
        return (await self._client.list(COMPOSITION_REVISION, labels=label)).items

    async def _pin_stable(self, composition: Object, listed: Sequence[Object]) -> bool:
        """Make the stable revision again with what it runs, where a policy comes to hold together with a change of the
        Composition: the next function revision would reach everybody who waits there. Gives whether it was made."""
        name, uid = name_of(composition), uid_of(composition)
        ours = newest_first(each for each in listed if is_revision_of(each, name, uid))
        policy, _ = self._rollouts.policy(composition)
        if policy is None or not ours or not self._selectors_enabled:
            return False
        records = self._rollouts.records(name, uid)
        stable_name = stable_revision(ours, records)
        stable = next((each for each in ours if name_of(each) == stable_name), None)
        if stable is None or annotation(stable, UNPINNED_ANNOTATION) or _has_rollout(ours[0], records):
            return False
        spec = {key: value for key, value in stable["spec"].items() if key != "revision"}
        metadata = {**composition["metadata"], "labels": labels_of(stable), "annotations": annotations_of(stable)}
        former = {**composition, "metadata": metadata, "spec": spec}
        ignored = self._ignored_labels
        if identity_of(former, ignored_labels=ignored) == identity_of(composition, ignored_labels=ignored):
            return False
        held = held_spec(spec, self._functions.catalogue, held=functions_held(policy), last={})
        if held == spec:
            return False
        plan = plan_revisions(former, listed, ignored_labels=self._ignored_labels, held_spec=held)
        await self._carry_out({**former, "spec": held}, plan, listed)
        return True

    def _held_spec(self, composition: Object, listed: Sequence[Object]) -> Object:
        """The Composition's spec, with the function revisions that its policy pins if one holds it."""
        if not self._selectors_enabled:
            spec: Object = composition["spec"]
            return spec
        name, uid = name_of(composition), uid_of(composition)
        newest = next(iter(newest_first(each for each in listed if is_revision_of(each, name, uid))), None)
        return self._rollouts.held_spec(composition, newest, self._functions.catalogue)

    async def _carry_out(self, composition: Object, plan: RevisionPlan, listed: Sequence[Object]) -> list[Object]:
        """Do what was planned; gives the revisions that are ours now, the newest first. The Composition comes with the
        function revisions that are pinned."""
        revisions = {name_of(each): each for each in listed}
        for stray in plan.adopt:
            owners = [*owners_of(stray), controller_reference(composition)]
            adopted = await merge(self._client, stray, {"metadata": {"ownerReferences": owners}}, manager=MANAGER)
            revisions[name_of(adopted)] = adopted
        if plan.current is not None and plan.renumber is not None:
            current = revisions[name_of(plan.current)]
            current = await self._release_first(composition, current, plan.renumber, revisions.values())
            renumbered = await merge(self._client, current, {"spec": {"revision": plan.renumber}}, manager=MANAGER)
            revisions[name_of(renumbered)] = renumbered
        if plan.current is not None:
            current = revisions[name_of(plan.current)]
            taken = rights_to_take(composition, current)
            if taken:
                kept = await merge(self._client, current, {"metadata": {"annotations": taken}}, manager=MANAGER)
                revisions[name_of(kept)] = kept
        if plan.create is not None:
            created = await self._create(composition, plan.create, revisions.values())
            revisions[name_of(created)] = created
        name, uid = name_of(composition), uid_of(composition)
        return newest_first(each for each in revisions.values() if is_revision_of(each, name, uid))

    async def _release_first(
        self, composition: Object, revision: Object, number: int, others: Iterable[Object]
    ) -> Object:
        """Say whether the revision is released under the number that it is about to get. Were it numbered first, all
        followers would take what a policy holds."""
        name = name_of(revision)
        renumbered = {**revision, "spec": {**revision["spec"], "revision": number}}
        rest = [each for each in others if name_of(each) != name]
        release = self._derive(composition, [renumbered, *rest]).conditions.get(name)
        if release is None:
            return revision
        now = self._context.timestamp()
        return await set_status(self._client, revision, (release,), now=now, manager=MANAGER)

    async def _create(self, composition: Object, revision: Object, others: Iterable[Object]) -> Object:
        name = name_of(revision)
        if self._selectors_enabled and is_pinned(revision["spec"]):
            self._used_functions.setdefault(name_of(composition), frozenset())
            self._used_functions[name_of(composition)] |= frozenset(_functions_of(revision))
            revision = {**revision, "spec": pinned(revision["spec"], self._functions.catalogue)}
        if self._rollouts.policy(composition)[0] is not None:
            revision = {**revision, "metadata": {**revision["metadata"], "finalizers": [IN_USE_FINALIZER]}}
        try:
            created = await self._client.create(revision, manager=MANAGER)
        except AlreadyExists as error:
            found = await self._client.get(COMPOSITION_REVISION, name)
            if is_revision_of(found, name_of(composition), uid_of(composition)):
                raise Conflict(f'composition revision "{name}" was made meanwhile') from error
            raise RevisionNotOurs(found, name_of(composition)) from error
        message = f'made revision {number_of(created)}, "{name}"'
        self._context.events.record(composition, "Normal", "CreateRevision", message, by=NAME)
        if unused := unused_part(created["spec"]):
            self._context.events.record(composition, "Warning", "UnusedResources", unused, by=NAME)
        counts = self._usage_index.users(name_of(composition)) if self._usage_index.complete() else None
        # XRs follow a revision as soon as it is validated: whether they may is told in the same write.
        derived = self._derive(composition, [created, *others])
        return await self._validate(created, counts, derived.conditions.get(name))

    async def _collect(self, composition: Object, revisions: list[Object]) -> list[Object]:
        """Delete the revisions that nobody needs; gives those that are left."""
        if not self._usage_index.complete():
            return revisions
        name = name_of(composition)
        gone = superfluous(
            composition,
            revisions,
            used=self._usage_index.users(name),
            selectors=self._usage_index.selectors(name),
            kept=self._kept(composition, revisions),
        )
        left = {name_of(each): each for each in revisions}
        for revision in gone:
            metadata = left.pop(name_of(revision))["metadata"]
            await self._hold.finalize(revision)
            try:
                await self._client.delete(COMPOSITION_REVISION, metadata["name"], uid=metadata["uid"])
            except NotFound:
                continue
            message = f'deleted revision {number_of(revision)}, "{metadata["name"]}", which nobody uses'
            self._context.events.record(composition, "Normal", "DeleteRevision", message, by=NAME)
        return list(left.values())

    # -- what is told about them

    async def _settle(self, composition: Object, plan: RevisionPlan, revisions: list[Object]) -> Result:
        name = name_of(composition)
        revisions = await self._collect(composition, revisions)
        revisions = await self._hold.settle_revisions(
            revisions,
            held=self._rollouts.policy(composition)[0] is not None,
            used=self._usage_index.users(name) if self._usage_index.complete() else None,
        )
        self._used_functions[name] = frozenset(each for one in revisions for each in _functions_of(one))
        counts, wait = self._counts(composition, revisions)
        derived = self._derive(composition, revisions)
        for revision in revisions:
            with suppress(NotFound):  # it went meanwhile, and hearing of that brings us back
                await self._validate(revision, counts, derived.conditions.get(name_of(revision)))
        more: Object = {"revisions": len(revisions)}
        if counts is not None:
            more["composites"] = sum(counts.values())
        if revisions:
            more["latestRevision"] = {"name": name_of(revisions[0]), "revision": number_of(revisions[0])}
        # What is true of the newest revision is true of the Composition. Argo CD waits until it says so itself.
        verdicts = [self._verdict(revisions[0])] if revisions else []
        if derived.conditions:
            records = self._rollouts.records(name, uid_of(composition))
            verdicts += rolled_out(revisions, derived, records, self._rollouts.rollouts)
            if derived.stable:
                more["stableRevision"] = {"name": derived.stable}
        await self._set_status(composition, self._synced(composition, plan), *verdicts, **more)
        return Result(requeue_after=wait)

    def _synced(self, composition: Object, plan: RevisionPlan) -> XrCondition:
        if plan.foreign:
            error = RevisionNotOurs(plan.foreign[0], name_of(composition))
            condition = XrCondition("Synced", "False", "ReconcileError", str(error))
            if _is_news(condition, composition):
                self._context.events.record(composition, "Warning", error.reason, str(error), by=NAME)
            return condition
        if plan.awaits:
            message = f'composition revision "{plan.awaits}" of a deleted composition of this name is still there'
            return XrCondition("Synced", "False", "ReconcileError", message)
        return _SYNCED

    async def _refuse(self, composition: Object, error: PlanformError) -> None:
        self._context.events.record(composition, "Warning", error.reason, str(error), by=NAME)
        text = "the API server refuses the revision; see the events" if isinstance(error, ApiError) else str(error)
        await self._set_status(composition, XrCondition("Synced", "False", "ReconcileError", text))

    async def _validate(
        self, revision: Object, counts: Mapping[str, int] | None = None, release: XrCondition | None = None
    ) -> Object:
        """Say whether the revision's pipeline can be run and whether it is released and, if counted, how many XRs use
        it."""
        verdict = self._verdict(revision)
        more = {} if counts is None else {"composites": counts.get(name_of(revision), 0)}
        updated = await set_status(
            self._client,
            revision,
            (_SYNCED, verdict) if release is None else (_SYNCED, verdict, release),
            now=self._context.timestamp(),
            manager=MANAGER,
            **more,
        )
        if _is_news(verdict, revision):
            if verdict.message:
                self._context.events.record(revision, "Warning", verdict.reason, verdict.message, by=NAME)
            elif _conditions(revision):
                message = "all functions of the pipeline can compose again"
                self._context.events.record(revision, "Normal", verdict.reason, message, by=NAME)
        return updated

    def _verdict(self, revision: Object) -> XrCondition:
        return validate(revision, self._functions.catalogue, selectors_enabled=self._selectors_enabled)

    async def _set_status(self, composition: Object, *conditions: XrCondition, **more: Any) -> None:
        now = self._context.timestamp()
        await set_status(self._client, composition, conditions, now=now, manager=MANAGER, **more)

    # -- whether they are released

    def _derive(self, composition: Object, revisions: Iterable[Object]) -> Derived:
        name, uid = name_of(composition), uid_of(composition)
        ours = [each for each in revisions if is_revision_of(each, name, uid)]
        policy, _ = self._rollouts.policy(composition)
        return derive(ours, self._rollouts.records(name, uid), held=policy is not None)

    def _kept(self, composition: Object, revisions: Sequence[Object]) -> frozenset[str]:
        """The revisions that Rollouts need, or a way back."""
        name, uid = name_of(composition), uid_of(composition)
        policy, _ = self._rollouts.policy(composition)
        records = self._rollouts.records(name, uid)
        if policy is None and not records:
            return frozenset()
        rollback = policy.spec.rollback if policy is not None else None
        number = rollback.revisions if rollback and rollback.revisions is not UNSET else DEFAULT_ROLLBACK
        return kept_revisions(newest_first(revisions), records, rollback=number)

    def _rollouts_changed(self, change: RolloutChange) -> None:
        if change.is_policy:
            self._look_again(list(self._used_functions))
            return
        rollout = self._rollouts.rollouts.get(change.rollout)
        told: tuple[object, ...] = ()
        if rollout is not None:
            status = rollout.status
            waits = status.waiting.for_ if status and status.waiting else ""
            wave = status.wave.name if status and status.wave else ""
            verdict = verdict_of(self._rollouts.actions(change.rollout))
            told = (rollout.phase, wave, waits, verdict, rollout.metadata.is_deleted)
        if self._progress.get(change.rollout) != told:
            self._progress[change.rollout] = told
            self._look_again(each for each in change.compositions if each in self._used_functions)
        if rollout is None:
            self._progress.pop(change.rollout, None)

    # -- when to look again

    def _counts(
        self, composition: Object, revisions: Sequence[Object]
    ) -> tuple[Mapping[str, int] | None, float | None]:
        """How many XRs use each revision, or None if that must not be written now; and after how long it may be."""
        if not self._usage_index.complete():
            return None, None
        name = name_of(composition)
        counts = self._usage_index.users(name)
        recorded = {name_of(each): _composites(each) for each in revisions}
        if _composites(composition) == sum(counts.values()) and recorded == {
            each: counts.get(each, 0) for each in recorded
        }:
            return counts, None
        wait = self._until_counts(name)
        if wait > 0:
            return None, wait
        self._counted[name] = self._context.clock.monotonic()
        return counts, None

    def _until_counts(self, composition: str) -> float:
        last = self._counted.get(composition)
        return 0.0 if last is None else max(0.0, last + COUNTS_EVERY - self._context.clock.monotonic())

    def _functions_changed(self, functions: frozenset[str]) -> None:
        self._look_again(name for name, used in self._used_functions.items() if used & functions)

    def _look_again(self, compositions: Iterable[str]) -> None:
        if self._controller is not None:
            for name in compositions:
                self._controller.queue.add(ObjectKey("", name))


def validate(revision: Mapping[str, Any], functions: Catalogue, *, selectors_enabled: bool = True) -> XrCondition:
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


def _has_rollout(revision: Object, records: Iterable[Record]) -> bool:
    """Whether a Rollout is or was about the revision under its number."""
    return (name_of(revision), number_of(revision)) in {(each.change.to, each.change.to_number) for each in records}


def _functions_of(revision: Mapping[str, Any]) -> Iterable[str]:
    try:
        return [step.function for step in parse_pipeline(_runnable(revision))]
    except (InvalidComposition, PipelineInvalid):
        return ()


def _runnable(revision: Mapping[str, Any]) -> Object:
    """The spec as a pipeline, whatever its mode."""
    return {**revision["spec"], "pipeline": pipeline_of(revision["spec"], name_of(revision))}


def _to_composition(change: InformerEvent) -> Iterable[ObjectKey]:
    """The Composition that owns a revision, and the one whose label it carries, which may still have to adopt it."""
    yield from _owners(change)
    label = labels_of(change.object).get(COMPOSITION_NAME_LABEL)
    if label:
        yield ObjectKey("", label)


_owners = to_owner(EXTENSIONS_GROUP, COMPOSITION.kind, cluster_scoped=True)


def _conditions(obj: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = (obj.get("status") or {}).get("conditions") or ()
    return found


def _is_news(condition: XrCondition, obj: Mapping[str, Any]) -> bool:
    """Whether the object does not say this of itself yet; only then is there anything to tell by an event."""
    existing = next((each for each in _conditions(obj) if each["type"] == condition.type), {})
    return (existing.get("status"), existing.get("message", "")) != (condition.status, condition.message)


def _composites(obj: Mapping[str, Any]) -> int | None:
    count: int | None = (obj.get("status") or {}).get("composites")
    return count
