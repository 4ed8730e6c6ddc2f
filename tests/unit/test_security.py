"""The security of the embedded server as a client meets it: real TLS, the whole chain from handshake to audit log."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from planform.api.kinds import Object
from planform.apiserver.admission.escalation import EscalationCheck
from planform.apiserver.auth.audit import AuditLog
from planform.apiserver.auth.authentication import Authentication
from planform.apiserver.auth.bootstrap import ensure_bootstrap
from planform.apiserver.auth.pki import ClientCredential, Pki
from planform.apiserver.auth.rbac import GROUP, Rbac
from planform.apiserver.auth.reviews import Reviews
from planform.apiserver.auth.tokens import ServiceAccountTokens
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.apiserver.wire.handler import Handler, refusal
from planform.apiserver.wire.http import HttpServer
from planform.apiserver.wire.nonresource import NonResourceEndpoints
from planform.clock import SystemClock
from planform.store import open_store

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@dataclass
class Answer:
    status: int
    body: Any


class Connection:
    """One keep-alive connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, method: str, path: str, body: Object | None = None, **headers: str) -> Answer:
        content = b"" if body is None else orjson.dumps(body)
        lines = [f"{method} {path} HTTP/1.1", "host: localhost", f"content-length: {len(content)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        if "content-length" in fields:
            answer = await self._reader.readexactly(int(fields["content-length"]))
        else:
            answer = await self._chunks()
        parsed = orjson.loads(answer) if answer.startswith(b"{") else answer.decode()
        return Answer(int(head.split()[1]), parsed)

    async def _chunks(self) -> bytes:
        parts = []
        while size := int(await self._reader.readline(), 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readline()
        return b"".join(parts)

    def close(self) -> None:
        self._writer.close()


@dataclass
class ServedPlane:
    port: int
    pki: Pki
    client: LocalClient
    audit: AuditLog
    directory: Path
    server: HttpServer

    async def connect(self, credential: ClientCredential | None = None) -> Connection:
        context = ssl.create_default_context(cadata=self.pki.authority_pem)
        if credential is not None:
            self.save("client.pem", credential.key + credential.certificate)
            context.load_cert_chain(self.directory / "client.pem")
        return Connection(*await asyncio.open_connection("localhost", self.port, ssl=context))

    async def connect_as(self, user: str, *groups: str) -> Connection:
        return await self.connect(self.pki.issue_client(user, groups, timedelta(hours=1)))

    async def grant(self, user: str, role: str, namespace: str = "default") -> None:
        await self.client.create(binding(f"{user}-{role}", role, user, namespace))

    def save(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)


def binding(name: str, role: str, user: str, namespace: str) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": GROUP}],
    }


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ServedPlane]:
    async with secure_plane(tmp_path) as plane:
        yield plane


@asynccontextmanager
async def secure_plane(tmp_path: Path) -> AsyncIterator[ServedPlane]:
    """A server with TLS, RBAC and an audit log over a store in memory."""
    clock = SystemClock()
    pki = Pki(tmp_path / "pki", clock=clock)
    async with (
        await open_store(None, clock=clock) as store,
        AuditLog(tmp_path / "audit" / "audit.log", clock=clock) as audit,
    ):
        rbac = Rbac(store)
        core = open_engine(store, clock, admission=[EscalationCheck(rbac, store)])
        client = LocalClient(core)
        await ensure_bootstrap(client)
        tokens = ServiceAccountTokens(store, tmp_path / "pki", clock=clock)
        (tmp_path / "tokens.csv").write_text("static-token,carol,u3\n")
        authentication = Authentication(
            clock=clock, authorizer=rbac, tokens=tokens, pki=pki, token_file=tmp_path / "tokens.csv"
        )
        reviews = Reviews(clock=clock, rbac=rbac, authentication=authentication, tokens=tokens)
        documents = NonResourceEndpoints(core, address=lambda: "127.0.0.1", metrics=lambda _: "")
        handler = Handler(
            core, documents, authenticator=authentication, authorizer=rbac, virtual=reviews, observers=(audit,)
        )
        server = HttpServer(handler.handle, refusal, tls=pki.tls_context())
        port = await server.start("127.0.0.1", 0)
        try:
            yield ServedPlane(port, pki, client, audit, tmp_path, server)
        finally:
            await server.stop(grace=0.1)


async def test_strangers_see_health_and_version_and_nothing_else(plane: ServedPlane) -> None:
    connection = await plane.connect()
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert (await connection.ask("GET", path)).status == 200, path
        assert (await connection.ask("GET", path, authorization="Bearer wrong")).status == 401, path
    for path in ("/", "/api", "/apis", "/openapi/v3", "/metrics", CONFIGMAPS):
        answer = await connection.ask("GET", path)
        assert answer.status == 403, path
        assert 'User "system:anonymous" cannot' in answer.body["message"]
    connection.close()


async def test_a_kubeconfigs_user_does_what_rbac_lets_them_until_it_is_revoked(plane: ServedPlane) -> None:
    alice = await plane.connect_as("alice", "dev")
    assert (await alice.ask("GET", "/apis")).status == 200
    answer = await alice.ask("GET", CONFIGMAPS)
    assert (answer.status, answer.body["message"]) == (
        403,
        'configmaps is forbidden: User "alice" cannot list resource "configmaps" in API group "" '
        'in the namespace "default"',
    )
    await plane.grant("alice", "view")
    assert (await alice.ask("GET", CONFIGMAPS)).status == 200
    assert (await alice.ask("POST", CONFIGMAPS, {"metadata": {"name": "c"}})).status == 403
    plane.pki.revoke(user="alice")
    answer = await alice.ask("GET", CONFIGMAPS)
    assert (answer.status, answer.body["message"]) == (401, "Unauthorized")
    alice.close()


async def test_the_first_kubeconfig_may_do_everything(plane: ServedPlane) -> None:
    admin = await plane.connect(plane.pki.kept_client("admin", "admin", ["system:masters"]))
    assert (await admin.ask("POST", CONFIGMAPS, {"metadata": {"name": "c"}})).status == 201
    assert (await admin.ask("GET", "/metrics")).status == 200
    admin.close()


async def test_a_service_account_works_with_the_token_it_was_given(plane: ServedPlane) -> None:
    admin = await plane.connect_as("root", "system:masters")
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert (await admin.ask("POST", accounts, {"metadata": {"name": "robot"}})).status == 201
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    issued = await admin.ask("POST", f"{accounts}/robot/token", request)
    assert issued.status == 201
    bearer = {"authorization": f"Bearer {issued.body['status']['token']}"}
    assert (await admin.ask("POST", f"{accounts}/ghost/token", request)).status == 404
    await plane.grant("system:serviceaccount:default:robot", "edit")

    robot = await plane.connect()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await robot.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, **bearer)
    assert answer.body["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"
    assert (await robot.ask("POST", CONFIGMAPS, {"metadata": {"name": "c"}}, **bearer)).status == 201
    assert (await admin.ask("DELETE", f"{accounts}/robot")).status == 200
    assert (await robot.ask("GET", CONFIGMAPS, None, **bearer)).status == 401
    robot.close()
    admin.close()


async def test_an_admin_of_a_namespace_grants_what_they_hold_and_no_more(plane: ServedPlane) -> None:
    await plane.grant("alice", "admin")
    alice = await plane.connect_as("alice")
    bindings = f"/apis/{GROUP}/v1/namespaces/default/rolebindings"
    assert (await alice.ask("POST", bindings, binding("ok", "edit", "bob", "default"))).status == 201
    answer = await alice.ask("POST", bindings, binding("no", "cluster-admin", "bob", "default"))
    assert answer.status == 403
    assert "attempting to grant RBAC permissions not currently held" in answer.body["message"]
    patch = {"subjects": [{"kind": "User", "name": "eve", "apiGroup": GROUP}]}
    kind = "application/merge-patch+json"
    assert (await alice.ask("PATCH", f"{bindings}/ok", patch, content_type=kind)).status == 200
    alice.close()


async def test_names_in_rules_reach_lists_and_watches_by_name(plane: ServedPlane) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["get", "list"]}
    role = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": "mine"}, "rules": [rule]}
    await plane.client.create(role)
    await plane.grant("alice", "mine")
    alice = await plane.connect_as("alice")
    assert (await alice.ask("GET", f"{CONFIGMAPS}?fieldSelector=metadata.name%3Dmine")).status == 200
    assert (await alice.ask("GET", f"{CONFIGMAPS}?fieldSelector=metadata.name%3Dother")).status == 403
    assert (await alice.ask("GET", CONFIGMAPS)).status == 403
    assert (await alice.ask("GET", f"{CONFIGMAPS}/mine")).status == 404
    alice.close()


async def test_can_i_and_acting_as_someone_else(plane: ServedPlane) -> None:
    await plane.grant("alice", "view")
    root = await plane.connect_as("root", "system:masters")
    attributes = {"verb": "list", "resource": "configmaps", "namespace": "default"}
    review: Mapping[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for user, allowed in (("alice", True), ("bob", False)):
        answer = await root.ask("POST", path, dict(review), impersonate_user=user)
        assert (answer.status, answer.body["status"]["allowed"]) == (201, allowed)
    carol = await plane.connect()
    answer = await carol.ask("GET", "/apis", authorization="Bearer static-token", impersonate_user="root")
    assert answer.status == 403
    assert answer.body["message"].startswith('users "root" is forbidden: User "carol" cannot impersonate')
    carol.close()
    root.close()


async def test_every_request_is_in_the_audit_log_and_no_credential_is(tmp_path: Path, plane: ServedPlane) -> None:
    connection = await plane.connect()
    await connection.ask("GET", CONFIGMAPS, authorization="Bearer static-token")
    await connection.ask("GET", CONFIGMAPS, authorization="Bearer hunter2")
    connection.close()
    await plane.audit.flush()
    lines = _read_lines(tmp_path / "audit" / "audit.log")
    first, second = (orjson.loads(line) for line in lines)
    assert (first["user"]["username"], first["responseStatus"]["code"]) == ("carol", 403)
    assert (second["user"]["username"], second["responseStatus"]["code"]) == ("system:anonymous", 401)
    assert not any("hunter2" in line or "static-token" in line for line in lines)


def _read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
