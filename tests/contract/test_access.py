"""Section 16: who one is, what one may do, and how to ask."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.contract.engines import Engine, Object, case
from tests.contract.kinds import at, config_map, widget

API_GROUP = "rbac.authorization.k8s.io"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"


def allow(engine: Engine, ns: str, *rules: Object, subject: Object | None = None) -> None:
    """Give the plain user (or somebody else) rules in a namespace, and wait until they hold."""
    name = engine.fresh("r")
    engine.post(at("roles", ns), {"metadata": {"name": name}, "rules": list(rules)}).ok(201)
    who = subject or {"kind": "User", "name": engine.user, "apiGroup": API_GROUP}
    binding = {"metadata": {"name": name}, "roleRef": {"apiGroup": API_GROUP, "kind": "Role", "name": name}}
    engine.post(at("rolebindings", ns), binding | {"subjects": [who]}).ok(201)
    user = who["name"] if who["kind"] == "User" else f"system:serviceaccount:{who['namespace']}:{who['name']}"
    rule = rules[0]
    attributes: Object = {"namespace": ns, "verb": rule["verbs"][0], "group": rule["apiGroups"][0]}
    attributes["resource"], _, attributes["subresource"] = rule["resources"][0].partition("/")
    attributes["name"] = rule.get("resourceNames", [""])[0]
    review = {"spec": {"user": user, "resourceAttributes": attributes}}
    deadline = datetime.now(UTC) + timedelta(seconds=15)
    while not engine.post(f"{AUTHORIZATION}/subjectaccessreviews", review).ok(201)["status"]["allowed"]:
        assert datetime.now(UTC) < deadline, "the binding does not take effect"


def rule(verbs: str, *resources: str, group: str = "", names: list[str] | None = None) -> Object:
    found: Object = {"verbs": verbs.split(), "apiGroups": [group], "resources": list(resources)}
    return found | ({"resourceNames": names} if names else {})


@case("16-bad-credentials", "13-401")
def test_bad_credentials_are_refused_even_on_public_paths(engine: Engine) -> None:
    for path in ("/version", "/healthz", "/api/v1/namespaces"):
        status = engine.get(path, token="wrong").refused(401, "Unauthorized")
        assert status["message"] == "Unauthorized"


@case("16-anonymous")
def test_nobody_sees_health_and_version_only(engine: Engine) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert engine.get(path, token="").status == 200, path
    for path in ("/api", "/apis", "/openapi/v3", "/metrics"):
        status = engine.get(path, token="").refused(403, "Forbidden")
        assert status["message"] == f'forbidden: User "system:anonymous" cannot get path "{path}"'


@case("16-forbidden-texts")
def test_refusals_name_the_user_the_verb_and_the_resource(engine: Engine, ns: str) -> None:
    who = f'User "{engine.user}" cannot'

    def refused(method: str, path: str, body: Object | None = None) -> str:
        return str(engine.http(method, path, body, token=engine.user_token).refused(403, "Forbidden")["message"])

    assert refused("GET", at("configmaps", ns)) == (
        f'configmaps is forbidden: {who} list resource "configmaps" in API group "" in the namespace "{ns}"'
    )
    assert refused("GET", at("configmaps")) == (
        f'configmaps is forbidden: {who} list resource "configmaps" in API group "" at the cluster scope'
    )
    assert refused("GET", at("configmaps", ns, "x")) == (
        f'configmaps "x" is forbidden: {who} get resource "configmaps" in API group "" in the namespace "{ns}"'
    )
    assert refused("GET", at("widgets", ns, "x", "status")) == (
        f'widgets.shop.example.org "x" is forbidden: {who} get resource "widgets/status" in API group '
        f'"shop.example.org" in the namespace "{ns}"'
    )
    assert refused("GET", "/metrics") == f'forbidden: {who} get path "/metrics"'
    status = engine.post(at("configmaps", ns), config_map("c"), token=engine.user_token).refused(403)
    assert status["details"] == {"kind": "configmaps"}


VERBS = [
    ("get", "GET", "x", {}),
    ("list", "GET", "", {}),
    ("watch", "GET", "", {"watch": "true", "timeoutSeconds": "1"}),
    ("create", "POST", "", {}),
    ("update", "PUT", "x", {}),
    ("patch", "PATCH", "x", {}),
    ("delete", "DELETE", "x", {}),
    ("deletecollection", "DELETE", "", {}),
]


@pytest.mark.parametrize(("verb", "method", "name", "query"), VERBS, ids=[row[0] for row in VERBS])
@case("16-verbs")
def test_each_request_is_a_verb(engine: Engine, ns: str, verb: str, method: str, name: str, query: Object) -> None:
    body = config_map("x") if method in ("POST", "PUT", "PATCH") else None
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
    path = at("configmaps", ns, name)
    response = engine.http(method, path, body, query=query, headers=headers, token=engine.user_token)
    response.refused(403, "Forbidden", f'cannot {verb} resource "configmaps"')
    allow(engine, ns, rule(verb, "configmaps"))
    response = engine.http(method, path, body, query=query, headers=headers, token=engine.user_token)
    assert response.status in (200, 201, 404), response.text


@case("16-namespace-get")
def test_reading_a_namespace_is_authorised_inside_it(engine: Engine, ns: str) -> None:
    path = f"/api/v1/namespaces/{ns}"
    engine.get(path, token=engine.user_token).refused(403, "Forbidden", f'in the namespace "{ns}"')
    allow(engine, ns, rule("get", "namespaces"))
    engine.get(path, token=engine.user_token).ok()


@case("16-resource-names")
def test_resource_names_also_authorise_lists_by_name(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("mine")).ok(201)
    allow(engine, ns, rule("get list watch", "configmaps", names=["mine"]))
    path, token = at("configmaps", ns), engine.user_token
    engine.get(f"{path}/mine", token=token).ok()
    engine.get(f"{path}/other", token=token).refused(403)
    engine.get(path, token=token).refused(403)
    found = engine.get(path, query={"fieldSelector": "metadata.name=mine"}, token=token).ok()
    assert [item["metadata"]["name"] for item in found["items"]] == ["mine"]
    engine.get(path, query={"fieldSelector": "metadata.name=other"}, token=token).refused(403)


@case("16-apply-creates")
def test_an_apply_that_creates_needs_patch_and_create(engine: Engine, ns: str) -> None:
    allow(engine, ns, rule("patch", "widgets", group="shop.example.org"))

    def apply() -> Any:
        query = {"fieldManager": "a"}
        return engine.patch(at("widgets", ns, "w"), widget("w"), "apply", query=query, token=engine.user_token)

    apply().refused(403, "Forbidden", "cannot create resource")
    allow(engine, ns, rule("create", "widgets", group="shop.example.org"))
    apply().ok(201)
    engine.post(at("widgets", ns), widget("v")).ok(201)


@case("16-discovery", "16-groups")
def test_everybody_who_is_somebody_may_discover(engine: Engine) -> None:
    for path in ("/api", "/apis", "/api/v1", "/openapi/v3", "/version"):
        assert engine.get(path, token=engine.user_token).status == 200, path
    review = engine.post(f"{AUTHENTICATION}/selfsubjectreviews", {}, token=engine.user_token).ok(201)
    assert review["status"]["userInfo"]["groups"] == ["system:authenticated"]
    review = engine.post(f"{AUTHENTICATION}/selfsubjectreviews", {}).ok(201)
    assert set(review["status"]["userInfo"]["groups"]) == {"system:masters", "system:authenticated"}


@case("15-reviews", "16-reviews")
def test_reviews_answer_and_store_nothing(engine: Engine, ns: str) -> None:
    attributes = {"namespace": ns, "verb": "list", "resource": "secrets"}
    body: Object = {"spec": {"resourceAttributes": attributes}}
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
    assert engine.post(path, body).ok(201)["status"]["allowed"] is True
    assert engine.post(path, body, token=engine.user_token).ok(201)["status"]["allowed"] is False
    assert engine.get(path).status == 405
    whose = {"spec": {"user": "somebody", "groups": ["system:masters"], "resourceAttributes": attributes}}
    assert engine.post(f"{AUTHORIZATION}/subjectaccessreviews", whose).ok(201)["status"]["allowed"] is True
    local = f"{AUTHORIZATION}/namespaces/{ns}/localsubjectaccessreviews"
    whose = {"metadata": {"namespace": ns}, "spec": {"user": "x", "resourceAttributes": attributes}}
    assert engine.post(local, whose).ok(201)["status"]["allowed"] is False
    allow(engine, ns, rule("get", "configmaps"))
    rules = engine.post(
        f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": ns}}, token=engine.user_token
    ).ok(201)["status"]
    assert {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]} in rules["resourceRules"]
    assert any("/version" in found["nonResourceURLs"] for found in rules["nonResourceRules"])
    assert rules["incomplete"] is False


def token_for(engine: Engine, ns: str, name: str, **spec: Any) -> Any:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return engine.post(at("serviceaccounts", ns, name, "token"), body).ok(201)["status"]


def claims(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@case("15-token-request", "16-service-accounts", "16-tokens")
def test_a_service_account_token_says_who_it_is_for(engine: Engine, ns: str) -> None:
    engine.post(at("serviceaccounts", ns), {"metadata": {"name": "robot"}}).ok(201)
    status = token_for(engine, ns, "robot", expirationSeconds=3600)
    found = claims(status["token"])
    assert found["sub"] == f"system:serviceaccount:{ns}:robot" and found["aud"] and found["iss"]
    assert abs(found["exp"] - found["iat"] - 3600) <= 1
    assert status["expirationTimestamp"].endswith("Z")
    info = engine.post(f"{AUTHENTICATION}/selfsubjectreviews", {}, token=status["token"]).ok(201)["status"]["userInfo"]
    assert info["username"] == f"system:serviceaccount:{ns}:robot"
    groups = {"system:serviceaccounts", f"system:serviceaccounts:{ns}", "system:authenticated"}
    assert set(info["groups"]) == groups
    allow(engine, ns, rule("list", "configmaps"), subject={"kind": "ServiceAccount", "name": "robot", "namespace": ns})
    engine.get(at("configmaps", ns), token=status["token"]).ok()


@case("16-token-audience", "16-token-short")
def test_a_token_for_others_is_not_for_the_server(engine: Engine, ns: str) -> None:
    engine.post(at("serviceaccounts", ns), {"metadata": {"name": "robot"}}).ok(201)
    other = token_for(engine, ns, "robot", audiences=["vault"])["token"]
    engine.get("/api", token=other).refused(401, "Unauthorized")
    body = {"spec": {"expirationSeconds": 60}}
    engine.post(at("serviceaccounts", ns, "robot", "token"), body).refused(
        422, "Invalid", "spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes"
    )
    engine.post(at("serviceaccounts", ns, "nobody", "token"), {"spec": {}}).refused(404, "NotFound")


@case("16-token-review")
def test_a_token_review_says_whose_a_token_is(engine: Engine, ns: str) -> None:
    def review(token: str, **spec: Any) -> Any:
        body: Object = {"spec": {"token": token, **spec}}
        return engine.post(f"{AUTHENTICATION}/tokenreviews", body).ok(201)["status"]

    found = review(engine.user_token)
    assert found["authenticated"] is True and found["user"]["username"] == engine.user
    assert review("wrong").get("authenticated", False) is False
    engine.post(at("serviceaccounts", ns), {"metadata": {"name": "robot"}}).ok(201)
    bound = token_for(engine, ns, "robot", audiences=["vault"])["token"]
    found = review(bound, audiences=["vault"])
    assert found["authenticated"] is True and found["audiences"] == ["vault"]
    engine.delete(at("serviceaccounts", ns, "robot")).ok()
    deadline = datetime.now(UTC) + timedelta(seconds=15)
    while review(bound, audiences=["vault"]).get("authenticated"):
        assert datetime.now(UTC) < deadline, "the token outlives its account"


@case("16-impersonation")
def test_whoever_may_impersonate_acts_as_another(engine: Engine, ns: str) -> None:
    def whoami(headers: dict[str, str], token: str | None = None) -> Any:
        return engine.http("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, headers=headers, token=token)

    headers = {"Impersonate-User": "ann", "Impersonate-Group": "devs", "Impersonate-Extra-Scope": "one"}
    info = whoami(headers).ok(201)["status"]["userInfo"]
    assert info["username"] == "ann" and set(info["groups"]) == {"devs", "system:authenticated"}
    assert info["extra"] == {"scope": ["one"]}
    account = {"Impersonate-User": f"system:serviceaccount:{ns}:default"}
    groups = {"system:serviceaccounts", f"system:serviceaccounts:{ns}", "system:authenticated"}
    assert set(whoami(account).ok(201)["status"]["userInfo"]["groups"]) == groups
    refused = whoami({"Impersonate-User": "ann"}, engine.user_token)
    refused.refused(403, "Forbidden", f'User "{engine.user}" cannot impersonate')
    response = engine.http("GET", at("configmaps", ns), headers={"Impersonate-User": "ann"})
    response.refused(403, "Forbidden", 'User "ann" cannot list')


@case("15-escalation", "16-escalation")
def test_nobody_grants_more_than_they_hold(engine: Engine, ns: str) -> None:
    allow(engine, ns, rule("create", "roles", group=API_GROUP))
    allow(engine, ns, rule("create", "rolebindings", group=API_GROUP))
    allow(engine, ns, rule("get", "configmaps"))
    token = engine.user_token
    harmless = {"metadata": {"name": "harmless"}, "rules": [rule("get", "configmaps")]}
    engine.post(at("roles", ns), harmless, token=token).ok(201)
    greedy = {"metadata": {"name": "greedy"}, "rules": [rule("get", "secrets")]}
    status = engine.post(at("roles", ns), greedy, token=token).refused(403, "Forbidden")
    assert (
        f'user "{engine.user}"' in status["message"]
        and "is attempting to grant RBAC permissions not currently held" in status["message"]
    )
    engine.post(at("roles", ns), greedy).ok(201)
    binding = {"metadata": {"name": "b"}, "roleRef": {"apiGroup": API_GROUP, "kind": "Role", "name": "greedy"}}
    engine.post(at("rolebindings", ns), binding, token=token).refused(403, "Forbidden", "not currently held")
    allow(engine, ns, rule("bind", "roles", group=API_GROUP, names=["greedy"]))
    engine.post(at("rolebindings", ns), binding, token=token).ok(201)
    allow(engine, ns, rule("escalate", "roles", group=API_GROUP))
    engine.post(at("roles", ns), greedy | {"metadata": {"name": "greedier"}}, token=token).ok(201)


def client_certificate(engine: Engine, directory: Path) -> tuple[tuple[Path, Path], str, str]:
    """A certificate and key with the user and group it stands for: the embedded engine's own, or one of our making."""
    certificate, key = directory / "client.crt", directory / "client.key"
    if engine.authority is None:
        user = yaml.safe_load(engine.kubeconfig.read_text())["users"][0]["user"]
        certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
        key.write_bytes(base64.b64decode(user["client-key-data"]))
        subject = x509.load_pem_x509_certificate(certificate.read_bytes()).subject
        [name] = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return (certificate, key), str(name.value), "system:masters"
    authority = x509.load_pem_x509_certificate((engine.authority / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((engine.authority / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    own = ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "devs"), x509.NameAttribute(NameOID.COMMON_NAME, "ann")]
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(authority.subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(own.private_bytes(serialization.Encoding.PEM, form, plain))
    return (certificate, key), "ann", "devs"


@case("16-client-certificates")
def test_a_client_certificate_names_user_and_groups(engine: Engine, tmp_path: Path) -> None:
    files, name, group = client_certificate(engine, tmp_path)
    connection = engine.connect(files)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"{AUTHENTICATION}/selfsubjectreviews", b"{}", headers)
        info = json.loads(connection.getresponse().read())["status"]["userInfo"]
    finally:
        connection.close()
    assert info["username"] == name and set(info["groups"]) == {group, "system:authenticated"}


@case("16-masters")
def test_masters_need_no_rules(engine: Engine, ns: str) -> None:
    headers = {"Impersonate-User": "chief", "Impersonate-Group": "system:masters"}
    assert engine.http("GET", at("secrets", ns), headers=headers).status == 200
    assert engine.http("GET", at("secrets", ns), headers={"Impersonate-User": "chief"}).status == 403
