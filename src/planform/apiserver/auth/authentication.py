"""Authentication: who sends a request, by client certificate or bearer token, and on whose behalf.

Credentials are looked at in the order certificate, token; wrong ones are refused even where nobody need be known. On a
connection that stays open the answer is remembered, and checked against expiry and revocation on every request.
"""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import math
import ssl
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from planform.apiserver.auth.certificate_names import user_of
from planform.apiserver.auth.jws import BadToken
from planform.apiserver.auth.pki import Pki, PkiError
from planform.apiserver.auth.private_files import FollowedFile
from planform.apiserver.auth.rbac import SERVICE_ACCOUNT_PREFIX
from planform.apiserver.auth.tokens import ServiceAccountTokens, VerifiedToken
from planform.apiserver.verbs.requests import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, Attributes, User
from planform.clock import Clock
from planform.errors import BadRequest, InternalError, Unauthorized, UsageError

if TYPE_CHECKING:
    from planform.apiserver.wire.handler import Authorizer
    from planform.apiserver.wire.http import HttpRequest

log = logging.getLogger(__name__)

_MAX_REMEMBERED = 4096
_EXTRA = b"impersonate-extra-"
_IMPERSONATE = b"impersonate-"
_AUTHENTICATION = "authentication.k8s.io"


@dataclass(frozen=True, slots=True)
class ImpersonatingUser(User):
    """Someone who acts as somebody else; `by` is who really asked, for the audit log."""

    by: User = ANONYMOUS


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """Whom a bearer token stands for, and the audiences among those asked about that it is good for."""

    user: User
    audiences: tuple[str, ...]


class Authentication:
    """The Authenticator."""

    def __init__(
        self,
        *,
        clock: Clock,
        authorizer: Authorizer,
        tokens: ServiceAccountTokens,
        pki: Pki | None = None,
        token_file: Path | None = None,
    ) -> None:
        self._clock = clock
        self._authorizer = authorizer
        self._tokens = tokens
        self._pki = pki
        self._static = None if token_file is None else _follow_tokens(token_file, clock)
        self._certificates: dict[str, tuple[User, float]] = {}
        self._verified: dict[bytes, VerifiedToken] = {}

    async def authenticate(self, request: HttpRequest, /) -> User:
        """The user, ANONYMOUS without credentials. Raises Unauthorized, and Forbidden for an impersonation."""
        headers = request.headers
        user = None
        if request.peer_certificate is not None:
            user = self._by_certificate(request.peer_certificate)
        if user is None:
            credentials = headers.get(b"authorization")
            user = ANONYMOUS if credentials is None else self._by_header(credentials)
        for name in headers:
            if name.startswith(_IMPERSONATE):
                return self._impersonated(user, headers)
        return user

    def generation(self) -> Hashable:
        """Another value once a certificate is revoked, the token file is another or what a token rests on is gone."""
        if self._static is not None:
            self._static.look()
        return (
            self._tokens.deletions,
            self._static.version if self._static is not None else 0,
            self._pki.revocations() if self._pki is not None else 0,
        )

    def expires(self, request: HttpRequest, /) -> float:
        """When the credentials of a request that was authenticated end by themselves."""
        if request.peer_certificate is not None:
            known = self._certificates.get(request.peer_certificate["serialNumber"])
            if known is not None:
                return known[1]
        scheme_and_token = request.headers.get(b"authorization", b"").partition(b" ")
        verified = self._verified.get(hashlib.sha256(scheme_and_token[2].strip()).digest())
        return verified.expires if verified is not None else math.inf

    def token_owner(self, token: str, audiences: Sequence[str] = ()) -> TokenOwner:
        """Whom a token stands for, as TokenReview asks; raises BadToken."""
        digest = hashlib.sha256(token.encode()).digest()
        static = None if self._static is None else self._static.current().get(digest)
        if static is not None:
            wanted = tuple(audiences) or self._tokens.audiences
            meant = tuple(audience for audience in wanted if audience in self._tokens.audiences)
            if not meant:
                raise BadToken(f"the token is for the audiences {list(self._tokens.audiences)}, not for {list(wanted)}")
            return TokenOwner(static, meant)
        verified = self._tokens.verify(token, audiences)
        return TokenOwner(verified.user, verified.audiences)

    # -- certificates

    def _by_certificate(self, certificate: Mapping[str, Any]) -> User | None:
        """The user whom a certificate names; TLS has already checked that our authority signed it, for a client."""
        serial = certificate["serialNumber"]
        known = self._certificates.get(serial)
        if known is None:
            user = _subject(certificate)
            if user is None:
                return None
            known = (user, float(ssl.cert_time_to_seconds(certificate["notAfter"])))
            _remember(self._certificates, serial, known)
        user, not_after = known
        if self._clock.now().timestamp() >= not_after or (self._pki is not None and self._pki.is_revoked(serial)):
            raise Unauthorized("Unauthorized")
        return user

    # -- bearer tokens

    def _by_header(self, credentials: bytes) -> User:
        scheme, _, token = credentials.partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token:
            raise Unauthorized("Unauthorized")
        # A table of digests: how long a look-up takes then tells nothing about the tokens in it.
        digest = hashlib.sha256(token).digest()
        if self._static is not None:
            user = self._static.current().get(digest)
            if user is not None:
                return user
        verified = self._verified.get(digest)
        if verified is not None:
            if self._tokens.holds(verified):
                return verified.user
            del self._verified[digest]
        try:
            verified = self._tokens.verify(token.decode())
        except (BadToken, UnicodeDecodeError) as error:
            log.debug("a bearer token was refused: %s", error)
            raise Unauthorized("Unauthorized") from None
        except PkiError as error:
            log.error("bearer tokens cannot be checked: %s", error)
            raise InternalError("bearer tokens cannot be checked; the log of the control plane says why") from None
        _remember(self._verified, digest, verified)
        return verified.user

    # -- impersonation

    def _impersonated(self, user: User, headers: Mapping[bytes, bytes]) -> User:
        """The user that the headers ask for, if the real one may impersonate each part of it."""
        name = _text(headers.get(b"impersonate-user", b""))
        groups = tuple(_values(headers.get(b"impersonate-group", b"")))
        uid = _text(headers.get(b"impersonate-uid", b""))
        extra = {
            unquote(_text(header[len(_EXTRA) :])): tuple(_values(value))
            for header, value in headers.items()
            if header.startswith(_EXTRA)
        }
        if not name:
            raise BadRequest("requested to impersonate groups, a uid or extras without impersonating a user")
        self._check(user, _user_attributes(name))
        for group in groups:
            self._check(user, Attributes("impersonate", resource="groups", name=group))
        if uid:
            self._check(user, Attributes("impersonate", _AUTHENTICATION, "v1", "uids", name=uid))
        for key, values in extra.items():
            for value in values:
                self._check(user, Attributes("impersonate", _AUTHENTICATION, "v1", "userextras", key, name=value))
        return ImpersonatingUser(name, _with_implied_groups(name, groups), uid, extra, user)

    def _check(self, user: User, attributes: Attributes) -> None:
        self._authorizer.authorize(user, attributes)


def _user_attributes(name: str) -> Attributes:
    """Impersonating a ServiceAccount is a question about that ServiceAccount, not about a user of its name."""
    if name.startswith(SERVICE_ACCOUNT_PREFIX):
        namespace, colon, account = name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")
        if colon and namespace and account:
            return Attributes("impersonate", "", "v1", "serviceaccounts", "", namespace, account)
    return Attributes("impersonate", "", "v1", "users", name=name)


def _with_implied_groups(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    if not groups and name.startswith(SERVICE_ACCOUNT_PREFIX):
        namespace = name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")[0]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    if name == ANONYMOUS.name:
        return groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
    return groups if AUTHENTICATED in groups or UNAUTHENTICATED in groups else (*groups, AUTHENTICATED)


def _subject(certificate: Mapping[str, Any]) -> User | None:
    """Common name, or what it is a digest of, and organisations; None without a name."""
    name, groups = "", []
    for part in certificate.get("subject", ()):
        for field, value in part:
            if field == "commonName":
                name = value
            elif field == "organizationName":
                groups.append(value)
    name = user_of(name, [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"])
    return User(name, (*groups, AUTHENTICATED)) if name else None


def _follow_tokens(path: Path, clock: Clock) -> FollowedFile[Mapping[bytes, User]]:
    def report(error: Exception) -> None:
        log.error("%s cannot be read, the tokens of before stay valid: %s", path, error)

    if not path.exists():
        raise UsageError(f"the token file {path} does not exist", hint='write lines of: token,user,uid,"group1,group2"')
    try:
        return FollowedFile(path, parse_token_file, clock=clock, on_error=report)
    except (ValueError, OSError) as error:
        raise UsageError(
            f"cannot use the token file {path}: {error}", hint='write lines of: token,user,uid,"group1,group2"'
        ) from error


def parse_token_file(content: bytes) -> Mapping[bytes, User]:
    """Users by the digest of their token, from lines of `token,user,uid,"group1,group2"`. Raises ValueError."""
    users: dict[bytes, User] = {}
    for number, row in enumerate(csv.reader(io.StringIO(content.decode()), skipinitialspace=True), start=1):
        if not row or row[0].startswith("#"):
            continue
        if len(row) < 3:
            raise ValueError(f"line {number} has {len(row)} columns, and needs token, user and uid")
        token, name, uid = (column.strip() for column in row[:3])
        if not token or not name:
            raise ValueError(f"line {number} lacks a token or a user name")
        groups = [group.strip() for group in row[3].split(",") if group.strip()] if len(row) > 3 else []
        digest = hashlib.sha256(token.encode()).digest()
        if digest in users:
            raise ValueError(f"line {number} repeats the token of an earlier line")
        users[digest] = User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))), uid)
    return users


def _remember(cache: dict[Any, Any], key: Any, value: Any) -> None:
    """Bounded: the entry that was remembered first makes room."""
    if len(cache) >= _MAX_REMEMBERED:
        del cache[next(iter(cache))]
    cache[key] = value


def _values(header: bytes) -> list[str]:
    """A repeated header arrives joined with commas; each value is authorised, so none can hide in another."""
    return [value for value in (part.strip() for part in _text(header).split(",")) if value]


def _text(header: bytes) -> str:
    try:
        return header.decode()
    except UnicodeDecodeError:
        raise BadRequest("an impersonation header is not UTF-8") from None
