"""What carries one HTTP request to an API server and its answer back: the seam between Transport and its two ways.

`pooled_http` is for processes that live: pools of connections, streams, everything aiohttp does. `plain_http` is for
commands, which ask a few things and end: importing aiohttp takes longer than they do.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Headers = Sequence[tuple[str, str]]
"""Names and values; a name may stand several times, as that of impersonated groups."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may use. Watches have connections of their own, so that they never crowd requests out."""

    connections: int = 32
    request_seconds: float = 30.0
    connect_seconds: float = 10.0
    per_second: float = 0.0  # 0: as fast as the server lets us; it has priority and fairness of its own
    burst: int = 1
    silent_seconds: float = 180.0
    """A watch that says nothing for so long is taken for dead: servers send bookmarks about once a minute."""


class Reply(NamedTuple):
    """An answer, whatever its status."""

    status: int
    headers: Headers
    body: bytes

    def values(self, name: str) -> list[str]:
        """Every value of a header; its name is given in lower case."""
        return [value for each, value in self.headers if each.lower() == name]

    @property
    def content_type(self) -> str:
        values = self.values("content-type")
        return values[0].partition(";")[0].strip().lower() if values else "application/octet-stream"


class NoReply(Exception):
    """The request was not answered. `broken`: a connection that stood has gone, so another try may do better."""

    def __init__(self, message: str, *, broken: bool = False, untrusted: bool = False) -> None:
        super().__init__(message)
        self.broken = broken
        self.untrusted = untrusted
        """TLS found the two not to belong together."""


class Wire(Protocol):
    """Connections that carry one identity's certificate."""

    certificate: bytes

    async def send(self, method: str, target: str, body: bytes | None, headers: Headers) -> Reply:
        """One request to a path with its query. Raises NoReply; cancelling gives its connection up."""
        ...

    async def close(self) -> None: ...


def keep_alive(connected: socket.socket, patience: float) -> None:
    """Give the peer up after so many seconds without a sign of life.

    A byte that is not acknowledged within the time of a request is then never delivered: a write that was given up must
    not reach the server once a cut network is whole again. An open watch notices a dead peer as soon.
    """
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_USER_TIMEOUT", round(patience * 1000)),
        ("TCP_KEEPIDLE", max(1, round(patience / 2))),
        ("TCP_KEEPINTVL", max(1, round(patience / 6))),
        ("TCP_KEEPCNT", 3),
    ):
        if hasattr(socket, option):  # each system knows some of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
