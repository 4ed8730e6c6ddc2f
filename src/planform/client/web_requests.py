"""Requests on behalf of others as values: what to ask, how far it may go, what came back and what can go wrong.

`guarded_http.send` sends them; it takes long to import, and most processes never send any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from planform.errors import PlanformError


class RequestFailed(PlanformError):
    """A request has no answer, or one that is too large or too late."""

    reason = "RequestFailed"
    retryable = True

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class RequestTimedOut(RequestFailed):
    """The whole answer did not come in time."""

    reason = "RequestTimedOut"


class AddressRefused(RequestFailed):
    """The request would go where it may not go."""

    reason = "AddressRefused"
    retryable = False


@dataclass(frozen=True)
class Reach:
    """How far requests may go beyond public addresses: networks (`10.0.0.0/8`) and hosts (`prom.internal`,
    `localhost:9090`). `whose` and `opened_by` are for the words of a refusal."""

    addresses: tuple[str, ...] = ()
    whose: str = "requests"
    opened_by: str = "an option"

    @classmethod
    def parse(cls, text: str, *, whose: str, opened_by: str) -> Reach:
        """Addresses are separated by commas."""
        return cls(tuple(each.strip() for each in text.split(",") if each.strip()), whose, opened_by)


@dataclass(frozen=True, kw_only=True)
class WebRequest:
    """What to ask, and how much of an answer to take. `ca_bundle` is all that is trusted, where there is one."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    follow: bool = False
    seconds: float = 30.0
    max_bytes: int = 1 << 20
    ca_bundle: str = ""

    def __repr__(self) -> str:
        return f"WebRequest({self.method} {shown(self.url)})"  # headers and body may be secret


@dataclass(frozen=True)
class Answer:
    """What came back; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def shown(address: str) -> str:
    """The address without what may be secret in it."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
