"""The one tree of errors, and the four readers each of them serves.

    PlanformError                 reason, message, hint
    ├── ApiError                  an answer of the API: an HTTP code and a Status
    │   ├── BadRequest 400        ├── AlreadyExists 409     ├── UnsupportedMediaType 415
    │   ├── Unauthorized 401      ├── Conflict 409          ├── Invalid 422 (field errors)
    │   ├── Forbidden 403         │   └── ApplyConflict     ├── TooManyRequests 429
    │   ├── NotFound 404          ├── Expired 410           ├── InternalError 500
    │   ├── MethodNotAllowed 405  ├── RequestTooLarge 413   ├── ServiceUnavailable 503
    │   └── NotAcceptable 406                               ├── Timeout 504 / InsufficientStorage 507
    ├── StoreError                the data directory
    │   ├── StoreLocked  StoreCorrupt  StoreTooNew  StoreClosed
    │   └── DiskFull  StoreFailed          (writes are refused, nothing is lost)
    ├── UsageError                what the user typed
    └── ...                       each layer adds its own below PlanformError

The HTTP edge and the conditions read `reason`, the command line prints the message and then `hint`, the reconcile
loop asks `retryable`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self


class PlanformError(Exception):
    """Anything planform can explain: what, where and for which input, in one line."""

    reason: str = "Error"
    hint: str | None = None
    retryable: ClassVar[bool] = False

    @property
    def message(self) -> str:
        return str(self)


class UsageError(PlanformError):
    """The user asked for something that cannot be; `hint` says what to do instead."""

    reason = "Usage"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def system_words(error: OSError) -> str:
    """What went wrong, as the system says it, without what libraries put around it."""
    known = error.errno is not None and error.errno > 0
    return os.strerror(error.errno) if known and error.errno is not None else error.strerror or str(error)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error of one field, worded as Kubernetes words it.

    `field` is a path such as `spec.ports[0].name`; `reason` is a Status cause reason such as FieldValueRequired;
    `detail` is the text after the path, such as `Required value` or `Invalid value: "x": must be ...`.
    """

    field: str
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}"

    def cause(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.detail, "field": self.field}


class ApiError(PlanformError):
    """An answer of the API that is not a success; on the wire a `Status`."""

    code: int = 500
    reason = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.details = dict(details) if details else {}
        self.metadata = dict(metadata) if metadata else {}
        self.hint = hint

    @property
    def causes(self) -> Sequence[Mapping[str, str]]:
        causes: Sequence[Mapping[str, str]] = self.details.get("causes", ())
        return causes

    def to_status(self) -> dict[str, Any]:
        """The Kubernetes Status object that clients read."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": str(self),
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> ApiError:
        """The error that a Status of a remote API server means; unknown reasons become the class of their code."""
        reason, code = str(status.get("reason") or ""), int(status.get("code") or 500)
        kind = _BY_REASON.get(reason) or _BY_CODE.get(code) or ApiError
        if kind is Conflict and any(
            cause.get("reason") == "FieldManagerConflict" for cause in (status.get("details") or {}).get("causes") or ()
        ):
            kind = ApplyConflict
        error = kind.__new__(kind)
        ApiError.__init__(
            error, str(status.get("message") or reason), details=status.get("details"), metadata=status.get("metadata")
        )
        error.reason, error.code = reason or kind.reason, code
        return error


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"

    @classmethod
    def of(cls, group: str, plural: str, name: str) -> Self:
        """`widgets.example.org "w1" not found`, with the details that clients match on."""
        return cls(f'{qualified(group, plural)} "{name}" not found', details=naming(group, plural, name))


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"


class Conflict(ApiError):
    """Somebody else wrote first, or a precondition does not hold."""

    code, reason = 409, "Conflict"
    retryable = True


class ApplyConflict(Conflict):
    """A server-side apply met fields that other managers own; `causes` names each."""


class Expired(ApiError):
    """The resource version or continue token is older than the history that is kept; list again."""

    code, reason = 410, "Expired"


class RequestTooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """The object was understood and is not valid; one cause for each field."""

    code, reason = 422, "Invalid"

    @classmethod
    def of(cls, group: str, kind: str, name: str, errors: Sequence[FieldError]) -> Self:
        texts = list(dict.fromkeys(str(error) for error in errors))
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        details = naming(group, kind, name) | {"causes": [error.cause() for error in errors]}
        return cls(f'{qualified(group, kind)} "{name}" is invalid: {text}', details=details)


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"
    retryable = True


class InternalError(ApiError):
    code, reason = 500, "InternalError"
    retryable = True


class ServiceUnavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"
    retryable = True


class Timeout(ApiError):
    code, reason = 504, "Timeout"
    retryable = True


class InsufficientStorage(ApiError):
    """The disk is full: reads go on, writes are refused until there is room."""

    code, reason = 507, "InsufficientStorage"
    retryable = True


class StoreError(PlanformError):
    """Something is wrong with the data directory."""

    reason = "StoreError"


class StoreLocked(StoreError):
    """Another process owns the data directory."""

    reason = "StoreLocked"


class StoreCorrupt(StoreError):
    """The database file fails its integrity check; planform does not touch it."""

    reason = "StoreCorrupt"


class StoreIncomplete(StoreError):
    """The database ends before the highest resource version that was given out: acknowledged writes are lost."""

    reason = "StoreIncomplete"


class StoreTooNew(StoreError):
    """The database was written by a newer planform."""

    reason = "StoreTooNew"


class StoreClosed(StoreError):
    reason = "StoreClosed"


class DiskFull(StoreError):
    """No room for the write; it did not happen. Writes work again once there is room."""

    reason = "DiskFull"
    retryable = True


class StoreFailed(StoreError):
    """The disk failed in a way after which nothing may be assumed: reads go on, writes need a restart."""

    reason = "StoreFailed"


def qualified(group: str, name: str) -> str:
    """`widgets.example.org`, or just `configmaps` in the core group."""
    return f"{name}.{group}" if group else name


def naming(group: str, kind: str, name: str) -> dict[str, Any]:
    """The `details` of a Status, without what is empty."""
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}


_ANSWERS: tuple[type[ApiError], ...] = (
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    AlreadyExists,
    Conflict,
    Expired,
    RequestTooLarge,
    UnsupportedMediaType,
    Invalid,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    Timeout,
    InsufficientStorage,
)
_BY_REASON = {answer.reason: answer for answer in _ANSWERS}
_BY_CODE = {answer.code: answer for answer in reversed(_ANSWERS)}
