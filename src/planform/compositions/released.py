"""Whether a Composition's revisions are released: derived from policies, Rollouts and RolloutActions. Pure.

The condition `Released` of a revision only mirrors what is derived here. Specs of Rollouts and RolloutActions survive
every restore and statuses do not, so nothing rests on a status alone: where the status is lost, a revision that no
Rollout tells of is held unless another one is newer, and a Rollout whose XRs are all there completes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from planform.api.conditions import XrCondition
from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.api.rollouts import RevisionChange, Rollout, RolloutAction, RolloutPolicy
from planform.compositions.pinning import functions_of, is_made_again
from planform.compositions.revisions import matches, newest_first, number_of
from planform.compositions.selection import RELEASED, is_validated, release_of

Verdict = Literal["Active", "Completed", "Aborted", "Superseded", "Undone"]

DEFAULT_ROLLBACK: Final = 3
"""Released revisions that a policy keeps if it does not say how many."""
_REASONS: Final[Mapping[Verdict, str]] = {
    "Active": "InRollout",
    "Completed": "Released",
    "Aborted": "Aborted",
    "Superseded": "Superseded",
    "Undone": "Undone",
}


@dataclass(frozen=True, slots=True)
class Record:
    """What a Rollout and its actions say of one Composition."""

    rollout: str
    change: RevisionChange
    attempt: int
    verdict: Verdict
    message: str = ""
    completed: datetime | None = None
    """When it was completed, if it was."""

    @property
    def order(self) -> tuple[int, int]:
        return self.change.to_number, self.attempt


@dataclass(frozen=True, slots=True)
class Derived:
    """The revisions of a Composition, judged. `conditions` has none for a revision that no policy has ever held."""

    stable: str
    """The revision that followers without a Rollout have; empty if there is none."""
    conditions: Mapping[str, XrCondition]
    awaits: str = ""
    """The newest revision, if it is held and has no Rollout yet."""


def verdict_of(actions: Iterable[RolloutAction]) -> tuple[Verdict, str]:
    """What a Rollout's actions come to, and who said so. Abort wins over everything: a stop has to stop."""
    found = {each.spec.action: each for each in actions}
    if "Abort" in found or "Fail" in found:
        return "Aborted", _words(found.get("Abort") or found["Fail"])
    if "Complete" in found and "Undo" in found:
        return "Undone", _words(found["Undo"])
    if "Complete" in found:
        return "Completed", ""
    return ("Superseded", _words(found["Supersede"])) if "Supersede" in found else ("Active", "")


def records_of(
    composition: str, uid: str, rollouts: Iterable[Rollout], actions: Mapping[str, Sequence[RolloutAction]]
) -> list[Record]:
    """What there is on record of a Composition, in order; what was about a deleted namesake of it is not."""
    found = []
    for rollout in rollouts:
        for change in rollout.spec.changes:
            if change.composition != composition or (change.uid and uid and change.uid != uid):
                continue
            verdict, words = verdict_of(actions.get(rollout.metadata.name, ()))
            if verdict == "Active" and rollout.metadata.is_deleted:
                verdict, words = "Aborted", f'Rollout "{rollout.metadata.name}" was deleted'
            done = _completed(actions.get(rollout.metadata.name, ()))
            found.append(Record(rollout.metadata.name, change, rollout.spec.attempt or 1, verdict, words, done))
    return sorted(found, key=lambda each: each.order)


def derive(revisions: Sequence[Object], records: Sequence[Record], *, held: bool) -> Derived:
    """Judge the revisions of one Composition. `held` says whether a policy holds the Composition."""
    ordered = newest_first(revisions)
    if not ordered or not (held or records or any(release_of(each) is not None for each in ordered)):
        return Derived(name_of(ordered[0]) if ordered else "", {})
    stable = stable_revision(ordered, records)
    active = held or any(each.verdict == "Active" for each in records)
    numbers = {name_of(each): number_of(each) for each in ordered}
    own = {(each.change.to, each.change.to_number): each for each in records}
    conditions: dict[str, XrCondition] = {}
    awaits = ""
    for index, revision in enumerate(ordered):
        name, number = name_of(revision), numbers[name_of(revision)]
        record = own.get((name, number))
        if record is not None and record.verdict == "Superseded" and index == 0 and held and name != stable:
            # Of a Rollout of several Compositions: another one's newer revision ended it, and this one still waits.
            awaits = name
            conditions[name] = _condition("Held", _WORDS[True])
        elif record is not None:
            conditions[name] = _condition(_REASONS[record.verdict], _message(record))
        elif name == stable or not active:
            conditions[name] = _condition("Released")
        elif number > numbers.get(stable, 0):
            awaits = name if index == 0 else awaits
            conditions[name] = _condition("Held" if index == 0 else "Superseded", _WORDS[index == 0])
        else:
            conditions[name] = _condition(*_old(revision, number, records))
    return Derived(stable, conditions, awaits)


def stable_revision(ordered: Sequence[Object], records: Sequence[Record]) -> str:
    """The name of the revision that was released last and not taken back; `ordered` are all, the newest first."""
    stable = ""
    for record in records:
        stable = stable or record.change.from_ or ""
        if record.verdict == "Completed":
            stable = record.change.to
        elif record.verdict in ("Undone", "Aborted"):
            stable = record.change.from_ or "" if stable == record.change.to else stable
    names = {name_of(each) for each in ordered}
    if stable in names:
        return _made_again(stable, ordered, records)
    # No Rollout has told yet. What was validated without a word about its release came before there was a policy.
    taken = {each.change.to for each in records}
    others = [each for each in ordered if name_of(each) not in taken]
    for each in others:
        release = release_of(each)
        if (release is not None and not release.withholds) or (release is None and is_validated(each)):
            return _made_again(name_of(each), ordered, records)
    if len(ordered) == 1 and others:  # the first one; also one whose Composition is not younger than its policy
        return name_of(ordered[0])
    older = [each for each in others if each is not ordered[0]]
    return _made_again(name_of(older[0]), ordered, records) if older else ""


def _made_again(stable: str, ordered: Sequence[Object], records: Sequence[Record]) -> str:
    """The stable revision as it was made again since: when a policy comes to hold, with the function revisions that
    run then. No Rollout tells of it, as nothing changes by it, and what comes after is compared with it."""
    told = {(each.change.to, each.change.to_number) for each in records}
    current = next(each for each in ordered if name_of(each) == stable)
    for each in reversed(ordered):
        newer = number_of(each) > number_of(current) and (name_of(each), number_of(each)) not in told
        if newer and is_made_again(current, each):
            current = each
    return name_of(current)


def policy_for(composition: Mapping[str, Any], policies: Iterable[RolloutPolicy]) -> tuple[RolloutPolicy | None, bool]:
    """The policy that holds a Composition, the most specific one, and whether several are as specific as it is.

    A policy that is for functions alone holds the Compositions that call one of them.
    """
    ranked: list[tuple[int, str, RolloutPolicy]] = []
    for policy in policies:
        rank = 0 if policy.metadata.is_deleted else _rank(composition, policy)
        if rank:
            ranked.append((-rank, policy.metadata.name, policy))
    ranked.sort(key=lambda each: each[:2])
    if not ranked:
        return None, False
    return ranked[0][2], len(ranked) > 1 and ranked[0][0] == ranked[1][0]


def kept_revisions(ordered: Sequence[Object], records: Sequence[Record], *, rollback: int) -> frozenset[str]:
    """The revisions that must not be collected: what is stable, on its way, or a way back."""
    kept = {stable_revision(ordered, records)}
    released = []
    for record in reversed(records):
        if record.verdict == "Active":
            kept |= {record.change.to, record.change.from_ or ""}
        elif record.verdict == "Completed":
            released.append(record.change.to)
    last = records[-1:] if records else ()
    kept |= {name for each in last for name in (each.change.to, each.change.from_ or "")}
    kept |= set(dict.fromkeys(released[: rollback + 1]))
    return frozenset(kept - {""})


def _completed(actions: Iterable[RolloutAction]) -> datetime | None:
    for each in actions:
        if each.spec.action == "Complete":
            return datetime.fromisoformat(each.spec.at or each.metadata.creation_timestamp or "1970-01-01T00:00:00Z")
    return None


def _rank(composition: Mapping[str, Any], policy: RolloutPolicy) -> int:
    """How specifically a policy means a Composition: by name 4, by label 3, by a function that it calls 2, as all
    others 1, not at all 0."""
    scope, functions = policy.spec.for_.compositions, policy.spec.for_.functions
    if scope:
        if scope.names:
            return 4 if name_of(composition) in scope.names else 0
        if scope.match_labels:
            return 3 if matches(composition, scope.match_labels) else 0
        return 1
    if not functions:
        return 0
    if functions.names:
        return 2 if not functions_of(composition["spec"]).isdisjoint(functions.names) else 0
    return 1


def _old(revision: Mapping[str, Any], number: int, records: Sequence[Record]) -> tuple[str, str]:
    """An older revision that no Rollout was about: once open, unless newer ones came before it could be."""
    release = release_of(revision)
    skipped = any((each.change.from_number or 0) < number < each.change.to_number for each in records)
    if skipped or (release is not None and release.withholds and release.reason in ("Held", "Superseded")):
        return "Superseded", _WORDS[False]
    return "Released", ""


def _condition(reason: str, message: str = "") -> XrCondition:
    return XrCondition(RELEASED, "True" if reason == "Released" else "False", reason, message)


_WORDS: Final[Mapping[bool, str]] = {
    True: "a RolloutPolicy holds it until its Rollout begins",
    False: "a newer revision came before it was released",
}


def _message(record: Record) -> str:
    words = f'Rollout "{record.rollout}"'
    return "" if record.verdict == "Completed" else f"{words}: {record.message}" if record.message else words


def _words(action: RolloutAction) -> str:
    reason = f": {action.spec.reason}" if action.spec.reason else ""
    return f"{action.spec.action} by {action.spec.by or 'planform'}{reason}"
