"""Questions put as objects: their answers, and questions that make no sense."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from planform.api.builtin import BUILTIN_KINDS
from planform.api.kinds import Object
from planform.apiserver.auth.authentication import Authentication
from planform.apiserver.auth.rbac import GROUP, Rbac
from planform.apiserver.auth.reviews import Reviews
from planform.apiserver.auth.tokens import ISSUER, ServiceAccountTokens
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.crds.strategies import CUSTOM
from planform.apiserver.verbs.requests import Request, User
from planform.apiserver.wire.routes import ResourcePath
from planform.clock import VirtualClock
from planform.errors import ApiError, BadRequest, Invalid, NotFound
from planform.store import Key, open_store

ALICE = User("alice", ("dev", "system:authenticated"), "u1", {"team": ("a", "b")})
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
SEE_METRICS = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}


@dataclass
class Asking:
    reviews: Reviews

    async def __call__(
        self, plural: str, spec: Object | None = None, *, user: User = ALICE, namespace: str = "", **more: Any
    ) -> Object:
        """The answer to a review; `more` are other fields of the body."""
        kind = next(kind for kind in BUILTIN_KINDS if kind.plural == plural)
        served = ServedKind(kind, CUSTOM, None)
        path = ResourcePath(kind.group, kind.version, plural, namespace)
        body: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec, **more}
        answer = await self.reviews.create(served, path, body, Request(user=user))
        assert answer is not None
        return orjson.loads(orjson.dumps(answer))  # type: ignore[no-any-return]  # any JSON object

    async def token(self, name: str = "robot", body: Object | None = None) -> Object:
        kind = next(kind for kind in BUILTIN_KINDS if kind.plural == "serviceaccounts")
        path = ResourcePath("", "v1", "serviceaccounts", "ci", name, "token")
        answer = await self.reviews.create(ServedKind(kind, CUSTOM, None), path, body or {}, Request(user=ALICE))
        assert answer is not None
        return answer


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asking]:
    clock = VirtualClock()
    async with await open_store(None, clock=clock) as store:
        rbac = Rbac(store)
        tokens = ServiceAccountTokens(store, tmp_path, clock=clock)
        (tmp_path / "tokens").write_text("secret,alice,u1,dev\n")
        authentication = Authentication(clock=clock, authorizer=rbac, tokens=tokens, token_file=tmp_path / "tokens")
        for resource, name, obj in (
            ("clusterroles", "reader", {"rules": [READ_PODS, SEE_METRICS]}),
            ("roles", "one", {"rules": [{**READ_PODS, "verbs": ["delete"], "resourceNames": ["x"]}]}),
        ):
            namespace = "default" if resource == "roles" else ""
            value = {"metadata": {"name": name}, **obj}
            await store.stage(Key(f"{resource}.{GROUP}", namespace, name), orjson.dumps(value))
        for resource, name, ref, namespace in (
            ("clusterrolebindings", "readers", {"kind": "ClusterRole", "name": "reader"}, ""),
            ("rolebindings", "ones", {"kind": "Role", "name": "one"}, "default"),
        ):
            value = {"metadata": {"name": name}, "roleRef": ref, "subjects": [{"kind": "Group", "name": "dev"}]}
            await store.stage(Key(f"{resource}.{GROUP}", namespace, name), orjson.dumps(value))
        robot = {"metadata": {"namespace": "ci", "name": "robot", "uid": "uid-1"}}
        await store.stage(Key("serviceaccounts", "ci", "robot"), orjson.dumps(robot))
        yield Asking(Reviews(clock=clock, rbac=rbac, authentication=authentication, tokens=tokens))


async def test_can_i_is_answered_with_the_question_and_the_reason(ask: Asking) -> None:
    asked = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}
    assert await ask("selfsubjectaccessreviews", asked) == {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": asked,
        "status": {
            "allowed": True,
            "reason": 'RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "dev"',
        },
    }


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"resourceAttributes": {"verb": "drop", "resource": "pods"}}, False),
        ({"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "default", "name": "x"}}, True),
        ({"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "default"}}, False),
        ({"resourceAttributes": {"verb": "*", "resource": "*", "group": "*"}}, False),
        ({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}, True),
        ({"nonResourceAttributes": {"path": "/logs", "verb": "get"}}, False),
        ({"nonResourceAttributes": {}}, False),
        ({"resourceAttributes": None, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}, True),
    ],
)
async def test_can_i_agrees_with_what_would_happen(ask: Asking, spec: Object, allowed: bool) -> None:
    assert (await ask("selfsubjectaccessreviews", spec))["status"]["allowed"] is allowed


async def test_can_they_asks_about_a_user_or_groups(ask: Asking) -> None:
    asked = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}
    for spec, allowed in (
        ({"user": "bob"}, False),
        ({"groups": ["dev"]}, True),
        ({"user": "bob", "groups": ["dev"], "extra": {"a": ["b"]}, "uid": "1"}, True),
        ({"user": "alice"}, False),
    ):
        answer = await ask("subjectaccessreviews", asked | spec)
        assert answer["status"]["allowed"] is allowed, spec
        assert answer["spec"] == asked | spec
    answer = await ask("localsubjectaccessreviews", {**asked, "groups": ["dev"]}, namespace="default")
    assert answer["status"]["allowed"]
    assert answer["metadata"] == {"namespace": "default"}


@pytest.mark.parametrize(
    ("plural", "spec", "text"),
    [
        (
            "selfsubjectaccessreviews",
            {},
            'SelfSubjectAccessReview.authorization.k8s.io "" is invalid: spec: Invalid value: null: '
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": {}, "nonResourceAttributes": {"path": "/"}},
            'spec: Invalid value: {"Path":"/","Verb":""}: exactly one of nonResourceAttributes or resourceAttributes',
        ),
        (
            "subjectaccessreviews",
            {"resourceAttributes": {}},
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ),
        (
            "localsubjectaccessreviews",
            {"user": "bob", "resourceAttributes": {"namespace": "other"}},
            'spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace',
        ),
        (
            "localsubjectaccessreviews",
            {"user": "bob", "nonResourceAttributes": {"path": "/"}},
            "disallowed on this kind of request",
        ),
    ],
)
async def test_a_question_that_makes_no_sense_is_invalid(ask: Asking, plural: str, spec: Object, text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        await ask(plural, spec, namespace="default" if plural.startswith("local") else "")
    assert text in str(refusal.value)


@pytest.mark.parametrize(
    ("plural", "body"),
    [
        ("selfsubjectaccessreviews", {"spec": {"resourceAttributes": {"verb": 3}}}),
        ("selfsubjectaccessreviews", {"spec": []}),
        ("selfsubjectaccessreviews", {"spec": "x"}),
        ("selfsubjectaccessreviews", {"metadata": "x"}),
        ("selfsubjectaccessreviews", {"kind": "SubjectAccessReview"}),
        ("subjectaccessreviews", {"spec": {"groups": [1]}}),
        ("selfsubjectreviews", {"apiVersion": "authentication.k8s.io/v1beta1"}),
        ("selfsubjectrulesreviews", {"spec": {}}),
        ("tokenreviews", {"spec": {}}),
        ("tokenreviews", {"spec": {"token": 5}}),
    ],
)
async def test_wrong_types_and_kinds_are_bad_requests(ask: Asking, plural: str, body: Object) -> None:
    with pytest.raises(ApiError) as refusal:
        await ask(plural, **body)
    assert refusal.value.code in (400, 422)


async def test_rules_list_what_applies_in_a_namespace(ask: Asking) -> None:
    answer = await ask("selfsubjectrulesreviews", {"namespace": "default"})
    assert answer["status"] == {
        "resourceRules": [READ_PODS, {**READ_PODS, "verbs": ["delete"], "resourceNames": ["x"]}],
        "nonResourceRules": [SEE_METRICS],
        "incomplete": False,
    }
    answer = await ask("selfsubjectrulesreviews", {"namespace": "other"})
    assert answer["status"]["resourceRules"] == [READ_PODS]


async def test_who_am_i(ask: Asking) -> None:
    answer = await ask("selfsubjectreviews")
    assert answer == {
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {
            "userInfo": {
                "username": "alice",
                "uid": "u1",
                "groups": ["dev", "system:authenticated"],
                "extra": {"team": ["a", "b"]},
            }
        },
    }


async def test_a_token_request_is_answered_with_a_token_that_a_review_accepts(ask: Asking) -> None:
    issued = await ask.token(body={"spec": {"expirationSeconds": 600, "audiences": None}, "metadata": None})
    assert issued["kind"] == "TokenRequest"
    assert issued["metadata"]["name"] == "robot"
    assert issued["spec"] == {"audiences": [ISSUER], "expirationSeconds": 600, "boundObjectRef": None}
    assert issued["status"]["expirationTimestamp"] == "2026-01-01T00:10:00Z"
    review = await ask("tokenreviews", {"token": issued["status"]["token"]})
    assert review["status"]["authenticated"] is True
    assert review["status"]["audiences"] == [ISSUER]
    assert review["status"]["user"]["username"] == "system:serviceaccount:ci:robot"


async def test_a_bad_token_is_reviewed_as_nobodys(ask: Asking) -> None:
    review = await ask("tokenreviews", {"token": "wrong"})
    assert review["status"] == {"user": {}, "error": "the token is not a JSON Web Token"}
    review = await ask("tokenreviews", {"token": "secret", "audiences": ["vault"]})
    assert not review["status"].get("authenticated")
    assert (await ask("tokenreviews", {"token": "secret"}))["status"]["user"]["username"] == "alice"


async def test_a_token_request_must_fit_its_address(ask: Asking) -> None:
    with pytest.raises(NotFound, match='serviceaccounts "ghost" not found'):
        await ask.token("ghost")
    with pytest.raises(Invalid, match=r'metadata.name: Invalid value: "other": must match the service account name'):
        await ask.token(body={"metadata": {"name": "other"}})
    with pytest.raises(BadRequest, match="must be a TokenRequest"):
        await ask.token(body={"apiVersion": "v1", "kind": "ServiceAccount"})
    with pytest.raises(BadRequest, match=r"spec.expirationSeconds"):
        await ask.token(body={"spec": {"expirationSeconds": "long"}})


async def test_ordinary_kinds_are_left_alone(ask: Asking) -> None:
    kind = next(kind for kind in BUILTIN_KINDS if kind.plural == "serviceaccounts")
    path = ResourcePath("", "v1", "serviceaccounts", "ci")
    assert await ask.reviews.create(ServedKind(kind, CUSTOM, None), path, {}, Request(user=ALICE)) is None
