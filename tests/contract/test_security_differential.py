"""Authentication, RBAC, escalation, reviews and tokens next to those of a real kube-apiserver.

One conversation is held with both: the same requests of the same users in the same order. Codes, messages, reasons and
details of refusals must be the same, and so must the answers of reviews.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from planform.apiserver.admission.escalation import EscalationCheck
from planform.apiserver.auth.authentication import Authentication
from planform.apiserver.auth.bootstrap import ensure_bootstrap
from planform.apiserver.auth.rbac import Rbac
from planform.apiserver.auth.reviews import Reviews
from planform.apiserver.auth.tokens import ServiceAccountTokens
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.apiserver.wire.handler import Handler
from planform.apiserver.wire.http import HttpRequest
from planform.apiserver.wire.nonresource import NonResourceEndpoints
from planform.clock import SystemClock
from planform.store import open_store
from tests.harness.kubernetes import ADMIN_TOKEN, ISSUER, USER_TOKEN, RealKubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]

Object = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
CLUSTER = f"/apis/{RBAC}/v1"
NAMESPACE = "security"
LOCAL = f"{CLUSTER}/namespaces/{NAMESPACE}"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"


@dataclass(frozen=True)
class Step:
    """One request. `who` is a token, or the name of a user whom the admin impersonates; "" is nobody."""

    what: str
    who: str
    method: str
    path: str
    body: Object | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    compare: str = "status"
    """The part of a success that must be the same; "" for none."""

    def all_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", **self.headers}
        if self.who in (ADMIN_TOKEN, USER_TOKEN, "wrong"):
            headers["Authorization"] = f"Bearer {self.who}"
        elif self.who:
            headers |= {"Authorization": f"Bearer {ADMIN_TOKEN}", "Impersonate-User": self.who}
        return headers


def role(name: str, *rules: Object, **more: Any) -> Object:
    return {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": name}, "rules": list(rules), **more}


def cluster_role(name: str, *rules: Object, labels: Mapping[str, str] | None = None, **more: Any) -> Object:
    return role(name, *rules, **more) | {
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": dict(labels or {})},
    }


def binding(name: str, ref: str, *users: str, kind: str = "RoleBinding") -> Object:
    role_kind, _, role_name = ref.partition("/")
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": role_kind, "name": role_name},
        "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC} for user in users],
    }


def cluster_binding(name: str, ref: str, *users: str) -> Object:
    return binding(name, ref, *users, kind="ClusterRoleBinding")


def rule(group: str, resources: str, verbs: str, names: str = "") -> Object:
    named = {"resourceNames": names.split()} if names else {}
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **named}


def review(kind: str, **spec: Any) -> Object:
    group = (
        "authentication.k8s.io"
        if kind in ("SelfSubjectReview", "TokenReview", "TokenRequest")
        else "authorization.k8s.io"
    )
    return {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}


def made(path: str, body: Object) -> Step:
    return Step(f"admin makes {body['kind']} {body['metadata']['name']}", ADMIN_TOKEN, "POST", path, body, compare="")


def asked(what: str, who: str, **attributes: str) -> Step:
    body = review("SelfSubjectAccessReview", resourceAttributes=attributes)
    return Step(f"may {who} {what}", who, "POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", body)


MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
STEPS = [
    Step("nobody asks for the version", "", "GET", "/version", compare=""),
    Step("a bad token on a public path", "wrong", "GET", "/version"),
    Step("nobody asks for discovery", "", "GET", "/apis"),
    Step("nobody lists", "", "GET", f"{CORE}/configmaps"),
    made("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    # refusals
    Step("a plain user sees discovery", USER_TOKEN, "GET", "/apis", compare=""),
    Step("a plain user asks for metrics", USER_TOKEN, "GET", "/metrics"),
    Step("a plain user lists", USER_TOKEN, "GET", f"{CORE}/configmaps"),
    Step("a plain user lists everywhere", USER_TOKEN, "GET", "/api/v1/configmaps"),
    Step("a plain user gets", USER_TOKEN, "GET", f"{CORE}/configmaps/c"),
    Step("a plain user watches", USER_TOKEN, "GET", f"{CORE}/configmaps?watch=1"),
    Step("a plain user creates", USER_TOKEN, "POST", f"{CORE}/configmaps", {"metadata": {"name": "c"}}),
    Step("a plain user deletes all", USER_TOKEN, "DELETE", f"{CORE}/configmaps"),
    Step("a plain user scales", USER_TOKEN, "PUT", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/d/scale", {}),
    Step("a plain user gets a namespace", USER_TOKEN, "GET", f"/api/v1/namespaces/{NAMESPACE}"),
    Step("a plain user reads an unknown group", USER_TOKEN, "GET", "/apis/nothing.example.org/v1/things"),
    Step("a name to be careful with", "a<b>&c", "GET", f"{CORE}/configmaps"),
    # rules
    made(LOCAL + "/roles", role("named", rule("", "configmaps", "get list watch patch", "one"))),
    made(LOCAL + "/rolebindings", binding("named", "Role/named", "nora")),
    Step("nora lists by name", "nora", "GET", f"{CORE}/configmaps?fieldSelector=metadata.name%3Done", compare="items"),
    Step("nora lists", "nora", "GET", f"{CORE}/configmaps"),
    Step("nora gets hers", "nora", "GET", f"{CORE}/configmaps/one"),
    Step("nora gets another", "nora", "GET", f"{CORE}/configmaps/two"),
    Step(
        "nora applies hers, which would create it",
        "nora",
        "PATCH",
        f"{CORE}/configmaps/one?fieldManager=n",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}},
        APPLY,
    ),
    made(LOCAL + "/roles", role("starred", rule("", "pods/*", "get"), rule("*", "*/scale", "get"))),
    made(LOCAL + "/rolebindings", binding("starred", "Role/starred", "stan")),
    asked("get pods/log", "stan", verb="get", resource="pods", subresource="log", namespace=NAMESPACE),
    asked(
        "get scale", "stan", verb="get", group="apps", resource="deployments", subresource="scale", namespace=NAMESPACE
    ),
    asked("get deployments", "stan", verb="get", group="apps", resource="deployments", namespace=NAMESPACE),
    made(LOCAL + "/rolebindings", binding("ghost", "ClusterRole/ghost", "gina")),
    Step("gina's roles are missing", "gina", "GET", f"{CORE}/configmaps"),
    asked("list with missing roles", "gina", verb="list", resource="configmaps", namespace=NAMESPACE),
    # reviews
    asked("get configmaps", "nora", verb="get", resource="configmaps", namespace=NAMESPACE, name="one"),
    asked("do everything", "admin2", verb="*", resource="*", group="*"),
    Step(
        "the rules of nora",
        "nora",
        "POST",
        f"{AUTHORIZATION}/selfsubjectrulesreviews",
        review("SelfSubjectRulesReview", namespace=NAMESPACE),
        compare="rules",
    ),
    Step(
        "rules of nowhere", "nora", "POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", review("SelfSubjectRulesReview")
    ),
    Step("who am I", "nora", "POST", f"{AUTHENTICATION}/selfsubjectreviews", review("SelfSubjectReview")),
    Step(
        "an access review of nothing",
        "nora",
        "POST",
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        review("SelfSubjectAccessReview"),
    ),
    Step(
        "an access review of too much",
        "nora",
        "POST",
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        review("SelfSubjectAccessReview", resourceAttributes={"verb": "get"}, nonResourceAttributes={"path": "/x"}),
    ),
    Step(
        "an access review of nobody",
        ADMIN_TOKEN,
        "POST",
        f"{AUTHORIZATION}/subjectaccessreviews",
        review("SubjectAccessReview", resourceAttributes={"verb": "get", "resource": "pods"}),
    ),
    Step(
        "may nora, asks the admin",
        ADMIN_TOKEN,
        "POST",
        f"{AUTHORIZATION}/subjectaccessreviews",
        review(
            "SubjectAccessReview",
            user="nora",
            resourceAttributes={"verb": "get", "resource": "configmaps", "namespace": NAMESPACE, "name": "one"},
        ),
    ),
    Step(
        "a local review of another namespace",
        ADMIN_TOKEN,
        "POST",
        f"{AUTHORIZATION}/namespaces/{NAMESPACE}/localsubjectaccessreviews",
        review("LocalSubjectAccessReview", user="nora", resourceAttributes={"verb": "get", "namespace": "other"}),
    ),
    # tokens
    made(f"{CORE}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}),
    Step(
        "a token",
        ADMIN_TOKEN,
        "POST",
        f"{CORE}/serviceaccounts/robot/token",
        review("TokenRequest", expirationSeconds=600),
        compare="spec",
    ),
    Step("a token of nobody", ADMIN_TOKEN, "POST", f"{CORE}/serviceaccounts/ghost/token", review("TokenRequest")),
    Step(
        "a token for a minute",
        ADMIN_TOKEN,
        "POST",
        f"{CORE}/serviceaccounts/robot/token",
        review("TokenRequest", expirationSeconds=60),
    ),
    Step(
        "a token for ever",
        ADMIN_TOKEN,
        "POST",
        f"{CORE}/serviceaccounts/robot/token",
        review("TokenRequest", expirationSeconds=(1 << 32) + 1),
    ),
    Step(
        "a token bound to a ConfigMap",
        ADMIN_TOKEN,
        "POST",
        f"{CORE}/serviceaccounts/robot/token",
        review("TokenRequest", boundObjectRef={"kind": "ConfigMap", "apiVersion": "v1", "name": "c"}),
    ),
    Step(
        "a token bound to a Pod that is not there",
        ADMIN_TOKEN,
        "POST",
        f"{CORE}/serviceaccounts/robot/token",
        review("TokenRequest", boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"}),
    ),
    made(f"{CORE}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bound"}}),
    Step(
        "a token bound to another Secret of that name",
        ADMIN_TOKEN,
        "POST",
        f"{CORE}/serviceaccounts/robot/token",
        review("TokenRequest", boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": "bound", "uid": "x"}),
    ),
    Step(
        "a token under another name",
        ADMIN_TOKEN,
        "POST",
        f"{CORE}/serviceaccounts/robot/token",
        review("TokenRequest") | {"metadata": {"name": "other"}},
    ),
    Step(
        "a review of no token", ADMIN_TOKEN, "POST", f"{AUTHENTICATION}/tokenreviews", review("TokenReview", token="")
    ),
    Step(
        "a review of a static token",
        ADMIN_TOKEN,
        "POST",
        f"{AUTHENTICATION}/tokenreviews",
        review("TokenReview", token=USER_TOKEN),
    ),
    # escalation
    made(
        LOCAL + "/roles",
        role(
            "manager",
            rule(RBAC, "roles rolebindings", "create update patch get"),
            rule("", "configmaps", "get list"),
        ),
    ),
    made(LOCAL + "/rolebindings", binding("manager", "Role/manager", "mia")),
    Step(
        "mia grants what she holds",
        "mia",
        "POST",
        LOCAL + "/roles",
        role("ok", rule("", "configmaps", "get")),
        compare="rules",
    ),
    Step(
        "mia grants more",
        "mia",
        "POST",
        LOCAL + "/roles",
        role("no", rule("", "configmaps pods", "get delete"), rule("apps", "deployments", "get", "a b")),
    ),
    Step("mia widens a role", "mia", "PATCH", LOCAL + "/roles/ok", {"rules": [rule("*", "*", "*")]}, MERGE),
    Step(
        "mia labels a role", "mia", "PATCH", LOCAL + "/roles/starred", {"metadata": {"labels": {"a": "b"}}}, MERGE, ""
    ),
    Step(
        "mia binds what she holds",
        "mia",
        "POST",
        LOCAL + "/rolebindings",
        binding("ok", "Role/ok", "x"),
        compare="roleRef",
    ),
    Step("mia binds more", "mia", "POST", LOCAL + "/rolebindings", binding("no", "Role/starred", "x")),
    Step("mia binds nothing", "mia", "POST", LOCAL + "/rolebindings", binding("no", "Role/nothing", "x")),
    Step(
        "mia binds no cluster role", "mia", "POST", LOCAL + "/rolebindings", binding("no", "ClusterRole/nothing", "x")
    ),
    Step(
        "mia binds the cluster's admin",
        "mia",
        "POST",
        LOCAL + "/rolebindings",
        binding("no", "ClusterRole/cluster-admin", "x"),
    ),
    Step("mia joins a binding", "mia", "PATCH", LOCAL + "/rolebindings/starred", {"subjects": []}, MERGE),
    made(CLUSTER + "/clusterroles", cluster_role("maker", rule(RBAC, "clusterroles", "create update"))),
    made(CLUSTER + "/clusterrolebindings", cluster_binding("maker", "ClusterRole/maker", "max")),
    Step(
        "max gathers",
        "max",
        "POST",
        CLUSTER + "/clusterroles",
        cluster_role("gather", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}),
    ),
    Step(
        "max grants a path",
        "max",
        "POST",
        CLUSTER + "/clusterroles",
        cluster_role("path", {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]}),
    ),
    # impersonation
    Step("a plain user impersonates", USER_TOKEN, "GET", "/apis", headers={"Impersonate-User": "bob"}),
    Step(
        "a plain user impersonates an account",
        USER_TOKEN,
        "GET",
        "/apis",
        headers={"Impersonate-User": f"system:serviceaccount:{NAMESPACE}:robot"},
    ),
    made(CLUSTER + "/clusterroles", cluster_role("actor", rule("", "users", "impersonate", "bob"))),
    made(CLUSTER + "/clusterrolebindings", cluster_binding("actor", "ClusterRole/actor", "user")),
    Step(
        "a plain user impersonates a group",
        USER_TOKEN,
        "GET",
        "/apis",
        headers={"Impersonate-User": "bob", "Impersonate-Group": "system:masters"},
    ),
    Step(
        "a plain user impersonates an extra",
        USER_TOKEN,
        "GET",
        "/apis",
        headers={"Impersonate-User": "bob", "Impersonate-Extra-Scopes": "view"},
    ),
    Step(
        "who is an impersonated account",
        f"system:serviceaccount:{NAMESPACE}:robot",
        "POST",
        f"{AUTHENTICATION}/selfsubjectreviews",
        review("SelfSubjectReview"),
    ),
    Step(
        "who is an impersonated user with extras",
        "bob",
        "POST",
        f"{AUTHENTICATION}/selfsubjectreviews",
        review("SelfSubjectReview"),
        {"Impersonate-Group": "dev", "Impersonate-Uid": "u1", "Impersonate-Extra-Acme.com%2fproject": "p"},
    ),
    Step(
        "who is an impersonated nobody",
        "system:anonymous",
        "POST",
        f"{AUTHENTICATION}/selfsubjectreviews",
        review("SelfSubjectReview"),
    ),
]

DIFFERENT = {
    "mia binds nothing": "theirs names the binding in place of the role that is missing",
    "mia binds no cluster role": "theirs names the binding in place of the role that is missing",
    "a plain user impersonates": "theirs also tries constrained impersonation, and names its verbs",
    "a plain user impersonates an account": "the same",
    "a plain user impersonates a group": "the same",
    "a plain user impersonates an extra": "the same",
}
"""Refusals whose words differ, and why; their codes must still be the same."""


@pytest.fixture
async def handler(tmp_path: Path) -> AsyncIterator[Handler]:
    clock = SystemClock()
    async with await open_store(None, clock=clock) as store:
        rbac = Rbac(store)
        core = open_engine(store, clock, admission=[EscalationCheck(rbac, store)])
        await ensure_bootstrap(LocalClient(core))
        tokens = ServiceAccountTokens(store, tmp_path, clock=clock, issuer=ISSUER)
        file = tmp_path / "tokens.csv"
        file.write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n{USER_TOKEN},user,user\n')
        authentication = Authentication(clock=clock, authorizer=rbac, tokens=tokens, token_file=file)
        yield Handler(
            core,
            NonResourceEndpoints(core, address=lambda: "127.0.0.1", metrics=lambda _: ""),
            authenticator=authentication,
            authorizer=rbac,
            virtual=Reviews(clock=clock, rbac=rbac, authentication=authentication, tokens=tokens),
        )


async def ours(handler: Handler, step: Step) -> tuple[int, Any]:
    headers = {name.lower().encode(): value.encode() for name, value in step.all_headers().items()}
    body = b"" if step.body is None else orjson.dumps(step.body)
    response = await handler.handle(HttpRequest(step.method, step.path.encode(), headers, body))
    content = response.body
    if response.chunks is not None:
        content = b"".join([chunk async for chunk in response.chunks])
    return response.status, _parsed(content)


def theirs(cluster: RealKubernetes, step: Step) -> tuple[int, Any]:
    context = ssl.create_default_context(cafile=cluster.ca_file)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    body = None if step.body is None else orjson.dumps(step.body)
    request = urllib.request.Request(cluster.url + step.path, body, step.all_headers(), method=step.method)
    try:
        with opener.open(request, timeout=10) as response:
            return response.status, _parsed(response.read())
    except urllib.error.HTTPError as error:
        return error.code, _parsed(error.read())


def _parsed(content: bytes) -> Any:
    return orjson.loads(content) if content.startswith(b"{") else content.decode()


def outcome(step: Step, code: int, body: Any) -> Any:
    """What must be the same: a whole refusal, or the chosen part of a success."""
    if code >= 400:
        return code, body
    part = None
    if step.compare == "rules" and "status" in body:
        rules = body["status"]["resourceRules"]
        part = sorted(str(rule) for rule in rules if "configmaps" in rule["resources"])
    elif step.compare:
        part = body.get(step.compare)
    return code, part


def _plain(value: Any) -> str:
    """Without what is made up anew each time, empty details, and the kind that theirs forgets to name in reviews."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", text).replace('"details":{},', "")
    return re.sub(r'(,"kind":"|"message":")\w*Review("|\.authorization)', r"\1\2", text).replace(',"kind":""', "")


async def settled(cluster: RealKubernetes, step: Step, found: Any) -> Any:
    """Their answer. Their authorizer learns of roles a moment late, so a refusal that differs is asked for again."""
    for _ in range(50):
        expected = outcome(step, *theirs(cluster, step))
        if expected[0] != 403 or step.what in DIFFERENT or _plain(expected) == _plain(found):
            break
        await asyncio.sleep(0.1)
    return expected


async def test_both_servers_hold_the_same_conversation(handler: Handler, kubernetes_engine: RealKubernetes) -> None:
    differences = []
    for step in STEPS:
        found = outcome(step, *await ours(handler, step))
        expected = await settled(kubernetes_engine, step, found)
        if step.what in DIFFERENT:
            assert expected[0] == found[0], step.what
        elif _plain(found) != _plain(expected):
            differences.append(f"{step.what}\n  theirs: {_plain(expected)}\n  ours:   {_plain(found)}")
    assert not differences, "\n" + "\n".join(differences)
