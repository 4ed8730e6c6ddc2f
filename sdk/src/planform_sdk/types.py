"""The protocol's messages as plain values: what the SDK, the test kit and a control plane pass around in-process.

Field for field they are the messages of `proto/v1/run_function.proto`, with Python's own types instead of protobuf's.
Objects inside them may still be encoded; they are decoded when somebody looks. `planform_sdk.wire` turns these values
into bytes and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, overload

from planform_sdk.enums import Capability, Ready, Severity, Status, Target
from planform_sdk.resource import Deferred, Object, Resource, ResourceMap

__all__ = [
    "ENVIRONMENT",
    "Capability",
    "Condition",
    "Deferred",
    "LazyObject",
    "LazyState",
    "Object",
    "Ready",
    "RequestMeta",
    "Requirements",
    "Resource",
    "ResourceMap",
    "ResourceRef",
    "ResourceSelector",
    "ResponseMeta",
    "Result",
    "RunFunctionRequest",
    "RunFunctionResponse",
    "Schema",
    "SchemaSelector",
    "Severity",
    "State",
    "Status",
    "Target",
    "undecoded",
]

ENVIRONMENT = "apiextensions.crossplane.io/environment"
"""The key of the context under which steps share an environment."""


class LazyObject:
    """A field that holds an object, a Deferred one or None, and shows the object."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._slot = "_" + name

    @overload
    def __get__(self, instance: None, owner: type) -> None: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Object | None: ...

    def __get__(self, instance: object | None, owner: type) -> Object | None:
        if instance is None:  # dataclasses ask the class for the default
            return None
        value: Object | Deferred[Object] | None = instance.__dict__[self._slot]
        if value is None or isinstance(value, dict):
            return value
        instance.__dict__[self._slot] = decoded = value.decode()
        return decoded

    def __set__(self, instance: object, value: Object | Deferred[Object] | None) -> None:
        instance.__dict__[self._slot] = value


class LazyState:
    """A field that holds a State or a Deferred one, and shows the State; empty if none is given."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._slot = "_" + name

    @overload
    def __get__(self, instance: None, owner: type) -> None: ...
    @overload
    def __get__(self, instance: object, owner: type) -> State: ...

    def __get__(self, instance: object | None, owner: type) -> State | None:
        if instance is None:
            return None
        value: State | Deferred[State] | None = instance.__dict__[self._slot]
        if isinstance(value, State):
            return value
        instance.__dict__[self._slot] = state = State() if value is None else value.decode()
        return state

    def __set__(self, instance: object, value: State | Deferred[State] | None) -> None:
        instance.__dict__[self._slot] = value


def undecoded(instance: object, name: str) -> Any:
    """What a lazy field holds, decoded or not."""
    return instance.__dict__["_" + name]


@dataclass
class State:
    composite: Resource = field(default_factory=Resource)
    resources: ResourceMap = field(default_factory=ResourceMap)

    def copy(self) -> State:
        return State(self.composite.copy(), self.resources.copy())


@dataclass
class Schema:
    openapi_v3: LazyObject = LazyObject()


@dataclass
class RequestMeta:
    tag: str = ""
    capabilities: list[Capability] = field(default_factory=list)


@dataclass
class ResponseMeta:
    tag: str = ""
    ttl: timedelta | None = None


@dataclass(frozen=True)
class ResourceSelector:
    """Objects of one kind: the one with this name, those with these labels, or all if neither is given."""

    api_version: str
    kind: str
    match_name: str | None = None
    match_labels: Mapping[str, str] | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class SchemaSelector:
    api_version: str
    kind: str


@dataclass(frozen=True)
class ResourceRef:
    api_version: str
    kind: str
    name: str


@dataclass
class Requirements:
    resources: dict[str, ResourceSelector] = field(default_factory=dict)
    extra_resources: dict[str, ResourceSelector] = field(default_factory=dict)
    schemas: dict[str, SchemaSelector] = field(default_factory=dict)
    watch_resources: list[ResourceRef] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.resources or self.extra_resources or self.schemas or self.watch_resources)


@dataclass
class Result:
    severity: Severity
    message: str
    reason: str | None = None
    target: Target | None = None


@dataclass
class Condition:
    type: str
    status: Status
    reason: str
    message: str | None = None
    target: Target | None = None


@dataclass
class RunFunctionRequest:
    meta: RequestMeta = field(default_factory=RequestMeta)
    observed: LazyState = LazyState()
    desired: LazyState = LazyState()
    input: LazyObject = LazyObject()
    context: LazyObject = LazyObject()
    credentials: dict[str, dict[str, bytes]] = field(default_factory=dict)
    required_resources: dict[str, list[Resource]] = field(default_factory=dict)
    required_schemas: dict[str, Schema] = field(default_factory=dict)
    extra_resources: dict[str, list[Resource]] = field(default_factory=dict)


@dataclass
class RunFunctionResponse:
    meta: ResponseMeta = field(default_factory=ResponseMeta)
    desired: LazyState = LazyState()
    results: list[Result] = field(default_factory=list)
    context: LazyObject = LazyObject()
    requirements: Requirements = field(default_factory=Requirements)
    conditions: list[Condition] = field(default_factory=list)
    output: LazyObject = LazyObject()
