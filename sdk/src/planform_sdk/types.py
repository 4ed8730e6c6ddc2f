"""The protocol's messages as plain values: what the SDK, the test kit and a control plane pass around in-process.

Field for field they are the messages of `proto/v1/run_function.proto`, with Python's own types instead of protobuf's.
Objects inside them may still be encoded; they are decoded when somebody looks. `planform_sdk.wire` turns these values
into bytes and back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Any, Protocol, TypeVar, overload

import msgspec

from planform_sdk import paths

Object = dict[str, Any]
M = TypeVar("M")
T_co = TypeVar("T_co", covariant=True)

EXTERNAL_NAME = "crossplane.io/external-name"
ENVIRONMENT = "apiextensions.crossplane.io/environment"


class _OpenEnum(IntEnum):
    """An enum of the wire, where a newer peer may send numbers that we do not know."""

    @classmethod
    def _missing_(cls, value: object) -> _OpenEnum | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_, member._value_ = f"UNKNOWN_{value}", value
        return member


class Ready(_OpenEnum):
    UNSPECIFIED = 0
    TRUE = 1
    FALSE = 2

    def __bool__(self) -> bool:
        return self is Ready.TRUE


class Severity(_OpenEnum):
    UNSPECIFIED = 0
    FATAL = 1
    WARNING = 2
    NORMAL = 3


class Target(_OpenEnum):
    UNSPECIFIED = 0
    COMPOSITE = 1
    COMPOSITE_AND_CLAIM = 2


class Status(_OpenEnum):
    UNSPECIFIED = 0
    UNKNOWN = 1
    TRUE = 2
    FALSE = 3


class Capability(_OpenEnum):
    UNSPECIFIED = 0
    CAPABILITIES = 1
    REQUIRED_RESOURCES = 2
    CREDENTIALS = 3
    CONDITIONS = 4
    REQUIRED_SCHEMAS = 5


class Deferred(Protocol[T_co]):
    """A value that is made when first looked at, for instance from its encoded bytes."""

    def decode(self) -> T_co: ...


class Shared:
    """An object that belongs to somebody else: whoever looks at it gets a copy of their own."""

    __slots__ = ("value",)

    def __init__(self, value: Object) -> None:
        self.value = value

    def decode(self) -> Object:
        return copy_object(self.value)


def copy_object(value: Object) -> Object:
    """Copy an object deeply; through JSON text, which is several times faster than `copy.deepcopy`."""
    try:
        result: Object = msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError):
        return copy.deepcopy(value)
    return result


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


class Resource:
    """One object with its connection details and whether it is ready.

    Reads and writes like a dictionary; `get` and `set` take field paths (`spec.ports[0].name`,
    `metadata.annotations[example.org/team]`).
    """

    __slots__ = ("_object", "_ready", "connection_details", "version")

    def __init__(
        self,
        resource: Object | Deferred[Object] | msgspec.Struct | None = None,
        *,
        connection_details: dict[str, bytes] | None = None,
        ready: Ready | bool | None = None,
        version: tuple[str, str] | None = None,
    ) -> None:
        """`version` names this content for encoders that remember: the object's uid and resource version."""
        if resource is None:
            resource = {}
        self._object: Object | Deferred[Object] = (
            to_object(resource) if isinstance(resource, msgspec.Struct) else resource
        )
        self.connection_details = {} if connection_details is None else connection_details
        self._ready = ready if type(ready) is Ready else _readiness(ready)
        self.version = version

    @property
    def resource(self) -> Object:
        """The object itself. Whoever changes it owns it: see `copy`."""
        held = self._object
        if isinstance(held, dict):
            return held
        self._object = decoded = held.decode()
        return decoded

    @resource.setter
    def resource(self, value: Object | Deferred[Object] | msgspec.Struct) -> None:
        self._object = to_object(value) if isinstance(value, msgspec.Struct) else value
        self.version = None

    @property
    def ready(self) -> Ready:
        return self._ready

    @ready.setter
    def ready(self, value: Ready | bool | None) -> None:
        self._ready = _readiness(value)

    @property
    def undecoded(self) -> Object | Deferred[Object]:
        """The object as it is held, decoded or not."""
        return self._object

    def copy(self) -> Resource:
        """A resource that may be changed without a change to this one. The object is copied only if looked at."""
        held = self._object
        twin = Resource.__new__(Resource)
        twin._object = Shared(held) if isinstance(held, dict) else held
        twin.connection_details = dict(self.connection_details) if self.connection_details else {}
        twin._ready = self._ready
        twin.version = None
        return twin

    def __getitem__(self, key: str) -> Any:
        return self.resource[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.resource[key] = value

    def __delitem__(self, key: str) -> None:
        del self.resource[key]

    def __contains__(self, key: object) -> bool:
        return key in self.resource

    def __iter__(self) -> Iterator[str]:
        return iter(self.resource)

    def get(self, path: str, default: Any = None) -> Any:
        """Give what is at a field path, or the default if nothing is."""
        return paths.get(self.resource, path, default)

    def set(self, path: str, value: Any) -> None:
        """Put a value at a field path and make the objects on the way to it."""
        paths.set(self.resource, path, value)

    def delete(self, path: str) -> None:
        """Remove what is at a field path, if anything is."""
        paths.delete(self.resource, path)

    def merge(self, patch: Mapping[str, Any]) -> None:
        """Lay a patch over the object: objects merge key by key, anything else replaces."""
        paths.merge(self.resource, patch)

    def as_model(self, model: type[M]) -> M:
        """Read the object as a msgspec type; raises msgspec.ValidationError where it does not fit."""
        return msgspec.convert(self.resource, type=model)

    @property
    def api_version(self) -> str:
        return str(self.resource.get("apiVersion", ""))

    @property
    def kind(self) -> str:
        return str(self.resource.get("kind", ""))

    @property
    def name(self) -> str:
        return str(self.get("metadata.name", ""))

    @property
    def external_name(self) -> str | None:
        """The name in the external system, from the annotation that providers go by."""
        name: str | None = self.get(f"metadata.annotations[{EXTERNAL_NAME}]")
        return name

    @external_name.setter
    def external_name(self, name: str) -> None:
        self.set(f"metadata.annotations[{EXTERNAL_NAME}]", name)

    def condition(self, type: str) -> Object | None:
        """Give a condition of the object's status, or None if it has no such condition."""
        conditions = self.get("status.conditions")
        if not isinstance(conditions, list):
            return None
        return next((each for each in conditions if isinstance(each, dict) and each.get("type") == type), None)

    def is_true(self, condition: str) -> bool:
        """Whether the object's status has this condition and it is `"True"`."""
        found = self.condition(condition)
        return found is not None and found.get("status") == "True"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Resource):
            return NotImplemented
        return (
            self.resource == other.resource
            and self.connection_details == other.connection_details
            and self.ready == other.ready
        )

    __hash__ = None  # type: ignore[assignment]  # mutable, like a dictionary

    def __repr__(self) -> str:
        return f"Resource({self.resource!r}, ready={self.ready.name})"


def _readiness(value: Ready | bool | None) -> Ready:
    if isinstance(value, Ready):
        return value
    if value is None:
        return Ready.UNSPECIFIED
    return Ready.TRUE if value else Ready.FALSE


class ResourceMap(dict[str, Resource]):
    """Resources by name. A dictionary or a model may be assigned; it becomes a Resource."""

    def __setitem__(self, name: str, value: Resource | Object | msgspec.Struct) -> None:
        super().__setitem__(name, value if isinstance(value, Resource) else Resource(value))

    def copy(self) -> ResourceMap:
        twin = ResourceMap()
        for name, resource in self.items():
            dict.__setitem__(twin, name, resource.copy())
        return twin


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


def to_object(model: msgspec.Struct) -> Object:
    """A model as a plain object, without the fields that nobody set."""
    result: Object = msgspec.to_builtins(model, str_keys=True)
    return result
