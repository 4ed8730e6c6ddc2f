"""ServiceAccount tokens: issued on request, short-lived, and worth something only while what they name exists.

A token is bound to the uid of its ServiceAccount, and to a Pod or Secret if the request says so. Deleting any of them
ends the token at once, even if an object of the same name comes after.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from planform.apiserver.auth.jws import BadToken, SigningKey
from planform.apiserver.auth.rbac import SERVICE_ACCOUNT_PREFIX
from planform.apiserver.verbs.requests import AUTHENTICATED, User
from planform.clock import Clock
from planform.errors import BadRequest, Conflict, FieldError, Invalid, NotFound
from planform.store import Change, ChangeType, Entry, Key, Store

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
DEFAULT_SECONDS: Final = 3600
MIN_SECONDS: Final = 600
MAX_SECONDS: Final = 1 << 32
_RESTED_ON: Final = ("serviceaccounts", "pods", "secrets")
_CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"


class BoundObject(msgspec.Struct, frozen=True, rename="camel"):
    """What a token shall live and die with."""

    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class TokenRequestSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What is asked for. No audiences means this API."""

    audiences: tuple[str, ...] = ()
    expiration_seconds: int = DEFAULT_SECONDS
    bound_object_ref: BoundObject | None = None


class _Reference(msgspec.Struct, frozen=True):
    name: str
    uid: str


class _Private(msgspec.Struct, frozen=True, omit_defaults=True):
    """The claims that say what must still exist."""

    namespace: str
    serviceaccount: _Reference
    pod: _Reference | None = None
    secret: _Reference | None = None


class _Claims(msgspec.Struct, frozen=True):
    aud: tuple[str, ...]
    exp: int
    iat: int
    iss: str
    jti: str
    private: _Private = msgspec.field(name="kubernetes.io")
    nbf: int
    sub: str


class _Metadata(msgspec.Struct):
    uid: str


class _Spec(msgspec.Struct, rename="camel"):
    service_account_name: str | None = None


class _Stored(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None

    @property
    def service_account(self) -> str:
        """Whose identity a Pod has."""
        return (self.spec.service_account_name if self.spec else None) or "default"


_decode_claims = msgspec.json.Decoder(_Claims).decode
_decode_stored = msgspec.json.Decoder(_Stored).decode


@dataclass(frozen=True, slots=True)
class IssuedToken:
    token: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """Who a token stands for. It holds until `expires`, and while each of `depends_on` is the version it was."""

    user: User
    audiences: tuple[str, ...]
    expires: float
    depends_on: tuple[tuple[Key, int], ...]


class ServiceAccountTokens:
    """Issues and checks tokens; what must exist is looked up in the committed store."""

    def __init__(
        self,
        store: Store,
        directory: Path,
        *,
        clock: Clock,
        issuer: str = ISSUER,
        audiences: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._clock = clock
        self._issuer = issuer
        self.audiences = tuple(audiences) or (issuer,)
        """The audiences of this API; a token for any of them opens it."""
        self._signing = SigningKey(directory / "service-accounts.key")
        self.deletions = 0
        """How many objects that a token may rest on were deleted; an object that was replaced was deleted first."""
        store.subscribe(self._follow)

    def prepare(self) -> None:
        """Load the key and its library; app.py calls this in a thread once the server is ready."""
        self._signing.prepare()

    def issue(self, namespace: str, name: str, spec: TokenRequestSpec) -> IssuedToken:
        """A token for a ServiceAccount that exists; raises NotFound, Invalid, BadRequest or Conflict."""
        account = self._store.get(Key("serviceaccounts", namespace, name))
        if account is None:
            raise NotFound.of("", "serviceaccounts", name)
        _check_duration(spec.expiration_seconds)
        pod, secret = self._bound(namespace, name, spec.bound_object_ref)
        now = self._clock.now()
        expires = (now + timedelta(seconds=spec.expiration_seconds)).replace(microsecond=0)
        claims = _Claims(
            aud=spec.audiences or self.audiences,
            exp=int(expires.timestamp()),
            iat=int(now.timestamp()),
            iss=self._issuer,
            jti=str(uuid.uuid4()),
            private=_Private(namespace, _Reference(name, _uid(account)), pod, secret),
            nbf=int(now.timestamp()),
            sub=f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}",
        )
        return IssuedToken(self._signing.sign(msgspec.json.encode(claims)), expires.astimezone(UTC))

    def verify(self, token: str, audiences: Sequence[str] = ()) -> VerifiedToken:
        """Whom a token stands for, if it is meant for one of the audiences (this API's by default). Raises BadToken."""
        try:
            claims = _decode_claims(self._signing.verified(token))
        except msgspec.DecodeError:
            raise BadToken("the token's claims cannot be read") from None
        now = self._clock.now().timestamp()
        if claims.iss != self._issuer:
            raise BadToken("the token was issued by someone else")
        if now >= claims.exp:
            raise BadToken("the token has expired")
        if now < claims.nbf:
            raise BadToken("the token is not valid yet")
        wanted = tuple(audiences) or self.audiences
        meant = tuple(audience for audience in wanted if audience in claims.aud)
        if not meant:
            raise BadToken(f"the token is for the audiences {list(claims.aud)}, not for {list(wanted)}")
        private = claims.private
        namespace, account = private.namespace, private.serviceaccount
        if claims.sub != f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{account.name}":
            raise BadToken("the token names two ServiceAccounts")
        depends_on = [self._still_there("serviceaccounts", namespace, account)]
        extra = {_CREDENTIAL_ID: (f"JTI={claims.jti}",)}
        if private.pod is not None:
            depends_on.append(self._still_there("pods", namespace, private.pod))
            extra |= {_POD_NAME: (private.pod.name,), _POD_UID: (private.pod.uid,)}
        if private.secret is not None:
            depends_on.append(self._still_there("secrets", namespace, private.secret))
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        return VerifiedToken(User(claims.sub, groups, account.uid, extra), meant, float(claims.exp), tuple(depends_on))

    def _follow(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.type is ChangeType.DELETED and change.key.resource in _RESTED_ON:
                self.deletions += 1

    def holds(self, verified: VerifiedToken) -> bool:
        """Whether a verified token need not be verified again: nothing it rests on has changed, nor has it expired."""
        for key, rv in verified.depends_on:
            entry = self._store.get(key)
            if entry is None or entry.rv != rv:
                return False
        return self._clock.now().timestamp() < verified.expires

    def _still_there(self, resource: str, namespace: str, reference: _Reference) -> tuple[Key, int]:
        key = Key(resource, namespace, reference.name)
        entry = self._store.get(key)
        if entry is None or _uid(entry) != reference.uid:
            raise BadToken(f"the token rests on {resource} {namespace}/{reference.name}, which is gone")
        return key, entry.rv

    def _bound(
        self, namespace: str, account: str, bound: BoundObject | None
    ) -> tuple[_Reference | None, _Reference | None]:
        """References to the Pod or the Secret that a token is bound to."""
        if bound is None:
            return None, None
        if bound.api_version != "v1" or bound.kind not in ("Pod", "Secret"):
            group, slash, version = bound.api_version.rpartition("/")
            shown = f"{group if slash else ''}/{version}, Kind={bound.kind}"
            raise BadRequest(f"cannot bind token to object of type {shown}")
        plural = f"{bound.kind.lower()}s"
        entry = self._store.get(Key(plural, namespace, bound.name))
        if entry is None:
            raise NotFound.of("", plural, bound.name)
        stored = _decode_stored(entry.value)
        if bound.kind == "Pod" and stored.service_account != account:
            raise BadRequest(
                f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            )
        if bound.uid and bound.uid != stored.metadata.uid:
            raise Conflict(
                f'Operation cannot be fulfilled on {bound.kind} "{bound.name}": the UID in the bound object reference '
                f"({bound.uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
                details={"name": bound.name, "kind": bound.kind},
            )
        reference = _Reference(bound.name, stored.metadata.uid)
        return (reference, None) if bound.kind == "Pod" else (None, reference)


def _uid(entry: Entry) -> str:
    return _decode_stored(entry.value).metadata.uid


def _check_duration(seconds: int) -> None:
    if MIN_SECONDS <= seconds <= MAX_SECONDS:
        return
    limit = "less than 10 minutes" if seconds < MIN_SECONDS else "larger than 2^32 seconds"
    detail = f"Invalid value: {seconds}: may not specify a duration {limit}"
    error = FieldError("spec.expirationSeconds", "FieldValueInvalid", detail)
    raise Invalid.of("authentication.k8s.io", "TokenRequest", "", [error])
