"""One object as the protocol carries it, and as authors read and write it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from planform_sdk import paths
from planform_sdk.enums import Ready

Object = dict[str, Any]
M = TypeVar("M")
T_co = TypeVar("T_co", covariant=True)

EXTERNAL_NAME = "crossplane.io/external-name"


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
    """Resources by name. Plain objects and models may be put in; they become Resources."""

    def __init__(self, given: Mapping[str, Resource | Object | msgspec.Struct] | None = None) -> None:
        super().__init__()
        if given:
            self.update(given)

    def __setitem__(self, name: str, value: Resource | Object | msgspec.Struct) -> None:
        super().__setitem__(name, value if isinstance(value, Resource) else Resource(value))

    def update(self, given: Mapping[str, Resource | Object | msgspec.Struct]) -> None:  # type: ignore[override]
        for name, value in given.items():
            self[name] = value

    def setdefault(self, name: str, value: Resource | Object | msgspec.Struct) -> Resource:
        if name not in self:
            self[name] = value
        return self[name]

    def copy(self) -> ResourceMap:
        twin = ResourceMap()
        for name, resource in self.items():
            dict.__setitem__(twin, name, resource.copy())
        return twin


def to_object(model: msgspec.Struct) -> Object:
    """A model as a plain object, without the fields that nobody set."""
    result: Object = msgspec.to_builtins(model, str_keys=True)
    return result
