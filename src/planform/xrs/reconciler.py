"""One reconcile of one XR: choose, observe, run the pipeline, plan, carry out, write the status.

A reconcile is level-triggered: it looks at how things are and needs no memory. What the fleet remembers only spares
work: if nothing that the last run rested on has changed, functions are not called and nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from planform.api.annotations import annotation, is_paused
from planform.api.conditions import XrCondition
from planform.api.kinds import Object
from planform.api.metadata import finalizers_of, generation_of, is_deleted, namespace_of, uid_of
from planform.api.names import (
    COMPOSITE_FINALIZER,
    COMPOSITE_MANAGER,
    POLL_INTERVAL_ANNOTATION,
    RECONCILE_REQUESTED_ANNOTATION,
)
from planform.client.informer import ObjectKey, key_of
from planform.clock import micro_timestamp
from planform.compositions.usage_index import XrKey
from planform.errors import Conflict, NotFound, PlanformError
from planform.functions.errors import CredentialsUnavailable, FunctionError, ResolutionError
from planform.functions.runner import CredentialSource
from planform.gotemplate.errors import CallFailed
from planform.gotemplate.gotime import parse_duration
from planform.journal.masking import masked_error
from planform.pipeline.modes import pipeline_of
from planform.pipeline.pipeline import PipelineOutcome, ReadSettings, run_pipeline
from planform.pipeline.plan import Plan, PlanError, plan, readiness
from planform.pipeline.run_secrets import mask_of
from planform.pipeline.steps import Step, parse_pipeline
from planform.pipeline.xr_status import (
    RUNNING_CALL,
    claim_condition_types,
    custom_conditions,
    problem,
    synced,
    unready_problems,
)
from planform.reconcile.controller import Result
from planform.reconcile.writes import remove_finalizer
from planform.xrs.budget import DeletionBudgetExceeded, check_budget
from planform.xrs.carrying_out import (
    Applied,
    ComposedRefused,
    apply_changed,
    conflicts,
    delete_unwanted,
    failure_of,
    save_references,
)
from planform.xrs.choosing import VALIDATION_SECONDS, Chosen, HalfChosen, NotValidatedYet, choose
from planform.xrs.composed_by import FIELD as COMPOSED_BY
from planform.xrs.composed_by import composed_by, deviated_by, failed_by, reports_current
from planform.xrs.connections import publish_details
from planform.xrs.context import (
    CarriedOut,
    FinishedRun,
    ReconcileState,
    Tools,
    is_deterministic,
    is_edited,
    split_dependencies,
    version_left,
)
from planform.xrs.enforced_plans import PlanDeviates
from planform.xrs.index import Definition, XrIndex
from planform.xrs.last_run import LastRun, RecordingCredentials, RecordingReader, still_reads_the_same
from planform.xrs.observing import named, observe, references
from planform.xrs.releases import changed_builtins, wants_the_same
from planform.xrs.rights import ConfinedCredentials, Writers
from planform.xrs.running_calls import RunningCalls
from planform.xrs.scopes import Scopes
from planform.xrs.sharding import PREFIX
from planform.xrs.status_writer import StatusWriter, explained

MIN_POLL_SECONDS: Final = 1.0
_PARSED: Final = 512
_RUN_ERRORS: Final = (FunctionError, PlanError, DeletionBudgetExceeded, PlanDeviates)
"""What a run may come to instead of a plan."""


class CompositeReconciler:
    """The reconciles of the XRs of one XRD. `watch` is called when the fleet's wanted watches may have changed."""

    def __init__(self, xr_index: XrIndex, tools: Tools, *, watch: Callable[[], None]) -> None:
        self._xr_index = xr_index
        self._tools = tools
        self._context = tools.context
        self._client = tools.context.client
        self._scopes = Scopes(tools.context.client)
        self._status_writer = StatusWriter(tools.context, xr_index)
        self._gates = tools.context.features.on
        self._reads = ReadSettings(
            deny_by_default=tools.context.features.enabled("DenyExtraResourcesByDefault"),
            requirements_enabled=tools.context.features.enabled("CompositionFunctionsExtraResources"),
            is_namespaced=self._scopes.is_namespaced,
        )
        self._watch = watch

    @property
    def _definition(self) -> Definition:
        return self._xr_index.definition

    @property
    def _published_keys(self) -> tuple[str, ...]:
        """The only connection details that the XRD lets its XRs publish; none means all."""
        return tuple(self._definition.spec.get("connectionSecretKeys") or ())

    async def reconcile(self, key: ObjectKey) -> Result:
        """One reconcile. Raises what the controller should come back for, after the XR's status says so."""
        try:
            xr = await self._client.get(self._definition.kind, key.name, namespace=key.namespace)
        except NotFound:
            self._forget(key)
            return Result()
        if is_paused(xr):
            await self._status_writer.paused(xr)
            return Result()
        is_leaving = is_deleted(xr)
        last_run = self._xr_index.last_run(key, uid_of(xr))
        held = self._xr_index.guard.wait(key, generation=_generation(xr))
        if held and not is_leaving and not _is_asked_for(xr):
            await self._status_writer.held_back(key, xr)
            return Result(requeue_after=held)
        try:
            return await (self._finalize(key, xr) if is_leaving else self._compose(key, xr, last_run))
        except NotValidatedYet:
            return Result(requeue_after=VALIDATION_SECONDS)
        except (Conflict, ComposedRefused, *_RUN_ERRORS):
            raise  # told already, or not worth telling
        except PlanformError as error:
            self._xr_index.guard.failed(key, generation=_generation(xr), calls=0)
            await self._status_writer.failed_reconcile(xr, error, fields=_handled(xr))
            raise

    async def _compose(self, key: ObjectKey, xr: Object, last_run: LastRun | None) -> Result:
        try:
            chosen = await choose(
                self._xr_index,
                self._tools.compositions,
                key,
                xr,
                self._context.clock,
                self._tools.enforced.for_new if self._tools.enforced is not None else None,
            )
        except HalfChosen as half:
            await self._save_choice(xr, last_run, half.fields)
            raise half.cause from None
        on_read = partial(self._xr_index.add_dependency, key, uid_of(xr))
        try:
            steps = self._parsed(chosen)
            observed = await observe(
                self._client,
                xr,
                self._definition.style,
                on_read,
                one_by_one=self._context.reads_at_once,
                confined=self._is_confined,
            )
        except PlanformError:
            await self._save_choice(xr, last_run, chosen.fields)
            raise
        pipelines = self._tools.pipelines
        work = ReconcileState(
            key=key,
            xr=xr,
            last_run=last_run,
            chosen=chosen,
            steps=steps,
            observed=observed,
            reader=RecordingReader(pipelines.reader, self._scopes.is_namespaced, on_read),
            secrets=RecordingCredentials(self._credentials(xr, chosen), on_read),
        )
        self._xr_index.follow(key, work.uid, chosen.follows, {step.function for step in steps})
        if _is_asked_for(xr):
            token = annotation(xr, RECONCILE_REQUESTED_ANNOTATION)
            self._status_writer.event(xr, "Normal", "ReconcileRequestHandled", f"Handled the reconcile request {token}")
        elif await self._is_unchanged(work):
            self._count(work)
            await self._status_writer.unchanged(key, xr)
            return self._come_back(xr, work.last_run.expires if work.last_run is not None else None)
        return await self._run(work, waits=await self._is_only_another_release(work))

    def _parsed(self, chosen: Chosen) -> tuple[Step, ...]:
        """The revision's pipeline, parsed once: a revision never changes."""
        known = self._tools.parsed
        steps = known.get(chosen.uid)
        if steps is None:
            spec = chosen.spec
            steps = known[chosen.uid] = parse_pipeline({**spec, "pipeline": pipeline_of(spec, chosen.composition)})
            if len(known) > _PARSED:
                known.popitem(last=False)
        return steps

    async def _is_unchanged(self, work: ReconcileState) -> bool:
        """Whether a run would rest on exactly what the last one rested on, and so need not be."""
        last = work.last_run
        if last is None or not self._is_settled(work, last):
            return False
        if last.expires is None and not last.deterministic:
            return False
        if last.expires is not None and self._context.clock.now().timestamp() >= last.expires:
            return False
        if last.functions != self._functions(work.steps):
            return False
        return await self._rests_on_the_same(work, last)

    def _is_settled(self, work: ReconcileState, last: LastRun) -> bool:
        """Whether the last run was carried out, and nothing that the control plane keeps of it is another."""
        if not last.settled or work.chosen.fields:
            return False
        if RUNNING_CALL in ((work.xr.get("status") or {}).get("planform") or {}):
            return False  # whoever waited for it is gone: it must not be shown for ever
        if last.published_keys != self._published_keys or last.gates != self._gates:
            return False
        return last.revision == work.chosen.revision

    async def _rests_on_the_same(self, work: ReconcileState, last: LastRun) -> bool:
        """Whether functions would be sent what they were sent in the last run."""
        if not (work.is_self_triggered or work.looks_the_same):
            return False
        try:
            return await still_reads_the_same(last, self._tools.pipelines.reader, work.secrets.source)
        except CredentialsUnavailable:
            return False  # the run will say why

    def _functions(self, steps: Sequence[Step]) -> tuple[tuple[str, str], ...]:
        """What would answer now, as a LastRun keeps it; empty if a step has no function."""
        resolver = self._tools.pipelines.resolver("composition")
        try:
            return tuple((step.name, resolver(step).revision.digest) for step in steps)
        except ResolutionError:
            return ()

    async def _is_only_another_release(self, work: ReconcileState) -> bool:
        """Whether a policy holds the XR's Composition, and all that is different from the last run is the version of
        built-in functions: see `planform.xrs.releases`."""
        last = work.last_run
        if last is None or self._tools.releases is None or not work.chosen.under_policy or _is_asked_for(work.xr):
            return False
        work.builtins = tuple(changed_builtins(last.functions, self._functions(work.steps)))
        if not work.builtins or work.edited is not False or not self._is_settled(work, last):
            return False
        return await self._rests_on_the_same(work, last)

    async def _waits_for_release(self, work: ReconcileState, outcome: PipelineOutcome) -> bool:
        """Whether nothing is carried out: because it is as it was, or because the release is held."""
        last = work.last_run
        assert last is not None
        assert self._tools.releases is not None
        try:
            decided = await self._decide(work, outcome)
        except PlanformError:
            same = False
        else:
            ready = readiness(decided, outcome.desired.composite.ready)
            conditions = [ready, *custom_conditions(outcome)]
            same = wants_the_same(work.xr, decided, work.observed.resources, last, conditions)
        if same:
            now = self._functions(work.steps)
            self._xr_index.remember(work.key, work.uid, msgspec.structs.replace(last, functions=now))
            return True
        controller = f"{PREFIX}{self._definition.name}"
        why = await self._tools.releases.admits(work.chosen.composition, controller)
        if why:
            text = f"Left as it is: this release of planform would change it ({', '.join(work.builtins)}); {why}"
            self._status_writer.event(work.xr, "Normal", "HeldByRelease", text)
        return bool(why)

    async def _save_choice(self, xr: Object, last_run: LastRun | None, fields: Mapping[str, Any]) -> Object:
        """Let the XR say what it is composed by, if it does not yet, although nothing more may come of it.

        An XR that runs one revision says so until another one was carried out, unless its user changed it: it would
        otherwise look as if the user had, who then may let everything vanish that it composed.
        """
        if not fields or is_edited(xr, last_run) is False:
            return xr
        return await self._save(xr, fields, references(xr, self._definition.style))

    async def _save(self, xr: Object, fields: Mapping[str, Any], refer_to: Sequence[Mapping[str, Any]]) -> Object:
        return await save_references(
            self._client, xr, self._definition.style, refer_to, fields, tracked_write=self._xr_index.tracked_write
        )

    def _answers_at_once(self, steps: Sequence[Step]) -> bool:
        """Whether all functions answer in this process: then what was chosen is written with what came of it."""
        resolver = self._tools.pipelines.resolver("composition")
        try:
            return all(resolver(step).revision.quick for step in steps)
        except ResolutionError:
            return False

    async def _run(self, work: ReconcileState, *, waits: bool = False) -> Result:
        """Run the pipeline and carry out what comes of it. `waits`: if it changes something, only once that may be."""
        pipelines = self._tools.pipelines
        if work.chosen.fields and not self._answers_at_once(work.steps):
            work.xr = await self._save_choice(work.xr, work.last_run, work.chosen.fields)
        started, begun = self._context.clock.now(), self._context.clock.monotonic()
        outcome = await run_pipeline(
            work.steps,
            observed=work.observed.state,
            resolver=pipelines.resolver("composition"),
            runner=pipelines.runner,
            reader=work.reader,
            clock=pipelines.clock,
            credentials=work.secrets,
            cache=None if _is_asked_for(work.xr) else pipelines.cache,
            reads=self._read_settings(work.xr),
            seeds=work.last_run.requirements if work.last_run is not None else None,
            digest=lambda: work.digest,
            tracer=self._context.tracer,
            around_calls=RunningCalls(partial(self._show_running, work), self._context.clock),
        )
        seconds = self._context.clock.monotonic() - begun
        if waits and await self._waits_for_release(work, outcome):
            self._count(work)
            return Result()
        if work.builtins and not waits:
            text = f"Run at once with this release of planform ({', '.join(work.builtins)}): {work.trigger}"
            self._status_writer.event(work.xr, "Normal", "ReleaseTaken", text)
        await self._status_writer.results(work.xr, outcome)
        ran, carried = work.xr, CarriedOut()
        try:
            decided = carried.plan = await self._decide_or_set_status(work, outcome)
            return await self._carry_out(work, outcome, decided, carried)
        except PlanformError as error:
            carried.failure = str(masked_error(error, mask_of(outcome)))
            raise
        except asyncio.CancelledError:
            carried.failure = "the control plane stopped before everything was carried out"
            raise
        finally:
            # Only now is it known whether what was planned could be done.
            if self._tools.record is not None:
                self._tools.record(
                    FinishedRun(
                        xr=ran,
                        composition=work.chosen.composition,
                        revision=work.chosen.revision,
                        outcome=outcome,
                        plan=carried.plan,
                        trigger=work.trigger,
                        started=started,
                        seconds=seconds,
                        failure=carried.failure,
                        secrets=frozenset(work.secrets.values) | _secret_values(outcome),
                        errors=carried.errors,
                    )
                )

    async def _show_running(self, work: ReconcileState, call: Object) -> None:
        work.xr = await self._status_writer.running_call(work.xr, call)

    async def _decide_or_set_status(self, work: ReconcileState, outcome: PipelineOutcome) -> Plan:
        """The plan, or the XR's status says why there is none."""
        try:
            return await self._decide(work, outcome)
        except PlanformError as error:
            masked_error(error, mask_of(outcome))
            self._remember_failure(work)
            work.xr = await self._save_choice(work.xr, work.last_run, work.chosen.fields)
            if isinstance(error, _RUN_ERRORS):
                calls = max((len(step.calls) for step in outcome.steps), default=0)
                self._xr_index.guard.failed(work.key, generation=_generation(work.xr), calls=calls)
                fields = _handled(work.xr)
                if work.chosen.under_policy:
                    told = deviated_by if isinstance(error, PlanDeviates) else failed_by
                    fields["planform"] = {COMPOSED_BY: told(work.xr, work.chosen.revision)}
                await self._status_writer.failed_run(work.xr, outcome, error, fields=fields)
            raise

    async def _decide(self, work: ReconcileState, outcome: PipelineOutcome) -> Plan:
        """Plan what the pipeline's answer means, within the deletion budget and what was previewed."""
        if outcome.failure is not None:
            raise outcome.failure
        desired, observed = outcome.desired, work.observed
        decided = plan(
            work.xr,
            observed.resources,
            desired,
            style=self._definition.style,
            scope_of=await self._scopes.of_desired(desired),
            leftovers=observed.leftovers,
        )
        check_budget(
            work.xr,
            decided,
            observed=observed.resources,
            answered_nothing=not desired.resources and not desired.composite.resource,
            spec_changed=work.edited,
            max_share=(work.chosen.spec.get("deletionBudget") or {}).get("maxShare"),
        )
        if work.chosen.under_policy and self._tools.enforced is not None:
            work.deviates = await self._tools.enforced.check(
                work.xr,
                decided,
                work.chosen.choice.revision,
                style=self._definition.style,
                observed=observed.resources,
                intents=work.last_run.intents if work.last_run is not None else {},
            )
        return decided

    async def _carry_out(
        self, work: ReconcileState, outcome: PipelineOutcome, decided: Plan, carried: CarriedOut
    ) -> Result:
        for warning in decided.warnings:
            self._status_writer.event(work.xr, "Warning", "NamespaceOverridden", warning)
        interval = annotation(work.xr, POLL_INTERVAL_ANNOTATION)
        if interval and not _is_duration(interval):
            text = f'{POLL_INTERVAL_ANNOTATION}: "{interval}" is not a duration'
            self._status_writer.event(work.xr, "Warning", "InvalidPollInterval", text)
        before, edited, chosen = work.xr, work.edited, work.chosen
        work.xr = await self._save(work.xr, chosen.fields, decided.references)
        self._count(work)
        if chosen.choice.no_way_back:
            text = f'revision "{chosen.revision}" was taken back, and no other one is released: the XR stays on it'
            self._status_writer.event(work.xr, "Warning", "NoWayBack", text)
        if chosen.fields:
            text = f'Selected revision "{chosen.revision}" of composition "{chosen.composition}"'
            self._status_writer.event(work.xr, "Normal", "SelectComposition", text)
        intents = work.last_run.intents if work.last_run is not None else {}
        applied = await apply_changed(
            self._client,
            work.xr,
            decided,
            work.observed.resources,
            intents,
            writer=self._writers(work).writer,
            tracked_write=self._xr_index.tracked_write,
        )
        if not applied.errors:
            applied.errors |= await delete_unwanted(self._client, decided.delete)
        for error in applied.errors.values():  # the API server quotes what it refuses
            masked_error(error, mask_of(outcome))
        carried.errors = {key: explained(error) for key, error in applied.errors.items()}
        watched = await self._scopes.watched(work.xr, outcome)
        try:
            intended, updated = await self._write_status(work, outcome, decided, applied, watched)
        except PlanformError:
            self._remember_failure(work)
            raise
        wrote = bool(updated or applied.writes or work.xr is not before)
        generation = _generation(work.xr)
        if applied.errors:
            if not conflicts(applied.errors):
                self._xr_index.guard.failed(work.key, generation=generation, calls=1)
        elif wrote and edited is False:
            why = applied.dispute or "its pipeline gives something else each time it is run"
            self._xr_index.guard.wrote(work.key, resources=len(decided.apply), why=why, generation=generation)
        # No digest tells of what is on its way out under a name that was given anew; its reference is to go with it.
        waits = bool(work.observed.leftovers)
        rested = not wrote and not waits  # what was put right may go wrong in the same way again
        ignores_control_plane_fields = (
            self._context.shortcuts
            and not waits
            and work.ignores_control_plane_fields(outcome, self._tools.pipelines.ignores_control_plane_fields)
        )
        left = version_left(before, work.xr, updated or work.xr) if ignores_control_plane_fields else ""
        depends = work.dependencies() | {named(each, work.xr) for each in (*decided.references, *watched)}
        expires = None if outcome.ttl is None else self._context.clock.now().timestamp() + outcome.ttl
        self._xr_index.remember(
            work.key,
            work.uid,
            LastRun(
                namespace=work.key.namespace,
                name=work.key.name,
                observed=work.digest if rested else b"",
                revision=chosen.revision,
                functions=tuple((step.step, step.revision.digest) for step in outcome.steps if step.revision),
                reads=tuple(work.reader.reads),
                schemas=tuple(work.reader.schemas),
                secrets=tuple(work.secrets.secrets),
                requirements=dict(outcome.requirements),
                intents=applied.intents,
                status=intended,
                version=left,
                resources=work.composed_digest if ignores_control_plane_fields and not applied.writes else b"",
                published_keys=self._published_keys,
                gates=self._gates,
                generation=generation,
                deterministic=all(is_deterministic(step) for step in outcome.steps),
                expires=expires,
                settled=not applied.errors,
                **split_dependencies(depends),
            ),
        )
        self._watch()
        if applied.errors:
            raise failure_of(applied.errors)
        return self._come_back(work.xr, expires, observed_resource_version="" if applied.writes else left)

    async def _write_status(
        self, work: ReconcileState, outcome: PipelineOutcome, decided: Plan, applied: Applied, watched: list[Object]
    ) -> tuple[bytes, Object | None]:
        """The XR's status after its plan was carried out; gives its digest, and the XR if it was written."""
        xr, legacy = work.xr, self._definition.style == "legacy"
        fields: Object = {
            "watchedResourceRefs": watched or None,
            "planform": {
                "revisionSelector": work.chosen.choice.resolved_selector,
                "generation": xr["metadata"].get("generation"),
                COMPOSED_BY: self._composed_by(work, applied),
            },
        }
        fields |= _handled(xr)
        if legacy:
            fields["claimConditionTypes"] = claim_condition_types(xr, outcome) or None
            published = await publish_details(
                self._client,
                xr,
                outcome.desired.composite.connection_details,
                keys=self._published_keys,
                now=micro_timestamp(self._context.clock.now()),
            )
            if published is not None:
                fields["connectionDetails"] = {"lastPublishedTime": published}
        problems = [problem(explained(error), resource=name) for name, error in sorted(applied.errors.items())]
        self._status_writer.not_composed(xr, problems)
        ready = readiness(decided, outcome.desired.composite.ready)
        if ready.status != "True":
            problems += unready_problems(decided.unready, work.observed.resources)
        return await self._status_writer.status(
            xr,
            desired=decided.status,
            conditions=[synced(list(applied.errors)), ready, *custom_conditions(outcome)],
            problems=problems,
            fields=fields,
            last=work.last_run.status if work.last_run is not None else b"",
        )

    def _composed_by(self, work: ReconcileState, applied: Applied) -> Object | None:
        """See `composed_by`; None for an XR that no RolloutPolicy has held, which then says nothing of it."""
        if not work.chosen.under_policy:
            return None
        if applied.errors and not conflicts(applied.errors):
            return failed_by(work.xr, work.chosen.revision)
        at_rest = not applied.writes and not applied.errors and not work.observed.leftovers
        current = at_rest and reports_current(work.observed.resources.values())
        return composed_by(work.xr, work.chosen.revision, observed=current, deviates=work.deviates)

    async def _finalize(self, key: ObjectKey, xr: Object) -> Result:
        """Composed resources go with their owner, by garbage collection; functions have no say in it."""
        if any(each != COMPOSITE_FINALIZER for each in finalizers_of(xr)):
            xr = await self._status_writer.conditions(
                xr, XrCondition("Ready", "False", "Deleting"), XrCondition("Synced", "True", "ReconcileSuccess")
            )
        await remove_finalizer(self._client, xr, COMPOSITE_FINALIZER, manager=COMPOSITE_MANAGER)
        self._forget(key)
        return Result()

    def _forget(self, key: ObjectKey) -> None:
        self._xr_index.forget(key)
        self._tools.usage_index.forget(XrKey(self._definition.group_kind, *key))
        self._watch()

    def _remember_failure(self, work: ReconcileState) -> None:
        """What the XR depends on even so: a change there may be what mends it."""
        depends = work.dependencies() | {named(each, work.xr) for each in references(work.xr, self._definition.style)}
        last = work.last_run or LastRun(namespace=work.key.namespace, name=work.key.name)
        depends |= last.dependencies
        kept = msgspec.structs.replace(last, settled=False, **split_dependencies(depends))
        self._xr_index.remember(work.key, work.uid, kept)
        self._watch()

    def _count(self, work: ReconcileState) -> None:
        chosen = work.chosen
        xr = XrKey(self._definition.group_kind, *work.key)
        self._tools.usage_index.set(xr, chosen.composition, chosen.revision, chosen.choice.selector)

    def _come_back(self, xr: Object, expires: float | None, *, observed_resource_version: str = "") -> Result:
        """When to look again although nothing changed: when an answer expires, as often as the user asks, and when an
        XR that was held back has been quiet."""
        quiet = self._xr_index.guard.quiet_in(key_of(xr))
        waits = [] if quiet is None else [max(MIN_POLL_SECONDS, quiet)]
        if expires is not None:
            waits.append(max(MIN_POLL_SECONDS, expires - self._context.clock.now().timestamp()))
        interval = annotation(xr, POLL_INTERVAL_ANNOTATION)
        if interval and _is_duration(interval):
            waits.append(max(MIN_POLL_SECONDS, parse_duration(interval) / 1e9))
        after = min(waits) * self._context.rng.uniform(0.9, 1.1) if waits else None
        return Result(requeue_after=after, observed_resource_version=observed_resource_version)

    def _writers(self, work: ReconcileState) -> Writers:
        accounts, home = self._tools.accounts, namespace_of(work.xr)
        return Writers(
            self._client,
            self._context.rights,
            work.chosen.choice.revision,
            accounts.get(home) if accounts is not None and home else None,
            self._tools.composed_kinds,
        )

    @property
    def _is_confined(self) -> bool:
        return self._context.features.enabled("ConfineNamespacedReads")

    def _credentials(self, xr: Object, chosen: Chosen) -> CredentialSource:
        source = self._tools.pipelines.credentials
        if not self._is_confined:
            return source
        home = namespace_of(xr)
        return ConfinedCredentials(source, self._context.rights, chosen.choice.revision, home)

    def _read_settings(self, xr: Object) -> ReadSettings:
        if not self._is_confined:
            return self._reads
        return replace(self._reads, confined_to=namespace_of(xr))


def _is_asked_for(xr: Object) -> bool:
    """Whether the user asked for a reconcile that takes nothing from memory, and none has been made since."""
    token = annotation(xr, RECONCILE_REQUESTED_ANNOTATION)
    return bool(token) and token != (xr.get("status") or {}).get("lastHandledReconcileAt")


def _handled(xr: Object) -> Object:
    """What the status says about the user's request for a reconcile, whatever came of it."""
    token = annotation(xr, RECONCILE_REQUESTED_ANNOTATION)
    return {"lastHandledReconcileAt": token} if token else {}


def _generation(xr: Object) -> int:
    return generation_of(xr)


def _secret_values(outcome: PipelineOutcome) -> frozenset[bytes]:
    return outcome.secrets.values() if outcome.secrets is not None else frozenset()


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except CallFailed:
        return False
    return True
