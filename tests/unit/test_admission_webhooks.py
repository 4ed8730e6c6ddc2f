"""Webhooks of the embedded engine beside other writers, hostile answers, and where there are none."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object, gvk
from planform.apiserver.admission import webhook_calls
from planform.apiserver.admission.chain import Admission
from planform.apiserver.admission.dynamic.configurations import STRATEGIES
from planform.apiserver.admission.webhook_calls import WebhookCalls
from planform.apiserver.crds.conversion import Webhooks
from planform.apiserver.verbs import writes
from planform.apiserver.verbs.requests import Request
from planform.client import Patch, PatchType
from planform.errors import ApiError, BadRequest, Conflict, Forbidden, InternalError, NotFound, PlanformError
from tests.harness.embedded import CONFIG_MAP, NAMESPACE, Embedded, embedded_engine, version, widget, widget_crd
from tests.harness.webhook_server import WebhookServer, patch, webhook_server

API = "admissionregistration.k8s.io/v1"
VALIDATING = gvk(API, "ValidatingWebhookConfiguration")
MUTATING = gvk(API, "MutatingWebhookConfiguration")
WIDGET = gvk("example.org/v1", "Widget")
MAX_BYTES = 1 << 20
"""The largest answer in a test, where sixteen times as much takes as much longer."""
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    with webhook_server(tmp_path_factory.mktemp("webhook")) as started:
        yield started


@pytest.fixture
def server(serving: WebhookServer) -> WebhookServer:
    serving.answers.clear()
    serving.heard.clear()
    serving.status, serving.raw = 200, None
    return serving


@pytest.fixture
async def engine() -> AsyncIterator[Embedded]:
    async with embedded_engine(calls=WebhookCalls()) as started:
        yield started


async def configure(engine: Embedded, server: WebhookServer, kind: Any = VALIDATING, **more: Any) -> None:
    hook = {
        "name": "a.example.org",
        "clientConfig": server.client_config("/a"),
        "rules": [{**EVERYTHING, "resources": ["configmaps", "widgets", "widgets/status"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }
    body = {"apiVersion": API, "kind": kind.kind, "metadata": {"name": "test"}, "webhooks": [hook]}
    await engine.client.apply(body, manager="test", force=True)


def config_map(name: str = "c", **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def once(work: Callable[[], Coroutine[Any, Any, Any]], answer: Object | None = None) -> Callable[[Object], Object]:
    """An answer before which, the first time, something happens in the engine."""
    loop = asyncio.get_running_loop()
    done: list[int] = []

    def answered(_: Object) -> Object:
        if not done:
            done.append(1)
            asyncio.run_coroutine_threadsafe(work(), loop).result(20)
        return answer or {"allowed": True}

    return answered


# -- beside others


async def test_an_object_that_moved_while_a_webhook_was_asked_is_computed_and_asked_about_anew(
    engine: Embedded, server: WebhookServer
) -> None:
    client = engine.client
    await client.create(config_map(a="1"))
    await configure(engine, server, rules=[{**EVERYTHING, "resources": ["configmaps"], "operations": ["UPDATE"]}])

    async def other() -> None:
        server.answers["/a"] = lambda _: {"allowed": True}
        await client.patch(CONFIG_MAP, "c", Patch(PatchType.MERGE, {"data": {"b": "2"}}), namespace="default")

    server.answers["/a"] = once(other)
    mine = Patch(PatchType.MERGE, {"data": {"c": "3"}})
    changed = await client.patch(CONFIG_MAP, "c", mine, namespace="default")
    assert changed["data"] == {"a": "1", "b": "2", "c": "3"}
    shown = [each["object"]["data"] for each in server.asked("/a")]
    assert shown == [{"a": "1", "c": "3"}, {"a": "1", "b": "2"}, {"a": "1", "b": "2", "c": "3"}]


async def test_a_replacement_of_a_version_that_moved_meanwhile_is_a_conflict(
    engine: Embedded, server: WebhookServer
) -> None:
    client = engine.client
    held = await client.create(config_map(a="1"))
    await configure(engine, server)

    async def other() -> None:
        server.answers.clear()
        await client.patch(CONFIG_MAP, "c", Patch(PatchType.MERGE, {"data": {"b": "2"}}), namespace="default")

    server.answers["/a"] = once(other)
    with pytest.raises(Conflict):
        await client.update({**held, "data": {"a": "9"}})
    assert (await client.get(CONFIG_MAP, "c", namespace="default"))["data"] == {"a": "1", "b": "2"}


async def test_who_is_second_to_create_while_webhooks_are_asked_hears_of_the_first(
    engine: Embedded, server: WebhookServer
) -> None:
    client = engine.client
    await configure(engine, server)

    async def other() -> None:
        server.answers.clear()
        await client.create(config_map(by="other"))

    server.answers["/a"] = once(other)
    with pytest.raises(ApiError, match="already exists"):
        await client.create(config_map(by="me"))
    server.answers["/a"] = once(other)
    await client.delete(CONFIG_MAP, "c", namespace="default")
    server.answers["/a"] = once(other)
    applied = await client.apply(config_map(mine="1"), manager="me")
    assert applied["data"] == {"by": "other", "mine": "1"}


@pytest.mark.parametrize("operation", ["create", "delete"])
async def test_what_a_plugin_forbids_meanwhile_is_forbidden(
    engine: Embedded, server: WebhookServer, operation: str
) -> None:
    client = engine.client
    refusing: list[str] = []

    class Guard:
        def admit(self, admission: Admission, /) -> None:
            if admission.operation in refusing:
                raise Forbidden("guarded")

    engine.core.admission = (Guard(),)
    await client.create(config_map("there"))
    await configure(engine, server)

    async def guard() -> None:
        refusing.append(operation.upper())

    server.answers["/a"] = once(guard)
    with pytest.raises(Forbidden, match="guarded"):
        if operation == "create":
            await client.create(config_map("new"))
        else:
            await client.delete(CONFIG_MAP, "there", namespace="default")
    names = [each["metadata"]["name"] for each in (await client.list(CONFIG_MAP, namespace="default")).items]
    assert names == ["there"]


async def test_nothing_is_created_in_a_namespace_that_went_meanwhile(engine: Embedded, server: WebhookServer) -> None:
    client = engine.client
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    await configure(engine, server)

    async def end() -> None:
        await client.delete(NAMESPACE, "team")
        await engine.gone(NAMESPACE, "team", "")

    server.answers["/a"] = once(end)
    late = config_map("late")
    late["metadata"]["namespace"] = "team"
    with pytest.raises((NotFound, Forbidden)):
        await client.create(late)
    assert engine.core.store.list("configmaps", "team") == []


async def test_a_namespace_that_a_dead_webhook_holds_goes_once_the_webhook_is_removed(
    engine: Embedded, server: WebhookServer
) -> None:
    client = engine.client
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    inside = config_map()
    inside["metadata"]["namespace"] = "team"
    owner = await client.create(inside)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": owner["metadata"]["uid"]}
    owned = config_map("owned")
    owned["metadata"] |= {"namespace": "team", "ownerReferences": [reference]}
    await client.create(owned)
    loop, again = asyncio.get_running_loop(), asyncio.Event()

    def refused(_: Object) -> Object:
        if len(server.heard) > 2:
            loop.call_soon_threadsafe(again.set)
        return {"allowed": False}

    server.answers["/a"] = refused
    await configure(engine, server, rules=[{**EVERYTHING, "resources": ["configmaps"], "operations": ["DELETE"]}])
    await client.delete(NAMESPACE, "team")
    async with asyncio.timeout(20):
        await again.wait()  # the built-in controllers come back to it
    assert len((await client.list(CONFIG_MAP, namespace="team")).items) == 2
    await client.delete(VALIDATING, "test")
    async with asyncio.timeout(40):
        await engine.gone(NAMESPACE, "team", "")


async def test_a_webhook_sees_and_guards_what_the_control_plane_itself_writes(
    engine: Embedded, server: WebhookServer
) -> None:
    await engine.establish(widget_crd(version("v1", {"size": {"type": "integer"}})))
    await engine.client.create(widget(size=1))
    await configure(engine, server)
    server.answers["/a"] = lambda request: {"allowed": request.get("subResource") != "status"}
    with pytest.raises(ApiError, match=r'admission webhook "a\.example\.org" denied the request'):
        status = Patch(PatchType.MERGE, {"status": {"a": 1}})
        await engine.client.patch(WIDGET, "w", status, namespace="default", subresource="status")
    assert server.asked("/a")[0]["userInfo"]["username"] == "system:planform"


async def test_a_webhook_with_side_effects_is_not_asked_about_dry_runs(
    engine: Embedded, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = STRATEGIES["validatingwebhookconfigurations.admissionregistration.k8s.io"]
    monkeypatch.setattr(type(strategy), "validate", lambda *_: ())  # as one that was stored by an older server
    await configure(engine, server, sideEffects="Some")
    with pytest.raises(BadRequest, match=r'admission webhook "a\.example\.org" does not support dry run'):
        await engine.client.create(config_map(), dry_run=True)
    assert server.heard == []
    await engine.client.create(config_map())
    assert len(server.heard) == 1


async def test_audit_annotations_of_webhooks_and_policies_are_kept_with_the_request(
    engine: Embedded, server: WebhookServer
) -> None:
    await configure(engine, server, MUTATING)
    server.answers["/a"] = lambda _: {
        **patch({"op": "add", "path": "/data/x", "value": "y"}),
        "auditAnnotations": {"k": "v"},
    }
    policy = {
        "matchConstraints": {"resourceRules": [{**EVERYTHING, "resources": ["configmaps"]}]},
        "validations": [{"expression": "!has(object.data.bad)", "message": "bad"}],
        "auditAnnotations": [
            {"key": "size", "valueExpression": "string(object.data.size())"},
            {"key": "none", "valueExpression": "null"},
        ],
    }
    about = {"apiVersion": API, "metadata": {"name": "p"}}
    await engine.client.create({**about, "kind": "ValidatingAdmissionPolicy", "spec": policy})
    spec = {"policyName": "p", "validationActions": ["Audit"]}
    await engine.client.create({**about, "kind": "ValidatingAdmissionPolicyBinding", "spec": spec})
    request = Request()
    served = engine.core.registry.find(CONFIG_MAP)
    await writes.create(engine.core, served, config_map(bad="1"), request)
    failures = json.loads(request.annotations.pop("validation.policy.admission.k8s.io/validation_failure"))
    assert failures == [
        {"message": "bad", "policy": "p", "binding": "p", "expressionIndex": 0, "validationActions": ["Audit"]}
    ]
    mutated = json.loads(request.annotations.pop("mutation.webhook.admission.k8s.io/round_0_index_0"))
    assert mutated == {"configuration": "test", "webhook": "a.example.org", "mutated": True}
    assert request.annotations == {"a.example.org/k": "v", "p/size": "2"}


async def test_a_policy_that_costs_too_much_refuses_and_holds_nobody_up(engine: Embedded) -> None:
    policy = {
        "matchConstraints": {"resourceRules": [{**EVERYTHING, "resources": ["configmaps"]}]},
        "validations": [{"expression": "object.data.all(a, object.data.all(b, object.data.all(c, a + b != c + 'x')))"}],
    }
    about = {"apiVersion": API, "metadata": {"name": "p"}}
    await engine.client.create({**about, "kind": "ValidatingAdmissionPolicy", "spec": policy})
    spec = {"policyName": "p", "validationActions": ["Deny"]}
    await engine.client.create({**about, "kind": "ValidatingAdmissionPolicyBinding", "spec": spec})
    await engine.client.create(config_map(**{str(number): "x" for number in range(3)}))
    with pytest.raises(ApiError, match="running out of cost budget"):
        await engine.client.create(config_map("d", **{str(number): "x" for number in range(300)}))


# -- where there are none


async def test_a_write_that_nothing_is_configured_for_costs_nearly_nothing_more(
    engine: Embedded, server: WebhookServer
) -> None:
    """Beside the same engine without dynamic admission; what is configured is about something else."""
    await configure(engine, server, rules=[{**EVERYTHING, "resources": ["leases"]}])
    dynamic = engine.core.dynamic_admission
    assert dynamic is not None
    served = engine.core.registry.find(CONFIG_MAP)
    assert dynamic.relevant(served, "UPDATE", "") is None
    turns = 20_000
    started = time.perf_counter()
    for _ in range(turns):
        dynamic.relevant(served, "UPDATE", "")
    each = (time.perf_counter() - started) / turns
    await engine.client.create(config_map())
    started = time.perf_counter()
    for number in range(200):
        change = Patch(PatchType.MERGE, {"data": {"n": str(number)}})
        await engine.client.patch(CONFIG_MAP, "c", change, namespace="default")
    write = (time.perf_counter() - started) / 200
    print(f"looking up: {each * 1e9:.0f} ns of a write of {write * 1e6:.0f} us")
    assert each < write / 20
    assert server.heard == []


# -- hostile answers


def hostile(rng: random.Random) -> tuple[str, Any]:
    """One answer that a webhook should not give, and what it is."""
    head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    garbage = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200)))

    def encoded(value: Any) -> str:
        return base64.b64encode(json.dumps(value).encode()).decode()

    def patching(value: Any) -> Callable[[Object], Object]:
        return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": encoded(value)}

    broken = [
        [{"op": "replace", "path": "/spec", "value": rng.choice([1, "x", None, [], [[]]])}],
        [{"op": "replace", "path": "/metadata", "value": rng.choice([1, None, {}, {"name": "other"}])}],
        [{"op": "replace", "path": "/metadata/name", "value": rng.choice(["", "other", 7, None, "Ü"])}],
        [{"op": "add", "path": "/metadata/namespace", "value": "kube-system"}],
        [{"op": "replace", "path": "/kind", "value": "Secret"}],
        [{"op": "replace", "path": "/apiVersion", "value": "v2"}],
        [{"op": "add", "path": "/spec/size", "value": rng.choice(["x", 1.5, {}, 10**30])}],
        [{"op": "add", "path": "/metadata/labels", "value": {"not a label": "!"}}],
        [{"op": "add", "path": "/metadata/finalizers", "value": [1, 2]}],
        [{"op": "add", "path": "/metadata/ownerReferences", "value": [{"uid": "x"}]}],
        [{"op": "add", "path": "/metadata/managedFields", "value": [{"manager": 1, "fieldsV1": "x"}]}],
        [{"op": "copy", "from": "/spec", "path": "/spec/again"}] * rng.randrange(1, 30),
        [{"op": rng.choice(["explode", "", None])}],
        [{"op": "remove", "path": rng.choice(["/nothing", "", "/spec/-1", "no-slash"])}],
        rng.choice([1, "x", None, {}, [1], [[]], True]),
    ]
    choices: list[tuple[str, Any]] = [
        ("garbage", lambda _: garbage),
        ("empty", lambda _: b""),
        ("no review", lambda _: json.dumps(rng.choice([1, [], None, "x", {}, {"response": []}])).encode()),
        ("no response", lambda _: json.dumps(head).encode()),
        ("wrong uid", lambda _: {"allowed": True, "uid": "another"}),
        ("wrong types", lambda _: {"allowed": rng.choice(["yes", 1, None]), "status": 3}),
        ("wrong status", lambda _: {"allowed": False, "status": {"code": rng.choice([-1, 0, 200, 99999, "x"])}}),
        ("deep", lambda _: b"[" * 100_000),
        ("huge", lambda _: b" " * (MAX_BYTES + 1)),
        ("no base64", lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": "%%%"}),
        ("other patch", lambda _: {"allowed": True, "patchType": "Merge", "patch": encoded({})}),
        (
            "flood",
            lambda _: {"allowed": True, "warnings": ["w" * 5000] * 500, "auditAnnotations": {"a\nb": "x" * 10**5}},
        ),
        *(("patch", patching(each)) for each in broken),
    ]
    return rng.choice(choices)


@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 30))])
async def test_whatever_a_webhook_answers_a_write_is_stored_valid_or_refused(
    engine: Embedded, server: WebhookServer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(webhook_calls, "MAX_BYTES", MAX_BYTES)
    await engine.establish(widget_crd(version("v1", {"size": {"type": "integer", "maximum": 9}})))
    await configure(engine, server, MUTATING)
    stored = 0
    for number in range(60):
        what, server.answers["/a"] = hostile(rng)
        name = f"w{number}"
        try:
            made = await engine.client.create(widget(name, size=number % 10))
        except ApiError as error:
            assert 400 <= error.code <= 599, (what, error)
            assert len(str(error)) < 10_000
            continue
        except PlanformError as error:
            raise AssertionError(f"{what}: {error!r}") from error
        stored += 1
        assert made["kind"] == "Widget" and made["apiVersion"] == "example.org/v1", what
        size = (made.get("spec") or {}).get("size", 0)
        assert isinstance(size, int) and size <= 9, what
        assert made["metadata"]["namespace"] == "default" and made["metadata"]["uid"], what
    server.answers.clear()
    # The engine is as well as before, and everything that was stored can be read, changed and deleted.
    for each in (await engine.client.list(WIDGET)).items:
        await engine.client.update({**each, "spec": {"size": 1}})
        await engine.client.delete(WIDGET, each["metadata"]["name"], namespace="default")
    assert stored < 60


async def test_a_webhook_that_sends_its_answer_drop_by_drop_is_given_up(
    engine: Embedded, server: WebhookServer
) -> None:
    await configure(engine, server, timeoutSeconds=1)
    ended = []

    def drops(file: Any) -> None:
        try:
            file.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
            for _ in range(100):
                file.write(b" ")
                file.flush()
                time.sleep(0.05)
        except OSError:
            pass
        ended.append(1)

    server.raw = drops
    with pytest.raises(InternalError, match="context deadline exceeded"):
        await engine.client.create(config_map())
    assert not ended


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"SSH-2.0-no\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: https://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nnope",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_answer_of_http_is_a_failed_call(engine: Embedded, server: WebhookServer, sent: bytes) -> None:
    await configure(engine, server)
    server.raw = lambda file: file.write(sent)
    with pytest.raises(InternalError, match=r'failed calling webhook "a\.example\.org"'):
        await engine.client.create(config_map())
    server.raw = None
    await engine.client.create(config_map())


async def test_a_service_that_nobody_serves_here_is_named(engine: Embedded, server: WebhookServer) -> None:
    service = {"namespace": "team", "name": "guard", "path": "/x"}
    await configure(engine, server, clientConfig={"service": service, "caBundle": server.ca_bundle})
    with pytest.raises(InternalError, match='service "guard" in namespace "team" is not served by this control plane'):
        await engine.client.create(config_map())


class OneService:
    """Knows one Service, by the name that the server's certificate is for."""

    def __init__(self, server: WebhookServer) -> None:
        self._port = server.port

    def endpoint(self, namespace: str, name: str, port: int, /) -> webhook_calls.Endpoint | None:
        return webhook_calls.Endpoint("127.0.0.1", self._port) if port == 9443 else None


async def test_a_service_that_is_served_here_is_called_by_its_name_for_admission_and_conversion(
    server: WebhookServer,
) -> None:
    calls = WebhookCalls(OneService(server))
    async with embedded_engine(calls=calls, webhooks=Webhooks(calls)) as engine:
        service = {"namespace": "default", "name": "kubernetes", "port": 9443, "path": "/a"}
        config = {"service": service, "caBundle": server.ca_bundle}
        await configure(engine, server, clientConfig=config)
        await engine.client.create(config_map())
        assert len(server.asked("/a")) == 1
        await configure(engine, server, clientConfig={**config, "service": {**service, "name": "another"}})
        with pytest.raises(InternalError, match="certificate"):
            await engine.client.create(config_map("d"))
        await configure(engine, server, rules=[])

        def converted(request: Object) -> bytes:
            objects = [{**each, "apiVersion": request["desiredAPIVersion"]} for each in request["objects"]]
            response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
            return json.dumps({"response": response}).encode()

        server.answers["/convert"] = converted
        webhook = {
            "clientConfig": {**config, "service": {**service, "path": "/convert"}},
            "conversionReviewVersions": ["v1"],
        }
        size = {"size": {"type": "integer"}}
        conversion = {"strategy": "Webhook", "webhook": webhook}
        await engine.establish(
            widget_crd(version("v1", size), version("v2", size, storage=False), conversion=conversion)
        )
        made = await engine.client.create(widget(api_version="example.org/v2", size=1))
        assert made["apiVersion"] == "example.org/v2" and server.asked("/convert")


async def test_a_bundle_that_is_none_is_said_to_be(engine: Embedded, server: WebhookServer, tmp_path: Path) -> None:
    config = {"url": server.url("/a"), "caBundle": base64.b64encode(b"no certificate").decode()}
    await configure(engine, server, clientConfig=config)
    with pytest.raises(InternalError, match="unable to load root certificates"):
        await engine.client.create(config_map())
