"""The journals of all replicas that work: each keeps that of the XRs it reconciles.

Who works holds a Lease, whose annotation says where that replica is reached. Replicas ask each other over TLS, on the
port of the webhook and with its certificates, and show a token that only who can read the webhook's Secret can make.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Final

from planform.api.annotations import annotation
from planform.client.credentials import FixedCredentials, Identity
from planform.client.kubeconfig import Connection
from planform.client.protocol import Client
from planform.client.transport import Transport
from planform.client.wire import Limits
from planform.clock import Clock
from planform.cluster.certificates import Kept
from planform.errors import ApiError, NotFound
from planform.reconcile.election import LEASE

ADDRESS_ANNOTATION: Final = "planform.dev/address"
_TOKEN_SECONDS: Final = 60
_ASK_SECONDS: Final = 25.0
_logger = logging.getLogger(__name__)

Answer = tuple[int, bytes]
Answering = Callable[[str, Mapping[str, Sequence[str]]], Awaitable[Answer]]
"""Answers a GET of a path with a query."""


def peer_token(key: bytes, path: str, expires: int) -> str:
    """Lets who shows it read this path until then."""
    text = f"planform journal\n{expires}\n{path}".encode()
    return f"{expires}.{hmac.new(sha256(key).digest(), text, sha256).hexdigest()}"


def is_peer(key: bytes, path: str, token: str, now: float) -> bool:
    """Whether the token was made with this key for this path, and is not too old."""
    expires = token.partition(".")[0]
    if not (expires.isascii() and expires.isdecimal() and len(expires) < 12):
        return False
    fits = hmac.compare_digest(peer_token(key, path, int(expires)).encode(), token.encode())
    return fits and now <= int(expires) <= now + 2 * _TOKEN_SECONDS


@dataclass(frozen=True, kw_only=True)
class Peers:
    """The other replicas. `leases` are the names of those that a working replica holds."""

    client: Client
    clock: Clock
    rng: Random
    namespace: str
    identity: str
    leases: tuple[str, ...]
    certificates: Callable[[], Kept | None]
    server_name: str

    async def ask(self, path: str, query: Mapping[str, str]) -> list[Answer]:
        """What the others answer; one that cannot be reached is left out, and a line in the log."""
        addresses = await self._addresses()
        answers = await asyncio.gather(*(self._ask(address, path, query) for address in addresses))
        return [each for each in answers if each is not None]

    async def _addresses(self) -> list[str]:
        leases = await asyncio.gather(*map(self._address, self.leases))
        return sorted({address for address in leases if address})

    async def _address(self, name: str) -> str:
        try:
            lease = await self.client.get(LEASE, name, namespace=self.namespace)
        except NotFound:
            return ""
        holder = (lease.get("spec") or {}).get("holderIdentity") or ""
        if holder in ("", self.identity):
            return ""
        return annotation(lease, ADDRESS_ANNOTATION)

    async def _ask(self, address: str, path: str, query: Mapping[str, str]) -> Answer | None:
        kept = self.certificates()
        if kept is None:
            return None
        token = peer_token(kept.authority_key, path, int(self.clock.now().timestamp()) + _TOKEN_SECONDS)
        shown = FixedCredentials(Identity(f"Bearer {token}"))
        connection = Connection(address, shown, ca=kept.bundle, tls_server_name=self.server_name)
        limits = Limits(request_seconds=_ASK_SECONDS)
        try:
            async with Transport(
                connection, clock=self.clock, rng=self.rng, user_agent="planform-journal", limits=limits
            ) as transport:
                return 200, (await transport.request("GET", path, query=query)).body
        except NotFound:
            return None
        except ApiError as error:
            _logger.warning("the journal of the replica at %s: %s", address, error)
            return None
