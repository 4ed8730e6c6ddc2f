"""Open watches end within a second once certificate, token or grants no longer allow them, and stay otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from planform.api.kinds import GroupVersionKind
from planform.apiserver.auth.rbac import GROUP
from planform.apiserver.wire.options import MAX_WATCH_SECONDS, watch_options
from planform.client.protocol import Patch, PatchType
from tests.unit.test_security import CONFIGMAPS, Connection, ServedPlane, binding, secure_plane

WITHIN = 1.0
BINDING = GroupVersionKind(GROUP, "v1", "RoleBinding")
ACCOUNT = GroupVersionKind("", "v1", "ServiceAccount")


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ServedPlane]:
    async with secure_plane(tmp_path) as plane:
        yield plane


class Watch:
    """A watch of ConfigMaps, begun."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reader: asyncio.StreamReader = connection._reader
        self.lines: list[Any] = []

    @classmethod
    async def begin(cls, connection: Connection, query: str = "", **headers: str) -> Watch:
        watch = cls(connection)
        lines = [f"GET {CONFIGMAPS}?watch=true{query} HTTP/1.1", "host: localhost"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        connection._writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await watch._reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("HTTP/1.1 200"), head
        return watch

    async def next(self) -> Any:
        """The next event; None once the stream has ended."""
        size = int((await self._reader.readline()).strip() or b"0", 16)
        if not size:
            return None
        data = (await self._reader.readexactly(size + 2))[:-2]
        return orjson.loads(data.splitlines()[-1])

    async def end(self, within: float = WITHIN) -> int:
        """The code of the error that ends the stream."""
        code = 0
        async with asyncio.timeout(within + 1):  # a machine may be busy; the look itself comes every 0.4 s
            while (event := await self.next()) is not None:
                if event["type"] == "ERROR":
                    code = event["object"]["code"]
        self._connection.close()
        return code


async def is_open(plane: ServedPlane, watch: Watch, name: str) -> bool:
    """Whether events still come, also after the watches were asked again: a later one that ends then tells that."""
    await plane.grant(f"canary-{name}", "view")
    canary = await Watch.begin(await plane.connect_as(f"canary-{name}"))
    await plane.client.delete(BINDING, f"canary-{name}-view", namespace="default")
    assert await canary.end() == 403
    await plane.client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
    )
    async with asyncio.timeout(5):
        while (event := await watch.next()) is not None:
            if event["object"]["metadata"].get("name") == name:
                return True
    return False


async def test_a_revoked_certificate_ends_the_watch(plane: ServedPlane) -> None:
    await plane.grant("alice", "view")
    watch = await Watch.begin(await plane.connect_as("alice"))
    plane.pki.revoke(user="alice")
    assert await watch.end() == 401


async def test_a_certificate_that_expires_ends_the_watch(plane: ServedPlane) -> None:
    await plane.grant("alice", "view")
    credential = plane.pki.issue_client("alice", (), timedelta(seconds=2))
    watch = await Watch.begin(await plane.connect(credential))
    assert await watch.end(within=2 + WITHIN) == 401


async def test_a_token_that_leaves_the_file_ends_the_watch(plane: ServedPlane) -> None:
    await plane.grant("carol", "view")
    watch = await Watch.begin(await plane.connect(), authorization="Bearer static-token")
    plane.save("tokens.csv", "another-token,carol,u3\n")
    assert await watch.end() == 401


async def test_a_service_account_that_goes_ends_the_watch_of_its_token(plane: ServedPlane) -> None:
    await plane.client.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "default"}}
    )
    await plane.grant("system:serviceaccount:default:robot", "view")
    root = await plane.connect_as("root", "system:masters")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    issued = await root.ask("POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", request)
    bearer = f"Bearer {issued.body['status']['token']}"
    watch = await Watch.begin(await plane.connect(), authorization=bearer)
    await plane.client.delete(ACCOUNT, "robot", namespace="default")
    assert await watch.end() == 401
    root.close()


async def test_a_binding_that_goes_ends_the_watch(plane: ServedPlane) -> None:
    await plane.grant("alice", "view")
    await plane.grant("bob", "view")
    watch = await Watch.begin(await plane.connect_as("alice"))
    other = await Watch.begin(await plane.connect_as("bob"))
    await plane.client.delete(BINDING, "alice-view", namespace="default")
    assert await watch.end() == 403
    assert await is_open(plane, other, "for-bob")


async def test_the_right_to_act_as_somebody_that_goes_ends_the_watch(plane: ServedPlane) -> None:
    await plane.grant("alice", "view")
    rule = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
    await plane.client.create(
        {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": "acting"}, "rules": [rule]}
    )
    grant = binding("acting", "acting", "ops", "") | {"kind": "ClusterRoleBinding"}
    del grant["metadata"]["namespace"]
    await plane.client.create(grant)
    watch = await Watch.begin(await plane.connect_as("ops"), impersonate_user="alice")
    await plane.client.delete(GroupVersionKind(GROUP, "v1", "ClusterRoleBinding"), "acting")
    assert await watch.end() == 403


async def test_what_gives_more_ends_nothing(plane: ServedPlane) -> None:
    await plane.grant("alice", "view")
    watch = await Watch.begin(await plane.connect_as("alice"))
    await plane.grant("alice", "edit")
    await plane.grant("bob", "view")
    await plane.client.patch(
        BINDING, "alice-view", Patch(PatchType.MERGE, {"metadata": {"labels": {"a": "b"}}}), namespace="default"
    )
    assert await is_open(plane, watch, "still-there")
    await plane.client.delete(BINDING, "alice-view", namespace="default")
    assert await is_open(plane, watch, "by-another-grant")


async def test_a_reader_that_does_not_read_is_cut_off_as_well(plane: ServedPlane) -> None:
    await plane.grant("alice", "view")
    connection = await plane.connect_as("alice")
    await Watch.begin(connection)
    connection._writer.transport.pause_reading()  # type: ignore[attr-defined]
    for number in range(40):
        await plane.client.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"large-{number}", "namespace": "default"},
                "data": {"text": "x" * 500_000},
            }
        )
    assert len(plane.server.connections) == 1
    plane.pki.revoke(user="alice")
    async with asyncio.timeout(WITHIN + 1):
        while plane.server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    connection.close()


@pytest.mark.parametrize(("asked", "given"), [("10", 10.0), ("999999999", MAX_WATCH_SECONDS), ("3600", 3600.0)])
def test_no_watch_is_longer_than_an_hour(asked: str, given: float) -> None:
    assert watch_options({"timeoutSeconds": [asked]}, None).timeout == given  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/ping", "/version"])
async def test_health_is_told_to_those_who_ask_with_head(plane: ServedPlane, path: str) -> None:
    connection = await plane.connect()
    connection._writer.write(f"HEAD {path} HTTP/1.1\r\nhost: localhost\r\n\r\nGET /livez HTTP/1.1\r\n\r\n".encode())
    first = await connection._reader.readuntil(b"\r\n\r\n")
    second = await connection._reader.readuntil(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200") and second.startswith(b"HTTP/1.1 200")
    connection.close()
