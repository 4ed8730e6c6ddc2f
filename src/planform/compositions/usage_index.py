"""Who uses which revision: every XR, its Composition and its revision, in memory.

Controllers of XRs tell what they know of each XR; the controller of Compositions asks before it deletes a revision and
counts for statuses. Nothing may be concluded from an absence before all kinds of XRs have been heard of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from planform.pipeline.revision_selectors import NO_SELECTOR, RevisionSelector
from planform.telemetry.metrics import MetricsRegistry

T = TypeVar("T")


class XrKey(NamedTuple):
    """One XR among those of all kinds; `kind` is `XApp.example.org`, the same for every version."""

    kind: str
    namespace: str
    name: str


class _Member(msgspec.Struct, frozen=True):
    composition: str
    revision: str
    selector: RevisionSelector


@dataclass(slots=True)
class _Users:
    """The XRs of one Composition, counted."""

    revisions: Counter[str]
    selectors: Counter[RevisionSelector]


class UsageIndex:
    """The XRs there are. Telling the same twice changes nothing and tells nobody."""

    def __init__(self, metrics: MetricsRegistry) -> None:
        self._members: dict[XrKey, _Member] = {}
        self._compositions: dict[str, _Users] = {}
        self._awaited: set[str] = set()
        self._gone: set[XrKey] = set()  # of the kinds that are awaited, those that have been forgotten since
        self._started = False
        self._listeners: list[tuple[Callable[[str], None], Callable[[], None]]] = []
        self._gauge = metrics.gauge(
            "planform_composition_revision_composites",
            "XRs that use a composition revision.",
            ["composition", "revision"],
        )
        self._shown: set[tuple[str, str]] = set()
        metrics.before_render(self._refresh)

    # -- what is told

    def set(self, xr: XrKey, composition: str, revision: str, selector: RevisionSelector = NO_SELECTOR) -> None:
        """An XR uses this revision, or none yet if it is empty, and follows those that the selector means."""
        member = _Member(composition, revision, selector)
        before = self._members.get(xr)
        if before == member:
            return
        self._members[xr] = member
        self._count(member, 1)
        if before is not None:
            self._count(before, -1)
        self._notify({composition} if before is None else {composition, before.composition})

    def seed(self, xr: XrKey, composition: str, revision: str, selector: RevisionSelector = NO_SELECTOR) -> None:
        """As `set`, from a list: what has been said of this XR since the list was made counts more."""
        if xr not in self._members and xr not in self._gone:
            self.set(xr, composition, revision, selector)

    def forget(self, xr: XrKey) -> None:
        """The XR is gone."""
        if xr.kind in self._awaited:
            self._gone.add(xr)
        member = self._members.pop(xr, None)
        if member is not None:
            self._count(member, -1)
            self._notify({member.composition})

    def expect(self, kind: str) -> None:
        """There is a kind of XRs whose members have not been told yet."""
        self._awaited.add(kind)

    def heard(self, kind: str) -> None:
        """Every XR of the kind has been told."""
        self._change_awaited(kind)

    def leave(self, kind: str) -> None:
        """The kind is gone, and its XRs with it."""
        for xr in [each for each in self._members if each.kind == kind]:
            self.forget(xr)
        self._change_awaited(kind)

    def started(self) -> None:
        """Every kind that there was at the start has been told with `expect`."""
        if not self._started:
            self._started = True
            self._notify_if_complete()

    # -- what is known

    def complete(self) -> bool:
        """Whether all XRs are known, so that a revision nobody is known to use is unused."""
        return self._started and not self._awaited

    def users(self, composition: str) -> Mapping[str, int]:
        """How many XRs use each revision of a Composition; those used by none are left out."""
        found = self._compositions.get(composition)
        return {} if found is None else {name: count for name, count in found.revisions.items() if name}

    def selectors(self, composition: str) -> Collection[RevisionSelector]:
        """The selectors by which XRs follow the revisions of a Composition, each once."""
        found = self._compositions.get(composition)
        return [] if found is None else [each for each in found.selectors if each]

    def revisions(self) -> dict[XrKey, str]:
        """The revision that every XR uses; empty as long as it uses none."""
        return {xr: member.revision for xr, member in self._members.items()}

    def subscribe(self, changed: Callable[[str], None], completed: Callable[[], None]) -> None:
        """Tell `changed` the Composition whose XRs moved, and `completed` that all XRs are known now."""
        self._listeners.append((changed, completed))

    def _count(self, member: _Member, by: int) -> None:
        users = self._compositions.get(member.composition)
        if users is None:
            users = self._compositions[member.composition] = _Users(Counter(), Counter())
        _add(users.revisions, member.revision, by)
        _add(users.selectors, member.selector, by)
        if not users.revisions:
            del self._compositions[member.composition]

    def _change_awaited(self, kind: str) -> None:
        if kind in self._awaited:
            self._awaited.remove(kind)
            self._gone = {each for each in self._gone if each.kind != kind}
            self._notify_if_complete()

    def _notify_if_complete(self) -> None:
        if self.complete():
            for _, completed in self._listeners:
                completed()

    def _notify(self, compositions: Collection[str]) -> None:
        for composition in compositions:
            for changed, _ in self._listeners:
                changed(composition)

    def _refresh(self) -> None:
        """Bring the gauge up to date; only somebody who reads metrics pays for it."""
        found = {(name, each): count for name in self._compositions for each, count in self.users(name).items()}
        for gone in self._shown - found.keys():
            self._gauge.remove(*gone)
        for labels, count in found.items():
            self._gauge.labels(*labels).set(count)
        self._shown = set(found)


def _add(counter: Counter[T], key: T, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]
