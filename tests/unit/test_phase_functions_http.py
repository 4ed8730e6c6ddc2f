"""HTTP requests of phases: what they may reach, and what comes back."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.blueprints.functions import Policy
from planform.blueprints.functions.guarded_http import AddressRefused, Guard
from tests.harness.phases import PhaseRunner


class Site:
    """A web site on loopback that remembers what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path, dict(request.headers), await request.read()))
        match request.path:
            case "/json":
                return web.json_response({"ok": True})
            case "/large":
                return web.Response(body=b"x" * 5000)
            case "/slow":
                await asyncio.sleep(30)
                return web.Response()
            case "/missing":
                return web.Response(status=404, text="nobody home")
            case "/loop":
                raise web.HTTPFound("/loop")
            case _ if "to" in request.query:
                raise web.HTTPTemporaryRedirect(request.query["to"])
        return web.Response(text="hello")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    found = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


def allowing(*addresses: str) -> PhaseRunner:
    return PhaseRunner(policy=Policy(addresses=addresses))


async def test_an_answer_gives_status_body_and_json(site: Site) -> None:
    runner = allowing("127.0.0.0/8")
    assert await runner.run("HTTPRequest", url=f"http://{site.host}/json") == {
        "status": 200,
        "body": '{"ok": true}',
        "json": {"ok": True},
    }
    await runner.run("HTTPRequest", url=f"http://{site.host}/x", method="post", body={"a": 1}, headers={"X-A": "b"})
    method, _, headers, body = site.seen[-1]
    assert (method, headers["X-A"], headers["Content-Type"], body) == ("POST", "b", "application/json", b'{"a":1}')


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.0.0.1/",
        "http://0.0.0.0/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[2002:7f00:1::]/",
        "http://[64:ff9b::a00:1]/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://172.16.3.4/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://224.0.0.1/",
        "http://localhost/",
        "http://user@127.0.0.1/",
    ],
)
async def test_private_addresses_are_refused_in_every_spelling(url: str) -> None:
    with pytest.raises(AddressRefused, match="is no public address"):
        await PhaseRunner().run("HTTPRequest", url=url)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/", "gopher://x", "//x", "http://", "x"])
async def test_only_web_addresses_are_addresses(url: str) -> None:
    with pytest.raises(AddressRefused, match=r"is no http\(s\) address"):
        await PhaseRunner().run("HTTPRequest", url=url)


async def test_public_addresses_are_open_and_names_are_pinned_to_what_was_checked() -> None:
    guard = Guard(Policy())
    assert guard.checked("https://1.1.1.1/x").host == "1.1.1.1"
    (found,) = {each["host"] for each in await Guard(Policy(addresses=("localhost:80",))).resolve("localhost", 80)} - {
        "::1"
    }
    assert found == "127.0.0.1"
    with pytest.raises(OSError, match="refused"):
        await guard.resolve("localhost", 80)
    assert guard.refusal is not None


@pytest.mark.parametrize("opened", ["127.0.0.0/8", "127.0.0.1", "HOST:PORT"])
async def test_the_operator_opens_networks_and_hosts(site: Site, opened: str) -> None:
    opened = opened.replace("HOST:PORT", site.host)
    assert (await allowing(opened).run("HTTPRequest", url=f"http://{site.host}/"))["body"] == "hello"
    with pytest.raises(AddressRefused):
        await allowing("127.0.0.2", "10.0.0.0/8", "127.0.0.1:1").run("HTTPRequest", url=f"http://{site.host}/")


async def test_redirects_are_checked_again_and_take_no_credentials_elsewhere(site: Site) -> None:
    runner = allowing(site.host, f"localhost:{site.port}")
    for target in ("http://10.0.0.1/", "http://169.254.169.254/", "file:///etc/passwd"):
        with pytest.raises(AddressRefused):
            await runner.run("HTTPRequest", url=f"http://{site.host}/?to={target}")
    headers = {"Authorization": "Bearer t", "X-Kept": "1"}
    await runner.run("HTTPRequest", url=f"http://{site.host}/?to=/there", headers=headers)
    assert site.seen[-1][2]["Authorization"] == "Bearer t"
    await runner.run("HTTPRequest", url=f"http://{site.host}/?to=http://localhost:{site.port}/there", headers=headers)
    assert "Authorization" not in site.seen[-1][2] and site.seen[-1][2]["X-Kept"] == "1"


async def test_redirects_end_and_may_be_left_alone(site: Site) -> None:
    runner = allowing(site.host)
    with pytest.raises(PhaseFailed, match="redirects more than 5 times"):
        await runner.run("HTTPRequest", url=f"http://{site.host}/loop")
    said = await runner.run(
        "HTTPRequest", url=f"http://{site.host}/loop", followRedirects="false", expectedStatus=[302]
    )
    assert said["status"] == 302


@pytest.mark.parametrize(
    ("path", "args", "complaint"),
    [
        ("large", {"maxBytes": "1000"}, "larger than 1000 bytes"),
        ("slow", {"timeout": "100ms"}, r"took longer than 0\.1 s"),
        ("missing", {}, "answered 404: nobody home"),
        ("", {"expectedStatus": "201"}, "answered 200"),
    ],
)
async def test_limits_and_expectations_fail_the_phase(
    site: Site, path: str, args: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(PhaseFailed, match=complaint) as failure:
        await allowing(site.host).run("HTTPRequest", url=f"http://u:secret@{site.host}/{path}?token=abc", **args)
    assert "secret" not in str(failure.value) and "abc" not in str(failure.value)


async def test_a_method_that_is_none_is_refused() -> None:
    with pytest.raises(ArgumentInvalid, match='method "BREW"'):
        await PhaseRunner().run("HTTPRequest", url="https://1.1.1.1", method="brew")


def test_every_reserved_network_is_closed() -> None:
    guard = Guard(Policy())
    for text in ("192.0.2.1", "198.18.0.1", "240.0.0.1", "255.255.255.255", "::", "100::1", "2001:db8::1", "ff02::1"):
        assert not guard._open("x", 80, ipaddress.ip_address(text)), text
