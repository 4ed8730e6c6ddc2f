"""Section 17: webhooks and policies that users configure, called by both engines."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.engines import POLL_SECONDS, Engine, Object, Response, case
from tests.contract.kinds import GROUP, at, config_map, widget
from tests.contract.test_access import allow, rule
from tests.harness.webhook_server import WebhookServer, patch, webhook_server

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
API_VERSION = "admissionregistration.k8s.io/v1"
PATIENCE_SECONDS = 20.0
KINDS = {
    "validating": ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    "mutating": ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
}
NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    with webhook_server(tmp_path_factory.mktemp("webhook")) as started:
        yield started


@pytest.fixture
def server(serving: WebhookServer) -> WebhookServer:
    """The one server, with nothing in it of the test before."""
    serving.answers.clear()
    serving.heard.clear()
    serving.status, serving.raw = 200, None
    return serving


def hook(server: WebhookServer, ns: str, path: str, **more: Any) -> Object:
    """A webhook that is asked about everything in a namespace."""
    return {
        "name": f"{path.strip('/')}.webhook.example.org",
        "clientConfig": server.client_config(path),
        "rules": [EVERYTHING],
        "namespaceSelector": {"matchLabels": {NAME_OF_NAMESPACE: ns}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


@contextmanager
def configured(engine: Engine, kind: str, *hooks: Object, name: str = "") -> Iterator[str]:
    plural, what = KINDS[kind]
    name = name or engine.fresh("w")
    body = {"apiVersion": API_VERSION, "kind": what, "metadata": {"name": name}, "webhooks": list(hooks)}
    engine.post(f"{ADMISSION}/{plural}", body).ok(201)
    try:
        yield name
    finally:
        engine.delete(f"{ADMISSION}/{plural}/{name}").ok()


@contextmanager
def calling(engine: Engine, server: WebhookServer, ns: str, kind: str, *hooks: Object, name: str = "") -> Iterator[str]:
    """The webhooks are configured, and the engine has begun to call the last of them."""
    before = dict(server.answers)
    server.answers.clear()
    probe = {**hooks[-1], "name": "probe.webhook.example.org", "clientConfig": server.client_config("/probe")}
    probe = {**probe, "matchConditions": [], "objectSelector": {}, "rules": [EVERYTHING], "failurePolicy": "Ignore"}
    with configured(engine, kind, *hooks, probe, name=name) as made:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not server.asked("/probe"):
            assert time.monotonic() < deadline, "the webhook is not called"
            engine.post(at("configmaps", ns), config_map("probe"), query={"dryRun": "All"})
            time.sleep(0 if server.heard else POLL_SECONDS)
        server.heard.clear()
        server.answers.update(before)
        yield made


def denied(message: str = "", **status: Any) -> Object:
    return {"allowed": False, "status": {"message": message, **status} if message or status else None}


@case("17-served")
def test_configurations_are_served_with_their_defaults(engine: Engine, server: WebhookServer, ns: str) -> None:
    bare: Object = {
        "name": "bare.webhook.example.org",
        "clientConfig": {"service": {"namespace": "nowhere", "name": "nobody"}},
        "rules": [{"apiGroups": ["no.such"], "apiVersions": ["v1"], "resources": ["things"], "operations": ["CREATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    filled = {
        **bare,
        "clientConfig": {"service": {"namespace": "nowhere", "name": "nobody", "port": 443}},
        "rules": [{**bare["rules"][0], "scope": "*"}],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
    }
    for kind, more in (("validating", {}), ("mutating", {"reinvocationPolicy": "Never"})):
        with configured(engine, kind, bare) as name:
            stored = engine.get(f"{ADMISSION}/{KINDS[kind][0]}/{name}").ok()
            assert stored["webhooks"] == [filled | more]
            assert stored["metadata"]["generation"] == 1
            path = f"{ADMISSION}/{KINDS[kind][0]}/{name}"
            changed = engine.patch(path, [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 3}], "json")
            assert changed.ok()["metadata"]["generation"] == 2
            table = engine.get(path, accept="application/json;as=Table;v=v1;g=meta.k8s.io").ok()
            assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Webhooks", "Age"]
            assert table["rows"][0]["cells"][:2] == [name, 1]


BAD_WEBHOOKS: dict[str, tuple[Object, str]] = {
    "name": ({"name": "short"}, 'webhooks[0].name: Invalid value: "short": should be a domain with at least three'),
    "side-effects": ({"sideEffects": "Some"}, 'webhooks[0].sideEffects: Unsupported value: "Some": supported values:'),
    "no-side-effects": ({"sideEffects": None}, "webhooks[0].sideEffects: Required value: must specify one of None"),
    "timeout": ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be"),
    "versions": ({"admissionReviewVersions": ["v9"]}, "webhooks[0].admissionReviewVersions: Invalid value: "),
    "no-versions": ({"admissionReviewVersions": []}, "webhooks[0].admissionReviewVersions: Required value: must"),
    "http": (
        {"clientConfig": {"url": "http://127.0.0.1/x"}},
        "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme",
    ),
    "query": (
        {"clientConfig": {"url": "https://127.0.0.1/x?a=b"}},
        'webhooks[0].clientConfig.url: Invalid value: "a=b": query parameters are not permitted in the URL',
    ),
    "neither": ({"clientConfig": {}}, "webhooks[0].clientConfig: Required value: exactly one of url or service"),
    "operations": (
        {"rules": [{**EVERYTHING, "operations": ["*", "CREATE"]}]},
        'webhooks[0].rules[0].operations: Invalid value: ["*","CREATE"]: if \'*\' is present, must not specify other',
    ),
    "operation": (
        {"rules": [{**EVERYTHING, "operations": ["READ"]}]},
        'webhooks[0].rules[0].operations[0]: Unsupported value: "READ": supported values: "*", "CONNECT", "CREATE"',
    ),
    "resources": (
        {"rules": [{**EVERYTHING, "resources": ["*/*", "pods"]}]},
        "if '*/*' is present, must not specify other resources",
    ),
    "condition": (
        {"matchConditions": [{"name": "x", "expression": "1 + 1"}]},
        'webhooks[0].matchConditions[0].expression: Invalid value: "1 + 1": must evaluate to bool but got int',
    ),
    "broken-condition": (
        {"matchConditions": [{"name": "x", "expression": "object."}]},
        'webhooks[0].matchConditions[0].expression: Invalid value: "object.": compilation failed: ERROR: <input>:1:8:',
    ),
    "params-in-condition": (
        {"matchConditions": [{"name": "x", "expression": "params.x == 1"}]},
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'",
    ),
    "twice": (
        {"matchConditions": [{"name": "x", "expression": "true"}, {"name": "x", "expression": "true"}]},
        'webhooks[0].matchConditions[1].name: Duplicate value: "x"',
    ),
    "failure-policy": ({"failurePolicy": "Maybe"}, 'webhooks[0].failurePolicy: Unsupported value: "Maybe": supported'),
    "selector": (
        {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "webhooks[0].objectSelector.matchExpressions[0].values: Required value: must be specified when `operator` is",
    ),
}


@case("17-validated")
@pytest.mark.parametrize("fault", BAD_WEBHOOKS)
def test_a_webhook_that_cannot_be_is_refused(engine: Engine, server: WebhookServer, ns: str, fault: str) -> None:
    wrong, text = BAD_WEBHOOKS[fault]
    body = {"metadata": {"name": engine.fresh()}, "webhooks": [hook(server, ns, "/x") | wrong]}
    engine.post(f"{ADMISSION}/validatingwebhookconfigurations", body).refused(422, "Invalid", text)


@case("17-review")
def test_a_webhook_is_sent_the_write_that_shall_be(engine: Engine, server: WebhookServer, ns: str) -> None:
    with calling(engine, server, ns, "validating", hook(server, ns, "/see")):
        made = engine.post(at("widgets", ns), widget("w"), query={"fieldManager": "tester"}).ok(201)
        changed = engine.patch(at("widgets", ns, "w"), {"spec": {"size": 2}}, query={"fieldManager": "t"}).ok()
        engine.delete(at("widgets", ns, "w"), {"propagationPolicy": "Background"}).ok()
        create, update, delete = server.asked("/see")
    for request in (create, update, delete):
        assert request["kind"] == request["requestKind"] == {"group": GROUP, "version": "v1", "kind": "Widget"}
        about = {"group": GROUP, "version": "v1", "resource": "widgets"}
        assert request["resource"] == request["requestResource"] == about
        assert (request["name"], request["namespace"], request["dryRun"]) == ("w", ns, False)
        assert request["userInfo"]["username"] and "system:masters" in request["userInfo"]["groups"]
        assert len(request["uid"]) == 36 and "subResource" not in request
    options = {"apiVersion": "meta.k8s.io/v1"}
    assert create["options"] == {"kind": "CreateOptions", "fieldManager": "tester", **options}
    assert update["options"] == {"kind": "UpdateOptions", "fieldManager": "t", **options}
    assert delete["options"] == {"kind": "DeleteOptions", "propagationPolicy": "Background", **options}
    assert [each["operation"] for each in (create, update, delete)] == ["CREATE", "UPDATE", "DELETE"]
    del made["metadata"]["resourceVersion"]
    assert (create["object"], create["oldObject"]) == (made, None)
    assert create["object"]["spec"] == {"size": 1, "mode": "auto"}
    assert update["oldObject"]["spec"]["size"] == 1 and update["object"]["spec"]["size"] == 2
    assert update["object"]["metadata"]["generation"] == 2
    assert (delete["object"], delete["oldObject"]) == (None, changed)


@case("17-review-mutating")
def test_a_mutating_webhook_sees_an_object_before_it_has_an_identity(
    engine: Engine, server: WebhookServer, ns: str
) -> None:
    with calling(engine, server, ns, "mutating", hook(server, ns, "/see")):
        body = {**config_map("", {"a": "b"}), "metadata": {"generateName": "made-"}}
        name = engine.post(at("configmaps", ns), body).ok(201)["metadata"]["name"]
        [request] = server.asked("/see")
    assert name.startswith("made-")
    assert "name" not in request or not request["name"]
    metadata = request["object"]["metadata"]
    assert "uid" not in metadata and not metadata.get("name") and metadata["generateName"] == "made-"
    assert metadata["managedFields"] and not metadata.get("creationTimestamp")


@case("17-namespace")
def test_a_namespace_counts_as_being_in_itself(engine: Engine, server: WebhookServer, ns: str) -> None:
    name = engine.fresh("n")
    mine = {"matchLabels": {"mine": ns}}
    namespaces = {**EVERYTHING, "resources": ["namespaces"], "scope": "Cluster"}
    asked = hook(server, ns, "/ns", namespaceSelector=mine, rules=[namespaces])
    with calling(engine, server, ns, "validating", asked | {"namespaceSelector": mine}, hook(server, ns, "/x")):
        engine.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": {"mine": ns}}}).ok(201)
        engine.patch(f"/api/v1/namespaces/{name}", {"metadata": {"annotations": {"a": "b"}}}).ok()
        engine.post("/api/v1/namespaces", {"metadata": {"name": engine.fresh("n")}}).ok(201)
        requests = server.asked("/ns")
    assert [(each["name"], each["namespace"]) for each in requests] == [(name, name), (name, name)]


@case("17-denied")
def test_a_denial_is_told_in_the_webhooks_own_status(engine: Engine, server: WebhookServer, ns: str) -> None:
    said = 'admission webhook "no.webhook.example.org" denied the request'
    with calling(engine, server, ns, "validating", hook(server, ns, "/no")):
        server.answers["/no"] = lambda _: denied("not today")
        plain = engine.post(at("configmaps", ns), config_map("c")).refused(400)
        assert plain["message"] == f"{said}: not today" and "reason" not in plain
        server.answers["/no"] = lambda _: denied()
        assert (
            engine.post(at("configmaps", ns), config_map("c")).refused(400)["message"] == f"{said} without explanation"
        )
        details = {"name": "n", "kind": "k", "causes": [{"message": "m", "field": "f"}]}
        server.answers["/no"] = lambda _: denied("really", code=403, reason="Forbidden", details=details)
        status = engine.post(at("configmaps", ns), config_map("c")).refused(403, "Forbidden")
        assert (status["message"], status["details"]) == (f"{said}: really", details)
        server.answers["/no"] = lambda _: denied(reason="Because")
        assert engine.post(at("configmaps", ns), config_map("c")).refused(400)["message"] == f"{said}: Because"
        server.answers["/no"] = lambda _: denied("fine", code=200)
        engine.post(at("configmaps", ns), config_map("c")).refused(400)
        engine.get(at("configmaps", ns, "c")).refused(404)


@case("17-denied-operations")
def test_updates_and_deletions_are_denied_too(engine: Engine, server: WebhookServer, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c", {"a": "b"})).ok(201)
    with calling(engine, server, ns, "validating", hook(server, ns, "/no")):
        server.answers["/no"] = lambda _: denied("no")
        engine.patch(at("configmaps", ns, "c"), {"data": {"a": "c"}}).refused(400, "", "denied the request: no")
        engine.apply(at("configmaps", ns, "c"), config_map("c", {"b": "c"})).refused(400)
        engine.delete(at("configmaps", ns, "c")).refused(400, "", "denied the request: no")
        engine.http("DELETE", at("configmaps", ns)).refused(400)
        assert engine.get(at("configmaps", ns, "c")).ok()["data"] == {"a": "b"}
        # Also what changes nothing is asked about.
        before = len(server.asked("/no"))
        engine.patch(at("configmaps", ns, "c"), {"data": {"a": "b"}}).refused(400)
        assert len(server.asked("/no")) == before + 1


@case("17-patched")
def test_what_a_mutating_webhook_patches_is_defaulted_validated_and_stored(
    engine: Engine, server: WebhookServer, ns: str
) -> None:
    with calling(engine, server, ns, "mutating", hook(server, ns, "/patch")):
        server.answers["/patch"] = lambda _: patch(
            {"op": "add", "path": "/spec/struct", "value": {"x": "set"}},
            {"op": "add", "path": "/spec/unheard", "value": 1},
            {"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}},
        )
        made = engine.post(at("widgets", ns), widget("w"), query={"fieldManager": "me"}).ok(201)
        assert made["spec"] == {"size": 1, "mode": "auto", "struct": {"x": "set", "y": "why"}}
        assert made["metadata"]["labels"] == {"by": "webhook"}
        # What a webhook sets, no manager owns.
        [managed] = made["metadata"]["managedFields"]
        assert managed["manager"] == "me" and set(managed["fieldsV1"]["f:spec"]) == {".", "f:size", "f:mode"}
        server.answers["/patch"] = lambda _: patch({"op": "replace", "path": "/spec/size", "value": 1000})
        engine.post(at("widgets", ns), widget("v")).refused(422, "Invalid", "spec.size: Invalid value: 1000")
        # What is invalid as it is sent may be mended.
        server.answers["/patch"] = lambda _: patch({"op": "replace", "path": "/spec/size", "value": 7})
        assert engine.post(at("widgets", ns), widget("v", {"size": 1000})).ok(201)["spec"]["size"] == 7
        server.answers["/patch"] = lambda _: patch({"op": "remove", "path": "/spec/nothing"})
        engine.post(at("widgets", ns), widget("u")).refused(500, "InternalError")
        server.answers["/patch"] = lambda _: patch({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}})
        engine.delete(at("widgets", ns, "v")).refused(
            500, "InternalError", "attempted to modify the object, which is not supported for this operation"
        )


@case("17-patched-update")
def test_an_update_is_patched_and_its_status_is_not(engine: Engine, server: WebhookServer, ns: str) -> None:
    engine.post(at("widgets", ns), widget("w")).ok(201)
    engine.patch(at("widgets", ns, "w", "status"), {"status": {"phase": "old"}}).ok()
    with calling(engine, server, ns, "mutating", hook(server, ns, "/patch")):
        server.answers["/patch"] = lambda _: patch(
            {"op": "add", "path": "/spec/color", "value": "red"},
            {"op": "add", "path": "/status", "value": {"phase": "new"}},
        )
        main = engine.patch(at("widgets", ns, "w"), {"spec": {"size": 2}}).ok()
        assert (main["spec"]["color"], main["status"]) == ("red", {"phase": "old"})
        server.answers["/patch"] = lambda _: patch(
            {"op": "add", "path": "/spec/color", "value": "blue"},
            {"op": "add", "path": "/status/phase", "value": "newer"},
        )
        status = engine.patch(at("widgets", ns, "w", "status"), {"status": {"other": 1}}).ok()
        assert (status["spec"]["color"], status["status"]) == ("red", {"phase": "newer", "other": 1})
        assert server.asked("/patch")[-1]["subResource"] == "status"


@case("17-scale")
def test_a_scale_is_what_a_webhook_is_asked_about(engine: Engine, server: WebhookServer, ns: str) -> None:
    engine.post(at("widgets", ns), widget("w", {"replicas": 1})).ok(201)
    scales = {**EVERYTHING, "resources": ["widgets/scale"], "apiGroups": [GROUP]}
    with calling(engine, server, ns, "mutating", hook(server, ns, "/scale", rules=[scales])):
        server.answers["/scale"] = lambda _: patch({"op": "replace", "path": "/spec/replicas", "value": 5})
        engine.patch(at("widgets", ns, "w"), {"spec": {"size": 9}}).ok()
        scaled = engine.patch(at("widgets", ns, "w", "scale"), {"spec": {"replicas": 3}}).ok()
        assert scaled["spec"]["replicas"] == 5
        [request] = server.asked("/scale")
        assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        assert (request["object"]["spec"], request["oldObject"]["spec"]) == ({"replicas": 3}, {"replicas": 1})
    assert engine.get(at("widgets", ns, "w")).ok()["spec"]["replicas"] == 5


@case("17-order", "17-reinvocation")
def test_mutating_webhooks_are_asked_in_order_and_again_if_they_want(
    engine: Engine, server: WebhookServer, ns: str
) -> None:
    def adds(key: str) -> Any:
        def answer(request: Object) -> Object:
            if key in (request["object"].get("data") or {}):
                return {"allowed": True}
            return patch({"op": "add", "path": f"/data/{key}", "value": str(len(request["object"]["data"]))})

        return answer

    hooks = [
        hook(server, ns, f"/{key}", reinvocationPolicy=policy)
        for key, policy in (("a", "IfNeeded"), ("b", "Never"), ("c", "IfNeeded"))
    ]
    with calling(engine, server, ns, "mutating", *hooks):
        for key in "abc":
            server.answers[f"/{key}"] = adds(key)
        made = engine.post(at("configmaps", ns), config_map("c", {"z": "z"})).ok(201)
        assert made["data"] == {"z": "z", "a": "1", "b": "2", "c": "3"}
        # The first is asked again, as others changed the object after it; nobody did after the last one.
        assert [each.path for each in server.heard if each.path != "/probe"] == ["/a", "/b", "/c", "/a"]


@case("17-configurations-in-order")
def test_configurations_are_asked_by_name(engine: Engine, server: WebhookServer, ns: str) -> None:
    first, second = engine.fresh("b"), engine.fresh("a")
    with (
        calling(engine, server, ns, "mutating", hook(server, ns, "/b"), name=first),
        calling(engine, server, ns, "mutating", hook(server, ns, "/a"), name=second),
    ):
        engine.post(at("configmaps", ns), config_map("c")).ok(201)
        assert [each.path for each in server.heard if each.path != "/probe"] == ["/a", "/b"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@case("17-failure-policy")
@pytest.mark.parametrize("kind", KINDS)
def test_a_webhook_that_is_dead_stops_writes_or_not_as_it_says(
    engine: Engine, server: WebhookServer, ns: str, kind: str
) -> None:
    dead = {"url": f"https://127.0.0.1:{free_port()}/dead", "caBundle": server.ca_bundle}
    widgets = [{**EVERYTHING, "resources": ["widgets"]}]
    closed = hook(server, ns, "/dead", clientConfig=dead, failurePolicy="Fail", rules=widgets)
    with calling(engine, server, ns, kind, closed):
        status = engine.post(at("widgets", ns), widget("w")).refused(500, "InternalError")
        begins = 'Internal error occurred: failed calling webhook "dead.webhook.example.org": failed to call webhook: '
        assert status["message"].startswith(f'{begins}Post "{dead["url"]}?timeout=10s": ')
        assert begins.endswith("failed to call webhook: ") and status["details"]["causes"][0]["message"]
        engine.post(at("configmaps", ns), config_map("c")).ok(201)
    with calling(engine, server, ns, kind, closed | {"failurePolicy": "Ignore"}):
        engine.post(at("widgets", ns), widget("w")).ok(201)


@case("17-removable")
def test_a_dead_webhook_for_everything_can_always_be_removed(engine: Engine, server: WebhookServer, ns: str) -> None:
    dead = {"url": f"https://127.0.0.1:{free_port()}/dead", "caBundle": server.ca_bundle}
    everything = {"rules": [{**EVERYTHING, "apiGroups": ["admissionregistration.k8s.io", "no.such"]}]}
    stuck = hook(server, ns, "/dead", clientConfig=dead, failurePolicy="Fail", **everything) | {"namespaceSelector": {}}
    with calling(engine, server, ns, "validating", hook(server, ns, "/ok"), stuck) as name:
        path = f"{ADMISSION}/validatingwebhookconfigurations/{name}"
        engine.patch(path, {"metadata": {"annotations": {"a": "b"}}}).ok()
    engine.get(path).refused(404)


@case("17-timeout")
def test_a_webhook_that_hangs_is_given_up(engine: Engine, server: WebhookServer, ns: str) -> None:
    hanging = hook(server, ns, "/hang", timeoutSeconds=1)
    with calling(engine, server, ns, "validating", hanging, hook(server, ns, "/ok")):
        done = []

        def hang(_: Object) -> Object:
            time.sleep(3)
            done.append(1)
            return {"allowed": True}

        server.answers["/hang"] = hang
        begun = time.monotonic()
        status = engine.post(at("configmaps", ns), config_map("c")).refused(500, "InternalError")
        assert time.monotonic() - begun < 3 and not done
        assert "context deadline exceeded" in status["message"] or "Client.Timeout" in status["message"]


@case("17-bad-answers")
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_is_none_counts_as_a_failure(engine: Engine, server: WebhookServer, ns: str, kind: str) -> None:
    called = 'failed calling webhook "bad.webhook.example.org": '
    head = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",'
    answers: dict[str, Any] = {
        "received invalid webhook response: webhook response was absent": lambda _: head + b'"x":1}',
        'received invalid webhook response: expected response.uid="': lambda _: {"allowed": True, "uid": "other"},
        "failed to call webhook: ": lambda _: b"no JSON",
        "received invalid webhook response: ": lambda _: {
            "allowed": True,
            "patch": "W10=",
        },
    }
    with calling(engine, server, ns, kind, hook(server, ns, "/bad"), hook(server, ns, "/ok")):
        for text, answer in answers.items():
            server.answers["/bad"] = answer
            message = engine.post(at("configmaps", ns), config_map("c")).refused(500, "InternalError")["message"]
            assert f"{called}{text}" in message or (text == "failed to call webhook: " and called in message), message
        server.answers["/bad"] = lambda _: {"allowed": True}
        server.status = 500
        message = engine.post(at("configmaps", ns), config_map("c")).refused(500, "InternalError")["message"]
        assert "failed to call webhook: an error on the server" in message


@case("17-dry-run")
def test_a_dry_run_is_one_for_webhooks_too(engine: Engine, server: WebhookServer, ns: str) -> None:
    with calling(engine, server, ns, "validating", hook(server, ns, "/see", sideEffects="NoneOnDryRun")):
        engine.post(at("configmaps", ns), config_map("c"), query={"dryRun": "All"}).ok(201)
        [request] = server.asked("/see")
        assert request["dryRun"] is True and request["options"]["dryRun"] == ["All"]


@case("17-object-selector")
def test_an_object_selector_means_what_is_or_what_shall_be(engine: Engine, server: WebhookServer, ns: str) -> None:
    picky = hook(server, ns, "/picky", objectSelector={"matchLabels": {"pick": "me"}})
    with calling(engine, server, ns, "validating", picky, hook(server, ns, "/ok")):
        engine.post(at("configmaps", ns), config_map("c")).ok(201)
        assert server.asked("/picky") == []
        engine.patch(at("configmaps", ns, "c"), {"metadata": {"labels": {"pick": "me"}}}).ok()
        engine.patch(at("configmaps", ns, "c"), {"metadata": {"labels": {"pick": None}}}).ok()
        engine.patch(at("configmaps", ns, "c"), {"data": {"a": "b"}}).ok()
        assert len(server.asked("/picky")) == 2


@case("17-namespace-selector", "17-rules")
def test_only_what_rules_and_namespaces_mean_is_asked_about(engine: Engine, server: WebhookServer, ns: str) -> None:
    rules = [
        {"apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["UPDATE"]},
        {"apiGroups": [""], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE"], "scope": "Cluster"},
    ]
    with calling(engine, server, ns, "validating", hook(server, ns, "/some", rules=rules), hook(server, ns, "/ok")):
        engine.post(at("widgets", ns), widget("w")).ok(201)
        engine.post(at("configmaps", ns), config_map("c")).ok(201)
        engine.patch(at("widgets", ns, "w", "status"), {"status": {"a": 1}}).ok()
        elsewhere = engine.new_namespace()
        engine.post(at("widgets", elsewhere), widget("w")).ok(201)
        engine.patch(at("widgets", elsewhere, "w"), {"spec": {"size": 3}}).ok()
        assert server.asked("/some") == []
        engine.patch(at("widgets", ns, "w"), {"spec": {"size": 3}}).ok()
        assert len(server.asked("/some")) == 1


@case("17-match-policy")
def test_equivalent_is_asked_about_other_versions_in_its_own(engine: Engine, server: WebhookServer, ns: str) -> None:
    rules = [{"apiGroups": [GROUP], "apiVersions": ["v2"], "resources": ["multis"], "operations": ["CREATE"]}]
    equivalent = hook(server, ns, "/equivalent", rules=rules)
    exact = hook(server, ns, "/exact", rules=rules, matchPolicy="Exact")
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Multi", "metadata": {"name": "m"}, "spec": {"a": "x"}}
    with calling(engine, server, ns, "mutating", equivalent, exact, hook(server, ns, "/ok")):
        server.answers["/equivalent"] = lambda _: patch({"op": "replace", "path": "/spec/a", "value": "y"})
        made = engine.post(at("multis", ns), body).ok(201)
        assert (made["apiVersion"], made["spec"]) == (f"{GROUP}/v1", {"a": "y"})
        assert server.asked("/exact") == []
        [request] = server.asked("/equivalent")
        assert request["object"]["apiVersion"] == f"{GROUP}/v2"
        assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v2", "v1")
        assert (request["resource"]["version"], request["requestResource"]["version"]) == ("v2", "v1")


@case("17-match-conditions")
def test_match_conditions_decide_whether_a_webhook_is_asked(engine: Engine, server: WebhookServer, ns: str) -> None:
    conditions = [
        {"name": "not-a-lease", "expression": "request.resource.resource != 'leases'"},
        {"name": "has-data", "expression": "has(object.data) && object.data.exists(key, key == 'ask')"},
        {
            "name": "somebody",
            "expression": "request.userInfo.username != '' && "
            "authorizer.group('').resource('x').check('get').allowed()",
        },
    ]
    asked = hook(server, ns, "/ask", matchConditions=conditions)
    broken = hook(server, ns, "/broken", matchConditions=[{"name": "b", "expression": "object.data.boom == 'x'"}])
    with calling(engine, server, ns, "validating", asked, hook(server, ns, "/ok")):
        engine.post(at("configmaps", ns), config_map("a", {"x": "y"})).ok(201)
        engine.post(at("configmaps", ns), config_map("b")).ok(201)
        assert server.asked("/ask") == []
        engine.post(at("configmaps", ns), config_map("c", {"ask": "y"})).ok(201)
        assert len(server.asked("/ask")) == 1
    with calling(engine, server, ns, "validating", broken, hook(server, ns, "/ok")):
        status = engine.post(at("configmaps", ns), config_map("d", {"x": "y"})).refused(403, "Forbidden")
        text = "expression 'object.data.boom == 'x'' resulted in error: no such key: boom"
        assert status["message"] == f'configmaps "d" is forbidden: {text}'
        assert server.asked("/broken") == []
    with calling(engine, server, ns, "validating", broken | {"failurePolicy": "Ignore"}, hook(server, ns, "/ok")):
        engine.post(at("configmaps", ns), config_map("d", {"x": "y"})).ok(201)
        assert server.asked("/broken") == []


@case("17-warnings")
def test_warnings_of_webhooks_reach_the_client(engine: Engine, server: WebhookServer, ns: str) -> None:
    with calling(engine, server, ns, "validating", hook(server, ns, "/warn")):
        server.answers["/warn"] = lambda _: {"allowed": True, "warnings": ["mind the gap"]}
        assert engine.post(at("configmaps", ns), config_map("c")).warnings == ["mind the gap"]
        server.answers["/warn"] = lambda _: denied("no") | {"warnings": ["mind the gap"]}
        assert engine.post(at("configmaps", ns), config_map("d")).warnings == ["mind the gap"]


@case("17-v1beta1")
def test_a_webhook_that_knows_only_v1beta1_is_asked_in_it(engine: Engine, server: WebhookServer, ns: str) -> None:
    old = hook(server, ns, "/old", admissionReviewVersions=["v1beta1"])
    with calling(engine, server, ns, "mutating", old, hook(server, ns, "/ok")):
        server.answers["/old"] = lambda _: {**patch({"op": "add", "path": "/data", "value": {"a": "b"}}), "uid": ""}
        assert engine.post(at("configmaps", ns), config_map("c")).ok(201)["data"] == {"a": "b"}
        assert server.heard[0].review["apiVersion"] == "admission.k8s.io/v1beta1"


@case("17-untrusted")
def test_a_server_that_the_bundle_does_not_vouch_for_is_not_asked(
    engine: Engine, server: WebhookServer, ns: str, tmp_path: Path
) -> None:
    with webhook_server(tmp_path) as stranger:
        config = {"url": stranger.url("/stranger"), "caBundle": server.ca_bundle}
        untrusted = hook(server, ns, "/stranger", clientConfig=config)
        with calling(engine, server, ns, "validating", untrusted, hook(server, ns, "/ok")):
            engine.post(at("configmaps", ns), config_map("c")).refused(500, "InternalError", "certificate")
        assert stranger.heard == []


# -- policies


def policy(ns: str, *validations: Object | str, **spec: Any) -> Object:
    """A policy about ConfigMaps of a namespace; a validation may be its expression alone."""
    rules = [
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}
    ]
    return {
        "matchConstraints": {
            "resourceRules": rules,
            "namespaceSelector": {"matchLabels": {NAME_OF_NAMESPACE: ns}},
        },
        "validations": [{"expression": each} if isinstance(each, str) else each for each in validations],
        **spec,
    }


@contextmanager
def enforced(engine: Engine, ns: str, spec: Object, **binding: Any) -> Iterator[str]:
    """The policy is bound, and the engine has begun to enforce it: a ConfigMap named `probe` is refused."""
    name = engine.fresh("p")
    probe = {"expression": "object.metadata.name != 'probe'", "message": "probed"}
    spec = {**spec, "validations": [*spec["validations"], probe]}
    engine.post(f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec}).ok(201)
    bound = {"policyName": name, "validationActions": ["Deny"], **binding}
    engine.post(f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": bound}).ok(201)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _is_enforced(engine.post(at("configmaps", ns), config_map("probe"), query={"dryRun": "All"}), name):
            assert time.monotonic() < deadline, "the policy is not enforced"
            time.sleep(POLL_SECONDS)
        yield name
    finally:
        engine.delete(f"{ADMISSION}/validatingadmissionpolicybindings/{name}").ok()
        engine.delete(f"{ADMISSION}/validatingadmissionpolicies/{name}").ok()


def _is_enforced(response: Response, name: str) -> bool:
    return name in response.text or any(name in warning for warning in response.warnings)


@case("17-policy-types")
def test_a_policy_tells_which_expressions_its_kinds_do_not_bear_out(engine: Engine) -> None:
    name = engine.fresh("p")
    rules = [
        {
            "apiGroups": ["apps"],
            "apiVersions": ["v1"],
            "resources": ["deployments", "replicasets", "deployments/scale"],
            "operations": ["CREATE"],
        },
        {"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]},
    ]
    validations = [
        {"expression": "object.spec.replicas > 1 && object.metadata.labels.size() < 9"},
        {"expression": "object.replicas > 1", "messageExpression": "'is ' + object.spec.replicas"},
        {"expression": "object.spec.strategy.type == 'Recreate'"},
        {"expression": "variables.count > 'a'"},
        {"expression": "object.spec.template.spec.containers.all(c, c.image.startsWith('x') || c.imago == 'y')"},
    ]
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "validations": validations,
        "variables": [{"name": "count", "expression": "object.spec.replicas"}],
    }
    path = f"{ADMISSION}/validatingadmissionpolicies/{name}"
    engine.post(f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec}).ok(201)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "typeChecking" not in (found := engine.get(path).ok()).get("status", {}):
            assert time.monotonic() < deadline, "the policy is not checked"
            time.sleep(POLL_SECONDS)
        told = {each["fieldRef"]: each["warning"] for each in found["status"]["typeChecking"]["expressionWarnings"]}
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    finally:
        engine.delete(path).ok()
    assert sorted(told) == [
        "spec.validations[1].expression",
        "spec.validations[1].messageExpression",
        "spec.validations[2].expression",
        "spec.validations[3].expression",
        "spec.validations[4].expression",
    ]
    undefined = "ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^"
    assert told["spec.validations[1].expression"] == "\n".join(
        f"apps/v1, Kind={kind}: {undefined}\n" for kind in ("Deployment", "ReplicaSet")
    )
    assert "Deployment" not in told["spec.validations[2].expression"], "which has a strategy"
    assert "undefined field 'strategy'" in told["spec.validations[2].expression"]
    assert "found no matching overload for '_>_' applied to '(int, string)'" in told["spec.validations[3].expression"]
    assert told["spec.validations[4].expression"].count("undefined field 'imago'") == 2


@case("17-policy", "17-policy-messages")
def test_a_policy_refuses_in_its_own_words(engine: Engine, ns: str) -> None:
    spec = policy(
        ns,
        {"expression": "!has(object.data.bad)", "message": "bad is bad", "reason": "Forbidden"},
        {"expression": "!has(object.data.worse)", "messageExpression": "'worse is ' + object.data.worse"},
        {"expression": "!has(object.data.worst)"},
        {
            "expression": "object.data.number.size() < 3",
            "messageExpression": "string(object.data.none)",
            "message": "fallback",
        },
        variables=[],
    )
    with enforced(engine, ns, spec) as name:
        said = f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: "

        def refused(code: int, reason: str, **data: str) -> str:
            status = engine.post(at("configmaps", ns), config_map("c", {"number": "1", **data})).refused(code, reason)
            assert status["details"]["causes"] == [{"message": status["message"].split("forbidden: ", 1)[1]}]
            assert (status["details"]["name"], status["details"]["kind"]) == ("c", "configmaps")
            return str(status["message"])

        start = f'configmaps "c" is forbidden: {said}'
        assert refused(403, "Forbidden", bad="1") == f"{start}bad is bad"
        assert refused(422, "Invalid", worse="x") == f"{start}worse is x"
        assert refused(422, "Invalid", worst="x") == f"{start}failed expression: !has(object.data.worst)"
        assert refused(422, "Invalid", number="123") == f"{start}fallback"
        engine.post(at("configmaps", ns), config_map("c", {"number": "1"})).ok(201)
        engine.patch(at("configmaps", ns, "c"), {"data": {"bad": "1"}}).refused(403, "Forbidden", "bad is bad")


@case("17-policy-errors")
def test_an_expression_that_fails_is_a_refusal_or_not_as_the_policy_says(engine: Engine, ns: str) -> None:
    spec = policy(ns, "object.data.missing == 'x'")
    with enforced(engine, ns, spec):
        text = "expression 'object.data.missing == 'x'' resulted in error: no such key: missing"
        engine.post(at("configmaps", ns), config_map("c", {"a": "b"})).refused(422, "Invalid", text)
    with enforced(engine, ns, {**spec, "failurePolicy": "Ignore"}):
        engine.post(at("configmaps", ns), config_map("c", {"a": "b"})).ok(201)


@case("17-policy-warns")
def test_a_binding_may_only_warn(engine: Engine, ns: str) -> None:
    spec = policy(ns, {"expression": "has(object.data)", "message": "no data"})
    with enforced(engine, ns, spec, validationActions=["Warn", "Audit"]) as name:
        response = engine.post(at("configmaps", ns), config_map("c"))
        response.ok(201)
        start = f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': "
        assert response.warnings == [f"{start}no data"]


@case("17-policy-variables", "17-policy-conditions")
def test_variables_and_conditions_of_a_policy(engine: Engine, ns: str) -> None:
    spec = policy(
        ns,
        {
            "expression": "variables.size < 3 || variables.exempt",
            "messageExpression": "'too many: ' + string(variables.size)",
        },
        variables=[
            {"name": "data", "expression": "has(object.data) ? object.data : {}"},
            {"name": "size", "expression": "variables.data.size()"},
            {"name": "exempt", "expression": "'exempt' in variables.data"},
            {"name": "unused", "expression": "object.no.such.thing"},
        ],
        matchConditions=[{"name": "counted", "expression": "object.metadata.name != 'skipped'"}],
    )
    many = {str(number): "x" for number in range(4)}
    with enforced(engine, ns, spec):
        engine.post(at("configmaps", ns), config_map("c", many)).refused(422, "Invalid", "denied request: too many: 4")
        engine.post(at("configmaps", ns), config_map("skipped", many)).ok(201)
        engine.post(at("configmaps", ns), config_map("e", many | {"exempt": "y"})).ok(201)


@case("17-policy-params")
def test_parameters_of_a_policy(engine: Engine, ns: str) -> None:
    limits = config_map("limits", {"most": "2"}, labels={"limits": "yes"})
    engine.post(at("configmaps", ns), limits).ok(201)
    spec = policy(
        ns,
        {
            "expression": "!has(object.data) || object.data.size() <= int(params.data.most)",
            "messageExpression": "'at most ' + params.data.most",
        },
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    three = {"a": "1", "b": "2", "c": "3"}
    named = {"name": "limits", "parameterNotFoundAction": "Deny"}
    with enforced(engine, ns, spec, paramRef=named):
        engine.post(at("configmaps", ns), config_map("c", three)).refused(422, "Invalid", "denied request: at most 2")
        engine.post(at("configmaps", ns), config_map("c", {"a": "1"})).ok(201)
    selected = {"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"}
    with enforced(engine, ns, spec, paramRef=selected):
        engine.post(at("configmaps", ns), config_map("d", three)).refused(422, "Invalid", "denied request: at most 2")
    with enforced(engine, ns, spec, paramRef={"name": "absent", "parameterNotFoundAction": "Deny"}):
        text = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
        engine.post(at("configmaps", ns), config_map("d", three)).refused(422, "Invalid", text)


@case("17-policy-authorizer", "17-policy-namespace", "17-policy-request")
def test_expressions_know_the_request_the_namespace_and_the_rights(engine: Engine, ns: str) -> None:
    allow(engine, ns, rule("create get", "configmaps"))
    spec = policy(
        ns,
        {"expression": "authorizer.requestResource.check('brew').allowed()", "message": "you may not brew"},
        {"expression": f"namespaceObject.metadata.name == '{ns}'"},
        {
            "expression": "request.operation == 'CREATE' && oldObject == null && !request.dryRun || request.dryRun",
        },
        {"expression": f"request.namespace == '{ns}' && request.resource.resource == 'configmaps'"},
    )
    with enforced(engine, ns, spec):
        engine.post(at("configmaps", ns), config_map("c")).ok(201)
        body = config_map("d")
        engine.post(at("configmaps", ns), body, token=engine.user_token).refused(422, "Invalid", "you may not brew")


@case("17-policy-excludes")
def test_a_binding_narrows_and_exclusions_exempt(engine: Engine, ns: str) -> None:
    spec = policy(ns, {"expression": "has(object.data)", "message": "no data"})
    excluded = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]
    spec["matchConstraints"]["excludeResourceRules"] = [{**excluded[0], "resourceNames": ["free"]}]
    with enforced(engine, ns, spec):
        engine.post(at("configmaps", ns), config_map("free")).ok(201)
        engine.post(at("configmaps", ns), config_map("bound")).refused(422, "Invalid", "no data")


BAD_POLICIES: dict[str, tuple[Object, str]] = {
    "nothing": ({"validations": []}, "spec.validations: Required value: validations or auditAnnotations must contain"),
    "no-rules": ({"matchConstraints": {}}, "spec.matchConstraints.resourceRules: Required value"),
    "not-bool": (
        {"validations": [{"expression": "'x'"}]},
        "spec.validations[0].expression: Invalid value: \"'x'\": must evaluate to bool",
    ),
    "undeclared": (
        {"validations": [{"expression": "params.x == 1"}]},
        'spec.validations[0].expression: Invalid value: "params.x == 1": compilation failed: ERROR: <input>:1:1: '
        "undeclared reference to 'params'",
    ),
    "message": (
        {"validations": [{"expression": "true", "message": "a\nb"}]},
        'spec.validations[0].message: Invalid value: "a\\nb": must not contain line breaks',
    ),
    "reason": (
        {"validations": [{"expression": "true", "reason": "Mood"}]},
        'spec.validations[0].reason: Unsupported value: "Mood": supported values: "Forbidden", "Invalid"',
    ),
    "variable": (
        {"variables": [{"name": "x-y", "expression": "1"}]},
        'spec.variables[0].name: Invalid value: "x-y": must be a valid CEL identifier',
    ),
    "param-kind": ({"paramKind": {"apiVersion": "v1", "kind": ""}}, "spec.paramKind.kind: Required value"),
}


@case("17-policy-validated")
@pytest.mark.parametrize("fault", BAD_POLICIES)
def test_a_policy_that_cannot_be_is_refused(engine: Engine, ns: str, fault: str) -> None:
    wrong, text = BAD_POLICIES[fault]
    body = {"metadata": {"name": engine.fresh()}, "spec": policy(ns, "true") | wrong}
    engine.post(f"{ADMISSION}/validatingadmissionpolicies", body).refused(422, "Invalid", text)


BAD_BINDINGS: dict[str, tuple[Object, str]] = {
    "actions": ({"validationActions": []}, "spec.validationActions: Required value"),
    "both": ({"validationActions": ["Deny", "Warn"]}, "must not contain both Deny and Warn"),
    "action": ({"validationActions": ["Shout"]}, 'spec.validationActions[0]: Unsupported value: "Shout"'),
    "no-policy": ({"policyName": ""}, "spec.policyName: Required value"),
    "reference": (
        {"paramRef": {"parameterNotFoundAction": "Deny"}},
        "spec.paramRef: Required value: one of name or selector must be specified",
    ),
    "not-found": ({"paramRef": {"name": "x"}}, "spec.paramRef.parameterNotFoundAction: Required value"),
}


@case("17-binding-validated")
@pytest.mark.parametrize("fault", BAD_BINDINGS)
def test_a_binding_that_cannot_be_is_refused(engine: Engine, ns: str, fault: str) -> None:
    wrong, text = BAD_BINDINGS[fault]
    body = {"metadata": {"name": engine.fresh()}, "spec": {"policyName": "p", "validationActions": ["Deny"]} | wrong}
    engine.post(f"{ADMISSION}/validatingadmissionpolicybindings", body).refused(422, "Invalid", text)


@case("17-policy-rights")
def test_whoever_names_parameters_must_be_allowed_to_read_them(engine: Engine, ns: str) -> None:
    name = engine.fresh("r")
    rules = [{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}]
    engine.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": name}, "rules": rules}).ok(201)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "User", "name": engine.user, "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    engine.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).ok(201)
    try:
        path, token = f"{ADMISSION}/validatingadmissionpolicies", engine.user_token
        review = {"group": "admissionregistration.k8s.io", "resource": "validatingadmissionpolicies", "verb": "create"}
        deadline = time.monotonic() + PATIENCE_SECONDS
        asked = {"spec": {"user": engine.user, "resourceAttributes": review}}
        reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        while not engine.post(reviews, asked).ok(201)["status"]["allowed"]:
            assert time.monotonic() < deadline, "the binding does not take effect"
        spec = policy(ns, "true", paramKind={"apiVersion": "v1", "kind": "Secret"})
        status = engine.post(path, {"metadata": {"name": name}, "spec": spec}, token=token).refused(422, "Invalid")
        assert "spec.paramKind: Forbidden: user " in status["message"]
        assert (
            'must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)'
            in status["message"]
        )
        engine.post(path, {"metadata": {"name": name}, "spec": spec}).ok(201)
        bound: Object = {"policyName": name, "validationActions": ["Deny"]}
        bound["paramRef"] = {"name": "x", "namespace": ns, "parameterNotFoundAction": "Allow"}
        body = {"metadata": {"name": name}, "spec": bound}
        status = engine.post(f"{ADMISSION}/validatingadmissionpolicybindings", body, token=token).refused(
            422, "Invalid"
        )
        assert "spec.paramRef: Forbidden: user " in status["message"]
        assert 'does not have "get" permission on the object referenced by paramRef' in status["message"]
        engine.delete(f"{path}/{name}").ok()
    finally:
        engine.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}").ok()
        engine.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}").ok()
