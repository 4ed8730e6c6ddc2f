"""Which revision a package makes, which of its revisions are active, and which have to go. Pure decisions.

A revision is known by its content, not by how often the package object was edited: going back to a package that was
installed before is going back to its revision, under a new and highest number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planform.api.names import PACKAGE_LABEL
from planform.apimachinery.names import child_name, label_value_problems

VERSION_LABEL: Final = "pkg.crossplane.io/version"
DIGEST_LABEL: Final = "pkg.crossplane.io/digest"
NUMBER_LABEL: Final = "pkg.crossplane.io/revision-number"
COPIED_LABELS_ANNOTATION: Final = "planform.dev/copied-labels"
"""The keys of the labels that a revision has from its package, so that one taken off there is taken off here."""

_SYSTEM_PREFIX: Final = "pkg.crossplane.io/"
_HEAD_LENGTH: Final = 50
_DIGEST_LENGTH: Final = 12


@dataclass(frozen=True, slots=True)
class Known:
    """A revision there is. `works` if it could be called."""

    name: str
    number: int
    active: bool
    works: bool = True
    users: int = 0
    """How many XRs have a step that chooses it."""
    pinned: bool = False
    """Whether a revision of a Composition under a RolloutPolicy pins it that somebody may need."""


def content_of(package: str, runtime: str = "") -> str:
    """What a package reference stands for: its digest if it has one. `runtime` is what else makes it another thing."""
    return f"{package.partition('@')[2] or package}|{runtime}"


def revision_name(package: str, content: str) -> str:
    """The name of the package's revision with this content: a DNS label, as Services are named after it."""
    return child_name(package[:_HEAD_LENGTH].replace(".", "-"), package, "|", content)


def number_of(current: str, known: Sequence[Known]) -> int:
    """The number of the current revision: the highest, which it keeps if it has it."""
    numbers = {each.name: each.number for each in known}
    highest = max(numbers.values(), default=0)
    return highest if highest and numbers.get(current) == highest else highest + 1


def active_revisions(known: Sequence[Known], *, limit: int, retain: bool = True) -> frozenset[str]:
    """The revisions that are active under the policy Automatic: the `limit` highest-numbered ones.

    As long as none of these works, the newest active one that does stays, so that pipelines have something to call.
    `retain` adds every one that somebody uses, also if it was deactivated before. What is pinned is always active, and
    does not count towards the limit.
    """
    chosen, older = _newest(known, limit)
    if not any(each.works for each in chosen):
        chosen += [each for each in older if each.active and each.works][:1]
    if retain:
        chosen += [each for each in older if each.users]
    chosen += [each for each in older if each.pinned]
    return frozenset(each.name for each in chosen)


def retained_revisions(known: Sequence[Known], *, limit: int) -> tuple[str, ...]:
    """The revisions that are active above the limit because somebody uses them, newest first. While none of the newest
    works, the one that stands in for them is not among these: it goes by itself. Nor is what a policy has pinned."""
    chosen, older = _newest(known, limit)
    if not any(each.works for each in chosen):
        return ()
    return tuple(each.name for each in older if each.active and each.users and not each.pinned)


def how_to_activate(function: str, rank: int, *, history: int, deactivates: bool) -> str:
    """What to change in a Function so that its `rank`th newest revision is active, if it decides that by itself.

    The API refuses more active revisions than are kept.
    """
    kept = f" and revisionHistoryLimit: {rank}" if 0 < history < rank else ""
    text = f'set activeRevisionLimit: {rank}{kept} in the spec of Function "{function}"'
    return f"{text}, or inUsePolicy: Retain, which keeps active what XRs use" if deactivates else text


def _newest(known: Sequence[Known], limit: int) -> tuple[list[Known], list[Known]]:
    newest = sorted(known, key=lambda each: (each.number, each.name), reverse=True)
    return newest[:limit], newest[limit:]


def surplus_revisions(known: Sequence[Known], current: str, *, history: int) -> tuple[str, ...]:
    """The revisions beyond `history` and one more, oldest first; 0 keeps all. Never the current one, or one
    that is active, in use or pinned."""
    surplus = len(known) - (history + 1)
    if not history or surplus <= 0:
        return ()
    candidates = [each for each in known if not (each.active or each.users or each.pinned or each.name == current)]
    candidates.sort(key=lambda each: (each.number, each.name))
    return tuple(each.name for each in candidates[:surplus])


def system_labels(package: str, image: str, number: int = 0, digest: str = "") -> dict[str, str]:
    """The labels of a revision that nobody else may set: its package and number, and which version of it this is."""
    labels = {PACKAGE_LABEL: package, **({NUMBER_LABEL: str(number)} if number else {})}
    if digest:
        labels[DIGEST_LABEL] = digest.rpartition(":")[2][:_DIGEST_LENGTH]
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if tag and not label_value_problems(tag):
        labels[VERSION_LABEL] = tag
    return labels


def copied_labels(*sources: Mapping[str, str]) -> dict[str, str]:
    """What a revision gets from its package; the last source that has a label counts. System labels are never copied,
    or a package could pass its revisions off as another's."""
    return {
        key: value for source in sources for key, value in sorted(source.items()) if not key.startswith(_SYSTEM_PREFIX)
    }


def stale_labels(present: Mapping[str, str], noted: str, copied: Mapping[str, str]) -> Iterable[str]:
    """The labels that were copied before and are not any more; labels that users put on the revision stay."""
    return sorted(key for key in filter(None, noted.split(",")) if key in present and key not in copied)
