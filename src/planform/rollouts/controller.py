"""The loop of Rollouts: hear of XRs, decide, carry out.

Three kinds of writes are made here: RolloutActions, which are what was decided; the Rollout's status, which tells of
it; and references of XRs to the target revision, one write for each XR. Whether a revision is released is derived from
the actions by the controller of Compositions, and the way back is every XR's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, PREVIEW, ROLLOUT, ROLLOUT_FINALIZER
from planform.api.rollout_gates import GateStatus
from planform.api.rollouts import FINAL, RevisionChange, Rollout, RolloutStatus, WaveStatus
from planform.client.informer import InformerEvent, ObjectKey
from planform.compositions.live_rollouts import LiveRollouts, RolloutChange
from planform.compositions.pinning import pins_of
from planform.compositions.released import derive, verdict_of
from planform.compositions.revisions import TOOL_LABELS, is_revision_of, newest_first, number_of
from planform.errors import AlreadyExists, Conflict, NotFound
from planform.functions.errors import ResolutionError
from planform.functions.resolution import Request, resolve
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source, to_self
from planform.reconcile.writes import merge, remove_finalizer
from planform.rollouts.decide import Admit, Moves, decide
from planform.rollouts.facts import Facts, Newest
from planform.rollouts.members import Members
from planform.rollouts.previewed import DemandedPreviews
from planform.rollouts.starter import Functions, Revisions, RolloutStarter
from planform.rollouts.starting import new_action
from planform.rollouts.watched_xrs import WatchedXrs
from planform.rollouts.waves import ALREADY_FAILING, waves_of
from planform.rollouts.windowing import Held, decision_for, held_by_windows, is_free
from planform.rollouts.xr_facts import MANAGER, XrView, moved

NAME: Final = "rollouts"
COALESCING_SECONDS: Final = 0.05
"""So long a change of an XR waits for others: a wave that settles is looked at a few times, and not once for each."""
STATUS_SECONDS: Final = 2.0
"""How often counts alone are written; what a Rollout has decided is written at once."""
AT_ONCE: Final = 16
_JUMP: Final = 60.0


class GateRunner(Protocol):
    """Measures the gates of a wave, a step at a time; never waits for a measurement."""

    async def advance(
        self, rollout: Object, read: Rollout, report: WaveStatus, members: Members, moves: Moves
    ) -> tuple[list[GateStatus], datetime | None]:
        """What the gates say now, and when to ask again."""
        ...

    async def during(
        self, rollout: Object, read: Rollout, members: Members, status: RolloutStatus
    ) -> tuple[RolloutStatus, datetime | None]:
        """The status with what those gates say that go on while later waves move, and when to ask again."""
        ...

    async def end(self, rollout: Object) -> None: ...


class RolloutController:
    """Reconciles Rollouts. `compositions` must have been started."""

    def __init__(
        self,
        context: ControllerContext,
        rollouts: LiveRollouts,
        compositions: Revisions,
        functions: Functions,
        gates: GateRunner | None = None,
        *,
        ignored_labels: Iterable[str] = TOOL_LABELS,
    ) -> None:
        self._context = context
        self._client = context.client
        self._rollouts = rollouts
        self._compositions = compositions
        self.gates = gates
        self._controller: Controller[ObjectKey] | None = None
        self._functions = functions
        self._starter = RolloutStarter(context, rollouts, compositions, functions, ignored_labels=ignored_labels)
        self._previews = DemandedPreviews(context.client)
        self.xrs = WatchedXrs(context.manager, context.clock, self._xrs_changed)
        self._written: dict[str, float] = {}  # when the counts of a Rollout were last written
        self._clocks: dict[str, tuple[float, float]] = {}
        self._admitted = context.metrics.counter(
            "planform_rollout_admissions_total", "XRs that Rollouts moved to a new revision.", ["composition"]
        )
        self._phases = context.metrics.gauge("planform_rollout_phase", "Rollouts, by phase.", ["phase"])
        self._failed = context.metrics.gauge(
            "planform_rollout_failed_xrs", "XRs that failed in Rollouts that have not ended.", ["rollout"]
        )
        self._shown: set[str] = set()
        context.metrics.before_render(self._refresh)

    def start(self) -> None:
        if self._controller is not None:
            return
        self._rollouts.start()
        self._controller = self._context.controller(NAME, self.reconcile)
        self._rollouts.subscribe(self._rollouts_changed)
        sources = (
            Source(ROLLOUT, to_self),
            Source(COMPOSITION_REVISION, self._to_rollouts),
            Source(COMPOSITION, self._to_rollouts),
            Source(PREVIEW, _to_owner),
        )
        self._context.manager.start(self._controller, sources)
        self._functions.subscribe(self._functions_changed)
        self._starter.start()

    def wake(self, rollout: str) -> None:
        if self._controller is not None:
            self._controller.queue.add(ObjectKey("", rollout))

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            stored = await self._client.get(ROLLOUT, key.name)
        except NotFound:
            self._forget(key.name)
            return Result()
        await self._rollouts.synced()
        rollout = msgspec.convert(stored, Rollout)
        actions = self._rollouts.actions(key.name)
        verdict, _ = verdict_of(actions)
        if self._is_at_rest(rollout, verdict):
            self._forget(key.name)
            await self._starter.retry(stored, rollout, actions)
            await self._finalize(stored, rollout)
            return Result()
        revisions = {each.composition: await self._ours(each.composition) for each in rollout.spec.changes}
        if verdict == "Active":
            for change in rollout.spec.changes:
                # A watch that is behind knows the target not yet, or by its former number. What ends a Rollout for
                # good is concluded from the API server alone.
                if not _is_newest(revisions[change.composition], change):
                    revisions[change.composition] = await self._stored_revisions(change.composition)
        members = await self._members(rollout, revisions)
        facts = members.facts()
        held = held_by_windows(rollout, members, self.xrs, self._context.clock.now())
        self._complete(facts, rollout, revisions, held)
        if verdict == "Active" and not rollout.metadata.is_deleted:
            facts.preview, facts.preview_message = await self._previews.verdict_on(
                stored, rollout, self._context.clock.now()
            )
        moves = decide(rollout, actions, facts, self._context.clock.now())
        return await self._carry_out(stored, rollout, members, moves, held)

    # -- what is known

    def _is_at_rest(self, rollout: Rollout, verdict: str) -> bool:
        """Whether nothing is left to do: the status says what was decided, and that it has been carried out."""
        phase = rollout.phase
        return phase in FINAL and (phase == verdict or (phase == "Failed" and verdict == "Aborted"))

    async def _ours(self, composition: str) -> list[Object]:
        known = self._compositions.get(composition)
        uid = str(known["metadata"]["uid"]) if known is not None else ""
        found = await self._compositions.revisions(composition)
        return newest_first(each for each in found if is_revision_of(each, composition, uid))

    async def _stored_revisions(self, composition: str) -> list[Object]:
        try:
            found = await self._client.get(COMPOSITION, composition)
        except NotFound:
            return []
        return await self._starter.revisions(composition, found["metadata"]["uid"])

    async def _members(self, rollout: Rollout, revisions: dict[str, list[Object]]) -> Members:
        targets, kinds, released = {}, set[GroupVersionKind](), set[str]()
        for change in rollout.spec.changes:
            ours = revisions[change.composition]
            target = next((each for each in ours if each["metadata"]["name"] == change.to), None)
            if target is not None:
                targets[change.composition] = target
            kinds |= {gvk_of(each["spec"]["compositeTypeRef"]) for each in (target, *ours[:1]) if each is not None}
            records = self._rollouts.records(change.composition, "")
            derived = derive(ours, records, held=True)
            released |= {name for name, each in derived.conditions.items() if each.status == "True"}
        members = await self.xrs.follow(rollout, frozenset(kinds))
        members.targets(targets, released)
        return members

    def _complete(self, facts: Facts, rollout: Rollout, revisions: dict[str, list[Object]], held: Held) -> None:
        facts.held_by_window, facts.window = held.count, held.message
        facts.clock_jumped = self._clock_jumped(rollout.metadata.name)
        for change in rollout.spec.changes:
            ours = revisions[change.composition]
            target = next((each for each in ours if each["metadata"]["name"] == change.to), None)
            if target is None:
                facts.gone = facts.gone or f'composition revision "{change.to}"'
                continue
            newest = _newest(ours, change.to, change.to_number, change.from_ or "")
            if facts.newest == "Target" or newest == "Newer":
                facts.newest = newest
            valid = next((each for each in _conditions(target) if each["type"] == "ValidPipeline"), None)
            if valid is not None and valid["status"] == "False":
                facts.invalid = facts.invalid or str(valid.get("message") or "the pipeline is not valid")
            facts.function = facts.function or self._does_not_serve(target)

    def _does_not_serve(self, target: Object) -> str:
        """Why a function revision that the target names cannot be called; empty if all can."""
        if not self._context.features.enabled("FunctionRevisionSelectors"):
            return ""
        for function, revisions in sorted(pins_of(target).items()):
            for each in sorted(revisions):
                try:
                    resolve(self._functions.catalogue, Request(function, ref=each))
                except ResolutionError as error:
                    return f'revision "{each}" of function "{function}" does not serve; {error.hint or error}'
        return ""

    def _clock_jumped(self, rollout: str) -> bool:
        """Whether the wall clock went elsewhere than time did since the last look."""
        wall, steady = self._context.clock.now().timestamp(), self._context.clock.monotonic()
        before = self._clocks.get(rollout)
        self._clocks[rollout] = (wall, steady)
        return before is not None and abs((wall - before[0]) - (steady - before[1])) > _JUMP

    # -- what is done about it

    async def _carry_out(self, stored: Object, rollout: Rollout, members: Members, moves: Moves, held: Held) -> Result:
        for action, reason in moves.act:
            try:
                await self._client.create(new_action(stored, action, reason), manager=MANAGER)
            except AlreadyExists:
                pass
        status, measured_again = moves.status, None
        if moves.measure and not moves.act:
            status, measured_again = await self._measure(stored, rollout, members, moves)
        if self.gates is not None and not moves.act:
            status, soon = await self.gates.during(stored, rollout, members, status)
            measured_again = min((each for each in (measured_again, soon) if each is not None), default=None)
        if moves.act and status.phase in FINAL:
            # What was decided is stored, and told once the controller of Compositions has been able to act on it.
            status = msgspec.structs.replace(status, phase=rollout.phase)
        late = await self._write_status(stored, rollout, status)
        if moves.admit is not None and not moves.act:
            await self._admit(rollout, members, moves.admit, status)
        if status.phase in FINAL and self.gates is not None:
            await self.gates.end(stored)
        wait = self._wait(moves, members, measured_again, held)
        waits = [each for each in (wait, late) if each is not None]
        return Result(requeue_after=min(waits, default=None))

    async def _measure(
        self, stored: Object, rollout: Rollout, members: Members, moves: Moves
    ) -> tuple[RolloutStatus, datetime | None]:
        waves = list(moves.status.waves or ())
        index = next(number for number, each in enumerate(waves) if each.name == moves.measure)
        if self.gates is None:
            return moves.status, None
        gates, again = await self.gates.advance(stored, rollout, waves[index], members, moves)
        waves[index] = msgspec.structs.replace(waves[index], gates=gates)
        return msgspec.structs.replace(moves.status, waves=waves), again

    async def _write_status(self, stored: Object, rollout: Rollout, status: RolloutStatus) -> float | None:
        """Write what is news at once, and counts alone now and then; gives after how many seconds, if not now."""
        before, name = rollout.status or RolloutStatus(), rollout.metadata.name
        wanted = msgspec.to_builtins(status)
        if wanted == msgspec.to_builtins(before):
            return None
        now = self._context.clock.monotonic()
        wait = self._written.get(name, now - STATUS_SECONDS) + STATUS_SECONDS - now
        if _news(status) == _news(before) and wait > 0:
            return wait
        self._written[name] = now
        metadata = {"name": name, "uid": rollout.metadata.uid, "resourceVersion": rollout.metadata.resource_version}
        written = await self._client.apply(
            {"apiVersion": ROLLOUT.api_version, "kind": ROLLOUT.kind, "metadata": metadata, "status": wanted},
            manager=MANAGER,
            force=True,
            subresource="status",
        )
        if status.phase != before.phase:
            text = f"{before.phase or 'new'} -> {status.phase}" + (f": {status.message}" if status.message else "")
            kind: Any = "Warning" if status.phase in ("Aborting", "Aborted", "Failed") else "Normal"
            self._context.events.record(written, kind, str(status.phase), text, by=NAME)
        return None

    async def _admit(self, rollout: Rollout, members: Members, admit: Admit, status: RolloutStatus) -> None:
        """Move XRs, a few at a time. Whatever was decided meanwhile counts: no write is begun after a stop is known."""
        name = rollout.metadata.name
        now = self._context.clock.now()
        known = frozenset(each.uid for each in status.history or ())
        last = waves_of(rollout.spec.strategy)[admit.wave].name == ALREADY_FAILING
        put_off = last and rollout.spec.strategy.already_failing != "Skip"
        chosen: list[XrView] = []
        for view in members.candidates(admit.wave, admit.part, put_off=put_off):
            if len(chosen) == admit.count:
                break
            if is_free(self.xrs, view) or decision_for(rollout, view, self.xrs, now).admitted:
                chosen.append(view)
        for start in range(0, len(chosen), AT_ONCE):
            if self._is_stopped(name, known):
                return
            await asyncio.gather(*(self._move(view, members) for view in chosen[start : start + AT_ONCE]))

    def _is_stopped(self, rollout: str, known: frozenset[str]) -> bool:
        """Whether somebody has stopped it since the decision, which knew these actions."""
        actions = self._rollouts.actions(rollout)
        news = {each.spec.action for each in actions if each.metadata.uid not in known}
        return "Pause" in news or verdict_of(actions)[0] != "Active"

    async def _move(self, view: XrView, members: Members) -> None:
        target = members.target_of(view.composition)
        named, body = moved(view, target)
        try:
            written = await merge(self._client, named, body, manager=MANAGER)
        except (Conflict, NotFound):
            return  # it changed since it was looked at, and is looked at again
        metadata = written["metadata"]
        members.set(
            replace(view, revision=target, version=metadata["resourceVersion"], generation=metadata["generation"])
        )
        self._admitted.labels(view.composition).inc()

    async def _finalize(self, stored: Object, rollout: Rollout) -> None:
        """Let a deleted Rollout go once nothing is derived from it any more.

        What was taken back and is still the newest revision must stay so: without the record it would be a change that
        nobody has looked at, and begin anew."""
        if not rollout.metadata.is_deleted:
            return
        for change in rollout.spec.changes:
            ours = await self._ours(change.composition)
            newest = _newest(ours, change.to, change.to_number, change.from_ or "") if ours else "Newer"
            if newest == "Target" and rollout.phase != "Completed":
                return
        await remove_finalizer(self._client, stored, ROLLOUT_FINALIZER, manager=MANAGER)

    def _wait(self, moves: Moves, members: Members, measured_again: datetime | None, held: Held) -> float | None:
        """After how many seconds to look again although nothing happened."""
        now = self._context.clock.now()
        waits = [(each - now).total_seconds() for each in (moves.look_again, measured_again, held.until) if each]
        change = members.next_change()
        if change is not None and moves.status.phase == "Running":
            waits.append(change)
        if moves.act:
            waits.append(0.0)
        return max(0.0, min(waits)) if waits else None

    # -- when to look

    def _xrs_changed(self, rollout: str) -> None:
        if self._controller is not None:
            self._controller.queue.add_after(ObjectKey("", rollout), COALESCING_SECONDS)

    def _rollouts_changed(self, change: RolloutChange) -> None:
        if change.rollout:
            self.wake(change.rollout)
            for composition in change.compositions:
                self._starter.wake(composition)
        else:
            self._starter.policies_changed()

    def _functions_changed(self, functions: frozenset[str]) -> None:
        if not self._rollouts.policies and not self._rollouts.rollouts:
            return
        for name, rollout in self._rollouts.rollouts.items():
            if rollout.phase not in FINAL:
                self.wake(name)
        self._starter.policies_changed()

    def _to_rollouts(self, change: InformerEvent) -> Iterable[ObjectKey]:
        """The Rollouts of a Composition or of its revision that have not ended."""
        if not self._rollouts.rollouts:
            return
        metadata = change.object["metadata"]
        owners = [each["name"] for each in metadata.get("ownerReferences") or () if each.get("controller")]
        for composition in {metadata["name"], *owners}:
            for rollout in self._rollouts.of(composition):
                if rollout.phase not in FINAL or rollout.metadata.is_deleted:
                    yield ObjectKey("", rollout.metadata.name)

    def _forget(self, rollout: str) -> None:
        self.xrs.leave(rollout)
        self._written.pop(rollout, None)
        self._clocks.pop(rollout, None)

    def _refresh(self) -> None:
        """Bring the gauges up to date; only somebody who reads metrics pays for it."""
        counts: dict[str, int] = {}
        failed: dict[str, int] = {}
        for name, rollout in self._rollouts.rollouts.items():
            counts[rollout.phase] = counts.get(rollout.phase, 0) + 1
            if rollout.phase not in FINAL and rollout.status and rollout.status.counts:
                failed[name] = rollout.status.counts.failed
        for phase in self._shown - counts.keys():
            self._phases.remove(phase)
        for phase, count in counts.items():
            self._phases.labels(phase).set(count)
        self._shown = set(counts)
        for name, count in failed.items():
            self._failed.labels(name).set(count)


def _to_owner(change: InformerEvent) -> Iterable[ObjectKey]:
    """The Rollout that a Preview was made for."""
    owners = change.object["metadata"].get("ownerReferences") or ()
    return [ObjectKey("", each["name"]) for each in owners if each.get("kind") == ROLLOUT.kind]


def _is_newest(ours: list[Object], change: RevisionChange) -> bool:
    return bool(ours) and _newest(ours, change.to, change.to_number, "") == "Target"


def _newest(ours: list[Object], to: str, to_number: int, stable: str) -> Newest:
    name = ours[0]["metadata"]["name"]
    if name == to and number_of(ours[0]) == to_number:
        return "Target"
    return "Stable" if name == stable else "Newer"


def _conditions(obj: Object) -> list[Object]:
    found: list[Object] = (obj.get("status") or {}).get("conditions") or []
    return found


def _news(status: RolloutStatus) -> tuple[object, ...]:
    """What of a status is more than counts."""
    wave = status.wave
    state = wave.state if wave and wave.state in ("Waiting", "Soaking", "Gating") else ""
    place = (wave.name, wave.part, state, wave.until) if wave else None
    waiting = status.waiting.for_ if status.waiting and status.waiting.for_ != "Concurrency" else ""
    waves = [
        (each.name, each.parts, each.started, each.settled, each.finished, msgspec.to_builtins(each.gates or []))
        for each in status.waves or ()
    ]
    return (
        status.phase,
        status.reason,
        place,
        waiting,
        waves,
        status.history,
        len(status.failing or ()),
        status.finished,
    )
