"""How the answers of two revisions of a function to the same request differ. Pure.

Compared are the desired XR and resources with what is said of their readiness and connection details, the conditions,
and the context, which later steps see. Results are not: they are words for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from planform.functions.values import Object, Ready, Resource
from planform.journal.masking import RunMask
from planform.pipeline.pipeline import PipelineOutcome

Part = Literal["composite", "resource", "conditions", "context"]
Action = Literal["added", "changed", "removed"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that the answers have differently. `secret` if values differ that are not shown."""

    step: str
    part: Part
    action: Action
    before: Object | None
    after: Object | None
    resource: str = ""
    """The name in the composition."""
    secret: bool = False

    def value(self) -> dict[str, Any]:
        value: dict[str, Any] = {"step": self.step, "part": self.part, "action": self.action}
        value |= {"resource": self.resource} if self.resource else {}
        value |= {"before": self.before} if self.before is not None else {}
        value |= {"after": self.after} if self.after is not None else {}
        return value | ({"secretValuesDiffer": True} if self.secret else {})


def changes_between(step: str, old: PipelineOutcome, new: PipelineOutcome) -> list[Difference]:
    """What `new` has differently, resources by name and the rest before them."""
    found = [
        *_resource_change(step, "composite", "", old.desired.composite, new.desired.composite),
        *_plain_change(step, "conditions", _conditions(old), _conditions(new)),
        *_plain_change(step, "context", old.context, new.context),
    ]
    before, after = old.desired.resources, new.desired.resources
    for name in sorted(before.keys() | after.keys()):
        found += _resource_change(step, "resource", name, before.get(name), after.get(name))
    return found


def masked(changes: Iterable[Difference], secrets: frozenset[bytes]) -> list[Difference]:
    """The changes without secret values. What differs in nothing else is still a change, and says so."""
    kept = list(changes)
    raw = {
        id(shown): orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)
        for change in kept
        for shown in (change.before, change.after)
        if shown is not None
    }
    mask = RunMask(secrets, raw.values())

    def hidden(shown: Object | None) -> Object | None:
        if shown is None:
            return None
        hidden_part = mask.part(raw[id(shown)])
        return shown if hidden_part == raw[id(shown)] else dict(orjson.loads(hidden_part))

    return [_hidden(change, hidden(change.before), hidden(change.after)) for change in kept]


def _hidden(change: Difference, before: Object | None, after: Object | None) -> Difference:
    secret = change.secret or (change.action == "changed" and before == after)
    return Difference(change.step, change.part, change.action, before, after, change.resource, secret)


def _resource_change(
    step: str, part: Part, name: str, before: Resource | None, after: Resource | None
) -> Iterator[Difference]:
    if before == after:
        return
    action: Action = "added" if before is None else "removed" if after is None else "changed"
    old, new = _shown(before), _shown(after)
    yield Difference(step, part, action, old, new, name, secret=action == "changed" and old == new)


def _plain_change(step: str, part: Part, before: Object, after: Object) -> Iterator[Difference]:
    if before != after:
        action: Action = "changed" if before and after else "added" if after else "removed"
        yield Difference(step, part, action, before or None, after or None)


def _shown(resource: Resource | None) -> Object | None:
    """A resource with what is said of it beside its content; of connection details the names."""
    if resource is None:
        return None
    shown: Object = {"object": resource.resource}
    if resource.ready is not Ready.UNSPECIFIED:
        shown["ready"] = resource.ready is Ready.TRUE
    if resource.connection_details:
        shown["connectionDetails"] = sorted(resource.connection_details)
    return shown


def _conditions(outcome: PipelineOutcome) -> Object:
    found: Mapping[str, Any] = {
        each.condition.type: {
            "status": each.condition.status.name.title(),
            "reason": each.condition.reason,
            **({"message": each.condition.message} if each.condition.message else {}),
        }
        for each in outcome.conditions
    }
    return dict(found)
