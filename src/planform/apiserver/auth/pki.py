"""Our own certificate authority: the server's certificate, clients' certificates, renewal and revocation.

Everything lives in one private directory. What a start needs to know (names, expiry) stands in small JSON files beside
the certificates, so that an ordinary start neither imports a cryptography library nor parses a certificate:

    ca.crt ca.key       the authority, ten years
    server.pem          key and certificate in one file, so that they are replaced together; server.json: names, expiry
    issued.json         which client certificates exist, so that a user's can be revoked
    revoked.json        serial numbers that are no longer accepted; every server notices a change within a second
    NAME.client.json    a credential that is kept, such as the one in the kubeconfig of the first start
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import msgspec

from planform.apiserver.auth.certificate_names import MAX_COMMON_NAME_LENGTH, MAX_USER_LENGTH
from planform.apiserver.auth.private_files import FollowedFile, locked, make_private_directory, write_private
from planform.clock import Clock
from planform.errors import PlanformError, UsageError

log = logging.getLogger(__name__)

CA_LIFETIME = timedelta(days=3650)
SERVER_LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=90)
LOOK_EVERY = timedelta(hours=1)
LOOPBACK_NAMES = (
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?|[0-9a-fA-F:.]+")


class _ExplainingSSLObject(ssl.SSLObject):
    """A server's side of a handshake whose refusal of a certificate reaches the client.

    Event loops drop what a failed handshake still had to send, so that a client whose certificate has expired would
    see a closed connection and try again for ever. Asking for more data first makes the loop send the alert.
    """

    _failure: ssl.SSLCertVerificationError | None = None

    def do_handshake(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except ssl.SSLCertVerificationError as error:
            self._failure = error
            raise ssl.SSLWantReadError("the alert goes first") from error


class PkiError(PlanformError):
    """The directory of keys and certificates cannot be used."""

    reason = "PkiUnusable"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class _Server(msgspec.Struct):
    names: list[str]
    not_after: datetime


class Issued(msgspec.Struct, frozen=True):
    """One client certificate that was handed out."""

    serial: str
    user: str
    groups: tuple[str, ...]
    not_after: datetime


class ClientCredential(msgspec.Struct, frozen=True):
    """A client certificate with its key. `serial` is spelled as TLS reports it: hexadecimal, upper case."""

    user: str
    groups: tuple[str, ...]
    serial: str
    not_after: datetime
    certificate: str
    key: str
    authority: str

    def kubeconfig(self, server: str, *, cluster: str = "planform") -> dict[str, object]:
        """A kubeconfig that holds everything a client needs."""
        from base64 import b64encode

        def encoded(pem: str) -> str:
            return b64encode(pem.encode()).decode()

        context = f"{self.user}@{cluster}"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": cluster,
                    "cluster": {"server": server, "certificate-authority-data": encoded(self.authority)},
                }
            ],
            "users": [
                {
                    "name": self.user,
                    "user": {
                        "client-certificate-data": encoded(self.certificate),
                        "client-key-data": encoded(self.key),
                    },
                }
            ],
            "contexts": [{"name": context, "context": {"cluster": cluster, "user": self.user}}],
            "current-context": context,
        }


class ServerCredential(msgspec.Struct, frozen=True):
    """A certificate for a server that is not ours but trusts our authority, such as a function's."""

    names: tuple[str, ...]
    not_after: datetime
    certificate: str
    key: str
    authority: str


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: bytes
    key: bytes
    not_after: datetime


class Pki:
    """The authority in one directory. Made at first use; several processes may use one directory at once."""

    def __init__(self, directory: Path, *, clock: Clock, names: Sequence[str] = ()) -> None:
        self._directory = directory
        self._clock = clock
        self._names = _server_names(names)
        self._context: ssl.SSLContext | None = None
        make_private_directory(directory)
        with locked(directory / ".lock"):
            if not (directory / "ca.crt").exists():
                self._make_authority()
        self._server = self._server_state()
        try:
            self._revoked = FollowedFile(
                directory / "revoked.json", _parse_revoked, clock=clock, on_error=self._report_revoked
            )
        except ValueError as error:
            raise PkiError(
                f"{directory / 'revoked.json'} is damaged; without it, revoked certificates would work again: {error}",
                hint="restore the file from a backup, or remove it and revoke again",
            ) from error

    # -- the server

    @property
    def authority_pem(self) -> str:
        return (self._directory / "ca.crt").read_text()

    def tls_context(self) -> ssl.SSLContext:
        """The server's live context: `renew_if_due` changes the certificate that its next handshakes show.

        A client certificate is asked for and may be missing; one that our authority did not sign for clients, or that
        has expired, ends the handshake. The certificate is made here, not earlier: whoever only issues credentials
        does not know under which names the server is reached.
        """
        if self._context is None:
            self.renew_if_due(self._clock.now())
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.options |= ssl.OP_NO_RENEGOTIATION
            context.set_alpn_protocols(["http/1.1"])
            context.load_cert_chain(self._directory / "server.pem")
            context.load_verify_locations(cafile=self._directory / "ca.crt")
            context.verify_mode = ssl.CERT_OPTIONAL
            context.sslobject_class = _ExplainingSSLObject
            self._context = context
        return self._context

    def renew_if_due(self, now: datetime) -> bool:
        """Issue the server's certificate anew when it nears its end or lacks a name; True if that was done."""
        if not self._is_due(now):
            return False
        server = self._server
        with locked(self._directory / ".lock"):
            authority = self._authority()
            not_after = min(now + SERVER_LIFETIME, authority.not_after)
            if server is not None and server.names == list(self._names) and not_after <= server.not_after:
                return False  # the authority itself ends: nothing better can be issued
            from planform.apiserver.auth import certificates

            issued = certificates.server(authority.certificate, authority.key, self._names, now, not_after)
            write_private(self._directory / "server.pem", issued.key + issued.certificate)
            self._server = _Server(list(self._names), not_after)
            write_private(self._directory / "server.json", msgspec.json.encode(self._server))
        if self._context is not None:
            self._context.load_cert_chain(self._directory / "server.pem")
        return True

    async def keep_renewed(self) -> None:
        """Look every hour whether renewal is due, until cancelled. A failure is logged and tried again."""
        while True:
            await self._clock.sleep(LOOK_EVERY.total_seconds())
            now = self._clock.now()
            if not self._is_due(now):
                continue
            await asyncio.to_thread(import_module, "planform.apiserver.auth.certificates")  # it is large
            try:
                if self.renew_if_due(now):
                    log.info("the server's certificate was renewed")
            except (PkiError, OSError) as error:
                log.error("the server's certificate cannot be renewed: %s", error)

    def _is_due(self, now: datetime) -> bool:
        server = self._server
        return server is None or server.names != list(self._names) or now >= server.not_after - RENEW_BEFORE

    def issue_server(self, names: Sequence[str], expires: timedelta) -> ServerCredential:
        """A new certificate for another server; it never outlives the authority. Raises UsageError."""
        _check_names(names)
        from planform.apiserver.auth import certificates

        now = self._clock.now()
        with locked(self._directory / ".lock"):
            authority = self._authority()
        not_after = min(now + expires, authority.not_after).replace(microsecond=0)
        issued = certificates.server(authority.certificate, authority.key, names, now, not_after)
        return ServerCredential(
            tuple(names), not_after, issued.certificate.decode(), issued.key.decode(), authority.certificate.decode()
        )

    # -- clients

    def issue_client(self, user: str, groups: Sequence[str], expires: timedelta) -> ClientCredential:
        """A new client certificate, entered in the ledger; it never outlives the authority. Raises UsageError."""
        _check_user(user, groups, expires)
        from planform.apiserver.auth import certificates

        now = self._clock.now()
        with locked(self._directory / ".lock"):
            authority = self._authority()
            not_after = min(now + expires, authority.not_after).replace(microsecond=0)
            issued = certificates.client(authority.certificate, authority.key, user, groups, now, not_after)
            credential = ClientCredential(
                user,
                tuple(groups),
                issued.serial,
                not_after,
                issued.certificate.decode(),
                issued.key.decode(),
                authority.certificate.decode(),
            )
            entry = Issued(issued.serial, user, tuple(groups), not_after)
            ledger = [known for known in self._ledger() if known.not_after > now]
            write_private(self._directory / "issued.json", msgspec.json.encode([*ledger, entry]))
        return credential

    def kept_client(self, name: str, user: str, groups: Sequence[str]) -> ClientCredential:
        """The credential kept under that name, issued anew only if it is missing, near its end or revoked."""
        path = self._directory / f"{name}.client.json"
        kept = _read_json(path, ClientCredential)
        now = self._clock.now()
        if (
            kept is not None
            and (kept.user, kept.groups) == (user, tuple(groups))
            and now < kept.not_after - RENEW_BEFORE
            and not self.is_revoked(kept.serial)
        ):
            return kept
        credential = self.issue_client(user, groups, SERVER_LIFETIME)
        write_private(path, msgspec.json.encode(credential))
        return credential

    def issued(self) -> list[Issued]:
        """Client certificates that have not expired, oldest first; revoked ones among them."""
        now = self._clock.now()
        return [entry for entry in self._ledger() if entry.not_after > now]

    def revoke(self, *, serial: str = "", user: str = "") -> list[Issued]:
        """Refuse a client certificate, or all of a user's, from now on. Raises UsageError if none was issued."""
        if bool(serial) == bool(user):
            raise UsageError("revoke either a serial number or a user's certificates")
        wanted = serial.replace(":", "").upper()
        now = self._clock.now()
        with locked(self._directory / ".lock"):
            ledger = [entry for entry in self._ledger() if entry.not_after > now]
            found = [entry for entry in ledger if entry.serial == wanted or (user and entry.user == user)]
            if not found:
                what = f'user "{user}"' if user else f"serial number {wanted}"
                raise UsageError(
                    f"no certificate that is still valid was issued for {what}",
                    hint="it may have expired already, or was issued by another control plane",
                )
            path = self._directory / "revoked.json"
            revoked = _parse_revoked(path.read_bytes() if path.exists() else b"")
            known = {entry.serial for entry in ledger}
            kept = (revoked & known) | {entry.serial for entry in found}  # an expired one needs no refusing
            write_private(path, msgspec.json.encode(sorted(kept)))
        self._revoked.look()
        return found

    def is_revoked(self, serial: str) -> bool:
        return serial in self._revoked.current()

    def revocations(self) -> int:
        """Another number once other certificates are revoked; the file is looked at now."""
        self._revoked.look()
        return self._revoked.version

    # -- inside

    def _make_authority(self) -> None:
        from planform.apiserver.auth import certificates

        now = self._clock.now()
        issued = certificates.authority(
            f"planform {socket.gethostname()}"[:MAX_COMMON_NAME_LENGTH], now, now + CA_LIFETIME
        )
        write_private(self._directory / "ca.key", issued.key)
        write_private(self._directory / "ca.crt", issued.certificate)

    def _authority(self) -> _Authority:
        certificate, key = self._directory / "ca.crt", self._directory / "ca.key"
        from planform.apiserver.auth import certificates

        try:
            pem, secret = certificate.read_bytes(), key.read_bytes()
            not_after = certificates.not_after_of_pair(pem, secret)
        except (OSError, ValueError) as error:
            raise PkiError(
                f"cannot use the certificate authority in {self._directory}: {error}",
                hint=f"restore ca.crt and ca.key from a backup, or remove {self._directory} to make a new authority; "
                "every kubeconfig must then be created anew",
            ) from error
        if not_after <= self._clock.now():
            raise PkiError(
                f"the certificate authority in {self._directory} expired on {not_after:%Y-%m-%d}",
                hint=f"remove {self._directory} to make a new one, and create every kubeconfig anew",
            )
        return _Authority(pem, secret, not_after)

    def _server_state(self) -> _Server | None:
        return (
            _read_json(self._directory / "server.json", _Server) if (self._directory / "server.pem").exists() else None
        )

    def _ledger(self) -> list[Issued]:
        return _read_json(self._directory / "issued.json", list[Issued]) or []

    def _report_revoked(self, error: Exception) -> None:
        log.error("%s cannot be read, what was revoked before stays so: %s", self._directory / "revoked.json", error)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not _HOST.fullmatch(name):
            raise UsageError(f'"{name}" is neither a host name nor an address, and cannot stand in a certificate')


def _server_names(extra: Sequence[str]) -> tuple[str, ...]:
    _check_names(extra)
    return tuple(dict.fromkeys((*LOOPBACK_NAMES, socket.gethostname(), *extra)))


def _check_user(user: str, groups: Sequence[str], expires: timedelta) -> None:
    if not user or len(user) > MAX_USER_LENGTH:
        raise UsageError(f"a user name in a certificate has 1 to {MAX_USER_LENGTH} characters, not {len(user)}")
    if not all(groups):
        raise UsageError("a group name must not be empty")
    if any(not text.isprintable() for text in (user, *groups)):
        raise UsageError("user and group names must be printable text")
    if expires <= timedelta(0):
        raise UsageError("a certificate must be valid for more than no time")


def _parse_revoked(content: bytes) -> frozenset[str]:
    try:
        return msgspec.json.decode(content, type=frozenset[str]) if content else frozenset()
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


T = TypeVar("T")


def _read_json(path: Path, shape: type[T]) -> T | None:
    """What the file holds; None if it is absent or was damaged, and must then be made anew."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
