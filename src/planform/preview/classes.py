"""The same change in many XRs is one class, shown once. Pure.

What is each XR's own (its name, namespace and uid, names of its resources) gives way to placeholders before changes are
compared. Counts, classes and the blast radius grow with each XR that is added, so that a shard needs to keep only what
its report will hold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import msgspec

from planform.api.previews import (
    MAX_EXAMPLES,
    RISKS,
    Blast,
    ChangeClass,
    FieldChange,
    ObjectChange,
    Outcome,
    Risk,
    Summary,
    XrEntry,
)
from planform.functions.sending import digest_of
from planform.pipeline.expectation import NOTHING, Expectation

MAX_NAMESPACES: Final = 50
_MAX_TEXT: Final = 120
TEAM_LABELS: Final = ("team", "example.org/team", "app.kubernetes.io/part-of")


@dataclass(frozen=True, kw_only=True)
class XrResult:
    """What a change does to one XR, before it is classed. `own` are the values that give way to placeholders."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    outcome: Outcome
    changes: tuple[ObjectChange, ...] = ()
    expectation: Expectation = NOTHING
    input: str = ""
    revision: str = ""
    drifting: tuple[str, ...] = ()
    unstable: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    message: str = ""
    team: str = ""
    own: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.namespace, self.name

    @property
    def shown(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass
class Classes:
    """All XRs of a preview, or of one shard's part of it."""

    summary: Summary = field(default_factory=Summary)
    blast: Blast = field(default_factory=Blast)
    _known: dict[str, _Class] = field(default_factory=dict)

    def add(self, result: XrResult) -> XrEntry:
        """Count it in; gives its entry of the report."""
        self._count(result)
        class_ = ""
        if result.outcome != "Unchanged":
            class_ = self._class(result)
        return XrEntry(
            kind=result.kind,
            name=result.name,
            namespace=result.namespace,
            uid=result.uid,
            outcome=result.outcome,
            class_=class_,
            input=result.input,
            revision=result.revision,
            expectation=msgspec.json.decode(msgspec.json.encode(result.expectation)),
            drifting=result.drifting,
            unstable=result.unstable,
            waits=result.waits,
            unchecked=result.unchecked,
            message=result.message,
        )

    def merge(self, summary: Summary, blast: Blast, classes: Iterable[ChangeClass]) -> None:
        """Take in what another shard found out."""
        self.summary.add(summary)
        self.blast.by_namespace = _added(self.blast.by_namespace, blast.by_namespace)
        self.blast.kinds = _added(self.blast.kinds, blast.kinds)
        self.blast.teams = _added(self.blast.teams, blast.teams)
        self.blast.namespaces += blast.namespaces  # shards share namespaces: an upper bound, mended by the caller
        for each in classes:
            known = self._known.setdefault(each.id, _Class(each.outcome, each.risk, each.change, each.changes))
            known.xrs += each.xrs
            known.examples = sorted({*known.examples, *each.examples})[:MAX_EXAMPLES]

    def classes(self) -> list[ChangeClass]:
        """The risky ones first, then those of the most XRs."""
        order = {risk: index for index, risk in enumerate(RISKS)}
        found = [
            ChangeClass(
                id=name,
                xrs=each.xrs,
                outcome=each.outcome,
                risk=each.risk,
                change=each.change,
                examples=tuple(each.examples),
                changes=each.changes,
            )
            for name, each in self._known.items()
        ]
        return sorted(found, key=lambda each: (order.get(each.risk, len(RISKS)), -each.xrs, each.id))

    def _count(self, result: XrResult) -> None:
        summary, outcome = self.summary, result.outcome
        summary.xrs += 1
        summary.unchanged += outcome == "Unchanged"
        summary.changed += outcome == "Changed"
        summary.failed += outcome == "Failed"
        summary.mended += outcome == "Mended"
        summary.invalid += outcome == "Invalid"
        summary.not_previewed += outcome == "NotPreviewed"
        summary.drifting += bool(result.drifting)
        summary.unstable += bool(result.unstable)
        if outcome == "Changed":
            actions = {change.action for change in result.changes}
            summary.creates += "Create" in actions
            summary.deletes += "Delete" in actions
            summary.recreates += "Recreate" in actions
        if outcome in ("Changed", "Failed", "Mended", "Invalid"):
            self._reach(result)

    def _reach(self, result: XrResult) -> None:
        blast = self.blast
        if result.namespace:
            blast.namespaces += result.namespace not in blast.by_namespace
            blast.by_namespace = _added(blast.by_namespace, {result.namespace: 1})
        blast.kinds = _added(blast.kinds, dict.fromkeys({change.kind for change in result.changes}, 1))
        if result.team:
            blast.teams = _added(blast.teams, {result.team: 1})

    def _class(self, result: XrResult) -> str:
        changes = tuple(sorted((placeheld(each, result.own) for each in result.changes), key=_order))
        message = _placed(result.message, result.own)
        name = "c" + digest_of([result.outcome, msgspec.to_builtins(changes), message]).hex()[:10]
        known = self._known.get(name)
        if known is None:
            risk = risk_of(result.outcome, changes)
            known = self._known[name] = _Class(result.outcome, risk, described(changes, message), changes)
        known.xrs += 1
        if len(known.examples) < MAX_EXAMPLES:
            known.examples.append(result.shown)
        return name


@dataclass
class _Class:
    outcome: Outcome
    risk: Risk | Any
    change: str
    changes: tuple[ObjectChange, ...]
    xrs: int = 0
    examples: list[str] = field(default_factory=list)


def risk_of(outcome: Outcome, changes: Iterable[ObjectChange]) -> Risk | Any:
    """The worst thing about it; empty if there is nothing to fear."""
    changes = list(changes)
    actions = {change.action for change in changes}
    if outcome == "Invalid":
        return "Invalid"
    if "Delete" in actions:
        return "Deletes"
    if "Recreate" in actions:
        return "Recreates"
    if outcome == "Failed":
        return "Fails"
    return "Loses" if any(map(_is_loss, changes)) else ""


def _is_loss(change: ObjectChange) -> bool:
    """Whether a field goes that a user has set."""
    is_xr = not change.resource and change.action == "Update"
    return is_xr and any(each.path.startswith("spec.") and each.after is msgspec.UNSET for each in change.fields)


def described(changes: tuple[ObjectChange, ...], message: str = "") -> str:
    """`Deployment "web": spec.replicas 1 -> 2, and 2 more`: a class in a line, the worst of it first."""
    if not changes:
        return message or "nothing that is shown"
    first = _line(changes[0])
    more = len(changes) - 1
    text = f"{first}; and {more} more object{'s' if more > 1 else ''}" if more else first
    return f"{text}: {message}" if message and message not in text else text


def placeheld(change: ObjectChange, own: Mapping[str, str]) -> ObjectChange:
    """The change with placeholders for what is the XR's own."""
    if not own:
        return change
    return msgspec.structs.replace(
        change,
        fields=tuple(
            FieldChange(path=_placed(each.path, own), before=_value(each.before, own), after=_value(each.after, own))
            for each in change.fields
        ),
        message=_placed(change.message, own),
    )


def _value(value: Any, own: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _placed(value, own)
    if isinstance(value, dict):
        return {_placed(key, own): _value(each, own) for key, each in value.items()}
    if isinstance(value, list):
        return [_value(each, own) for each in value]
    return value


def _placed(text: str, own: Mapping[str, str]) -> str:
    if not text or not own:
        return text
    return _pattern(tuple(sorted(filter(None, own), key=len, reverse=True))).sub(lambda hit: own[hit[0]], text)


@lru_cache(maxsize=64)
def _pattern(values: tuple[str, ...]) -> re.Pattern[str]:
    """Whole words only: an XR called `a` must not put its name into every word."""
    return re.compile("|".join(rf"(?<![A-Za-z0-9]){re.escape(each)}(?![A-Za-z0-9])" for each in values) or r"(?!)")


def _line(change: ObjectChange) -> str:
    what = f'{change.kind} "{change.resource}"' if change.resource else f"{change.kind} itself"
    match change.action:
        case "Delete":
            return f"{what} deleted"
        case "Create":
            return f"{what} created"
        case "Recreate":
            return f"{what} must be recreated: {change.forced_by or 'it'} cannot be changed in place"
        case "Fail":
            return f"{what} is refused: {shortened(change.message)}"
    if not change.fields:
        return f"{what}: values that are secret"
    first = change.fields[0]
    more = f", and {len(change.fields) - 1} more" if len(change.fields) > 1 else ""
    return f"{what}: {first.path}  {_side(first.before)} -> {_side(first.after)}{more}"


def _side(value: Any) -> str:
    if value is msgspec.UNSET:
        return "(none)"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return shortened(text, 50)


def shortened(text: str, limit: int = _MAX_TEXT) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _order(change: ObjectChange) -> tuple[int, str]:
    """What is worst first."""
    actions = ("Delete", "Recreate", "Fail", "Update", "Create")
    return actions.index(change.action), change.resource


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))
