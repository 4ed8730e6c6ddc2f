"""Plain values to the bytes of the protocol and back: for servers (decode a request, encode a response) and callers.

Both protocol versions have the same encoding, so one codec serves both. Messages are built in their envelope form
(`planform_sdk.proto`), where objects are bytes: an object that nobody looked at goes out as it came in, and one seen
before is not encoded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from google.protobuf.message import DecodeError

from planform_sdk.proto import PACKAGES, envelopes, message_class
from planform_sdk.resource import Shared
from planform_sdk.structs import EncodedStruct, StructCodec
from planform_sdk.types import (
    Capability,
    Condition,
    Deferred,
    Object,
    Ready,
    RequestMeta,
    Requirements,
    Resource,
    ResourceMap,
    ResourceRef,
    ResourceSelector,
    ResponseMeta,
    Result,
    RunFunctionRequest,
    RunFunctionResponse,
    Schema,
    SchemaSelector,
    Severity,
    State,
    Status,
    Target,
    undecoded,
)

_READY = {int(ready): ready for ready in Ready}


class WireError(ValueError):
    """Bytes that are not the message they should be, or a value that no message can hold."""


class EncodedState:
    """A State as bytes, decoded when somebody asks. Immutable, so it may be shared."""

    __slots__ = ("_codec", "data")

    def __init__(self, data: bytes, codec: Codec) -> None:
        self.data = data
        self._codec = codec

    def decode(self) -> State:
        return self._codec.decode_state(self.data)


class Codec:
    """Encodes and decodes messages, and remembers the objects in them within a bounded amount of memory.

    Observed objects whose `Resource.version` says (uid, resource version) are found by it and not looked at again.
    Threads may share it.
    """

    def __init__(self, *, remember: int = 16 << 20) -> None:
        self._structs = StructCodec(remember=remember)
        pool, package = envelopes(), PACKAGES["v1"]
        self._request = message_class(pool, f"{package}.RunFunctionRequest")
        self._response = message_class(pool, f"{package}.RunFunctionResponse")
        self._state = message_class(pool, f"{package}.State")

    def encode_request(self, request: RunFunctionRequest) -> bytes:
        """Give the bytes; the same for equal requests, so they may be hashed. Raises WireError as encode_response."""
        message = self._request()
        if request.meta.tag:
            message.meta.tag = request.meta.tag
        if request.meta.capabilities:
            message.meta.capabilities.extend(request.meta.capabilities)
        message.observed = self._encode_state(request.observed, canonical=True)
        message.desired = self._encode_state(request.desired, canonical=True)
        self._put_object(message, "input", undecoded(request, "input"), canonical=True)
        self._put_object(message, "context", undecoded(request, "context"), canonical=True)
        for name, data in request.credentials.items():
            source = message.credentials[name].credential_data
            source.SetInParent()
            _put_bytes(source.data, data)
        for field, groups in (
            (message.extra_resources, request.extra_resources),
            (message.required_resources, request.required_resources),
        ):
            for name, items in groups.items():
                group = field[name].items
                for item in items:
                    self._put_resource(group.add(), item, canonical=True)
        for name, schema in request.required_schemas.items():
            schema_message = message.required_schemas[name]
            self._put_object(schema_message, "openapi_v3", undecoded(schema, "openapi_v3"), canonical=True)
        encoded: bytes = message.SerializeToString(deterministic=True)
        return encoded

    def decode_request(self, data: bytes) -> RunFunctionRequest:
        """Read a request; objects in it are decoded when looked at. Raises WireError."""
        request = RunFunctionRequest()
        # Only the fields that are there: most requests have few, and asking a message for a field is not free.
        for field, value in _parse(self._request, data, "RunFunctionRequest").ListFields():
            match field.name:
                case "meta":
                    request.meta = RequestMeta(value.tag, [Capability(number) for number in value.capabilities])
                case "observed":
                    request.observed = EncodedState(value, self)
                case "desired":
                    request.desired = EncodedState(value, self)
                case "input":
                    request.input = self._structs.lazy(value)
                case "context":
                    request.context = self._structs.lazy(value)
                case "extra_resources":
                    request.extra_resources = self._resource_groups(value)
                case "credentials":
                    request.credentials = {name: dict(value[name].credential_data.data) for name in value}
                case "required_resources":
                    request.required_resources = self._resource_groups(value)
                case "required_schemas":
                    request.required_schemas = {name: Schema(self._object(value[name], "openapi_v3")) for name in value}
        return request

    def encode_response(self, response: RunFunctionResponse) -> bytes:
        """Give the bytes; what was not looked at as it came. Raises WireError for what JSON cannot express."""
        message = self._response()
        message.meta.tag = response.meta.tag
        if response.meta.ttl is not None:
            _put_duration(message.meta.ttl, response.meta.ttl)
        desired = undecoded(response, "desired")
        message.desired = desired.data if type(desired) is EncodedState else self._encode_state(response.desired)
        self._put_object(message, "context", undecoded(response, "context"))
        self._put_object(message, "output", undecoded(response, "output"))
        for result in response.results:
            put = message.results.add(severity=result.severity, message=result.message)
            _put_optional(put, "reason", result.reason)
            _put_optional(put, "target", result.target)
        for condition in response.conditions:
            put = message.conditions.add(type=condition.type, status=condition.status, reason=condition.reason)
            _put_optional(put, "message", condition.message)
            _put_optional(put, "target", condition.target)
        if response.requirements:
            _put_requirements(message.requirements, response.requirements)
        encoded: bytes = message.SerializeToString(deterministic=True)
        return encoded

    def decode_response(self, data: bytes) -> RunFunctionResponse:
        """Read a response whole, since nothing that comes from a function is trusted. Raises WireError."""
        message = _parse(self._response, data, "RunFunctionResponse")
        meta = message.meta
        response = RunFunctionResponse(
            meta=ResponseMeta(meta.tag, _duration(meta.ttl) if meta.HasField("ttl") else None),
            desired=self.decode_state(message.desired),
            results=[
                Result(Severity(r.severity), r.message, _optional(r, "reason"), _target(r)) for r in message.results
            ],
            context=self._object(message, "context"),
            requirements=_requirements(message.requirements),
            conditions=[
                Condition(c.type, Status(c.status), c.reason, _optional(c, "message"), _target(c))
                for c in message.conditions
            ],
            output=self._object(message, "output"),
        )
        _decode_all(response)
        return response

    def decode_state(self, data: bytes) -> State:
        """Read a state; objects in it are decoded when looked at. Raises WireError."""
        message = _parse(self._state, data, "State")
        resources = ResourceMap()
        put, found = dict.__setitem__, message.resources
        for name in found:
            put(resources, name, self._resource(found[name]))
        return State(self._resource(message.composite), resources)

    def _encode_state(self, state: State, *, canonical: bool = False) -> bytes:
        message = self._state()
        composite = state.composite
        if composite.undecoded or composite.ready is not Ready.UNSPECIFIED or composite.connection_details:
            self._put_resource(message.composite, composite, canonical=canonical)
        resources = message.resources
        for name, resource in state.resources.items():
            self._put_resource(resources[name], resource, name, canonical=canonical)
        encoded: bytes = message.SerializeToString(deterministic=True)
        return encoded

    def _put_resource(self, message: Any, resource: Resource, name: str = "", *, canonical: bool = False) -> None:
        try:
            message.resource = self._encode(resource.undecoded, resource.version, canonical=canonical)
            if resource.connection_details:
                _put_bytes(message.connection_details, resource.connection_details)
        except (TypeError, ValueError, OverflowError) as error:
            which = f'resource "{name}"' if name else f'{resource.kind or "resource"} "{resource.name}"'
            raise WireError(f"{which} cannot be encoded: {error}") from error
        if resource.ready is not Ready.UNSPECIFIED:
            message.ready = resource.ready

    def _put_object(
        self, message: Any, field: str, value: Object | Deferred[Object] | None, *, canonical: bool = False
    ) -> None:
        if value is None:
            return
        try:
            setattr(message, field, self._encode(value, canonical=canonical))
        except (TypeError, ValueError, OverflowError) as error:
            raise WireError(f"{field} cannot be encoded: {error}") from error

    def _encode(
        self, value: Object | Deferred[Object], version: tuple[str, str] | None = None, *, canonical: bool = False
    ) -> bytes:
        """The bytes of an object. Those that a peer sent are canonical only once we wrote them ourselves."""
        if type(value) is EncodedStruct:
            return self._structs.encode(value.decode()) if canonical else value.data
        if type(value) is Shared:
            return self._structs.encode(value.value, version=version)
        return self._structs.encode(value if isinstance(value, dict) else value.decode(), version=version)

    def _resource(self, message: Any) -> Resource:
        details, ready = message.connection_details, message.ready
        return Resource(
            self._structs.lazy(message.resource),
            connection_details=dict(details) if details else None,
            ready=_READY[ready] if ready in _READY else Ready(ready),
        )

    def _resource_groups(self, groups: Mapping[str, Any]) -> dict[str, list[Resource]]:
        return {name: [self._resource(item) for item in groups[name].items] for name in groups}

    def _object(self, message: Any, field: str) -> EncodedStruct | None:
        return self._structs.lazy(getattr(message, field)) if message.HasField(field) else None


def _parse(message_type: Any, data: bytes, name: str) -> Any:
    try:
        return message_type.FromString(data)
    except DecodeError as error:
        raise WireError(f"not a {name}: {error}") from error


def _decode_all(response: RunFunctionResponse) -> None:
    """Look at every object once. Raises WireError that names the one which is none."""
    where = "desired composite"
    try:
        _ = response.desired.composite.resource
        for name, resource in response.desired.resources.items():
            where = f'desired resource "{name}"'
            _ = resource.resource
        where = "context"
        _ = response.context
        where = "output"
        _ = response.output
    except ValueError as error:
        raise WireError(f"{where}: {error}") from error


def _put_bytes(target: Any, details: Mapping[str, bytes]) -> None:
    for key, value in details.items():
        target[key] = value


def _put_optional(message: Any, field: str, value: str | int | None) -> None:
    if value is not None:
        setattr(message, field, value)


def _optional(message: Any, field: str) -> str | None:
    return getattr(message, field) if message.HasField(field) else None


def _target(message: Any) -> Target | None:
    return Target(message.target) if message.HasField("target") else None


def _put_duration(message: Any, ttl: timedelta) -> None:
    """Seconds and nanoseconds have the same sign in a Duration; those of a timedelta have not."""
    sign = -1 if ttl.days < 0 else 1
    ttl = abs(ttl)
    message.seconds = sign * (ttl.days * 86400 + ttl.seconds)
    message.nanos = sign * ttl.microseconds * 1000


def _duration(message: Any) -> timedelta:
    try:
        return timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError:
        return timedelta.max if message.seconds > 0 else timedelta.min


def _put_requirements(message: Any, requirements: Requirements) -> None:
    _put_selectors(message.resources, requirements.resources)
    _put_selectors(message.extra_resources, requirements.extra_resources)
    for name, schema in requirements.schemas.items():
        put = message.schemas[name]
        put.api_version, put.kind = schema.api_version, schema.kind
    for ref in requirements.watch_resources:
        message.watch_resources.add(api_version=ref.api_version, kind=ref.kind, name=ref.name)


def _put_selectors(target: Any, selectors: Mapping[str, ResourceSelector]) -> None:
    for name, selector in selectors.items():
        put = target[name]
        put.api_version, put.kind = selector.api_version, selector.kind
        if selector.match_name is not None:
            put.match_name = selector.match_name
        elif selector.match_labels is not None:
            put.match_labels.SetInParent()
            put.match_labels.labels.update(selector.match_labels)
        if selector.namespace is not None:
            put.namespace = selector.namespace


def _requirements(message: Any) -> Requirements:
    return Requirements(
        resources=_selectors(message.resources.items()),
        extra_resources=_selectors(message.extra_resources.items()),
        schemas={name: SchemaSelector(each.api_version, each.kind) for name, each in message.schemas.items()},
        watch_resources=[ResourceRef(ref.api_version, ref.kind, ref.name) for ref in message.watch_resources],
    )


def _selectors(items: Iterable[tuple[str, Any]]) -> dict[str, ResourceSelector]:
    selectors = {}
    for name, each in items:
        match = each.WhichOneof("match")
        selectors[name] = ResourceSelector(
            each.api_version,
            each.kind,
            match_name=each.match_name if match == "match_name" else None,
            match_labels=dict(each.match_labels.labels) if match == "match_labels" else None,
            namespace=_optional(each, "namespace"),
        )
    return selectors
