"""Which wave of a Rollout an XR belongs to, and which part of that wave. Pure: nothing of it is stored.

The answer follows from labels, the root of the XR's tree and a digest of its uid and the policy. XRs that are created,
deleted or relabelled meanwhile fall into place, and the same ones come first each time unless the policy shuffles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from typing import Any, Final, NamedTuple

import msgspec

from planform.api.rollouts import Strategy, Wave
from planform.apimachinery.selectors import LabelSelector

SUPERSEDED: Final = "superseded"
"""XRs that a superseded Rollout has moved: they come first."""
REST: Final = "rest"
ALREADY_FAILING: Final = "already-failing"
"""XRs that were not well when it was their turn: they come last, and nothing depends on them."""

_ALL: Final = (100,)


class Placement(NamedTuple):
    """A wave, by its index among `waves_of`, and a part of it, from 0."""

    wave: int
    part: int


@dataclass(frozen=True, slots=True)
class Member:
    """What the place of an XR rests on. `labels` are the XR's with its claim's over them."""

    uid: str
    labels: Mapping[str, str]
    namespace_labels: Mapping[str, str] | None = None
    root: str = ""
    """The uid of the root of its tree, if that is another XR."""
    superseded: bool = False


@dataclass(frozen=True)
class PlannedWave:
    """A wave of a strategy, ready to be asked. `declared` is None for those that planform adds."""

    name: str
    declared: Wave | None = None
    xrs: LabelSelector | None = None
    namespaces: LabelSelector | None = None
    shares: tuple[int, ...] = _ALL

    def takes(self, member: Member) -> bool:
        if self.xrs is not None and not self.xrs.matches(member.labels):
            return False
        if self.namespaces is None:
            return True
        return member.namespace_labels is not None and self.namespaces.matches(member.namespace_labels)


def waves_of(strategy: Strategy) -> tuple[PlannedWave, ...]:
    """All waves in order: what was superseded, those of the policy, what they leave, and what was not well."""
    declared = [
        PlannedWave(each.name, each, _selector(each.xrs), _selector(each.namespaces), _shares(each))
        for each in strategy.waves or ()
    ]
    return (PlannedWave(SUPERSEDED), *declared, PlannedWave(REST), PlannedWave(ALREADY_FAILING))


def place(
    strategy: Strategy, members: Iterable[Member], *, seed: str, waves: Sequence[PlannedWave] | None = None
) -> dict[str, Placement]:
    """The place of every member, by uid. `seed` is what the order rests on beside uids: the policy's name."""
    planned = waves_of(strategy) if waves is None else waves
    everybody = list(members)
    known = {each.uid for each in everybody}
    leaders = everybody
    if strategy.unit == "Root":  # trees move together: the place of the root is everybody's
        leaders = [each for each in everybody if not each.root or each.root not in known]
    placed = _place(planned, sorted(leaders, key=lambda each: _rank(each.uid, seed)))
    for each in everybody:
        if each.uid not in placed:
            placed[each.uid] = placed[each.root]
    return placed


def parts_of(wave: PlannedWave, members: Iterable[Member]) -> int:
    """How many parts a wave has: with spread Serial, its shares for each value of the label."""
    declared = wave.declared
    if declared is not None and declared.spread and declared.spread.order == "Serial":
        label = declared.spread.label
        return len(wave.shares) * max(1, len({each.labels.get(label, "") for each in members}))
    return len(wave.shares)


def _place(waves: Sequence[PlannedWave], ordered: Sequence[Member]) -> dict[str, Placement]:
    """As `place`; the members come in the order in which they move."""
    taken: list[list[Member]] = [[] for _ in waves]
    for member in ordered:
        taken[_wave_of(waves, taken, member)].append(member)
    return {uid: Placement(index, part) for index, wave in enumerate(waves) for uid, part in _parts(wave, taken[index])}


def _wave_of(waves: Sequence[PlannedWave], taken: Sequence[Sequence[Member]], member: Member) -> int:
    if member.superseded:
        return 0
    for index, wave in enumerate(waves[1:-2], 1):
        limit = wave.declared.max if wave.declared is not None else msgspec.UNSET
        if wave.takes(member) and (limit is msgspec.UNSET or len(taken[index]) < limit):
            return index
    return len(waves) - 2


def _parts(wave: PlannedWave, members: Sequence[Member]) -> Iterable[tuple[str, int]]:
    spread = wave.declared.spread if wave.declared is not None else None
    if not spread:
        yield from _shared_out(wave.shares, members)
        return
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(member.labels.get(spread.label, ""), []).append(member)
    for index, value in enumerate(sorted(groups)):
        offset = index * len(wave.shares) if spread.order == "Serial" else 0
        for uid, part in _shared_out(wave.shares, groups[value]):
            yield uid, offset + part


def _shared_out(shares: Sequence[int], members: Sequence[Member]) -> Iterable[tuple[str, int]]:
    """Each part ends where its share of all is reached; a share of anybody is at least one."""
    ends = [ceil(share * len(members) / 100) for share in shares]
    part = 0
    for number, member in enumerate(members):
        while part < len(ends) - 1 and number >= ends[part]:
            part += 1
        yield member.uid, part


def _shares(wave: Wave) -> tuple[int, ...]:
    """Growing shares of which the last is everybody, whatever the policy left out."""
    given = sorted({each for each in wave.percent or () if 0 < each < 100})
    return (*given, 100)


def _rank(uid: str, seed: str) -> bytes:
    return blake2b(f"{seed}/{uid}".encode(), digest_size=8).digest()


def _selector(declared: Any) -> LabelSelector | None:
    return LabelSelector.from_object(msgspec.to_builtins(declared)) if declared else None
