"""One pass over one XR: choose, observe, run the pipeline, plan, carry out, tell.

A pass is level-triggered: it looks at how things are and needs no memory. What the fleet remembers only spares work: if
nothing that the last run rested on has changed, functions are not called and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from planform.api.kinds import Object
from planform.api.names import (
    COMPOSITE_FINALIZER,
    COMPOSITE_MANAGER,
    PAUSED_ANNOTATION,
    POLL_INTERVAL_ANNOTATION,
    RECONCILE_REQUESTED_ANNOTATION,
)
from planform.client.informer import ObjectKey, key_of
from planform.clock import micro_timestamp
from planform.composition.budget import DeletionBudgetExceeded, check_budget
from planform.composition.modes import pipeline_of
from planform.composition.pipeline import PipelineOutcome, ReadSettings, run_pipeline
from planform.composition.plan import Plan, PlanError, plan, readiness
from planform.composition.run_secrets import mask_of
from planform.composition.standing import (
    RecordingCredentials,
    RecordingReader,
    Standing,
    still_reads_the_same,
)
from planform.composition.steps import Step, parse_pipeline
from planform.composition.xr import XrCondition
from planform.composition.xr_status import (
    claim_condition_types,
    custom_conditions,
    problem,
    synced,
    unready_problems,
)
from planform.controllers.composites.carrying_out import (
    Applied,
    ComposedRefused,
    apply_changed,
    conflicts,
    delete_unwanted,
    failure_of,
    save_references,
)
from planform.controllers.composites.choosing import VALIDATION_SECONDS, Chosen, HalfChosen, NotValidatedYet, choose
from planform.controllers.composites.connections import publish_details
from planform.controllers.composites.fleet import Definition, Fleet
from planform.controllers.composites.observing import named, observe, references
from planform.controllers.composites.rights import Writers
from planform.controllers.composites.scopes import Scopes
from planform.controllers.composites.telling import Teller, explained
from planform.controllers.composites.work import (
    FinishedRun,
    Pass,
    Tools,
    is_deterministic,
    is_edited,
    split_dependencies,
    version_left,
)
from planform.controllers.population import XrKey
from planform.controllers.writing import remove_finalizer
from planform.errors import Conflict, NotFound, PlanformError
from planform.functions.errors import FunctionError, ResolutionError
from planform.gotemplate.errors import CallFailed
from planform.gotemplate.gotime import parse_duration
from planform.journal.masking import masked_error
from planform.reconcile.controller import Result

MIN_POLL_SECONDS: Final = 1.0
_PARSED: Final = 512
_RUN_ERRORS: Final = (FunctionError, PlanError, DeletionBudgetExceeded)
"""What a run may come to instead of a plan."""


class CompositeReconciler:
    """The passes over the XRs of one XRD. `watch` is called when the fleet's wanted watches may have changed."""

    def __init__(self, fleet: Fleet, tools: Tools, *, watch: Callable[[], None]) -> None:
        self._fleet = fleet
        self._tools = tools
        self._bench = tools.bench
        self._client = tools.bench.client
        self._scopes = Scopes(tools.bench.client)
        self._teller = Teller(tools.bench, fleet)
        self._gates = tools.bench.features.on
        self._reads = ReadSettings(
            deny_by_default=tools.bench.features.enabled("DenyExtraResourcesByDefault"),
            is_namespaced=self._scopes.is_namespaced,
        )
        self._watch = watch

    @property
    def _definition(self) -> Definition:
        return self._fleet.definition

    @property
    def _published_keys(self) -> tuple[str, ...]:
        """The only connection details that the XRD lets its XRs publish; none means all."""
        return tuple(self._definition.spec.get("connectionSecretKeys") or ())

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass. Raises what the controller should come back for, after the XR's status says so."""
        try:
            xr = await self._client.get(self._definition.kind, key.name, namespace=key.namespace)
        except NotFound:
            self._forget(key)
            return Result()
        if _annotation(xr, PAUSED_ANNOTATION) == "true":
            await self._teller.paused(xr)
            return Result()
        is_leaving = bool(xr["metadata"].get("deletionTimestamp"))
        standing = self._fleet.standing(key, xr["metadata"]["uid"])
        held = self._fleet.guard.wait(key, generation=_generation(xr))
        if held and not is_leaving and not _is_asked_for(xr):
            await self._teller.held_back(key, xr)
            return Result(requeue_after=held)
        try:
            return await (self._let_go(key, xr) if is_leaving else self._compose(key, xr, standing))
        except NotValidatedYet:
            return Result(requeue_after=VALIDATION_SECONDS)
        except (Conflict, ComposedRefused, *_RUN_ERRORS):
            raise  # told already, or not worth telling
        except PlanformError as error:
            self._fleet.guard.failed(key, generation=_generation(xr), calls=0)
            await self._teller.failed_pass(xr, error, fields=_handled(xr))
            raise

    async def _compose(self, key: ObjectKey, xr: Object, standing: Standing | None) -> Result:
        try:
            chosen = await choose(self._fleet, self._tools.compositions, key, xr, self._bench.clock)
        except HalfChosen as half:
            await self._save_choice(xr, standing, half.fields)
            raise half.cause from None
        heed = partial(self._fleet.heed, key, xr["metadata"]["uid"])
        try:
            steps = self._parsed(chosen)
            observed = await observe(
                self._client,
                xr,
                self._definition.style,
                heed,
                one_by_one=self._bench.reads_at_once,
                confined=self._is_confined,
            )
        except PlanformError:
            await self._save_choice(xr, standing, chosen.fields)
            raise
        pipelines = self._tools.pipelines
        work = Pass(
            key=key,
            xr=xr,
            standing=standing,
            chosen=chosen,
            steps=steps,
            observed=observed,
            reader=RecordingReader(pipelines.reader, self._scopes.is_namespaced, heed),
            secrets=RecordingCredentials(pipelines.credentials, heed),
        )
        self._fleet.follow(key, work.uid, chosen.follows, {step.function for step in steps})
        if _is_asked_for(xr):
            token = _annotation(xr, RECONCILE_REQUESTED_ANNOTATION)
            self._teller.event(xr, "Normal", "ReconcileRequestHandled", f"Handled the reconcile request {token}")
        elif await self._is_unchanged(work):
            self._count(work)
            await self._teller.released(key, xr)
            return self._come_back(xr, work.standing.expires if work.standing is not None else None)
        return await self._run(work)

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

    async def _is_unchanged(self, work: Pass) -> bool:
        """Whether a run would rest on exactly what the last one rested on, and so need not be."""
        last = work.standing
        if last is None or not last.settled or work.chosen.fields:
            return False
        if last.published_keys != self._published_keys or last.gates != self._gates:
            return False
        if last.revision != work.chosen.revision:
            return False
        if last.expires is None and not last.deterministic:
            return False
        if last.expires is not None and self._bench.clock.now().timestamp() >= last.expires:
            return False
        resolver = self._tools.pipelines.resolver("composition")
        try:
            functions = tuple((step.name, resolver(step).revision.digest) for step in work.steps)
        except ResolutionError:
            return False
        if last.functions != functions or not (work.is_echo or work.looks_the_same):
            return False
        pipelines = self._tools.pipelines
        return await still_reads_the_same(last, pipelines.reader, pipelines.credentials)

    async def _save_choice(self, xr: Object, standing: Standing | None, fields: Mapping[str, Any]) -> Object:
        """Let the XR say what it is composed by, if it does not yet, although nothing more may come of it.

        An XR that runs one revision says so until another one was carried out, unless its user changed it: it would
        otherwise look as if the user had, who then may let everything vanish that it composed.
        """
        if not fields or is_edited(xr, standing) is False:
            return xr
        return await self._save(xr, fields, references(xr, self._definition.style))

    async def _save(self, xr: Object, fields: Mapping[str, Any], refer_to: Sequence[Mapping[str, Any]]) -> Object:
        return await save_references(
            self._client, xr, self._definition.style, refer_to, fields, own_write=self._fleet.own_write
        )

    def _answers_at_once(self, steps: Sequence[Step]) -> bool:
        """Whether all functions answer in this process: then what was chosen is written with what came of it."""
        resolver = self._tools.pipelines.resolver("composition")
        try:
            return all(resolver(step).revision.quick for step in steps)
        except ResolutionError:
            return False

    async def _run(self, work: Pass) -> Result:
        pipelines = self._tools.pipelines
        if work.chosen.fields and not self._answers_at_once(work.steps):
            work.xr = await self._save_choice(work.xr, work.standing, work.chosen.fields)
        started, begun = self._bench.clock.now(), self._bench.clock.monotonic()
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
            seeds=work.standing.requirements if work.standing is not None else None,
            digest=lambda: work.digest,
            tracer=self._bench.tracer,
        )
        await self._teller.results(work.xr, outcome)
        decided: Plan | None = None
        failure = ""
        try:
            decided = await self._decide(work, outcome)
        except PlanformError as error:
            failure = str(masked_error(error, mask_of(outcome)))
            self._remember_failure(work)
            work.xr = await self._save_choice(work.xr, work.standing, work.chosen.fields)
            if isinstance(error, _RUN_ERRORS):
                calls = max((len(step.calls) for step in outcome.steps), default=0)
                self._fleet.guard.failed(work.key, generation=_generation(work.xr), calls=calls)
                await self._teller.failed_run(work.xr, outcome, error, fields=_handled(work.xr))
            raise
        finally:
            if self._tools.record is not None:
                self._tools.record(
                    FinishedRun(
                        xr=work.xr,
                        composition=work.chosen.composition,
                        revision=work.chosen.revision,
                        outcome=outcome,
                        plan=decided,
                        trigger=work.trigger,
                        started=started,
                        seconds=self._bench.clock.monotonic() - begun,
                        failure=failure,
                        secrets=frozenset(work.secrets.values) | _secret_values(outcome),
                    )
                )
        return await self._carry_out(work, outcome, decided)

    async def _decide(self, work: Pass, outcome: PipelineOutcome) -> Plan:
        """Plan what the pipeline's answer means, within the deletion budget."""
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
        return decided

    async def _carry_out(self, work: Pass, outcome: PipelineOutcome, decided: Plan) -> Result:
        for warning in decided.warnings:
            self._teller.event(work.xr, "Warning", "NamespaceOverridden", warning)
        interval = _annotation(work.xr, POLL_INTERVAL_ANNOTATION)
        if interval and not _is_duration(interval):
            text = f'{POLL_INTERVAL_ANNOTATION}: "{interval}" is not a duration'
            self._teller.event(work.xr, "Warning", "InvalidPollInterval", text)
        before, edited, chosen = work.xr, work.edited, work.chosen
        work.xr = await self._save(work.xr, chosen.fields, decided.references)
        self._count(work)
        if chosen.fields:
            text = f'Selected revision "{chosen.revision}" of composition "{chosen.composition}"'
            self._teller.event(work.xr, "Normal", "SelectComposition", text)
        intents = work.standing.intents if work.standing is not None else {}
        applied = await apply_changed(
            self._client,
            work.xr,
            decided,
            work.observed.resources,
            intents,
            writer=self._writers(work).writer,
            own_write=self._fleet.own_write,
        )
        if not applied.errors:
            applied.errors |= await delete_unwanted(self._client, decided.delete)
        for error in applied.errors.values():  # the API server quotes what it refuses
            masked_error(error, mask_of(outcome))
        watched = await self._scopes.watched(work.xr, outcome)
        try:
            intended, told = await self._tell(work, outcome, decided, applied, watched)
        except PlanformError:
            self._remember_failure(work)
            raise
        wrote = bool(told or applied.writes or work.xr is not before)
        generation = _generation(work.xr)
        if applied.errors:
            if not conflicts(applied.errors):
                self._fleet.guard.failed(work.key, generation=generation, calls=1)
        elif wrote and edited is False:
            why = applied.dispute or "its pipeline gives something else each time it is run"
            self._fleet.guard.wrote(work.key, resources=len(decided.apply), why=why, generation=generation)
        # No digest tells of what is on its way out under a name that was given anew; its reference is to go with it.
        waits = bool(work.observed.leftovers)
        rested = not wrote and not waits  # what was put right may go wrong in the same way again
        is_blind = self._bench.shortcuts and not waits and work.is_blind(outcome, self._tools.pipelines.is_blind)
        left = version_left(before, work.xr, told or work.xr) if is_blind else ""
        depends = work.dependencies() | {named(each, work.xr) for each in (*decided.references, *watched)}
        expires = None if outcome.ttl is None else self._bench.clock.now().timestamp() + outcome.ttl
        self._fleet.remember(
            work.key,
            work.uid,
            Standing(
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
                resources=work.surroundings if is_blind and not applied.writes else b"",
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
        return self._come_back(work.xr, expires, rests_at="" if applied.writes else left)

    async def _tell(
        self, work: Pass, outcome: PipelineOutcome, decided: Plan, applied: Applied, watched: list[Object]
    ) -> tuple[bytes, Object | None]:
        """The XR's status after its plan was carried out; gives its digest, and the XR if it was written."""
        xr, legacy = work.xr, self._definition.style == "legacy"
        fields: Object = {
            "watchedResourceRefs": watched or None,
            "planform": {
                "revisionSelector": work.chosen.choice.resolved_selector,
                "generation": xr["metadata"].get("generation"),
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
                now=micro_timestamp(self._bench.clock.now()),
            )
            if published is not None:
                fields["connectionDetails"] = {"lastPublishedTime": published}
        problems = [problem(explained(error), resource=name) for name, error in sorted(applied.errors.items())]
        self._teller.not_composed(xr, problems)
        ready = readiness(decided, outcome.desired.composite.ready)
        if ready.status != "True":
            problems += unready_problems(decided.unready, work.observed.resources)
        return await self._teller.status(
            xr,
            desired=decided.status,
            conditions=[synced(list(applied.errors)), ready, *custom_conditions(outcome)],
            problems=problems,
            fields=fields,
            last=work.standing.status if work.standing is not None else b"",
        )

    async def _let_go(self, key: ObjectKey, xr: Object) -> Result:
        """Composed resources go with their owner, by garbage collection; functions have no say in it."""
        if any(each != COMPOSITE_FINALIZER for each in xr["metadata"].get("finalizers") or ()):
            xr = await self._teller.conditions(
                xr, XrCondition("Ready", "False", "Deleting"), XrCondition("Synced", "True", "ReconcileSuccess")
            )
        await remove_finalizer(self._client, xr, COMPOSITE_FINALIZER, manager=COMPOSITE_MANAGER)
        self._forget(key)
        return Result()

    def _forget(self, key: ObjectKey) -> None:
        self._fleet.forget(key)
        self._tools.population.forget(XrKey(self._definition.group_kind, *key))
        self._watch()

    def _remember_failure(self, work: Pass) -> None:
        """What the XR depends on even so: a change there may be what mends it."""
        depends = work.dependencies() | {named(each, work.xr) for each in references(work.xr, self._definition.style)}
        last = work.standing or Standing(namespace=work.key.namespace, name=work.key.name)
        depends |= last.dependencies
        kept = msgspec.structs.replace(last, settled=False, **split_dependencies(depends))
        self._fleet.remember(work.key, work.uid, kept)
        self._watch()

    def _count(self, work: Pass) -> None:
        chosen = work.chosen
        labels = chosen.choice.resolved_selector.get("matchLabels") or None
        xr = XrKey(self._definition.group_kind, *work.key)
        self._tools.population.set(xr, chosen.composition, chosen.revision, labels)

    def _come_back(self, xr: Object, expires: float | None, *, rests_at: str = "") -> Result:
        """When to look again although nothing changed: when an answer expires, as often as the user asks, and when an
        XR that was held back has been quiet."""
        quiet = self._fleet.guard.quiet_in(key_of(xr))
        waits = [] if quiet is None else [max(MIN_POLL_SECONDS, quiet)]
        if expires is not None:
            waits.append(max(MIN_POLL_SECONDS, expires - self._bench.clock.now().timestamp()))
        interval = _annotation(xr, POLL_INTERVAL_ANNOTATION)
        if interval and _is_duration(interval):
            waits.append(max(MIN_POLL_SECONDS, parse_duration(interval) / 1e9))
        after = min(waits) * self._bench.rng.uniform(0.9, 1.1) if waits else None
        return Result(requeue_after=after, rests_at=rests_at)

    def _writers(self, work: Pass) -> Writers:
        accounts, home = self._tools.accounts, work.xr["metadata"].get("namespace") or ""
        return Writers(
            self._client,
            self._bench.rights,
            work.chosen.choice.revision,
            accounts.get(home) if accounts is not None and home else None,
            self._tools.composed_kinds,
        )

    @property
    def _is_confined(self) -> bool:
        return self._bench.features.enabled("ConfineNamespacedReads")

    def _read_settings(self, xr: Object) -> ReadSettings:
        if not self._is_confined:
            return self._reads
        return replace(self._reads, confined_to=xr["metadata"].get("namespace") or "")


def _is_asked_for(xr: Object) -> bool:
    """Whether the user asked for a pass that takes nothing from memory, and none has been made since."""
    token = _annotation(xr, RECONCILE_REQUESTED_ANNOTATION)
    return bool(token) and token != (xr.get("status") or {}).get("lastHandledReconcileAt")


def _handled(xr: Object) -> Object:
    """What the status says about the user's request for a pass, whatever came of it."""
    token = _annotation(xr, RECONCILE_REQUESTED_ANNOTATION)
    return {"lastHandledReconcileAt": token} if token else {}


def _generation(xr: Object) -> int:
    return int(xr["metadata"].get("generation") or 0)


def _secret_values(outcome: PipelineOutcome) -> frozenset[bytes]:
    return outcome.secrets.values() if outcome.secrets is not None else frozenset()


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except CallFailed:
        return False
    return True


def _annotation(xr: Mapping[str, Any], name: str) -> str:
    return str((xr["metadata"].get("annotations") or {}).get(name) or "")
