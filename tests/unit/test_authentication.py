"""Who sends a request: certificates, tokens, nobody, and those who act for somebody else."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from planform.apiserver.auth.authentication import Authentication, ImpersonatingUser, parse_token_file
from planform.apiserver.auth.jws import BadToken
from planform.apiserver.auth.pki import Pki
from planform.apiserver.auth.rbac import GROUP, Rbac
from planform.apiserver.auth.tokens import ServiceAccountTokens, TokenRequestSpec
from planform.apiserver.verbs.requests import ANONYMOUS, User
from planform.apiserver.wire.http import HttpRequest
from planform.clock import VirtualClock
from planform.errors import BadRequest, Forbidden, InternalError, Unauthorized, UsageError
from planform.store import Key, Store, open_store

TOKENS = 'secret-1,alice,u1,"dev,ops"\nsecret-2, bob ,u2\n\n# a remark\nsecret-3,root,u3,system:masters\n'
ROBOT = Key("serviceaccounts", "ci", "robot")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(clock: VirtualClock) -> AsyncIterator[Store]:
    async with await open_store(None, clock=clock) as opened:
        await opened.stage(ROBOT, orjson.dumps({"metadata": {"namespace": "ci", "name": "robot", "uid": "uid-1"}}))
        yield opened


@pytest.fixture
def pki(tmp_path: Path, clock: VirtualClock) -> Pki:
    return Pki(tmp_path / "pki", clock=clock)


@pytest.fixture
def tokens(store: Store, tmp_path: Path, clock: VirtualClock) -> ServiceAccountTokens:
    return ServiceAccountTokens(store, tmp_path / "pki", clock=clock)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.csv"
    path.write_text(TOKENS)
    return path


@pytest.fixture
def authentication(
    store: Store, tokens: ServiceAccountTokens, pki: Pki, token_file: Path, clock: VirtualClock
) -> Authentication:
    return Authentication(clock=clock, authorizer=Rbac(store), tokens=tokens, pki=pki, token_file=token_file)


def asking(headers: Mapping[str, str] | None = None, certificate: Mapping[str, Any] | None = None) -> HttpRequest:
    encoded = {name.lower().encode(): value.encode() for name, value in (headers or {}).items()}
    return HttpRequest("GET", b"/version", encoded, b"", certificate)


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


def bearer(token: str, **more: str) -> HttpRequest:
    return asking({"Authorization": f"Bearer {token}", **{name.replace("_", "-"): text for name, text in more.items()}})


def presented(serial: str, user: str, *groups: str, not_after: str = "Jan  2 00:00:00 2026 GMT") -> dict[str, Any]:
    """What ssl's getpeercert says of a client certificate."""
    subject = [(("organizationName", group),) for group in groups]
    if user:
        subject.append((("commonName", user),))
    return {"subject": tuple(subject), "serialNumber": serial, "notAfter": not_after}


async def test_nobody_is_anonymous(authentication: Authentication) -> None:
    assert await authentication.authenticate(asking()) == ANONYMOUS


@pytest.mark.parametrize(
    ("token", "user"),
    [
        ("secret-1", User("alice", ("dev", "ops", "system:authenticated"), "u1")),
        ("secret-2", User("bob", ("system:authenticated",), "u2")),
        ("secret-3", User("root", ("system:masters", "system:authenticated"), "u3")),
    ],
)
async def test_a_static_token_is_its_user(authentication: Authentication, token: str, user: User) -> None:
    assert await authentication.authenticate(bearer(token)) == user


@pytest.mark.parametrize(
    "header",
    [
        "Bearer wrong",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "secret-1",
        "Bearer a.b.c",
        "Bearer \xff",
        "",
        "Bearer secret-1,",
    ],
)
async def test_bad_credentials_are_unauthorized_wherever_they_are_sent(
    authentication: Authentication, header: str
) -> None:
    with pytest.raises(Unauthorized) as refusal:
        await authentication.authenticate(asking({"Authorization": header}))
    assert str(refusal.value) == "Unauthorized"
    assert refusal.value.__cause__ is None


async def test_the_scheme_is_spelled_in_any_case(authentication: Authentication) -> None:
    assert (await authentication.authenticate(asking({"Authorization": "bearer secret-1"}))).name == "alice"


async def test_a_changed_token_file_counts_within_a_second_and_a_broken_one_does_not(
    authentication: Authentication, token_file: Path, clock: VirtualClock
) -> None:
    rewrite(token_file, "other,carol,u9\n")
    await clock.advance(1)
    assert (await authentication.authenticate(bearer("other"))).name == "carol"
    with pytest.raises(Unauthorized):
        await authentication.authenticate(bearer("secret-1"))
    rewrite(token_file, "only-a-token\n")
    await clock.advance(1)
    assert (await authentication.authenticate(bearer("other"))).name == "carol"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a,b", "line 1 has 2 columns"),
        ("\n,user,uid", "line 2 lacks a token"),
        ("t,,uid", "lacks a token or a user"),
        ("t,a,1\nt,b,2", "line 2 repeats"),
    ],
)
def test_a_bad_token_file_is_refused_by_line_and_without_its_tokens(content: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_token_file(content.encode())


async def test_a_token_file_that_is_not_there_stops_the_start(
    store: Store, tokens: ServiceAccountTokens, tmp_path: Path, clock: VirtualClock
) -> None:
    for path, content in ((tmp_path / "absent", None), (tmp_path / "bad", "x")):
        if content is not None:
            path.write_text(content)
        with pytest.raises(UsageError, match=str(path)):
            Authentication(clock=clock, authorizer=Rbac(store), tokens=tokens, token_file=path)


async def test_a_service_account_token_is_its_account_until_the_account_goes(
    authentication: Authentication, tokens: ServiceAccountTokens, store: Store
) -> None:
    token = tokens.issue("ci", "robot", TokenRequestSpec()).token
    for _ in range(2):
        assert (await authentication.authenticate(bearer(token))).name == "system:serviceaccount:ci:robot"
    await store.stage(ROBOT, None)
    with pytest.raises(Unauthorized):
        await authentication.authenticate(bearer(token))


async def test_a_remembered_token_expires_on_time(
    authentication: Authentication, tokens: ServiceAccountTokens, clock: VirtualClock
) -> None:
    token = tokens.issue("ci", "robot", TokenRequestSpec(expiration_seconds=600)).token
    await authentication.authenticate(bearer(token))
    await clock.advance(600)
    with pytest.raises(Unauthorized):
        await authentication.authenticate(bearer(token))


async def test_a_damaged_key_is_the_servers_fault_and_not_told_to_strangers(
    store: Store, authentication: Authentication, tmp_path: Path
) -> None:
    rewrite(tmp_path / "pki" / "service-accounts.key", "not a key")
    with pytest.raises(InternalError) as failure:
        await authentication.authenticate(bearer("a.b.c"))
    assert str(tmp_path) not in str(failure.value)
    assert (await authentication.authenticate(bearer("secret-1"))).name == "alice"


async def test_a_client_certificate_is_its_common_name_and_organisations(authentication: Authentication) -> None:
    request = asking(certificate=presented("AB", "alice", "dev", "ops"))
    assert await authentication.authenticate(request) == User("alice", ("dev", "ops", "system:authenticated"))


async def test_a_certificate_without_a_name_says_nothing(authentication: Authentication) -> None:
    assert await authentication.authenticate(asking(certificate=presented("AC", "", "dev"))) == ANONYMOUS
    request = asking({"Authorization": "Bearer secret-1"}, presented("AC", "", "dev"))
    assert (await authentication.authenticate(request)).name == "alice"


async def test_an_open_connection_does_not_outlive_its_certificate(
    authentication: Authentication, clock: VirtualClock
) -> None:
    request = asking(certificate=presented("AD", "alice"))
    await authentication.authenticate(request)
    await clock.advance(86_400)
    with pytest.raises(Unauthorized):
        await authentication.authenticate(request)


async def test_a_revoked_certificate_is_refused_on_connections_that_are_open(
    authentication: Authentication, pki: Pki
) -> None:
    issued = pki.issue_client("alice", ["dev"], timedelta(days=1))
    request = asking(certificate=presented(issued.serial, "alice", "dev"))
    await authentication.authenticate(request)
    pki.revoke(user="alice")
    with pytest.raises(Unauthorized):
        await authentication.authenticate(request)


async def test_what_is_remembered_is_bounded(authentication: Authentication) -> None:
    for number in range(5000):
        await authentication.authenticate(asking(certificate=presented(f"{number:X}", f"user-{number}")))
    assert len(authentication._certificates) <= 4096


async def test_authenticating_again_takes_microseconds(
    authentication: Authentication, tokens: ServiceAccountTokens
) -> None:
    token = tokens.issue("ci", "robot", TokenRequestSpec()).token
    for request in (bearer(token), bearer("secret-1"), asking(certificate=presented("AE", "alice"))):
        best = 1.0
        for _ in range(5):
            started = time.perf_counter()
            for _ in range(500):
                await authentication.authenticate(request)
            best = min(best, (time.perf_counter() - started) / 500)
        assert best < 50e-6  # about 2 to 5 us on an idle machine


# -- impersonation


async def grant(store: Store, *rules: Mapping[str, Any]) -> None:
    """Let alice do that."""
    role = {"metadata": {"name": "r"}, "rules": rules}
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "alice"}],
    }
    await store.stage(Key(f"clusterroles.{GROUP}", "", "r"), orjson.dumps(role))
    await store.stage(Key(f"clusterrolebindings.{GROUP}", "", "b"), orjson.dumps(binding))


def may_impersonate(resource: str, *names: str, group: str = "") -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": ["impersonate"]}


async def test_impersonation_needs_the_verb_for_each_part(authentication: Authentication, store: Store) -> None:
    request = bearer("secret-1", Impersonate_User="bob", Impersonate_Group="dev,qa")
    with pytest.raises(Forbidden) as refusal:
        await authentication.authenticate(request)
    assert str(refusal.value) == (
        'users "bob" is forbidden: User "alice" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )
    await grant(store, may_impersonate("users", "bob"), may_impersonate("groups", "dev"))
    with pytest.raises(Forbidden, match='groups "qa" is forbidden'):
        await authentication.authenticate(request)
    await grant(store, may_impersonate("users", "bob"), may_impersonate("groups", "dev", "qa"))
    user = await authentication.authenticate(request)
    assert (user.name, user.groups) == ("bob", ("dev", "qa", "system:authenticated"))
    assert isinstance(user, ImpersonatingUser)
    assert user.by.name == "alice"


async def test_impersonating_uid_and_extra_needs_permission_of_its_own(
    authentication: Authentication, store: Store
) -> None:
    request = bearer("secret-1", **{"Impersonate-User": "bob", "Impersonate-Uid": "u7", "Impersonate-Extra-a%2fb": "x"})
    group = "authentication.k8s.io"
    users, uids = may_impersonate("users", "bob"), may_impersonate("uids", "u7", group=group)
    for rules, missing in (((users,), "uids"), ((users, uids), "userextras")):
        await grant(store, *rules)
        with pytest.raises(Forbidden, match=missing):
            await authentication.authenticate(request)
    await grant(store, users, uids, may_impersonate("userextras/a/b", "x", group=group))
    user = await authentication.authenticate(request)
    assert user.uid == "u7"
    assert user.extra == {"a/b": ("x",)}


async def test_a_service_account_is_impersonated_as_such(authentication: Authentication, store: Store) -> None:
    request = bearer("secret-1", Impersonate_User="system:serviceaccount:ci:robot")
    await grant(store, may_impersonate("users", "system:serviceaccount:ci:robot"))
    with pytest.raises(Forbidden, match='serviceaccounts "robot" is forbidden'):
        await authentication.authenticate(request)
    await grant(store, may_impersonate("serviceaccounts", "robot"))
    user = await authentication.authenticate(request)
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated")


async def test_masters_may_be_anyone_even_nobody(authentication: Authentication) -> None:
    user = await authentication.authenticate(bearer("secret-3", Impersonate_User="system:anonymous"))
    assert (user.name, user.groups) == ("system:anonymous", ("system:unauthenticated",))


async def test_groups_without_a_user_and_bytes_without_a_meaning_are_bad_requests(
    authentication: Authentication,
) -> None:
    with pytest.raises(BadRequest, match="without impersonating a user"):
        await authentication.authenticate(bearer("secret-3", Impersonate_Group="system:masters"))
    request = bearer("secret-3")
    request.headers[b"impersonate-user"] = b"\xff\xfe"
    with pytest.raises(BadRequest, match="UTF-8"):
        await authentication.authenticate(request)


async def test_nobody_may_not_become_somebody(authentication: Authentication) -> None:
    with pytest.raises(Forbidden):
        await authentication.authenticate(asking({"Impersonate-User": "root", "Impersonate-Group": "system:masters"}))


# -- token reviews


async def test_a_static_token_is_good_for_this_apis_audience_only(
    authentication: Authentication, tokens: ServiceAccountTokens
) -> None:
    owner = authentication.token_owner("secret-1")
    assert (owner.user.name, owner.audiences) == ("alice", tokens.audiences)
    with pytest.raises(BadToken):
        authentication.token_owner("secret-1", ["vault"])
    with pytest.raises(BadToken):
        authentication.token_owner("wrong")
