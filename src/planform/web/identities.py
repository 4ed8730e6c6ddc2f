"""Whose rights a session has: on loopback the kubeconfig's user, below `planform up` whoever logged in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

import msgspec

from planform.api.kinds import GroupVersionKind
from planform.apiserver.verbs.requests import User
from planform.apiserver.wire.http import Handler, HttpRequest
from planform.client.kubeconfig import Connection
from planform.client.kubernetes import KubernetesClient
from planform.client.transport import Transport
from planform.client.wire import Limits
from planform.clock import Clock
from planform.errors import ApiError, Forbidden, NotFound, PlanformError, Unauthorized
from planform.web import rows
from planform.web.context import Examination, Looker, looker
from planform.web.upstream import Upstream

AGENT: Final = "planform-dashboard"
SELF: Final = "self"
_REVIEW: Final = GroupVersionKind("authentication.k8s.io", "v1", "SelfSubjectReview")
_LIMITS: Final = Limits(request_seconds=20.0)


async def who_is(client: KubernetesClient) -> tuple[str, tuple[str, ...]]:
    """What the control plane calls the user of a client; an old one does not say."""
    try:
        review = await client.create({"apiVersion": _REVIEW.api_version, "kind": _REVIEW.kind})
    except PlanformError:
        return "", ()
    user = rows.mapping(rows.mapping(review.get("status")).get("userInfo"))
    return rows.text(user.get("username")), tuple(rows.text(each) for each in rows.sequence(user.get("groups")))


@dataclass(slots=True)
class KubeconfigIdentity:
    """The one identity of `planform dashboard`: certificate, token or exec plugin of the user's own kubeconfig."""

    connection: Connection
    clock: Clock
    read_only: bool
    examine: Examination | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    namespaces: Sequence[str] = ()

    async def by_token(self, token: str) -> str:
        raise Forbidden("this dashboard has its user's identity; no other can log in")

    async def by_request(self, request: HttpRequest) -> str:
        raise NotFound("this dashboard is its user's own, and opens itself; links are given by `planform up`")

    async def check(self, key: str) -> None:
        """Nothing is known here that the control plane did not just tell this user: it asks for the credentials."""

    async def open(self, key: str) -> Looker:
        rng = Random()
        client = KubernetesClient(
            self.connection, clock=self.clock, rng=rng, manager=AGENT, user_agent=AGENT, limits=_LIMITS
        )
        transport = Transport(self.connection, clock=self.clock, rng=rng, user_agent=AGENT, limits=_LIMITS)
        named = tuple(dict.fromkeys((self.connection.namespace, *self.namespaces)))
        upstream = Upstream(client, transport, self.connection.server, named)
        user, groups = await who_is(client)
        return looker(
            user or "you",
            groups,
            upstream,
            clock=self.clock,
            read_only=self.read_only,
            examine=self.examine,
            links=self.links,
        )

    async def close(self, looker: Looker) -> None:
        await looker.upstream.kubernetes.__aexit__(None, None, None)
        await looker.upstream.transport.__aexit__(None, None, None)


class _Who(msgspec.Struct, frozen=True, kw_only=True):
    """A key: whom a session acts for, and by which credentials, so that the session ends when they do.

    Of a certificate, what TLS told of it after it was proven is kept, not the proof.
    """

    user: str
    groups: tuple[str, ...] = ()
    token: str = ""
    certificate: dict[str, Any] | None = None

    def key(self) -> str:
        return msgspec.json.encode(self).decode()


class Authenticator(Protocol):
    """Says who sends a request by its credentials; raises Unauthorized once they are revoked or over."""

    async def authenticate(self, request: HttpRequest, /) -> User: ...


@dataclass(slots=True)
class ServedIdentities:
    """Those of the dashboard that `planform up` serves: whoever the API server knows.

    Who they are is asked of the API's own handler, with the credentials that came along, so that there is no second
    way to log in. Requests are then made as them: with their token, or by impersonation.
    """

    connection: Connection
    clock: Clock
    handler: Handler
    authenticator: Authenticator
    examine: Examination | None = None

    async def by_token(self, token: str) -> str:
        who = await self._review({b"authorization": f"Bearer {token}".encode()}, None)
        return msgspec.structs.replace(who, token=token).key()

    async def by_request(self, request: HttpRequest) -> str:
        sent = {name: request.headers[name] for name in (b"authorization",) if name in request.headers}
        who = await self._review(sent, request)
        token = request.header(b"authorization").partition(" ")[2].strip()
        certificate = None if request.peer_certificate is None else dict(request.peer_certificate)
        return msgspec.structs.replace(who, token=token, certificate=certificate).key()

    async def check(self, key: str) -> None:
        who = msgspec.json.decode(key, type=_Who)
        headers = {b"authorization": f"Bearer {who.token}".encode()} if who.token else {}
        try:
            user = await self.authenticator.authenticate(HttpRequest("GET", b"/ui/", headers, b"", who.certificate))
        except ApiError as error:
            if not isinstance(error, Unauthorized) and error.code >= 500:
                return  # it is not known: what held a moment ago still does, as with a watch that is open
            raise _ended() from error
        if (user.name, frozenset(user.groups)) != (who.user, frozenset(who.groups)):
            raise _ended()  # the same credentials mean somebody else now

    async def _review(self, headers: dict[bytes, bytes], request: HttpRequest | None) -> _Who:
        asked = HttpRequest(
            "POST",
            f"/apis/{_REVIEW.group}/{_REVIEW.version}/selfsubjectreviews".encode(),
            {**headers, b"content-type": b"application/json", b"accept": b"application/json"},
            msgspec.json.encode({"apiVersion": _REVIEW.api_version, "kind": _REVIEW.kind}),
            request.peer_certificate if request is not None else None,
            request.remote if request is not None else "",
        )
        answer = await self.handler(asked)
        body = rows.mapping(msgspec.json.decode(answer.body)) if answer.body else {}
        user = rows.mapping(rows.mapping(body.get("status")).get("userInfo"))
        name = rows.text(user.get("username"))
        if answer.status != 201 or not name or name == "system:anonymous":
            raise Unauthorized(
                rows.text(body.get("message")) or "the API server does not know you",
                hint="use the kubeconfig that `planform up` or `planform kubeconfig` wrote",
            )
        return _Who(user=name, groups=tuple(rows.text(each) for each in rows.sequence(user.get("groups"))))

    async def open(self, key: str) -> Looker:
        who = msgspec.json.decode(key, type=_Who)
        rng = Random()
        client = KubernetesClient(
            self.connection, clock=self.clock, rng=rng, manager=AGENT, user_agent=AGENT, limits=_LIMITS
        )
        transport = Transport(self.connection, clock=self.clock, rng=rng, user_agent=AGENT, limits=_LIMITS)
        headers = [("Impersonate-User", who.user), *(("Impersonate-Group", group) for group in who.groups)]
        upstream = Upstream(
            client.with_headers(headers), transport, self.connection.server, ("default",), headers, directory=client
        )
        await self.check(key)
        return looker(who.user, who.groups, upstream, clock=self.clock, read_only=False, examine=self.examine)

    async def close(self, looker: Looker) -> None:
        await looker.upstream.kubernetes.__aexit__(None, None, None)
        await looker.upstream.transport.__aexit__(None, None, None)


def _ended() -> Unauthorized:
    return Unauthorized(
        "what this session was opened with was revoked or has expired",
        hint="open a new link of `planform dashboard --link`, or paste another token",
    )


__all__ = ["AGENT", "SELF", "KubeconfigIdentity", "ServedIdentities", "Unauthorized", "who_is"]
