"""KubernetesClient against a server that misbehaves in the ways real ones do, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from planform.api.kinds import GVK, Object
from planform.client.credentials import Credentials, FixedCredentials, Identity
from planform.client.kubeconfig import Connection
from planform.client.kubernetes import KubernetesClient
from planform.client.transport import Fence
from planform.client.wire import Limits
from planform.clock import SystemClock
from planform.errors import (
    ApiError,
    BadRequest,
    Expired,
    Forbidden,
    InternalError,
    NotFound,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
)
from tests.harness.pki import write_pki

WIDGET = GVK("example.org", "v1", "Widget")
PATH = "/apis/example.org/v1/namespaces/default/widgets"

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


def widget(name: str, **metadata: Any) -> Object:
    return {
        "apiVersion": "example.org/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "default", **metadata},
    }


def status(code: int, reason: str, message: str = "no", **details: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


class InstantClock(SystemClock):
    """Waits take no time and are noted."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


class ApiServer:
    """Serves discovery of one kind; every other path is answered by the next reply, and the last one stays."""

    def __init__(self, *, short_lived: bool = False) -> None:
        self.short_lived = short_lived
        self.replies: list[Reply] = []
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.aggregated = True
        self.served = True
        self.discoveries: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/apis/broken.org/v1":
            return web.json_response(status(503, "ServiceUnavailable"), status=503)
        if request.path in ("/api", "/apis", "/apis/example.org/v1", "/api/v1"):
            self.discoveries.append(request.path)
            return self._discovery(request)
        self.requests.append(request)
        self.bodies.append(await request.read())
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return await reply(request)

    def _discovery(self, request: web.Request) -> web.Response:
        names = {"singular": "widget", "verbs": ["get", "list"], "shortNames": ["wd"], "categories": ["all"]}
        if self.aggregated and "APIGroupDiscoveryList" in request.headers["Accept"]:
            resource = {
                "resource": "widgets",
                "responseKind": {"group": "example.org", "version": "v1", "kind": "Widget"},
                "scope": "Namespaced",
                "singularResource": "widget",
                "subresources": [{"subresource": "status"}],
                **names,
            }
            versions = [{"version": "v1", "resources": [resource] if self.served else []}]
            groups = [{"metadata": {"name": "example.org"}, "versions": versions}] if request.path == "/apis" else []
            return web.json_response({"kind": "APIGroupDiscoveryList", "items": groups})
        row = {"name": "widgets", "singularName": "widget", "namespaced": True, "kind": "Widget", **names}
        rows = [row, {"name": "widgets/status", "kind": "Widget", "namespaced": True}] if self.served else []
        documents: dict[str, dict[str, Any]] = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/api/v1": {"kind": "APIResourceList", "resources": []},
            "/apis": {
                "kind": "APIGroupList",
                "groups": [
                    {"name": "example.org", "versions": [{"groupVersion": "example.org/v1", "version": "v1"}]},
                    {"name": "broken.org", "versions": [{"groupVersion": "broken.org/v1", "version": "v1"}]},
                ],
            },
            "/apis/example.org/v1": {"kind": "APIResourceList", "resources": rows},
        }
        return web.json_response(documents[request.path])


def answer(body: Any, code: int = 200, **headers: str) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=code, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return reply


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def stream(*events: Any, cut: bool = False) -> Reply:
    """Events in pieces that do not end where the lines do; `cut` breaks the connection in the middle of a line."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        text = b"".join(orjson.dumps(event) + b"\n" for event in events)
        half = len(text) // 2
        await response.write(text[:half])
        await asyncio.sleep(0.01)
        await response.write(text[half:])
        if cut:
            await response.write(b'{"type":"ADDED","obj')
            await asyncio.sleep(0.01)
            assert request.transport is not None
            request.transport.abort()
        return response

    return reply


@pytest.fixture(params=[False, True], ids=["pooled", "plain"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ApiServer]:
    """Asked through both of the client's wires."""
    yield ApiServer(short_lived=request.param)


@pytest.fixture
def clock() -> InstantClock:
    return InstantClock()


@asynccontextmanager
async def connected(
    server: ApiServer,
    clock: SystemClock,
    *,
    credentials: Credentials = FixedCredentials(Identity("Bearer t")),  # noqa: B008  (frozen)
    limits: Limits | None = None,
    tls: ssl.SSLContext | None = None,
    fence: Fence | None = None,
    **options: Any,
) -> AsyncIterator[KubernetesClient]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    http = TestServer(application, scheme="https" if tls else "http")
    await http.start_server(ssl=tls)
    try:
        connection = Connection(str(http.make_url("")).rstrip("/"), credentials, **options)
        async with KubernetesClient(
            connection, clock=clock, rng=Random(1), limits=limits, fence=fence, short_lived=server.short_lived
        ) as client:
            yield client
    finally:
        await http.close()


async def test_requests_say_who_asks_for_what(server: ApiServer, clock: InstantClock) -> None:
    server.replies = [answer(widget("a"))]
    async with connected(server, clock) as client:
        await client.get(WIDGET, "a", namespace="default")
        await client.apply(widget("a"), manager="me", force=True, dry_run=True)
        await client.update(widget("a"), subresource="status")
        await client.delete(WIDGET, "a", namespace="default", uid="u", resource_version="7")
    get, apply, update, delete = server.requests
    assert (get.path, get.headers["Authorization"], get.headers["User-Agent"]) == (f"{PATH}/a", "Bearer t", "planform")
    assert apply.content_type == "application/apply-patch+yaml"
    assert dict(apply.query) == {"fieldManager": "me", "force": "true", "dryRun": "All"}
    assert (update.path, dict(update.query)) == (f"{PATH}/a/status", {"fieldManager": "planform"})
    assert orjson.loads(server.bodies[3])["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert delete.method == "DELETE"


async def test_names_cannot_leave_their_path(server: ApiServer, clock: InstantClock) -> None:
    server.replies = [answer(widget("a"))]
    async with connected(server, clock) as client:
        await client.get(WIDGET, "a/../b?x=y", namespace="default")
        for name in ("..", ".", ""):
            with pytest.raises(BadRequest):
                await client.get(WIDGET, name, namespace="default")
    assert [request.raw_path for request in server.requests] == [f"{PATH}/a%2F..%2Fb%3Fx%3Dy"]


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (403, status(403, "Forbidden", "not you"), Forbidden),
        (404, status(404, "NotFound", name="a"), NotFound),
        (410, status(410, "Expired"), Expired),
        (500, status(500, "InternalError"), InternalError),
        (400, {"not": "a status"}, BadRequest),
        (502, {"kind": "Status"}, ApiError),
    ],
)
async def test_every_refusal_has_its_error(
    server: ApiServer, clock: InstantClock, code: int, body: Any, kind: type[ApiError]
) -> None:
    server.replies = [answer(body, code)]
    async with connected(server, clock) as client:
        with pytest.raises(kind) as caught:
            await client.get(WIDGET, "a", namespace="default")
    assert type(caught.value) is kind
    assert caught.value.code == code


async def test_an_answer_that_is_not_an_api_servers_is_quoted(server: ApiServer, clock: InstantClock) -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found")

    async def html(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>")

    server.replies = [page, html]
    async with connected(server, clock) as client:
        with pytest.raises(NotFound, match=r"GET .*/widgets/a: HTTP 404: 404 page not found"):
            await client.get(WIDGET, "a", namespace="default")
        with pytest.raises(InternalError, match="is not JSON"):
            await client.get(WIDGET, "a", namespace="default")


async def test_a_busy_server_is_asked_again_when_it_says_so(server: ApiServer, clock: InstantClock) -> None:
    busy = answer(status(429, "TooManyRequests"), 429, Retry_After="3")
    server.replies = [busy, busy, answer(widget("a"))]
    async with connected(server, clock) as client:
        assert (await client.create(widget("a")))["metadata"]["name"] == "a"
        assert clock.waits == [3, 3]
        server.replies = [busy]
        with pytest.raises(TooManyRequests):
            await client.create(widget("a"))
        assert len(server.requests) == 3 + 6
        server.replies = [answer(status(503, "ServiceUnavailable"), 503)]
        with pytest.raises(ServiceUnavailable):  # no Retry-After: nobody asked us to try again
            await client.create(widget("a"))


async def test_a_warning_is_logged_once(
    server: ApiServer, clock: InstantClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="planform.client.transport")  # commands make it quieter
    server.replies = [answer(widget("a"), Warning='299 - "unknown field \\"spec.x\\""')]
    async with connected(server, clock) as client:
        await client.create(widget("a"))
        await client.create(widget("a"))
    assert [record.getMessage() for record in caplog.records] == ['the server warns: unknown field "spec.x"']


async def test_a_broken_connection_is_tried_again_only_where_that_is_safe(
    server: ApiServer, clock: InstantClock
) -> None:
    async with connected(server, clock) as client:
        await client.kind(WIDGET)
        server.replies = [reset, reset, answer(widget("a"))]
        assert (await client.get(WIDGET, "a", namespace="default"))["metadata"]["name"] == "a"
        server.replies = [reset, answer(widget("a"))]
        await client.apply(widget("a"), manager="m")
        server.requests.clear()
        server.replies = [reset, answer(widget("a"))]
        with pytest.raises(ServiceUnavailable, match=r"cannot reach http://127\.0\.0\.1"):
            await client.create(widget("a"))
        assert len(server.requests) == 1


async def test_a_server_that_does_not_answer_is_given_up(server: ApiServer) -> None:
    release = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    server.replies = [silent]
    async with connected(server, SystemClock(), limits=Limits(request_seconds=0.1)) as client:
        await client.kind(WIDGET)
        with pytest.raises(Timeout, match=r"no answer from .* within 0\.1 s"):
            await client.get(WIDGET, "a", namespace="default")
        release.set()


@pytest.mark.parametrize("short_lived", [False, True], ids=["pooled", "plain"])
async def test_a_server_that_is_not_there_is_named(clock: InstantClock, short_lived: bool) -> None:
    connection = Connection("http://127.0.0.1:9", FixedCredentials(Identity()))
    async with KubernetesClient(connection, clock=clock, rng=Random(1), short_lived=short_lived) as client:
        with pytest.raises(ServiceUnavailable, match=r"cannot reach http://127\.0\.0\.1:9"):
            await client.kind(WIDGET)
    with pytest.raises(ServiceUnavailable, match="closed"):
        await client.kind(WIDGET)


class Rotating:
    """Credentials of which the first is stale."""

    def __init__(self) -> None:
        self.number = 1

    async def current(self) -> Identity:
        return Identity(f"Bearer {self.number}")

    async def renew(self) -> Identity | None:
        self.number += 1
        return await self.current()


async def test_a_refused_token_is_renewed_once(server: ApiServer, clock: InstantClock) -> None:
    async def checked(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] != "Bearer 2":
            return web.json_response(status(401, "Unauthorized", "Unauthorized"), status=401)
        if "watch" in request.query:
            return await stream({"type": "ADDED", "object": widget("a")})(request)
        return web.json_response(widget("a"))

    server.replies = [checked]
    rotating = Rotating()
    async with connected(server, clock, credentials=rotating) as client:
        await client.get(WIDGET, "a", namespace="default")
        assert rotating.number == 2
        rotating.number = 1
        async with client.watch(WIDGET) as events:
            assert (await anext(events)).type == "ADDED"
        rotating.number = 5
        with pytest.raises(Unauthorized):
            await client.get(WIDGET, "a", namespace="default")
        assert rotating.number == 6


async def test_a_watch_yields_whole_events_and_ends_quietly_when_cut(server: ApiServer, clock: InstantClock) -> None:
    big = widget("big", annotations={"x": "y" * 300_000})
    server.replies = [stream({"type": "ADDED", "object": widget("a")}, {"type": "MODIFIED", "object": big}, cut=True)]
    async with connected(server, clock) as client, client.watch(WIDGET, resource_version="5", bookmarks=True) as events:
        seen = [(event.type, event.object["metadata"]["name"]) async for event in events]
    assert seen == [("ADDED", "a"), ("MODIFIED", "big")]
    query = server.requests[0].query
    assert (query["watch"], query["resourceVersion"], query["allowWatchBookmarks"]) == ("true", "5", "true")
    assert 300 <= int(query["timeoutSeconds"]) <= 600


async def test_an_error_inside_a_watch_is_raised(server: ApiServer, clock: InstantClock) -> None:
    old = status(410, "Expired", "too old resource version: 5 (584)")
    server.replies = [
        stream({"type": "ADDED", "object": widget("a")}, {"type": "ERROR", "object": old}),
        stream({"type": "ERROR", "object": status(410, "Gone")}),
        stream({"neither": "nor"}),
        answer(status(403, "Forbidden"), 403),
    ]
    async with connected(server, clock) as client:
        async with client.watch(WIDGET) as events:
            assert (await anext(events)).object["metadata"]["name"] == "a"
            with pytest.raises(Expired, match="too old resource version"):
                await anext(events)
        with pytest.raises(Expired):
            async with client.watch(WIDGET) as events:
                await anext(events)
        with pytest.raises(InternalError, match="not a watch event"):
            async with client.watch(WIDGET) as events:
                await anext(events)
        with pytest.raises(Forbidden):
            async with client.watch(WIDGET):
                pass


async def test_leaving_a_watch_closes_its_connection(server: ApiServer, clock: InstantClock) -> None:
    closed = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(orjson.dumps({"type": "ADDED", "object": widget("a")}) + b"\n")
        try:
            while True:
                await asyncio.sleep(0.01)
                await response.write(b"\n")
        finally:
            closed.set()

    server.replies = [endless]
    async with connected(server, clock) as client:
        async with client.watch(WIDGET) as events:
            await anext(events)
        async with asyncio.timeout(5):
            await closed.wait()


@pytest.mark.parametrize("aggregated", [True, False], ids=["aggregated", "one list per version"])
async def test_kinds_are_discovered(server: ApiServer, clock: InstantClock, aggregated: bool) -> None:
    server.aggregated = aggregated
    async with connected(server, clock) as client:
        kind = await client.kind(WIDGET)
        assert [found.resource for found in await client.kinds()] == ["widgets.example.org"]
    assert (kind.plural, kind.namespaced, kind.singular, kind.list_kind) == ("widgets", True, "widget", "WidgetList")
    assert (kind.short_names, kind.categories, kind.subresources) == (("wd",), ("all",), ("status",))


async def test_an_unknown_kind_is_looked_for_in_its_own_version_only(server: ApiServer, clock: InstantClock) -> None:
    server.served = False
    async with connected(server, clock) as client:
        with pytest.raises(NotFound, match='no matches for kind "Widget"'):
            await client.kind(WIDGET)
        server.discoveries.clear()
        server.served = True
        await client.kind(WIDGET)
        assert server.discoveries == ["/apis/example.org/v1"]
        await client.kind(WIDGET)
        assert len(server.discoveries) == 1


async def test_a_path_that_is_gone_makes_its_kind_unknown(server: ApiServer, clock: InstantClock) -> None:
    async with connected(server, clock) as client:
        await client.kind(WIDGET)
        server.replies = [answer(status(404, "NotFound", "the server could not find the requested resource"), 404)]
        with pytest.raises(NotFound):
            await client.list(WIDGET)
        server.discoveries.clear()
        await client.kind(WIDGET)
        assert server.discoveries == ["/apis/example.org/v1"]


async def test_an_object_that_is_not_json_is_refused_before_it_is_sent(server: ApiServer, clock: InstantClock) -> None:
    server.replies = [answer({})]
    async with connected(server, clock) as client:
        with pytest.raises(BadRequest, match="not JSON"):
            await client.create(widget("a") | {"spec": {1, 2}})
    assert not server.requests


async def test_a_servers_certificate_is_checked_against_the_given_authority(
    server: ApiServer, clock: InstantClock, tmp_path: Path
) -> None:
    write_pki(tmp_path / "pki")
    write_pki(tmp_path / "other")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "pki/server.crt", tmp_path / "pki/server.key")
    ca, foreign = (tmp_path / "pki/ca.crt").read_bytes(), (tmp_path / "other/ca.crt").read_bytes()
    async with connected(server, clock, tls=tls, ca=ca) as client:
        await client.kind(WIDGET)
    async with connected(server, clock, tls=tls, insecure=True) as client:
        await client.kind(WIDGET)
    async with connected(server, clock, tls=tls, ca=foreign) as client:
        with pytest.raises(ServiceUnavailable, match=r"(?i)certificate") as caught:
            await client.kind(WIDGET)
    assert "certificate authority" in str(caught.value.hint)
    async with connected(server, clock, tls=tls, ca=ca, tls_server_name="elsewhere.example.org") as client:
        with pytest.raises(ServiceUnavailable, match=r"(?i)certificate"):
            await client.kind(WIDGET)
    async with connected(server, clock, tls=tls, ca=b"no pem") as client:
        with pytest.raises(Unauthorized, match="not PEM"):
            await client.kind(WIDGET)


async def test_a_client_presents_its_certificate_and_a_new_one_on_new_connections(
    server: ApiServer, clock: InstantClock, tmp_path: Path
) -> None:
    serials = []

    async def who(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        serials.append(request.transport.get_extra_info("peercert")["serialNumber"])
        return web.json_response(widget("a"))

    for name in ("pki", "next"):
        write_pki(tmp_path / name)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "pki/server.crt", tmp_path / "pki/server.key")
    for name in ("pki", "next"):
        tls.load_verify_locations(tmp_path / name / "ca.crt")
    tls.verify_mode = ssl.CERT_REQUIRED

    class Rotated:
        name = "pki"

        async def current(self) -> Identity:
            directory = tmp_path / self.name
            return Identity("", (directory / "ca.crt").read_bytes(), (directory / "ca.key").read_bytes())

        async def renew(self) -> Identity | None:
            return None

    server.replies = [who]
    credentials = Rotated()
    ca = (tmp_path / "pki/ca.crt").read_bytes()
    async with connected(server, clock, tls=tls, ca=ca, credentials=credentials) as client:
        await client.get(WIDGET, "a", namespace="default")
        await client.get(WIDGET, "a", namespace="default")
        credentials.name = "next"
        await client.get(WIDGET, "a", namespace="default")
    assert serials[0] == serials[1] != serials[2]


async def test_a_client_with_a_rate_limit_keeps_it(server: ApiServer, clock: InstantClock) -> None:
    server.replies = [answer(widget("a"))]
    async with connected(server, clock, limits=Limits(per_second=1, burst=2)) as client:
        await client.kind(WIDGET)  # two requests: the burst
        await client.get(WIDGET, "a", namespace="default")
    assert [round(wait) for wait in clock.waits] == [1]


async def test_a_fence_keeps_writes_from_being_sent_and_lets_reads_through(server: ApiServer) -> None:
    def lost() -> None:
        raise ServiceUnavailable("not ours any more")

    server.replies = [answer(widget("a")), answer(widget("a"))]
    async with connected(server, SystemClock(), fence=lost) as client:
        assert (await client.get(WIDGET, "a", namespace="default"))["metadata"]["name"] == "a"
        sent = len(server.requests)
        for write in (
            client.create(widget("a")),
            client.update(widget("a")),
            client.apply(widget("a"), manager="m"),
            client.delete(WIDGET, "a", namespace="default"),
        ):
            with pytest.raises(ServiceUnavailable, match="not ours"):
                await write
    assert len(server.requests) == sent


def test_importing_the_client_package_loads_no_http_library() -> None:
    code = "import sys, planform.client, planform.client.informer, planform.client.recent; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiohttp", "yaml", "msgspec"} & set(loaded)
