"""What a function is asked and what it answers, as plain values.

Objects are JSON-shaped dicts. Whoever receives a value must not change it: requests share objects with each other, and
a response is built from fresh dicts. The wire's names and numbers are in the function-protocol reference; fields here
carry the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from planform.api.kinds import Object as Object


class Ready(IntEnum):
    """Whether a resource is ready, as a function says; the wire's numbers."""

    UNSPECIFIED = 0
    TRUE = 1
    FALSE = 2


class Severity(IntEnum):
    UNSPECIFIED = 0
    FATAL = 1
    WARNING = 2
    NORMAL = 3


class Target(IntEnum):
    UNSPECIFIED = 0
    COMPOSITE = 1
    COMPOSITE_AND_CLAIM = 2


class Status(IntEnum):
    """The status of a condition."""

    UNSPECIFIED = 0
    UNKNOWN = 1
    TRUE = 2
    FALSE = 3


@dataclass(slots=True)
class Resource:
    """One object with what the protocol says about it beside its content."""

    resource: Object
    connection_details: Mapping[str, bytes] = field(default_factory=dict)
    ready: Ready = Ready.UNSPECIFIED


@dataclass(slots=True)
class State:
    """The XR and its composed resources by their names in the composition."""

    composite: Resource = field(default_factory=lambda: Resource({}))
    resources: dict[str, Resource] = field(default_factory=dict)


@dataclass(slots=True)
class FunctionRequest:
    """One call. `required_resources` holds an entry, possibly empty, for everything that was asked for and fetched."""

    observed: State = field(default_factory=State)
    desired: State = field(default_factory=State)
    input: Object | None = None
    context: Object = field(default_factory=dict)
    credentials: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    required_resources: dict[str, list[Resource]] = field(default_factory=dict)
    extra_resources: dict[str, list[Resource]] = field(default_factory=dict)
    """Deprecated on the wire: answers to `requirements.extra_resources`."""
    required_schemas: dict[str, Object | None] = field(default_factory=dict)
    tag: str = ""


@dataclass(slots=True)
class Result:
    severity: Severity
    message: str
    reason: str = ""
    target: Target = Target.UNSPECIFIED


@dataclass(slots=True)
class Condition:
    type: str
    status: Status
    reason: str
    message: str = ""
    target: Target = Target.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class ResourceSelector:
    """Which resources a function needs: one by name, many by labels (None: not by labels), or all of a kind."""

    api_version: str
    kind: str
    match_name: str = ""
    match_labels: Mapping[str, str] | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaSelector:
    api_version: str
    kind: str


@dataclass(frozen=True, slots=True)
class WatchedResource:
    """A resource that a function wants watched, by name; field 1000 of the requirements."""

    api_version: str
    kind: str
    name: str


@dataclass(slots=True)
class Requirements:
    """What a function still needs; compared by value to tell when a step has stabilised."""

    resources: dict[str, ResourceSelector] = field(default_factory=dict)
    extra_resources: dict[str, ResourceSelector] = field(default_factory=dict)
    schemas: dict[str, SchemaSelector] = field(default_factory=dict)
    watch_resources: list[WatchedResource] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.resources or self.extra_resources or self.schemas)


@dataclass(slots=True)
class FunctionResponse:
    """The whole answer: `desired` and `context` replace what was sent. `ttl` is in seconds; None means none given."""

    desired: State = field(default_factory=State)
    results: list[Result] = field(default_factory=list)
    context: Object = field(default_factory=dict)
    requirements: Requirements = field(default_factory=Requirements)
    conditions: list[Condition] = field(default_factory=list)
    output: Object | None = None
    ttl: float | None = None
    tag: str = ""
    deterministic: bool = False
    """Whether the function said of itself that the same request always gets this answer."""

    @property
    def fatal(self) -> Result | None:
        """The first fatal result, which ends the pipeline."""
        return next((result for result in self.results if result.severity is Severity.FATAL), None)


def respond(request: FunctionRequest) -> FunctionResponse:
    """An answer that passes everything on: the place to start from for every function."""
    desired = State(
        Resource(
            request.desired.composite.resource,
            request.desired.composite.connection_details,
            request.desired.composite.ready,
        ),
        dict(request.desired.resources),
    )
    return FunctionResponse(desired=desired, context=dict(request.context), tag=request.tag)
