"""A session of the dashboard below `planform up` ends with the certificate or token that it was opened with."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.apiserver.auth.pki import Pki
from planform.app import ControlPlane, Settings, open_control_plane
from planform.cli.control_plane.up import serving_dashboard
from planform.clock import SystemClock
from planform.errors import NotFound
from planform.web import rights
from planform.web.page import Page

WITHIN = 3.0
BINDING = GroupVersionKind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding")
WIDGET = {"apiVersion": "example.org/v1", "kind": "Widget", "spec": {}}
ACCOUNT = GroupVersionKind("", "v1", "ServiceAccount")
TOKENS = "static-token,carol,u3\nother-token,dave,u4\n"


@dataclass
class Visitor:
    """A browser, as far as this needs one: a cookie, and its own origin."""

    port: int
    trust: ssl.SSLContext
    cookie: str = ""
    csrf: str = ""

    async def send(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("localhost", self.port, ssl=self.trust)
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} /ui/api/v1/{path} HTTP/1.1", f"host: localhost:{self.port}"]
        lines += [f"origin: https://localhost:{self.port}", f"content-length: {len(content)}"]
        lines += ["content-type: application/json", f"cookie: {self.cookie}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        return int(head.split()[1]), {name.lower(): value for name, value in fields.items()}, reader, writer

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        status, fields, reader, writer = await self.send(method, path, body, **headers)
        answer = json.loads(await reader.readexactly(int(fields["content-length"])))
        writer.close()
        if given := fields.get("set-cookie"):
            self.cookie = given.partition(";")[0]
        return status, answer

    async def stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        status, _, reader, writer = await self.send("GET", "stream?topics=xrs")
        assert status == 200
        await reader.readuntil(b"event: live")
        return reader, writer


async def ends(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    async with asyncio.timeout(WITHIN):
        assert b"event: ended" in await stream[0].read()
    stream[1].close()


async def refused(visitor: Visitor) -> None:
    status, answer = await visitor.ask("GET", "session")
    assert status == 401, answer


@dataclass
class Served:
    plane: ControlPlane
    pki: Pki
    directory: Path

    def visitor(self, credential: Any = None) -> Visitor:
        trust = ssl.create_default_context(cadata=self.pki.authority_pem)
        if credential is not None:
            (self.directory / "client.pem").write_text(credential.key + credential.certificate)
            trust.load_cert_chain(self.directory / "client.pem")
        return Visitor(int(self.plane.url.rpartition(":")[2]), trust)

    async def by_link(self, user: str, lifetime: timedelta = timedelta(hours=1)) -> Visitor:
        status, link = await self.visitor(self.pki.issue_client(user, (), lifetime)).ask("POST", "links", {})
        assert status == 200, link
        return await self.opened({"code": link["code"]})

    async def by_token(self, token: str) -> Visitor:
        return await self.opened({"token": token})

    async def opened(self, login: object) -> Visitor:
        browser = self.visitor()  # another program, without the certificate
        status, session = await browser.ask("POST", "session", login)
        assert status == 200, session
        browser.csrf = session["csrf"]
        return browser


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    (tmp_path / "index.html").write_text("<title>planform</title>")
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(TOKENS)
    settings = Settings(data=tmp_path / "data", token_file=tokens)
    async with open_control_plane(settings) as plane, serving_dashboard(plane, settings, Page(tmp_path)):
        yield Served(plane, Pki(tmp_path / "data" / "pki", clock=SystemClock()), tmp_path)


async def test_session_of_a_link_ends_when_its_certificate_is_revoked(served: Served) -> None:
    alice, bob = await served.by_link("alice"), await served.by_link("bob")
    stream, other = await alice.stream(), await bob.stream()
    code = (await served.visitor(served.pki.issue_client("alice", (), timedelta(hours=1))).ask("POST", "links", {}))[1]
    served.pki.revoke(user="alice")
    await ends(stream)
    await refused(alice)
    acted = {"action": "pause", "kind": "A.example.org", "name": "a", "confirm": "a"}
    status, _ = await alice.ask("POST", "actions", acted, **{"x-planform-csrf": alice.csrf})
    assert status == 401
    status, _ = await served.visitor().ask("POST", "session", code)
    assert status == 401, "a link that was made before the revocation opens nothing after it"
    assert (await bob.ask("GET", "session"))[0] == 200
    assert not other[0].at_eof()
    other[1].close()


async def test_session_of_a_certificate_that_expires_ends_with_it(served: Served) -> None:
    alice = await served.by_link("alice", timedelta(seconds=3))
    stream = await alice.stream()
    async with asyncio.timeout(3 + WITHIN):
        assert b"event: ended" in await stream[0].read()
    await refused(alice)


async def test_session_of_a_token_that_leaves_the_file_ends(served: Served) -> None:
    carol, dave = await served.by_token("static-token"), await served.by_token("other-token")
    stream = await carol.stream()
    (served.directory / "tokens.csv").write_text(TOKENS.splitlines()[1] + "\n")
    await ends(stream)
    await refused(carol)
    assert (await dave.ask("GET", "session"))[0] == 200


async def test_session_of_a_token_that_means_somebody_else_now_ends(served: Served) -> None:
    carol = await served.by_token("static-token")
    stream = await carol.stream()
    (served.directory / "tokens.csv").write_text('static-token,carol,u3,"system:masters"\n')
    await ends(stream)
    await refused(carol)


async def test_session_of_a_service_account_ends_when_that_is_deleted(served: Served) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "default"}}
    await served.plane.client.create(account)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    root = served.visitor(served.pki.issue_client("root", ("system:masters",), timedelta(hours=1)))
    token = await token_at(root, "api/v1/namespaces/default/serviceaccounts/robot/token", asked)
    robot = await served.by_token(token)
    stream = await robot.stream()
    await served.plane.client.delete(ACCOUNT, "robot", namespace="default")
    await ends(stream)
    await refused(robot)


async def token_at(root: Visitor, path: str, asked: object) -> str:
    reader, writer = await asyncio.open_connection("localhost", root.port, ssl=root.trust)
    body = json.dumps(asked).encode()
    head = f"POST /{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(answer.partition("content-length: ")[2].partition("\r\n")[0])
    found = json.loads(await reader.readexactly(length))
    writer.close()
    return str(found["status"]["token"])


def grant(user: str, role: str) -> Object:
    return {
        "apiVersion": BINDING.api_version,
        "kind": BINDING.kind,
        "metadata": {"name": role},
        "roleRef": {"apiGroup": BINDING.group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": BINDING.group}],
    }


def xrd(kind: str, plural: str, group: str) -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    spec = {
        "group": group,
        "names": {"kind": kind, "plural": plural},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "referenceable": True, "schema": schema}],
    }
    return {
        "apiVersion": "apiextensions.crossplane.io/v2",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": spec,
    }


def role(name: str, group: str) -> Object:
    rules = [{"apiGroups": [group], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    return {"apiVersion": BINDING.api_version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


async def until_total(visitor: Visitor, wanted: int) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            status, overview = await visitor.ask("GET", "overview")
            assert status == 200, overview
            if overview["total"] == wanted:
                return dict(overview)
            await asyncio.sleep(0.1)


async def test_rows_go_with_the_grant_to_see_them_and_come_back_with_it(served: Served) -> None:
    client = served.plane.client
    await client.create(xrd("Widget", "widgets", "example.org"))
    for obj in (role("xrs", "example.org"), role("xrds", "apiextensions.crossplane.io")):
        await client.create(obj)
    for name in ("xrs", "xrds"):
        await client.create(grant("alice", name))
    async with asyncio.timeout(20):
        while True:
            try:
                await client.create({**WIDGET, "metadata": {"name": "secret-project", "namespace": "default"}})
                break
            except NotFound:
                await asyncio.sleep(0.1)
    alice = await served.by_link("alice")
    await until_total(alice, 1)
    reader, writer = await alice.stream()
    started = asyncio.get_running_loop().time()
    await client.delete(BINDING, "xrs")
    async with asyncio.timeout(20):
        told = await reader.readuntil(b'"gone":true')
    assert b"secret-project" in told
    assert asyncio.get_running_loop().time() - started < 10, "within seconds, not when the watch ends"
    overview = await until_total(alice, 0)
    assert any(each["what"] == "Widget" for each in overview["problems"]), "what is missing is said"
    assert (await alice.ask("GET", "xrs"))[1]["rows"] == []
    await client.create(grant("alice", "xrs"))
    await until_total(alice, 1)
    await client.delete(BINDING, "xrds")
    async with asyncio.timeout(20):
        while not any(each["what"] == "CompositeResourceDefinition" for each in overview["problems"]):
            overview = await until_total(alice, 1)
            await asyncio.sleep(0.1)
    assert [each["kind"] for each in overview["kinds"]] == ["Widget"], "discovery still tells of the kind"
    writer.close()


RULES: list[dict[str, Any]] = [
    {"verbs": ["get", "list"], "apiGroups": ["a.example.org"], "resources": ["as"]},
    {"verbs": ["*"], "apiGroups": ["b.example.org"], "resources": ["*"]},
    {"verbs": ["list"], "apiGroups": ["c.example.org"], "resources": ["cs"], "resourceNames": ["one"]},
    {"verbs": ["get"], "apiGroups": ["*"], "resources": ["ds"]},
]


@pytest.mark.parametrize(
    ("group", "resource", "covered"),
    [("a.example.org", "as", True), ("a.example.org", "other", False), ("b.example.org", "bs", True),
     ("c.example.org", "cs", False), ("d.example.org", "ds", False)],
    ids=["named", "another resource", "wildcards", "one object only", "another verb"],
)  # fmt: skip
def test_rules_cover_a_kind_only_if_all_of_it_may_be_listed(group: str, resource: str, covered: bool) -> None:
    assert rights.covers(RULES, group, resource) is covered
