"""What every object has, typed: its metadata, its owners and its conditions; and the base of the declared kinds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from planform.api.declarations import Declared, described, ruled
from planform.api.kinds import GroupVersionKind, gvk_of
from planform.api.metadata import name_of, namespace_of
from planform.errors import PlanformError


class OwnerReference(Declared, frozen=True, kw_only=True):
    """An object that another one belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Declared, frozen=True, kw_only=True):
    """The metadata of an object, which the API server itself checks: a CRD says no more of it than that it is there."""

    SCHEMA: ClassVar = ruled(description=None, properties=None)

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def is_deleted(self) -> bool:
        """Whether somebody has deleted the object, which is kept only by its finalizers."""
        return bool(self.deletion_timestamp)

    def label(self, name: str) -> str:
        return (self.labels or {}).get(name) or ""

    def annotation(self, name: str) -> str:
        return (self.annotations or {}).get(name) or ""


class TypedObject(Declared, frozen=True, kw_only=True):
    """An object of a declared kind, to be read and never written: `gvk` is the kind and version that it is read as."""

    gvk: ClassVar[GroupVersionKind]

    api_version: Annotated[str, described("The API group and version in which this object is written.")] = ""
    kind: Annotated[str, described("The kind of this object.")] = ""
    metadata: ObjectMeta = ObjectMeta()


Typed = TypeVar("Typed", bound=TypedObject)
Part = TypeVar("Part", bound=Declared)


class Condition(Declared, frozen=True, kw_only=True):
    """One condition."""

    SCHEMA: ClassVar = ruled(required=["lastTransitionTime", "reason", "status", "type"])

    type: Annotated[str, described("What the condition is about, such as Ready.")]
    status: Annotated[str, described("Whether it holds: True, False or Unknown.")]
    reason: Annotated[str, described("Why, as one word for programs.")] = ""
    message: Annotated[str, described("Why, as a sentence for people.")] | UnsetType = UNSET
    last_transition_time: Annotated[str, described("When the status last changed.", extra={"format": "date-time"})] = ""
    observed_generation: (
        Annotated[int, described("The generation of the object that this is said about.")] | UnsetType
    ) = UNSET


class Status(Declared, frozen=True, kw_only=True):
    """A status with conditions; each kind adds what else it has, and says what it is about."""

    conditions: (
        Annotated[list[Condition], described("What is known about the object, one entry for each type.", by="type")]
        | UnsetType
    ) = UNSET

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type, if there is one."""
        return next((each for each in self.conditions or () if each.type == type_), None)

    def is_true(self, type_: str) -> bool:
        found = self.condition(type_)
        return found is not None and found.status == "True"


Tristate = Literal["True", "False", "Unknown"]
Free = dict[str, Any]
"""An object whose fields are its reader's business."""


class ObjectUnreadable(PlanformError):
    """An object is not what its kind is declared to be, as one that was stored before its schema."""

    reason = "ObjectUnreadable"

    def __init__(self, gvk: GroupVersionKind, namespace: str, name: str, problem: str) -> None:
        place = f"{namespace}/{name}" if namespace else name
        super().__init__(f'{gvk.kind} "{place}" cannot be read: {problem.replace("`$.", "`")}')
        self.hint = f"correct it: kubectl edit {gvk.kind.lower()} {name}" + (f" -n {namespace}" if namespace else "")


def read(kind: type[Typed], obj: Mapping[str, Any]) -> Typed:
    """A decoded object as its kind is declared; what the declaration does not know is left where it is, in `obj`.

    Raises ObjectUnreadable.
    """
    return _converted(kind, obj, obj, "$")


def spec_of(obj: Mapping[str, Any], kind: type[Part]) -> Part:
    """The spec alone, for those who were given an object of any kind and know which it is. Raises ObjectUnreadable."""
    return _converted(kind, obj.get("spec") or {}, obj, "$.spec")


def status_of(obj: Mapping[str, Any], kind: type[Part]) -> Part:
    """The status alone; empty where nobody has written one. Raises ObjectUnreadable."""
    return _converted(kind, obj.get("status") or {}, obj, "$.status")


def read_bytes(kind: type[Typed], stored: bytes) -> Typed:
    """The same as `read` of an object as it is stored, without a dict in between."""
    try:
        found: Typed = _decoder(kind).decode(stored)
        return found
    except msgspec.ValidationError as error:
        about = msgspec.json.decode(stored, type=_Named).metadata
        raise ObjectUnreadable(kind.gvk, about.namespace, about.name, str(error)) from error


def _converted(kind: type[Part], part: Any, obj: Mapping[str, Any], path: str) -> Part:
    try:
        return msgspec.convert(part, kind)
    except msgspec.ValidationError as error:
        problem = str(error).replace("`$", f"`{path}")
        raise ObjectUnreadable(gvk_of(obj), namespace_of(obj), name_of(obj), problem) from error


class _Named(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()


@cache
def _decoder(kind: type[Typed]) -> msgspec.json.Decoder[Typed]:
    return msgspec.json.Decoder(kind)
