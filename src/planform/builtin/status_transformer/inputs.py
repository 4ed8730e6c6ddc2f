"""The input of status-transformer: hooks of what must match and what follows from it."""

from __future__ import annotations

import msgspec

from planform.builtin.inputs import InputObject, Part


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
    type: str = "AllResourcesMatchAllConditions"
    """Or All...AnyCondition, AnyResourceMatches...AllConditions or ...AnyCondition; another one counts as the first."""
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
    """All matchers must match; without any it never fires."""

    matchers: tuple[Matcher, ...] = ()
    set_conditions: tuple[SetCondition, ...] = ()
    create_events: tuple[CreateEvent, ...] = ()


class Input(InputObject, frozen=True, kw_only=True):
    status_condition_hooks: tuple[Hook, ...] = ()
