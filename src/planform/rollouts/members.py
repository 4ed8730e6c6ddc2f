"""The XRs that one Rollout is about, counted by wave, part and state as they change.

A xrs of ten thousand is looked at once; after that every change of an XR costs as much as one XR does. Where an XR
belongs is worked out anew only when XRs come, go or change their labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from planform.api.kinds import Object
from planform.api.rollouts import MAX_FAILING, Failing, RevisionChange, Rollout
from planform.client.informer import version_number
from planform.clock import Clock, timestamp
from planform.compositions.usage_index import XrKey
from planform.rollouts.durations import parse_duration
from planform.rollouts.facts import Facts, PartCounts, State, WaveCounts
from planform.rollouts.waves import Member, Placement, parts_of, place, waves_of
from planform.rollouts.xr_facts import XrView, state_of

_DEADLINE: Final = "10m"
_IN_A_WAVE: Final = (State.PENDING, State.MOVING, State.READY, State.FAILED, State.DEVIATED)


@dataclass(slots=True)
class _Tracked:
    view: XrView
    state: State
    since: float
    """Since when, in this process, it has been in this state: a restart gives everybody the whole deadline again."""
    seen: str
    """The same, for people."""


class Members:
    """What a Rollout's XRs come to. `namespaces` gives the labels of a namespace."""

    def __init__(self, rollout: Rollout, clock: Clock, namespaces: Callable[[str], Mapping[str, str] | None]) -> None:
        self._rollout = rollout
        self._strategy = rollout.spec.strategy
        self._clock = clock
        self._namespaces = namespaces
        self._changes = {each.composition: each for each in rollout.spec.changes}
        self._targets: dict[str, Object] = {}
        self._tracked: dict[XrKey, _Tracked] = {}
        self._placed: dict[str, Placement] = {}
        self._waves = waves_of(self._strategy)
        self._part_count = [len(each.shares) for each in self._waves]
        self._stale = True
        budget = self._strategy.budget
        self._deadline = parse_duration((budget.progress_deadline if budget else "") or _DEADLINE).total_seconds()
        self._min_ready = parse_duration(self._strategy.min_ready or "0s").total_seconds()
        self._released: frozenset[str] = frozenset()

    def targets(self, revisions: Mapping[str, Object], released: Iterable[str]) -> None:
        """The target revision of each Composition, for the labels that selectors look at, and what is released."""
        known = frozenset(released)
        if revisions.keys() != self._targets.keys() or known != self._released:
            self._targets, self._released = dict(revisions), known
            for tracked in list(self._tracked.values()):
                self.set(tracked.view)
            self._stale = True

    def set(self, view: XrView) -> None:
        """An XR is this now."""
        change = self._changes.get(view.composition)
        if change is None:
            self.forget(view.key)
            return
        before = self._tracked.get(view.key)
        if before is not None and _is_older(view, before.view):
            return  # an admission knows what it wrote before the watch tells of it
        state = self._state(view, change)
        outside = state is State.OUTSIDE
        if (
            before is None
            or (before.state is State.OUTSIDE) != outside
            or self._membership(before.view) != self._membership(view)
        ):
            self._stale = True
        if before is None or before.state is not state:
            now = self._clock.monotonic()
            self._tracked[view.key] = _Tracked(view, state, now, timestamp(self._clock.now()))
        else:
            before.view = view

    def forget(self, key: XrKey) -> None:
        if self._tracked.pop(key, None) is not None:
            self._stale = True

    def relabelled(self) -> None:
        """A namespace has other labels."""
        self._stale = True

    def facts(self) -> Facts:
        """How many there are in each state, now."""
        self._place()
        waves = [
            WaveCounts(wave.name, [PartCounts() for _ in range(count)])
            for wave, count in zip(self._waves, self._part_count, strict=True)
        ]
        facts = Facts(waves)
        now, unmatched = self._clock.monotonic(), len(self._waves) - 2
        for tracked in self._tracked.values():
            state = self._now(tracked, now)
            if state in _IN_A_WAVE:
                self._count(facts, waves, tracked, state, unmatched)
            elif state is State.PUT_OFF:
                facts.put_off += 1
            elif state is State.SKIPPED:
                facts.skipped += 1
            elif state is State.PINNED:
                facts.pinned += 1
            facts.deviated += tracked.view.deviates and tracked.view.carried_out == self.target_of(
                tracked.view.composition
            )
            self._count_returning(facts, tracked)
        return facts

    def next_change(self) -> float | None:
        """After how many seconds time alone changes something: a deadline passes, or somebody has been ready long
        enough."""
        now, waits = self._clock.monotonic(), []
        for tracked in self._tracked.values():
            if tracked.state is State.MOVING:
                waits.append(tracked.since + self._deadline - now)
            elif tracked.state is State.READY and self._min_ready:
                waits.append(tracked.since + self._min_ready - now)
        return max(0.0, min((each for each in waits if each > 0), default=0.0)) or None if waits else None

    def candidates(self, wave: int, part: int, *, put_off: bool) -> Iterator[XrView]:
        """Who may be moved when it is this part's turn, in the order of their places; the last wave also takes those
        who are not well."""
        self._place()
        limit = Placement(wave, part)
        waiting = [
            (self._placed[each.view.uid], each.view)
            for each in self._tracked.values()
            if each.state is State.PENDING and self._placed[each.view.uid] <= limit
        ]
        if put_off:
            waiting += [
                (Placement(len(self._waves), 0), each.view)
                for each in self._tracked.values()
                if each.state is State.PUT_OFF
            ]
        waiting.sort(key=lambda each: (each[0], each[1].key))
        return (view for _, view in waiting)

    def moved_in(self, wave: str) -> Iterator[XrView]:
        """The XRs of a wave that refer to the target."""
        self._place()
        index = next(number for number, each in enumerate(self._waves) if each.name == wave)
        for tracked in self._tracked.values():
            if tracked.state in _IN_A_WAVE[1:] and self._placed[tracked.view.uid].wave == index:
                yield tracked.view

    def views(self) -> Iterator[tuple[XrView, State, str]]:
        """Everybody, with their state and wave, for whoever wants to show it."""
        self._place()
        for tracked in self._tracked.values():
            if tracked.state is not State.OUTSIDE:
                yield tracked.view, tracked.state, self._waves[self._placed[tracked.view.uid].wave].name

    def target_of(self, composition: str) -> str:
        return self._changes[composition].to

    def _state(self, view: XrView, change: RevisionChange) -> State:
        target = self._targets.get(view.composition)
        follows = target is None or not view.selector or view.selector.matches(target)
        return state_of(view, change.to, self._strategy, follows=follows)

    def _now(self, tracked: _Tracked, now: float) -> State:
        """The state, given how long it has lasted."""
        if tracked.state is State.MOVING and now - tracked.since >= self._deadline:
            return State.FAILED
        if tracked.state is State.READY and now - tracked.since < self._min_ready:
            return State.MOVING
        return tracked.state

    def _count(self, facts: Facts, waves: list[WaveCounts], tracked: _Tracked, state: State, unmatched: int) -> None:
        wave, part = self._placed[tracked.view.uid]
        counts = waves[wave].parts[part]
        if wave == unmatched and self._strategy.waves:
            facts.unmatched += 1
        if state is State.PENDING:
            counts.pending += 1
        elif state is State.MOVING:
            counts.moving += 1
        elif state is State.READY:
            counts.ready += 1
        elif state is State.DEVIATED:
            counts.deviated += 1
            if len(facts.failing) < MAX_FAILING:
                facts.failing.append(self._failing(tracked, waves[wave].name))
        else:
            counts.failed += 1
            if len(facts.failing) < MAX_FAILING:
                facts.failing.append(self._failing(tracked, waves[wave].name))

    def _count_returning(self, facts: Facts, tracked: _Tracked) -> None:
        view = tracked.view
        if view.revision == self._changes[view.composition].to and not view.deleted:
            if not view.manual and not view.paused and not view.owned_by:
                facts.returning += 1
            if view.manual or view.owned_by:
                facts.by_hand += 1

    def _failing(self, tracked: _Tracked, wave: str) -> Failing:
        view = tracked.view
        where = f"{view.key.namespace}/{view.key.name}" if view.key.namespace else view.key.name
        late = "" if tracked.state in (State.FAILED, State.DEVIATED) else f"not settled after {self._deadline:g} s"
        message = "; ".join(each for each in (late, view.message) if each)
        return Failing(xr=f"{view.key.kind} {where}", wave=wave, since=tracked.seen, message=message)

    def _place(self) -> None:
        if not self._stale:
            return
        views = [each.view for each in self._tracked.values() if each.state is not State.OUTSIDE]
        owners = {each.uid: each.owner for each in views} if self._strategy.unit == "Root" else {}
        members = [self._member(each, _root(each.owner, owners)) for each in views]
        seed = self._rollout.spec.policy or self._rollout.metadata.name
        if self._strategy.shuffle:
            seed = self._rollout.metadata.uid
        self._placed = place(self._strategy, members, seed=seed, waves=self._waves)
        counts = [parts_of(wave, members) for wave in self._waves]
        for at in self._placed.values():
            counts[at.wave] = max(counts[at.wave], at.part + 1)
        self._part_count = counts
        self._stale = False

    def _member(self, view: XrView, root: str) -> Member:
        return Member(
            uid=view.uid,
            labels=view.labels,
            namespace_labels=self._namespaces(view.home) if view.home else None,
            root=root,
            superseded=self._is_superseded(view),
        )

    def _is_superseded(self, view: XrView) -> bool:
        """Whether an earlier Rollout moved it, and did not come to an end."""
        change = self._changes[view.composition]
        elsewhere = view.revision not in ("", change.to, change.from_ or "")
        return elsewhere and not view.manual and view.revision not in self._released

    def _has_another_place(self, before: XrView, view: XrView) -> bool:
        """Whether it may have another place now."""
        return self._membership(before) != self._membership(view)

    def _membership(self, view: XrView) -> tuple[object, ...]:
        """What its place rests on."""
        return view.uid, view.labels, view.home, view.owner, view.composition, self._is_superseded(view)


def _is_older(view: XrView, known: XrView) -> bool:
    return view.uid == known.uid and version_number(view.version) < version_number(known.version)


def _root(owner: str, owners: Mapping[str, str]) -> str:
    """The uid at the top of a tree, as far up as XRs of the Rollout go."""
    root = ""
    while owner in owners:
        root, owner = owner, owners[owner]
    return root
