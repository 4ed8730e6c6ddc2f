"""The authority of functions that run in a cluster: its key is a Secret, which all replicas of the control plane share.

    planform-root-ca      the authority, ten years; made by whoever comes first
    planform-tls-client   what the control plane shows to functions

A Secret may be there and empty, as an installer puts it there so that nobody needs the right to create it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from planform.api.kinds import Object
from planform.api.metadata import resource_version_of, uid_of
from planform.api.names import SECRET
from planform.client.protocol import Client, Patch, PatchType
from planform.clock import Clock
from planform.errors import AlreadyExists, NotFound, PlanformError
from planform.functions.endpoints import ClientTls
from planform.packages.endpoints import TLS_KEYS
from planform.packages.runtimes.certificates import CALLER, LIFETIME, RENEW_BEFORE

ROOT_SECRET: Final = "planform-root-ca"
CLIENT_SECRET: Final = "planform-tls-client"
AUTHORITY_LIFETIME: Final = timedelta(days=3650)


class AuthorityUnusable(PlanformError):
    """The Secret of the authority holds something else."""

    reason = "AuthorityUnusable"
    hint = f"delete Secret {ROOT_SECRET}: a new authority is made, and all functions get certificates of it"


class Described(NamedTuple):
    """What a certificate says."""

    names: frozenset[str]
    not_after: datetime
    serial: str


@dataclass(frozen=True, slots=True)
class _Root:
    certificate: bytes
    key: bytes
    not_after: datetime


class ClusterAuthority:
    """Issues certificates as the data of Secrets. Computing them is left to threads."""

    def __init__(self, client: Client, *, clock: Clock, namespace: str, manager: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._manager = manager
        self._root: _Root | None = None
        self._lock = asyncio.Lock()

    async def is_current(self, data: Mapping[str, Any], names: Sequence[str] = ()) -> bool:
        """Whether a Secret's certificate is of this authority, for these names, and not near its end."""
        root = await self._authority()
        found = describe(data)
        return (
            found is not None
            and found.names == frozenset(names)
            and self._clock.now() < min(found.not_after, root.not_after) - RENEW_BEFORE
            and data.get("ca.crt") == _encoded(root.certificate)
            and bool(data.get("tls.key"))
        )

    async def issue_server(self, names: Sequence[str]) -> dict[str, str]:
        from planform.apiserver.auth import certificates

        root, now = await self._authority(), self._clock.now()
        end = min(now + LIFETIME, root.not_after)
        issued = await asyncio.to_thread(certificates.server, root.certificate, root.key, names, now, end)
        return _data(root.certificate, issued.certificate, issued.key)

    async def issue_client(self, user: str) -> dict[str, str]:
        from planform.apiserver.auth import certificates

        root, now = await self._authority(), self._clock.now()
        end = min(now + LIFETIME, root.not_after)
        issued = await asyncio.to_thread(certificates.client, root.certificate, root.key, user, (), now, end)
        return _data(root.certificate, issued.certificate, issued.key)

    async def ensure_caller(self, present: Mapping[str, Any] | None) -> datetime:
        """Have the control plane's own certificate, of which `present` is known; gives when to look again."""
        data = (present or {}).get("data") or {}
        if not await self.is_current(data):
            data = (await self._fill(CLIENT_SECRET, lambda: self.issue_client(CALLER), self.is_current))["data"]
        found = describe(data)
        assert found is not None  # it is current
        return found.not_after - RENEW_BEFORE

    async def certificate(self) -> bytes:
        """The authority's own, in PEM."""
        return (await self._authority()).certificate

    async def _authority(self) -> _Root:
        if self._root is None:
            async with self._lock:
                if self._root is None:
                    self._root = await self._read()
        return self._root

    async def _read(self) -> _Root:
        from planform.apiserver.auth import certificates

        async def made() -> dict[str, str]:
            now = self._clock.now()
            issued = await asyncio.to_thread(
                certificates.authority, "planform functions", now, now + AUTHORITY_LIFETIME
            )
            return _data(issued.certificate, issued.certificate, issued.key)

        async def is_filled(data: Mapping[str, Any]) -> bool:
            return bool(data.get("tls.crt"))

        data = (await self._fill(ROOT_SECRET, made, is_filled))["data"]
        try:
            certificate, key = (base64.b64decode(data[name], validate=True) for name in ("tls.crt", "tls.key"))
            return _Root(certificate, key, certificates.not_after_of_pair(certificate, key))
        except (KeyError, ValueError, binascii.Error) as error:
            raise AuthorityUnusable(f"Secret {self._namespace}/{ROOT_SECRET} is no authority: {error}") from error

    async def _fill(self, name: str, make: Callable[[], Any], is_good: Callable[[Mapping[str, Any]], Any]) -> Object:
        """The Secret, filled unless its content is good. Of two who do so at once, one wins and both use that."""
        while True:
            try:
                present = await self._client.get(SECRET, name, namespace=self._namespace)
            except NotFound:
                made = {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": name, "namespace": self._namespace},
                    "type": "Opaque",  # as the chart makes it, which cannot know a certificate yet
                    "data": await make(),
                }
                try:
                    return await self._client.create(made, manager=self._manager)
                except AlreadyExists:
                    continue
            if await is_good(present.get("data") or {}):
                return present
            guarded = {"uid": uid_of(present), "resourceVersion": resource_version_of(present)}
            patch = Patch(PatchType.MERGE, {"metadata": guarded, "data": await make()})
            return await self._client.patch(SECRET, name, patch, namespace=self._namespace, manager=self._manager)


def describe(data: Mapping[str, Any]) -> Described | None:
    """What the certificate in a Secret's data says; None if there is none that can be read."""
    from cryptography import x509

    try:
        parsed = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"], validate=True))
    except (KeyError, ValueError, TypeError):
        return None
    try:
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = frozenset(names.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        found = frozenset()
    return Described(found, parsed.not_valid_after_utc, f"{parsed.serial_number:x}")


def client_tls(data: Mapping[str, Any]) -> ClientTls | None:
    """What to call functions with; None if the Secret does not hold it yet."""
    try:
        authority, certificate, key = (base64.b64decode(data[name], validate=True) for name in TLS_KEYS)
    except (KeyError, ValueError, TypeError):
        return None
    return ClientTls(authority, certificate, key) if authority and certificate and key else None


def _data(authority: bytes, certificate: bytes, key: bytes) -> dict[str, str]:
    return {"ca.crt": _encoded(authority), "tls.crt": _encoded(certificate), "tls.key": _encoded(key)}


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
