"""Plain values to the bytes of the function protocol and back, for the caller's side.

Both versions of the protocol have one encoding. Messages are built in their envelope form, where objects are bytes: an
object that was sent before is not encoded again, and the envelope of an answer is parsed before anything in it. Objects
are encoded and decoded one at a time with a look at the loop in between, since an answer may hold megabytes of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError

from planform.functions.errors import mebibytes
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Ready,
    Requirements,
    Resource,
    ResourceSelector,
    Result,
    SchemaSelector,
    Severity,
    State,
    Status,
    Target,
    WatchedResource,
)
from planform_sdk.proto import PACKAGES, envelopes, message_class, messages
from planform_sdk.structs import StructCodec

CAPABILITIES: Final = (1, 2, 3, 4, 5)
"""Capabilities, required resources, credentials, conditions, required schemas: what we can do, in the wire's order."""
WITHOUT_REQUIREMENTS: Final = (1, 3, 4)

MAX_OBJECT: Final = 4 << 20
"""Bytes of one encoded object. No store takes a larger one, and decoding it would hold the loop."""

_SLICE: Final = 64 << 10

_STATES: Final = ((b"\x12\x00", "observed"), (b"\x1a\x00", "desired"))
"""Each state of a request as an empty field: its number and wire type, and no bytes."""

E = TypeVar("E", bound=IntEnum)


class WireError(ValueError):
    """These bytes are not an answer."""


class ObjectTooLarge(WireError):
    """One object in the answer is larger than any store would take."""


class DesiredMissing(WireError):
    """The answer has no desired state at all, which would delete everything that was desired before."""


class CallerCodec:
    """Encodes requests and decodes responses, and remembers objects within a bounded amount of memory."""

    def __init__(self, *, capabilities: Iterable[int] = CAPABILITIES, remember: int = 32 << 20) -> None:
        self._structs = StructCodec(remember=remember)
        self._capabilities = tuple(capabilities)
        pool, package = envelopes(), PACKAGES["v1"]
        self._request = message_class(pool, f"{package}.RunFunctionRequest")
        self._response = message_class(pool, f"{package}.RunFunctionResponse")
        self._state = message_class(pool, f"{package}.State")

    async def encode(self, request: FunctionRequest) -> bytes:
        """Raises TypeError, ValueError or OverflowError for what the protocol cannot express."""
        message, pace = self._request(), _Pace()
        message.meta.tag = request.tag
        message.meta.capabilities.extend(self._capabilities)
        message.observed = await self._encode_state(request.observed, pace)
        message.desired = await self._encode_state(request.desired, pace)
        if request.input is not None:
            message.input = self._structs.encode(request.input)
        message.context = self._structs.encode(request.context)
        for name, data in request.credentials.items():
            source = message.credentials[name].credential_data
            source.SetInParent()
            _put_bytes(source.data, data)
        for field, groups in (
            (message.required_resources, request.required_resources),
            (message.extra_resources, request.extra_resources),
        ):
            for name, items in groups.items():
                group = field[name].items
                for item in items:
                    await self._put_resource(group.add(), item, pace)
        for name, schema in request.required_schemas.items():
            put = message.required_schemas[name]
            if schema is not None:
                put.openapi_v3 = self._structs.encode(schema)
        encoded: bytes = message.SerializeToString()
        # An empty bytes field is left out, but to a function an empty state is not the same as none.
        return encoded + b"".join(tag for tag, state in _STATES if not getattr(message, state))

    async def decode(self, data: bytes, request: FunctionRequest) -> FunctionResponse:
        """The answer to a request. Raises WireError."""
        message = _parse(self._response, data, "the answer is not a RunFunctionResponse")
        results = [
            Result(_known(Severity, each.severity), each.message, each.reason, _known(Target, each.target))
            for each in message.results
        ]
        fatal = any(each.severity is Severity.FATAL for each in results)
        if not fatal and not message.desired and request.desired.resources and not _has_desired(data):
            raise DesiredMissing(
                f"the answer has no desired state, while it was sent {len(request.desired.resources)} resources"
            )
        desired = _parse(self._state, message.desired, "the desired state is not a State")
        _validate(desired, message)
        pace = _Pace()
        return FunctionResponse(
            desired=await self._decode_state(desired, pace),
            results=results,
            context=self._object(message.context, "context"),
            requirements=_requirements(message.requirements),
            conditions=[
                Condition(
                    each.type, _known(Status, each.status), each.reason, each.message, _known(Target, each.target)
                )
                for each in message.conditions
            ],
            output=self._object(message.output, "output") if message.HasField("output") else None,
            ttl=message.meta.ttl.seconds + message.meta.ttl.nanos / 1e9 if message.meta.HasField("ttl") else None,
            tag=message.meta.tag,
        )

    async def _encode_state(self, state: State, pace: _Pace) -> bytes:
        message, composite = self._state(), state.composite
        if composite.resource or composite.connection_details or composite.ready:
            await self._put_resource(message.composite, composite, pace)
        resources = message.resources
        for name, resource in state.resources.items():
            await self._put_resource(resources[name], resource, pace)
        encoded: bytes = message.SerializeToString()
        return encoded

    async def _put_resource(self, message: Any, resource: Resource, pace: _Pace) -> None:
        message.resource = data = self._structs.encode(resource.resource)
        if resource.connection_details:
            _put_bytes(message.connection_details, resource.connection_details)
        if resource.ready:
            message.ready = resource.ready
        if pace.is_due(len(data)):
            await asyncio.sleep(0)

    async def _decode_state(self, message: Any, pace: _Pace) -> State:
        """The map of the wire has no order; ours is sorted, so that equal answers are equal."""
        resources: dict[str, Resource] = {}
        for name, each in sorted(message.resources.items()):
            resources[name] = self._resource(each, f'desired resource "{name}"')
            if pace.is_due(len(each.resource)):
                await asyncio.sleep(0)
        return State(self._resource(message.composite, "the desired composite resource"), resources)

    def _resource(self, message: Any, what: str) -> Resource:
        return Resource(
            self._object(message.resource, what), dict(message.connection_details), _known(Ready, message.ready)
        )

    def _object(self, data: bytes, what: str) -> Object:
        if not data:
            return {}
        try:
            return self._structs.decode(data)
        except (ValueError, RecursionError):
            raise WireError(f"{what} is not an object") from None


class _Pace:
    """Says when a slice's worth of bytes has been worked on and the loop should have a look at others."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = 0

    def is_due(self, size: int) -> bool:
        self._bytes += size
        if self._bytes < _SLICE:
            return False
        self._bytes = 0
        return True


def _validate(desired: Any, message: Any) -> None:
    """Raises ObjectTooLarge, before anything is decoded that costs more than its bytes."""
    _validate_object(message.context, "context")
    _validate_object(message.output, "output")
    _validate_object(desired.composite.resource, "the desired composite resource")
    for name, each in desired.resources.items():
        _validate_object(each.resource, f'desired resource "{name}"')


def _validate_object(data: bytes, what: str) -> None:
    if len(data) > MAX_OBJECT:
        raise ObjectTooLarge(
            f"{what} is {mebibytes(len(data))}, and no object may be larger than {mebibytes(MAX_OBJECT)}"
        )


def _has_desired(data: bytes) -> bool:
    """Whether the answer holds a desired state, be it an empty one; the envelope cannot tell."""
    whole = message_class(messages(), f"{PACKAGES['v1']}.RunFunctionResponse")
    return bool(_parse(whole, data, "the answer is not a RunFunctionResponse").HasField("desired"))


def _parse(kind: Any, data: bytes, otherwise: str) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise WireError(otherwise) from None


def _known(kind: type[E], number: int) -> E:
    """What a newer function may send, and we do not know, counts as not specified."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def _put_bytes(target: Any, details: Mapping[str, bytes]) -> None:
    for key, value in details.items():
        target[key] = value


def _requirements(message: Any) -> Requirements:
    return Requirements(
        resources=_selectors(message.resources),
        extra_resources=_selectors(message.extra_resources),
        schemas={name: SchemaSelector(each.api_version, each.kind) for name, each in sorted(message.schemas.items())},
        watch_resources=[WatchedResource(each.api_version, each.kind, each.name) for each in message.watch_resources],
    )


def _selectors(messages: Mapping[str, Any]) -> dict[str, ResourceSelector]:
    return {
        name: ResourceSelector(
            each.api_version,
            each.kind,
            each.match_name,
            dict(each.match_labels.labels) if each.HasField("match_labels") else None,
            each.namespace if each.HasField("namespace") else None,
        )
        for name, each in sorted(messages.items())
    }
