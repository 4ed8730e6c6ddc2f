"""Long lists that nobody reads: in every form little of them waits, and what waits in total is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from planform.apimachinery import yaml_loader
from planform.apiserver.wire.handler import refusal
from planform.apiserver.wire.http import HttpRequest, HttpResponse, HttpServer, Limits
from planform.apiserver.wire.lists import list_chunks
from planform.apiserver.wire.negotiation import Form, encode_value
from tests.unit.test_security import CONFIGMAPS, ServedPlane, secure_plane

FORMS = {
    "json": ("application/json", ""),
    "table": ("application/json;as=Table;v=v1;g=meta.k8s.io", ""),
    "whole table": ("application/json;as=Table;v=v1;g=meta.k8s.io", "includeObject=Object"),
    "metadata": ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", ""),
    "yaml": ("application/yaml", ""),
    "pretty": ("application/json", "pretty=true"),
}
OBJECTS = 120
SIZE = 200_000
MAX_WAITING = 1 << 20


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ServedPlane]:
    async with secure_plane(tmp_path) as plane:
        yield plane


async def fill(plane: ServedPlane, size: int = SIZE) -> None:
    for number in range(OBJECTS):
        await plane.client.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": f"large-{number:03}",
                    "namespace": "default",
                    "annotations": {"text": "a" * size},
                },
            }
        )


@pytest.mark.parametrize("form", FORMS)
async def test_a_list_that_nobody_reads_holds_little(plane: ServedPlane, form: str) -> None:
    await fill(plane)
    accept, query = FORMS[form]
    connection = await plane.connect_as("root", "system:masters")
    connection._writer.transport.pause_reading()  # type: ignore[attr-defined]
    connection._writer.write(f"GET {CONFIGMAPS}?{query} HTTP/1.1\r\nhost: h\r\naccept: {accept}\r\n\r\n".encode())
    async with asyncio.timeout(20):
        while not plane.server.unread:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert 0 < plane.server.unread < MAX_WAITING
    connection._writer.transport.abort()
    async with asyncio.timeout(5):
        while plane.server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert plane.server.unread == 0


@pytest.mark.parametrize("form", FORMS)
async def test_a_list_in_slices_is_the_whole_list(plane: ServedPlane, form: str) -> None:
    await fill(plane, 5000)
    accept, query = FORMS[form]
    connection = await plane.connect_as("root", "system:masters")
    answer = await connection.ask("GET", f"{CONFIGMAPS}?{query}", accept=accept)
    body: Any = yaml_loader.load(answer.body) if isinstance(answer.body, str) else answer.body
    items = body["rows" if "able" in form else "items"]
    names = [each["cells"][0] if "able" in form else each["metadata"]["name"] for each in items]
    assert [name for name in names if name.startswith("large")] == [f"large-{number:03}" for number in range(OBJECTS)]
    connection.close()


@pytest.mark.parametrize("pretty", [False, True])
@pytest.mark.parametrize("yaml", [False, True])
@pytest.mark.parametrize(
    "slices", [[], [[{"a": 1}]], [[{"a": {"b": [1, "x\n"]}}, {"c": {}}], [{"d": []}, {"e": None}]]]
)
async def test_the_pieces_are_what_the_whole_would_be(slices: list[list[Any]], yaml: bool, pretty: bool) -> None:
    head = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}
    form = Form(yaml=yaml)
    made = [
        chunk
        async for chunk in list_chunks(head, "items", [partial(list, each) for each in slices], form, pretty=pretty)
    ]
    whole = head | {"items": [item for items in slices for item in items]}
    assert b"".join(made) == encode_value(whole, form, pretty=pretty)


async def test_an_unknown_include_object_is_refused_before_the_answer_begins(plane: ServedPlane) -> None:
    connection = await plane.connect_as("root", "system:masters")
    answer = await connection.ask("GET", f"{CONFIGMAPS}?includeObject=X", accept=FORMS["table"][0])
    assert answer.status == 400
    connection.close()


async def test_what_is_not_read_is_bounded_over_all_connections() -> None:
    """The slowest goes first; the others are served."""

    async def handle(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, b"x" * (16 << 20) if request.target == b"/large" else b"ok")

    server = HttpServer(handle, refusal, limits=Limits(unread_bytes=40 << 20))
    port = await server.start("127.0.0.1", 0)
    silent = []
    for _ in range(8):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        silent.append((reader, writer))
        async with asyncio.timeout(5):
            while server.requests < len(silent):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert server.unread <= 40 << 20
    assert 1 <= len(server.connections) < 8
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /small HTTP/1.1\r\n\r\n")
    assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
    for _, each in [*silent, (reader, writer)]:
        each.transport.abort()
    await server.stop(grace=0.1)
    assert server.unread == 0
