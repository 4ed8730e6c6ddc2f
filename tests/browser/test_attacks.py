"""Attacks on the dashboard from other sites, other users and hostile objects: each is refused."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser import platform
from tests.browser.looking import Site
from tests.browser.served import start

pytestmark = [pytest.mark.programs, pytest.mark.xdist_group("browser")]


def ask(
    site: Site, path: str, method: str = "GET", body: Any = None, *, cookie: bool | str = True, **headers: str
) -> tuple[int, bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if isinstance(cookie, str):
        sent["cookie"] = cookie
    elif cookie:
        sent.setdefault("cookie", "; ".join(f"{each['name']}={each['value']}" for each in site.cookies))
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        sent.setdefault("content-type", "application/json")
    url = site.served.base.removesuffix("/ui/") + path
    asked = urllib.request.Request(url, data=data, headers=sent, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def csrf(site: Site) -> str:
    return str(json.loads(ask(site, "/ui/api/v1/session")[1])["csrf"])


def act(site: Site) -> dict[str, str]:
    kind = f"Database.{platform.GROUP}"
    return {"action": "reconcile", "kind": kind, "namespace": "team-a", "name": "orders", "confirm": "orders"}


def test_attacks_by_requests_without_the_token_change_nothing(site: Site) -> None:
    origin = site.served.base.removesuffix("/ui/")
    assert ask(site, "/ui/api/v1/actions", "POST", act(site), origin=origin)[0] == 403
    assert ask(site, "/ui/api/v1/actions", "POST", act(site), origin=origin, x_planform_csrf="guess")[0] == 403
    token = csrf(site)
    assert (
        ask(site, "/ui/api/v1/actions", "POST", act(site), x_planform_csrf=token, origin="https://evil.example")[0]
        == 403
    )
    assert ask(site, "/ui/api/v1/actions", "POST", act(site), x_planform_csrf=token)[0] == 403, "no origin"
    assert ask(site, "/ui/api/v1/actions", "POST", act(site), origin=origin, x_planform_csrf=token)[0] == 200


def test_attacks_by_dns_rebinding_get_nothing(site: Site) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.nip.io", "localhost"):
        assert ask(site, "/ui/api/v1/overview", host=host)[0] == 403


def test_attacks_by_frames_and_other_sites_are_forbidden(site: Site) -> None:
    url = site.served.base
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in answer.headers
    assert ask(site, "/ui/api/v1/overview", sec_fetch_site="cross-site", sec_fetch_mode="cors")[0] == 403


def test_attacks_with_a_code_that_was_used_get_no_cookie(site: Site) -> None:
    code = site.served.login.partition("#code=")[2]
    status, body = ask(site, "/ui/api/v1/session", "POST", {"code": code}, cookie=False)
    assert status == 401
    assert b"used already" in body
    assert ask(site, "/ui/api/v1/overview", cookie=False)[0] == 401
    assert ask(site, "/ui/api/v1/overview", cookie="planform-1=guess")[0] == 401


def test_attacks_by_paths_reach_no_file(site: Site) -> None:
    for path in (
        "/ui/../../../etc/passwd",
        "/ui/assets/..%2f..%2f..%2fetc/passwd",
        "/ui/%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
    ):
        _, body = ask(site, path)
        assert b"root:" not in body


def test_attacks_by_smuggling_are_refused(site: Site) -> None:
    port = int(re.findall(r":(\d+)/", site.served.base)[0])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as wire:
        wire.sendall(
            f"POST /ui/api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 4\r\n"
            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /ui/api/v1/overview HTTP/1.1\r\n\r\n".encode()
        )
        answer = wire.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400")


def test_attacks_by_many_streams_are_bounded(site: Site) -> None:
    port = int(re.findall(r":(\d+)/", site.served.base)[0])
    cookie = "; ".join(f"{each['name']}={each['value']}" for each in site.cookies)
    head = f"GET /ui/api/v1/stream?topics=xrs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n"
    wires, codes = [], []
    for _ in range(20):
        wire = socket.create_connection(("127.0.0.1", port), timeout=10)
        wire.sendall(head.encode())
        codes.append(wire.recv(64).split()[1])
        wires.append(wire)
    for wire in wires:
        wire.close()
    assert b"200" in codes
    assert b"429" in codes


def test_attacks_by_names_labels_and_messages_run_no_script(site: Site) -> None:
    page = site.page()
    page.evaluate("window.hacked = 0")
    for path in ("", f"xr/Database.{platform.GROUP}/team-c/hostile", "?q=%3Cscript%3Ewindow.hacked%3D1%3C/script%3E"):
        page.goto(site.served.base + path)
        expect(page.locator("h1")).to_be_visible()
        page.wait_for_timeout(300)
        assert not page.evaluate("window.hacked")
        assert page.locator("main script, main iframe, main img").count() == 0
    page.context.close()


def test_attacks_policy_refuses_inline_scripts(site: Site) -> None:
    before = len(site.problems)
    page = site.page()
    page.wait_for_selector("h1")
    page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s)"
    )
    assert not page.evaluate("window.hacked")
    assert any("Content Security Policy" in problem for problem in site.problems[before:])
    del site.problems[before:]
    page.context.close()


def test_attacks_cookie_is_out_of_reach_for_scripts_and_other_sites(site: Site) -> None:
    [cookie] = [each for each in site.cookies if each["name"].startswith("planform-")]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert cookie["path"] == "/ui/"
    page = site.page()
    assert page.evaluate("document.cookie") == ""
    page.wait_for_selector("h1")
    assert page.evaluate("Object.keys(localStorage).length + Object.keys(sessionStorage).length") == 0
    page.context.close()


def test_attacks_read_only_refuses_every_action(site: Site) -> None:
    async def look() -> tuple[Any, str]:
        return await start(
            ["dashboard", "--no-browser", "--read-only", "--kubeconfig", str(site.served.kubeconfig)], "#code="
        )

    program, login = site.run(look())
    try:
        context = site.context(logged_in=False)
        page = context.new_page()
        page.goto(login)
        page.wait_for_selector(".xr[role=option]")
        base = login.partition("#")[0]
        page.goto(base + f"xr/Database.{platform.GROUP}/team-a/orders")
        button = page.locator("[data-action=pause]")
        expect(button).to_have_attribute("aria-disabled", "true")
        expect(button).to_have_attribute("title", re.compile("--read-only"))
        script = """async (asked) => {
          const csrf = (await (await fetch('/ui/api/v1/session')).json()).csrf;
          const headers = {'content-type': 'application/json', 'x-planform-csrf': csrf};
          return (await fetch('/ui/api/v1/actions', {method: 'POST', headers, body: JSON.stringify(asked)})).status;
        }"""
        assert page.evaluate(script, act(site)) == 403
        context.close()
    finally:
        program.stop()


def test_secrets_are_in_no_answer_and_no_stream(site: Site) -> None:
    async def stream() -> bytes:
        port = int(re.findall(r":(\d+)/", site.served.base)[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        cookie = "; ".join(f"{each['name']}={each['value']}" for each in site.cookies)
        topics = "xrs,compositions,functions,rollouts,revisions,definitions"
        target = f"/ui/api/v1/stream?topics={topics}&lastEventId=x.1"
        head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
        found = b""
        try:
            async with asyncio.timeout(3):
                while chunk := await reader.read(65536):
                    found += chunk
        except TimeoutError:
            pass
        writer.close()
        return found

    sent = site.run(stream())
    assert b"event: reload" in sent, "an unknown id means: ask for everything again"
    for path in ("overview", "xrs?limit=500", "compositions", "functions", "operations", "control-plane", "policies"):
        status, body = ask(site, f"/ui/api/v1/{path}")
        assert status == 200, body
        sent += body
    for name in ("orders", "users", "hostile"):
        for namespace in ("team-a", "team-b", "team-c"):
            sent += ask(site, f"/ui/api/v1/xrs/Database.{platform.GROUP}/{namespace}/{name}")[1]
    assert platform.CANARY.encode() not in sent
