"""What a webhook is asked, and what its answer means: AdmissionReview of `admission.k8s.io`, without any I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson

from planform.api.kinds import GroupVersionKind, Object
from planform.apiserver.admission.dynamic.attributes import Attributes, operation_options, user_fields
from planform.apiserver.crds.registry import ServedKind
from planform.errors import ApiError, BadRequest

GROUP: Final = "admission.k8s.io"
_KIND: Final = "AdmissionReview"
_DENIED: Final = 400


class InvalidResponse(Exception):
    """The answer of a webhook is none; the text says why."""


class _Status(msgspec.Struct):
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class _Response(msgspec.Struct, rename="camel"):
    uid: str = ""
    allowed: bool = False
    status: _Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    audit_annotations: dict[str, str] | None = None
    warnings: list[str] | None = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


class Answer(msgspec.Struct, frozen=True):
    """A good answer. `patch` is a list of JSON patch operations, as yet unchecked."""

    allowed: bool
    result: _Status | None
    patch: Any
    audit_annotations: Mapping[str, str]
    warnings: tuple[str, ...]


def request_fields(attributes: Attributes, served: ServedKind) -> Object:
    """The request as it is shown to webhooks and expressions, but for the objects; `served` is the version wanted."""
    asked = attributes.served
    subresource = {"subResource": attributes.subresource} if attributes.subresource else {}
    fields: Object = {
        "kind": _kind(attributes.kind_as(served)),
        "resource": _resource(served),
        **subresource,
        "requestKind": _kind(attributes.kind_as(asked)),
        "requestResource": _resource(asked),
        **({"requestSubResource": attributes.subresource} if attributes.subresource else {}),
    }
    if attributes.name:
        fields["name"] = attributes.name
    if attributes.shown_namespace:
        fields["namespace"] = attributes.shown_namespace
    fields["operation"] = attributes.operation
    fields["userInfo"] = user_fields(attributes.request)
    return fields


def review_of(
    uid: str, version: str, attributes: Attributes, served: ServedKind, obj: Object | None, old: Object | None
) -> bytes:
    """An AdmissionReview that asks about a write, in one version of its resource."""
    request: Object = {
        "uid": uid,
        **request_fields(attributes, served),
        "object": obj,
        "oldObject": old,
        "dryRun": attributes.request.dry_run,
        "options": operation_options(attributes.operation, attributes.request),
    }
    return orjson.dumps({"kind": _KIND, "apiVersion": f"{GROUP}/{version}", "request": request})


def _kind(kind: GroupVersionKind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(served: ServedKind) -> Object:
    return {"group": served.kind.group, "version": served.kind.version, "resource": served.kind.plural}


def read_answer(body: bytes, uid: str, version: str, *, mutating: bool) -> Answer:
    """What a webhook answered to a review; raises InvalidResponse."""
    try:
        review = msgspec.json.decode(body, type=_Review)
    except msgspec.DecodeError as error:
        raise InvalidResponse(f"it cannot be read: {error}") from error
    response = review.response
    if response is None:
        raise InvalidResponse("webhook response was absent")
    if version == "v1":
        if response.uid != uid:
            raise InvalidResponse(f'expected response.uid="{uid}", got "{response.uid}"')
        if (review.api_version, review.kind) != (f"{GROUP}/v1", _KIND):
            found = f"{review.api_version or '/'}, Kind={review.kind}"
            raise InvalidResponse(f"expected webhook response of {GROUP}/v1, Kind={_KIND}, got {found}")
        _check_patch(response, mutating=mutating)
    return Answer(
        response.allowed,
        response.status,
        _patch(response) if mutating else None,
        response.audit_annotations or {},
        tuple(response.warnings or ()),
    )


def _check_patch(response: _Response, *, mutating: bool) -> None:
    if not mutating:
        if response.patch:
            raise InvalidResponse("validating webhook may not return response.patch")
        if response.patch_type is not None:
            raise InvalidResponse("validating webhook may not return response.patchType")
        return
    if response.patch and response.patch_type is None:
        raise InvalidResponse("webhook returned response.patch but not response.patchType")
    if not response.patch and response.patch_type is not None:
        raise InvalidResponse("webhook returned response.patchType but not response.patch")
    if response.patch_type is not None and response.patch_type != "JSONPatch":
        raise InvalidResponse(f'unsupported patch type "{response.patch_type}"')


def _patch(response: _Response) -> Any:
    if not response.patch:
        return None
    try:
        return orjson.loads(base64.b64decode(response.patch, validate=True))
    except (binascii.Error, ValueError) as error:
        raise InvalidResponse(f"received undecodable patch in webhook response: {error}") from error


def denial(webhook: str, result: _Status | None) -> ApiError:
    """How a refusal is told to whoever made the request: the webhook's own status, with its name before the words."""
    result = result or _Status()
    by = f'admission webhook "{webhook}" denied the request'
    message = result.message or result.reason
    status = {
        "message": f"{by}: {message}" if message else f"{by} without explanation",
        "reason": result.reason,
        "code": result.code if _DENIED <= result.code <= 599 else _DENIED,
        "details": result.details,
        "metadata": result.metadata,
    }
    error = ApiError.from_status(status)
    error.reason = result.reason  # also if there is none: that is what is answered
    return error


def no_dry_run(webhook: str) -> BadRequest:
    return BadRequest(f'admission webhook "{webhook}" does not support dry run')
