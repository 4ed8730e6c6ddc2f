"""The input of status-transformer: hooks of what must match and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from planform.builtin.inputs import InputObject, Part, required
from planform.errors import FieldError
from planform.machinery.names import invalid

MATCH_TYPES: Final = (
    "AllResourcesMatchAllConditions",
    "AllResourcesMatchAnyCondition",
    "AnyResourceMatchesAllConditions",
    "AnyResourceMatchesAnyCondition",
)
_TARGETS: Final = ("Composite", "CompositeAndClaim")


class ResourceMatcher(Part, frozen=True, kw_only=True):
    name: str = ""


class ConditionMatcher(Part, frozen=True, kw_only=True):
    """What is left out matches anything."""

    type: str = ""
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class Matcher(Part, frozen=True, kw_only=True):
    name: str = ""
    type: str = MATCH_TYPES[0]
    resources: tuple[ResourceMatcher, ...] = ()
    conditions: tuple[ConditionMatcher, ...] = ()
    include_composite_as_resource: bool = False
    include_extra_resources: bool = False


class ConditionToSet(Part, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class SetCondition(Part, frozen=True, kw_only=True):
    target: str = "Composite"
    force: bool = False
    condition: ConditionToSet = msgspec.field(default_factory=ConditionToSet)


class EventToCreate(Part, frozen=True, kw_only=True):
    type: str = "Normal"
    reason: str = ""
    message: str = ""


class CreateEvent(Part, frozen=True, kw_only=True):
    target: str = "Composite"
    event: EventToCreate = msgspec.field(default_factory=EventToCreate)


class Hook(Part, frozen=True, kw_only=True):
    """All matchers must match, and none of them always does."""

    matchers: tuple[Matcher, ...] = ()
    set_conditions: tuple[SetCondition, ...] = ()
    create_events: tuple[CreateEvent, ...] = ()


class Input(InputObject, frozen=True, kw_only=True):
    status_condition_hooks: tuple[Hook, ...] = ()


def input_errors(spec: Input) -> Iterator[FieldError]:
    for index, hook in enumerate(spec.status_condition_hooks):
        path = f"statusConditionHooks[{index}]"
        for number, matcher in enumerate(hook.matchers):
            if matcher.type not in MATCH_TYPES:
                known = ", ".join(MATCH_TYPES)
                yield invalid(f"{path}.matchers[{number}].type", matcher.type, f"must be one of {known}")
        for number, wanted in enumerate(hook.set_conditions):
            yield from _target_errors(f"{path}.setConditions[{number}]", wanted.target)
            for member in ("type", "status", "reason"):
                if not getattr(wanted.condition, member):
                    yield required(f"{path}.setConditions[{number}].condition.{member}")
        for number, created in enumerate(hook.create_events):
            yield from _target_errors(f"{path}.createEvents[{number}]", created.target)
            if created.event.type not in ("Normal", "Warning"):
                yield invalid(
                    f"{path}.createEvents[{number}].event.type", created.event.type, "must be Normal or Warning"
                )


def _target_errors(path: str, target: str) -> Iterator[FieldError]:
    if target not in _TARGETS:
        yield invalid(f"{path}.target", target, f"must be {' or '.join(_TARGETS)}")
