"""Where a revision of a function serves: in this process, or at an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from planform.functions.runner import FunctionRevision


@dataclass(frozen=True, slots=True)
class ClientTls:
    """What we show to a function, and whom we believe to be it; PEM texts. A rotation makes a new value."""

    authority: bytes
    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Remote:
    """An address as gRPC takes it: `dns:///host:port`, `ipv4:1.2.3.4:1,1.2.3.5:1` or `unix:/path`.

    Calls go round robin over all that the address leads to. Without `tls` they go in plain text. `server_name` is what
    the certificate must say, if that is not the host of the address.
    """

    target: str
    tls: ClientTls | None = None
    server_name: str = ""
    incarnation: int = 0
    """Another number says that what serves there was started anew: callers then connect at once."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """A function that ships with planform, by its own name."""

    name: str


Endpoint = Remote | InProcess


class Endpoints(Protocol):
    """Knows where each revision serves. Asked before every call, so an answer from memory."""

    def endpoint(self, revision: FunctionRevision, /) -> Endpoint | None:
        """None if it is not known (yet)."""
        ...


class FixedEndpoints:
    """Endpoints that are known from the start, by the name of the revision or else of the function."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = dict(endpoints)

    def endpoint(self, revision: FunctionRevision, /) -> Endpoint | None:
        return self._endpoints.get(revision.name) or self._endpoints.get(revision.function)
