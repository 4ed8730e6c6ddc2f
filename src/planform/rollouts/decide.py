"""What a Rollout does next: `decide(rollout, actions, facts, now) -> Moves`. Pure.

Everything is decided anew each time, from the Rollout's spec, what people decided about it, what its XRs say of
themselves, and the waves that its status says are done. A lost status costs a second look at waves that are done; it
never lets one be skipped. What stops a Rollout is looked at first, whatever is being waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import UNSET

from planform.api.rollouts import (
    FINAL,
    MAX_FAILING,
    Action,
    Counts,
    Phase,
    Rollout,
    RolloutAction,
    RolloutStatus,
    Waiting,
    WavePosition,
    WaveStatus,
)
from planform.compositions.released import verdict_of
from planform.rollouts.durations import parse_duration
from planform.rollouts.facts import Facts
from planform.rollouts.history import Decided, decided
from planform.rollouts.waves import ALREADY_FAILING, PlannedWave, waves_of

DEFAULT_CONCURRENCY: Final = 50
_DECIDED: Final = ("Passed", "Skipped")
_ASKS: Final = ("Inconclusive", "Error")
_UNPASSED: Final = ("Failed", *_ASKS)


@dataclass(frozen=True, slots=True)
class Admit:
    """Move so many XRs more, of those whose place is not beyond this wave and part."""

    wave: int
    part: int
    count: int


@dataclass(frozen=True, slots=True)
class Moves:
    """What to do now. `act` are RolloutActions to create, which come before everything else."""

    status: RolloutStatus
    act: tuple[tuple[Action, str], ...] = ()
    admit: Admit | None = None
    measure: str = ""
    """The wave whose gates have to be measured now."""
    gates: tuple[str, ...] = ()
    """These gates."""
    look_again: datetime | None = None


@dataclass
class _Work:
    """One decision on its way."""

    rollout: Rollout
    facts: Facts
    now: datetime
    done: Decided
    status: RolloutStatus
    waves: tuple[PlannedWave, ...]
    reports: dict[str, WaveStatus] = field(default_factory=dict)
    admit: Admit | None = None
    measure: str = ""
    look_again: datetime | None = None

    def moves(self, phase: Phase, reason: str = "", message: str = "", act: Sequence[tuple[Action, str]] = ()) -> Moves:
        """The status says what is, also when it is not what was wished."""
        finished = self.status.finished
        if phase in FINAL and not finished:
            finished = stamp(self.now)
        status = msgspec.structs.replace(
            self.status,
            phase=phase,
            reason=reason or UNSET,
            message=message or UNSET,
            waves=[self.reports[each.name] for each in self.waves if each.name in self.reports],
            finished=finished,
        )
        planned = next((each for each in self.waves if each.name == self.measure), None)
        gates = () if planned is None else tuple(gates_of(self.rollout, planned))
        return Moves(status, tuple(act), self.admit, self.measure, gates, self.look_again)

    def waits(self, reason: str, message: str) -> None:
        self.status = msgspec.structs.replace(self.status, waiting=Waiting(for_=reason, message=message))

    def at(self, index: int, part: int, state: str, until: datetime | None = None) -> None:
        position = msgspec.convert(
            {"index": max(0, index - 1), "name": self.waves[index].name, "part": part + 1, "state": state}, WavePosition
        )
        if until is not None:
            position = msgspec.structs.replace(position, until=stamp(until))
        self.status = msgspec.structs.replace(self.status, wave=position)


def decide(rollout: Rollout, actions: Sequence[RolloutAction], facts: Facts, now: datetime) -> Moves:
    """See the module. Called twice with the same it says the same; carrying it out twice does no harm."""
    strategy = rollout.spec.strategy
    before = rollout.status or RolloutStatus()
    done = decided(rollout, actions, facts)
    waves = waves_of(strategy)
    work = _Work(rollout, facts, now, done, _counted(before, facts, done), waves)
    work.reports = _reports(before, facts, waves, done)
    final = _ended(work, actions)
    if final is not None:
        return final
    stop = _stopped(work)
    if stop is not None:
        return stop
    if not facts.complete:
        work.waits("XRs", "not all XRs are known yet")
        return work.moves(_phase_before(before))
    if done.paused:
        return work.moves("Paused", "Paused", done.paused)
    if facts.invalid:
        return work.moves("Paused", "PipelineNotValid", facts.invalid)
    start = _not_started(work)
    return start if start is not None else _run(work)


def is_release(rollout: Rollout) -> bool:
    """Whether it is planform itself that changes: nobody moves, and there is no way back."""
    return all(change.is_release for change in rollout.spec.changes)


# -- what ends a Rollout, in the order in which it is looked at


def _ended(work: _Work, actions: Sequence[RolloutAction]) -> Moves | None:
    """What was decided for good; XRs go back by themselves, which takes a while."""
    verdict, words = verdict_of(actions)
    if verdict == "Active":
        if work.rollout.metadata.is_deleted:
            return work.moves("Aborting", "Deleted", "the Rollout was deleted", [("Abort", "the Rollout was deleted")])
        return None
    work.status = msgspec.structs.replace(work.status, waiting=UNSET)
    back = 0 if is_release(work.rollout) else work.facts.returning  # nobody has moved
    if verdict == "Aborted":
        if any(each.spec.action == "Fail" for each in actions) and not any(
            each.spec.action == "Abort" for each in actions
        ):
            return work.moves("Failed", "Failed", words)
        return work.moves("Aborting" if back or not work.facts.complete else "Aborted", "Aborted", words)
    if verdict == "Undone":
        return work.moves("Undoing" if back or not work.facts.complete else "Undone", "Undone", words)
    if verdict == "Superseded":
        return work.moves("Superseded", "Superseded", words)
    return work.moves("Completed", "Completed")


def _stopped(work: _Work) -> Moves | None:
    facts, strategy = work.facts, work.rollout.spec.strategy
    if facts.gone:
        text = f"{facts.gone} is gone; XRs stay as they are"
        return work.moves("Failed", "Gone", text, [("Fail", text)])
    if facts.newest == "Stable":
        text = "the Composition is back at the revision that is released"
        return work.moves("Aborting", "Reverted", text, [("Abort", text)])
    if facts.newest == "Newer" and strategy.on_new_revision != "Queue":
        text = "a newer revision came"
        return work.moves("Superseded", "Superseded", text, [("Supersede", text)])
    if _held(work) and strategy.preview and strategy.preview.on_deviation == "Abort":
        text = f"{_deviates(_held(work))}: {facts.failing[0].xr}: {facts.failing[0].message}"
        return work.moves("Aborting", "PlanDeviates", text, [("Abort", text)])
    failure = _failure(work)
    if failure and strategy.on_failure != "Pause":
        return work.moves("Aborting", "Failed", failure, [("Abort", failure)])
    return work.moves("Paused", "Failed", failure + _ASK) if failure else None


_ASK: Final = "; planform rollout resume accepts it, planform rollout abort goes back"


def _failure(work: _Work) -> str:
    """Why the Rollout has failed; empty if it has not. What somebody resumed from is accepted."""
    facts, strategy, accepted = work.facts, work.rollout.spec.strategy, work.done.accepted_failures
    for name, report in work.reports.items():
        failed = next((each for each in report.gates or () if each.verdict == "Failed"), None)
        if failed is not None and not work.done.skips_gates(name, report.parts) and not work.done.full:
            return f'gate "{failed.name}" of wave "{name}" failed: {failed.message or failed.value or "no reason"}'
    last = facts.waves[-1]
    if last.name == ALREADY_FAILING and _is_at_last(work):
        return ""  # who was not well before has no budget to break
    budget = strategy.budget
    default = (budget.max_failures if budget else UNSET) or 0
    total = 0
    for planned, counts in zip(work.waves, facts.waves, strict=True):
        own = planned.declared.max_failures if planned.declared is not None else UNSET
        allowed = own if own is not UNSET else default
        total += counts.failed
        if counts.failed > max(allowed, accepted):
            return f'{_xrs(counts.failed)} of wave "{counts.name}" failed, of which {allowed} may'
    if budget and budget.max_failures_total is not UNSET:
        allowed = _share(budget.max_failures_total, sum(each.xrs for each in facts.waves) + facts.put_off)
        if total > max(allowed, accepted):
            return f"{_xrs(total)} failed in all, of which {allowed} may"
    return ""


def _is_at_last(work: _Work) -> bool:
    """Whether all waves but the one of those who were not well are done."""
    return all(
        counts.xrs == 0 or _done_parts(work, counts.name) >= len(counts.parts) for counts in work.facts.waves[:-1]
    )


# -- what comes before the first wave


def _not_started(work: _Work) -> Moves | None:
    if work.status.started:
        return None
    rollout, facts, strategy, done = work.rollout, work.facts, work.rollout.spec.strategy, work.done
    if all(change.cause and change.cause.rollback for change in rollout.spec.changes):
        text = "a way back is not waited for: this revision was released before"
        return work.moves("Completed", "Rollback", text, [("Complete", text)])
    release = is_release(rollout)
    open_parts = sum(part.pending + part.moving for wave in facts.waves for part in wave.parts)
    if not release and open_parts == 0 and facts.put_off == 0 and not sum(wave.failed for wave in facts.waves):
        text = "nobody has to move" if any(wave.xrs for wave in facts.waves) else "there are no XRs"
        return work.moves("Completed", "NothingToMove", text, [("Complete", text)])
    if facts.preview == "Running":
        work.waits("Preview", facts.preview_message)
        return work.moves("Previewing")
    if facts.preview and not done.start_approved:
        name = rollout.metadata.name
        work.waits("Approval", f"{facts.preview_message}; planform rollout approve {name}")
        return work.moves("AwaitingApproval", "PreviewNotAcceptable")
    if strategy.start == "WhenApproved" and not done.start_approved:
        work.waits("Approval", f"it begins when approved: planform rollout approve {rollout.metadata.name}")
        return work.moves("AwaitingApproval")
    if strategy.start == "Manual" and not done.started:
        work.waits("Start", f"it begins when started: planform rollout start {rollout.metadata.name}")
        return work.moves("Pending")
    if release:
        text = "XRs follow this release of planform"
        return work.moves("Completed", "Released", text, [("Complete", text)])
    work.status = msgspec.structs.replace(work.status, started=stamp(work.now))
    return None


# -- wave after wave


def _run(work: _Work) -> Moves:
    facts, done = work.facts, work.done
    end = len(facts.waves)
    for index, counts in enumerate(facts.waves):
        finished = _done_parts(work, counts.name)
        for part in range(finished, len(counts.parts)):
            if _is_last_wave(index, end):
                here = facts.put_off if work.rollout.spec.strategy.already_failing in (UNSET, "Last") else 0
            else:
                here = counts.parts[part].xrs
            late = _pending_before(work, index, part)
            if not here and not late:
                _finish(work, index, part)
                continue
            if not _part(work, index, part):
                text = work.status.waiting.message if work.status.waiting else ""
                return work.moves("Running", message=text)
            _finish(work, index, part)
    if sum(part.moving for wave in facts.waves for part in wave.parts):
        work.at(end - 1, 0, "Settling")
        return work.moves("Running")
    if done.full and _pending_before(work, end - 1, 0):
        return work.moves("Running")
    if _held(work) and not done.full and not done.promotes(work.waves[end - 1].name, 0):
        # The others have moved; who is held is let go when the revision is released.
        work.at(end - 1, 0, "Waiting")
        work.waits("Deviation", f"{_deviates(_held(work))}; planform rollout promote accepts it, abort goes back")
        return work.moves("Running", message=work.status.waiting.message if work.status.waiting else "")
    return work.moves("Completed", "Completed", act=[("Complete", "all waves are done")])


def _held(work: _Work) -> int:
    return sum(part.deviated for wave in work.facts.waves for part in wave.parts)


def _deviates(count: int) -> str:
    return f"the plan{'' if count == 1 else 's'} of {_xrs(count)} deviate{'s' if count == 1 else ''} from the preview"


def _part(work: _Work, index: int, part: int) -> bool:
    """Bring one part of a wave further; gives whether it is done."""
    facts, done, planned = work.facts, work.done, work.waves[index]
    name, counts = planned.name, facts.waves[index]
    report = work.reports[name]
    last = _is_last_wave(index, len(facts.waves))
    promoted = done.full or done.promotes(name, part)
    if part == 0 and not promoted and not _is_approved(work, planned):
        work.at(index, part, "Waiting")
        return False
    moving = sum(each.moving for wave in facts.waves for each in wave.parts)
    limit = len(facts.waves) - 1 if done.full else index
    pending = _pending_before(work, limit, part if not done.full else len(facts.waves[limit].parts)) + (
        facts.put_off if last else 0
    )
    if pending:
        return _admit(work, index, part, pending, moving)
    if moving:  # whoever has settled and moves again, because it was edited, starts the wait anew
        work.at(index, part, "Settling")
        work.reports[name] = msgspec.structs.replace(report, settled=UNSET)
        return False
    if not report.settled or facts.clock_jumped or _moment(report.settled) > work.now:
        report = work.reports[name] = msgspec.structs.replace(report, settled=stamp(work.now))
    settled = _moment(report.settled or stamp(work.now))
    soak = planned.declared.soak if planned.declared is not None else UNSET
    until = settled + (parse_duration(soak) if soak else timedelta())
    if not promoted and work.now < until and counts.xrs:
        work.at(index, part, "Soaking", until)
        work.look_again = until
        return False
    if last or promoted or done.skips_gates(name, part):
        return True
    return _gates_passed(work, index, part)


def _admit(work: _Work, index: int, part: int, pending: int, moving: int) -> bool:
    facts = work.facts
    work.at(index, part, "Admitting")
    room = (work.rollout.spec.strategy.concurrency or DEFAULT_CONCURRENCY) - moving
    free = pending - facts.held_by_window
    if facts.function:
        work.waits("FunctionRevision", facts.function)
        return False
    if facts.tree:
        work.waits("Tree", f'Rollout "{facts.tree}" moves the same trees')
        return False
    if free <= 0 and not moving:
        work.waits("Window", facts.window or "a ChangeWindow is closed")
        return False
    if room <= 0:
        work.waits("Concurrency", f"{_xrs(moving)} are on their way")
        return False
    if free > 0:
        full = work.done.full
        wave = len(facts.waves) - 1 if full else index
        work.admit = Admit(wave, len(facts.waves[wave].parts) if full else part, min(room, free))
        report = work.reports[work.waves[index].name]
        started = report.started or stamp(work.now)
        work.reports[report.name] = msgspec.structs.replace(report, started=started, settled=UNSET)
    return False


def _is_approved(work: _Work, wave: PlannedWave) -> bool:
    wanted = wave.declared.approval if wave.declared is not None else UNSET
    if not wanted:
        return True
    count, groups = wanted.count or 1, frozenset(wanted.groups or ())
    given = work.done.approvals(wave.name, groups)
    if len(given) >= count:
        return True
    who = f" of {', '.join(sorted(groups))}" if groups else ""
    missing = count - len(given)
    name = work.rollout.metadata.name
    text = f'wave "{wave.name}" needs {missing} approval{"s" if missing > 1 else ""}{who}'
    work.waits("Approval", f"{text}: planform rollout approve {name}")
    return False


def _gates_passed(work: _Work, index: int, part: int) -> bool:
    name = work.waves[index].name
    states = {each.name: each for each in work.reports[name].gates or ()}
    wanted = gates_of(work.rollout, work.waves[index])
    asking = [states[each] for each in wanted if each in states and states[each].verdict in _ASKS]
    if asking:
        one = asking[0]
        work.at(index, part, "Gating")
        work.waits("Inconclusive", f'gate "{one.name}" gives no verdict: {one.message or one.verdict}{_ASK_GATE}')
        return False
    if all(each in states and states[each].verdict in _DECIDED for each in wanted):
        return True
    work.at(index, part, "Gating")
    work.measure = name
    return False


_ASK_GATE: Final = "; planform rollout promote goes on, planform rollout resume measures again"


def gates_of(rollout: Rollout, wave: PlannedWave) -> list[str]:
    """The names of the gates after a wave."""
    names = [each.name for each in rollout.spec.strategy.gates or ()]
    if wave.declared is None or wave.declared.gates is UNSET:
        return names
    return [each for each in names if each in (wave.declared.gates or ())]


def _finish(work: _Work, index: int, part: int) -> None:
    name, counts = work.waves[index].name, work.facts.waves[index]
    report = work.reports[name]
    finished = report.finished
    over = part + 1 >= len(counts.parts)
    if over and counts.xrs and not finished:
        finished = stamp(work.now)
    work.reports[name] = msgspec.structs.replace(
        report,
        parts=part + 1,
        settled=UNSET,
        finished=finished,
        gates=report.gates if over else UNSET,  # the gates look at each part anew
    )


def _pending_before(work: _Work, index: int, part: int) -> int:
    """XRs that may go when it is this part's turn: its own, and those of earlier ones that came or got well since."""
    waves = work.facts.waves
    earlier = sum(each.pending for wave in waves[:index] for each in wave.parts)
    return earlier + sum(each.pending for each in waves[index].parts[: part + 1])


def _is_last_wave(index: int, end: int) -> bool:
    return index == end - 1


def _done_parts(work: _Work, name: str) -> int:
    return work.reports[name].parts


# -- what the status says


def _counted(before: RolloutStatus, facts: Facts, done: Decided) -> RolloutStatus:
    parts = [part for wave in facts.waves for part in wave.parts]
    ready, moving, failed = (sum(getattr(each, name) for each in parts) for name in ("ready", "moving", "failed"))
    counts = Counts(
        xrs=sum(each.xrs for each in parts) + facts.put_off + facts.skipped + facts.pinned,
        target=ready + moving + failed + sum(each.deviated for each in parts),
        ready=ready,
        in_flight=moving,
        failed=failed,
        put_off=facts.put_off,
        deviated=facts.deviated,
        skipped=facts.skipped,
        pinned=facts.pinned,
        unmatched=facts.unmatched,
        by_hand=facts.by_hand,
    )
    return msgspec.structs.replace(
        before,
        counts=counts if facts.complete else before.counts,
        waiting=UNSET,
        failing=facts.failing[:MAX_FAILING] or UNSET,
        history=list(done.history) or UNSET,
    )


def _reports(before: RolloutStatus, facts: Facts, waves: Sequence[PlannedWave], done: Decided) -> dict[str, WaveStatus]:
    last = {each.name: each for each in before.waves or ()}
    reports = {}
    for planned, counts in zip(waves, facts.waves, strict=True):
        report = last.get(planned.name) or WaveStatus(name=planned.name)
        # Whoever resumes wants what did not pass to be measured again.
        kept = [each for each in report.gates or () if each.verdict not in _UNPASSED or not done.resumed_since(each)]
        if len(kept) != len(report.gates or ()):
            report = msgspec.structs.replace(report, gates=kept)
        if facts.complete:
            report = msgspec.structs.replace(
                report,
                xrs=counts.xrs,
                target=sum(each.xrs - each.pending for each in counts.parts),
                ready=sum(each.ready for each in counts.parts),
                in_flight=sum(each.moving for each in counts.parts),
                failed=counts.failed,
            )
        reports[planned.name] = report
    return reports


def _phase_before(before: RolloutStatus) -> Phase:
    return before.phase or "Pending"


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _share(limit: int | str, of: int) -> int:
    if isinstance(limit, int):
        return limit
    text = limit.strip()
    return int(of * float(text[:-1]) / 100) if text.endswith("%") else int(text)


def _xrs(count: int) -> str:
    return f"{count} XR{'' if count == 1 else 's'}"
