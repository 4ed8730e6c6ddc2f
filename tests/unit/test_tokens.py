"""ServiceAccount tokens: what they say, how long they hold, and every way to forge one."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planform.api.kinds import Object
from planform.apiserver.auth.jws import BadToken, SigningKey
from planform.apiserver.auth.pki import PkiError
from planform.apiserver.auth.tokens import ISSUER, BoundObject, ServiceAccountTokens, TokenRequestSpec
from planform.clock import VirtualClock
from planform.errors import BadRequest, Conflict, Invalid, NotFound
from planform.store import Key, Store, open_store

ROBOT = Key("serviceaccounts", "ci", "robot")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(clock: VirtualClock) -> AsyncIterator[Store]:
    async with await open_store(None, clock=clock) as opened:
        await put(opened, ROBOT, "uid-1")
        yield opened


@pytest.fixture
def tokens(store: Store, tmp_path: Path, clock: VirtualClock) -> ServiceAccountTokens:
    return ServiceAccountTokens(store, tmp_path, clock=clock)


async def put(store: Store, key: Key, uid: str, **more: Any) -> None:
    obj: Object = {"metadata": {"namespace": key.namespace, "name": key.name, "uid": uid}, **more}
    await store.stage(key, orjson.dumps(obj))


def encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def issue(tokens: ServiceAccountTokens, **spec: Any) -> str:
    return tokens.issue("ci", "robot", TokenRequestSpec(**spec)).token


async def test_a_token_says_whom_it_stands_for_until_when_and_for_whom(
    tokens: ServiceAccountTokens, clock: VirtualClock
) -> None:
    header, payload, _ = issue(tokens, expiration_seconds=600, audiences=("vault",)).split(".")
    claims = orjson.loads(decoded(payload))
    now = int(clock.now().timestamp())
    assert claims.pop("jti")
    assert claims == {
        "aud": ["vault"],
        "exp": now + 600,
        "iat": now,
        "iss": ISSUER,
        "nbf": now,
        "sub": "system:serviceaccount:ci:robot",
        "kubernetes.io": {"namespace": "ci", "serviceaccount": {"name": "robot", "uid": "uid-1"}},
    }
    assert orjson.loads(decoded(header))["alg"] == "ES256"


async def test_a_token_opens_this_api_as_its_service_account(tokens: ServiceAccountTokens) -> None:
    user = tokens.verify(issue(tokens)).user
    assert user.name == "system:serviceaccount:ci:robot"
    assert user.uid == "uid-1"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated")
    assert user.extra["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


async def test_a_token_outlives_a_restart_and_not_its_key(
    tokens: ServiceAccountTokens, store: Store, tmp_path: Path, clock: VirtualClock
) -> None:
    token = issue(tokens)
    ServiceAccountTokens(store, tmp_path, clock=clock).verify(token)
    with pytest.raises(BadToken, match="not signed by this control plane"):
        ServiceAccountTokens(store, tmp_path / "other", clock=clock).verify(token)


async def test_an_hour_is_the_default_and_then_it_is_over(tokens: ServiceAccountTokens, clock: VirtualClock) -> None:
    token = issue(tokens)
    verified = tokens.verify(token)
    await clock.advance(3599)
    tokens.verify(token)
    assert tokens.holds(verified)
    await clock.advance(1)
    assert not tokens.holds(verified)
    with pytest.raises(BadToken, match="expired"):
        tokens.verify(token)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (599, "Invalid value: 599: may not specify a duration less than 10 minutes"),
        (-1, "Invalid value: -1: may not specify a duration less than 10 minutes"),
        ((1 << 32) + 1, "Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds"),
    ],
)
async def test_durations_have_limits(tokens: ServiceAccountTokens, seconds: int, text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        issue(tokens, expiration_seconds=seconds)
    assert str(refusal.value) == (f'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: {text}')
    issue(tokens, expiration_seconds=1 << 32)


async def test_a_token_for_another_audience_does_not_open_this_api(tokens: ServiceAccountTokens) -> None:
    token = issue(tokens, audiences=("vault", "s3"))
    with pytest.raises(BadToken, match="audiences"):
        tokens.verify(token)
    assert tokens.verify(token, ["s3", "other"]).audiences == ("s3",)
    with pytest.raises(BadToken):
        tokens.verify(issue(tokens), ["vault"])


async def test_a_token_ends_with_its_service_account_even_if_a_namesake_follows(
    tokens: ServiceAccountTokens, store: Store
) -> None:
    token = issue(tokens)
    verified = tokens.verify(token)
    await put(store, ROBOT, "uid-1", secrets=[])
    assert not tokens.holds(verified), "a change asks for a second look"
    verified = tokens.verify(token)
    assert tokens.holds(verified)
    await store.stage(ROBOT, None)
    assert not tokens.holds(verified)
    with pytest.raises(BadToken, match="gone"):
        tokens.verify(token)
    await put(store, ROBOT, "uid-2")
    with pytest.raises(BadToken, match="gone"):
        tokens.verify(token)


async def test_a_service_account_that_is_not_there_gets_no_token(tokens: ServiceAccountTokens) -> None:
    with pytest.raises(NotFound, match='serviceaccounts "ghost" not found'):
        tokens.issue("ci", "ghost", TokenRequestSpec())
    with pytest.raises(NotFound):
        tokens.issue("default", "robot", TokenRequestSpec())


@pytest.mark.parametrize("kind", ["Pod", "Secret"])
async def test_a_bound_token_ends_with_what_it_is_bound_to(
    tokens: ServiceAccountTokens, store: Store, kind: str
) -> None:
    key = Key(f"{kind.lower()}s", "ci", "thing")
    await put(store, key, "uid-t", spec={"serviceAccountName": "robot"})
    token = issue(tokens, bound_object_ref=BoundObject(kind, "v1", "thing", "uid-t"))
    extra = tokens.verify(token).user.extra
    assert ("authentication.kubernetes.io/pod-name" in extra) is (kind == "Pod")
    await store.stage(key, None)
    with pytest.raises(BadToken, match="gone"):
        tokens.verify(token)


async def test_binding_is_checked(tokens: ServiceAccountTokens, store: Store) -> None:
    await put(store, Key("pods", "ci", "mine"), "uid-p", spec={"serviceAccountName": "robot"})
    await put(store, Key("pods", "ci", "theirs"), "uid-q", spec={"containers": []})
    for bound, error, text in (
        (BoundObject("Pod", "v1", "ghost"), NotFound, 'pods "ghost" not found'),
        (BoundObject("Pod", "v1", "theirs"), BadRequest, "different serviceaccount name"),
        (BoundObject("Pod", "v1", "mine", "other"), Conflict, r"UID in the bound object reference \(other\)"),
        (BoundObject("ConfigMap", "v1", "c"), BadRequest, "cannot bind token to object of type /v1, Kind=ConfigMap"),
        (BoundObject("Pod", "apps/v1", "mine"), BadRequest, "of type apps/v1, Kind=Pod"),
    ):
        with pytest.raises(error, match=text):
            issue(tokens, bound_object_ref=bound)
    issue(tokens, bound_object_ref=BoundObject("Pod", "v1", "mine"))


# -- forgeries


async def test_no_single_character_of_a_token_can_be_changed(tokens: ServiceAccountTokens) -> None:
    token = issue(tokens)
    for position in range(0, len(token), 7):
        for other in "Aa9.":
            if token[position] != other:
                with pytest.raises(BadToken):
                    tokens.verify(token[:position] + other + token[position + 1 :])
    for position in range(len(token) - 5, len(token)):  # the last characters also hold unused bits
        for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_":
            if token[position] != other:
                with pytest.raises(BadToken):
                    tokens.verify(token[:position] + other + token[position + 1 :])


async def test_other_algorithms_are_not_even_tried(tokens: ServiceAccountTokens) -> None:
    header, payload, signature = issue(tokens).split(".")
    fields = orjson.loads(decoded(header))
    for algorithm in ("none", "None", "HS256", "ES384", ""):
        forged = encoded(orjson.dumps({**fields, "alg": algorithm}))
        secret = hmac.digest(fields["kid"].encode(), f"{forged}.{payload}".encode(), hashlib.sha256)
        for ending in ("", signature, encoded(secret)):
            with pytest.raises(BadToken):
                tokens.verify(f"{forged}.{payload}.{ending}")


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://elsewhere.example.org"},
        {"nbf": 1 << 40},
        {"exp": 0},
        {"sub": "system:serviceaccount:kube-system:admin"},
        {"aud": []},
        {"kubernetes.io": {"namespace": "ci", "serviceaccount": {"name": "robot"}}},
        {"kubernetes.io": None},
        {"exp": "never"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_claims_that_do_not_fit_are_refused_even_with_a_true_signature(
    tokens: ServiceAccountTokens, tmp_path: Path, change: Object
) -> None:
    claims = orjson.loads(decoded(issue(tokens).split(".")[1]))
    key = SigningKey(tmp_path / "service-accounts.key")
    tokens.verify(key.sign(orjson.dumps(claims)))
    with pytest.raises(BadToken):
        tokens.verify(key.sign(orjson.dumps(claims | change)))


async def test_a_signature_of_zeros_or_of_the_wrong_length_is_refused(tokens: ServiceAccountTokens) -> None:
    header, payload, _ = issue(tokens).split(".")
    for content in (bytes(64), b"\xff" * 64, bytes(63), bytes(65), b""):
        with pytest.raises(BadToken):
            tokens.verify(f"{header}.{payload}.{encoded(content)}")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(text=st.text(max_size=200) | st.from_regex(r"[\w-]{1,40}\.[\w-]{1,40}\.[\w-]{1,90}", fullmatch=True))
def test_any_other_text_is_a_bad_token_and_nothing_worse(tokens: ServiceAccountTokens, text: str) -> None:
    with pytest.raises(BadToken):
        tokens.verify(text)
    header = issue(tokens).split(".")[0]
    with pytest.raises(BadToken):
        tokens.verify(f"{header}.{text}")


async def test_a_damaged_key_is_an_error_that_says_what_to_do(
    store: Store, tmp_path: Path, clock: VirtualClock
) -> None:
    tokens = ServiceAccountTokens(store, tmp_path, clock=clock)
    (tmp_path / "service-accounts.key").write_text("not a key")
    with pytest.raises(PkiError, match="cannot use the key") as failure:
        issue(tokens)
    assert failure.value.hint is not None


async def test_the_key_is_private(tokens: ServiceAccountTokens, tmp_path: Path) -> None:
    tokens.prepare()
    assert (tmp_path / "service-accounts.key").stat().st_mode & 0o777 == 0o600
