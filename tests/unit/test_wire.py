"""The HTTP server alone: framing, order, limits and endings, spoken to over a bare socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from planform.apiserver.wire.http import HttpRequest, HttpResponse, HttpServer, Limits


def refusal(code: int, text: str) -> HttpResponse:
    return HttpResponse(code, text.encode())


async def echo(request: HttpRequest) -> HttpResponse:
    if request.target == b"/fail":
        raise RuntimeError("boom")
    if request.target == b"/stream":

        async def chunks() -> AsyncIterator[bytes]:
            for number in range(3):
                yield b"chunk %d;" % number

        return HttpResponse(200, chunks=chunks())
    if request.target == b"/forever":

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 65536

        return HttpResponse(200, chunks=endless())
    if request.target.startswith(b"/slow"):
        await asyncio.sleep(0.02)
    return HttpResponse(200, b"%s %s %s" % (request.method.encode(), request.target, request.body))


class Peer:
    """A client that sends exactly the bytes it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self.reader.readline(), 16):
                body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)
        else:
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


@asynccontextmanager
async def serving(limits: Limits | None = None) -> AsyncIterator[tuple[HttpServer, int]]:
    server = HttpServer(echo, refusal, limits=limits)
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.stop(grace=0.2)


@asynccontextmanager
async def peer(port: int) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


async def test_a_connection_serves_one_request_after_another() -> None:
    async with serving() as (_, port), peer(port) as client:
        for number in range(3):
            await client.send(b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % number)
            assert (await client.answer())[2] == b"GET /%d " % number


async def test_pipelined_requests_are_answered_in_the_order_they_came() -> None:
    async with serving() as (_, port), peer(port) as client:
        await client.send(b"GET /slow HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n\r\n")
        answers = [(await client.answer())[2] for _ in range(3)]
        assert answers == [b"GET /slow ", b"GET /b ", b"GET /c "]


async def test_a_body_may_come_in_chunks_and_in_pieces() -> None:
    async with serving() as (_, port), peer(port) as client:
        await client.send(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\na")
        await client.send(b"bc\r\n2\r\nde\r\n0\r\n\r\n")
        assert (await client.answer())[2] == b"POST / abcde"


async def test_a_stream_arrives_in_chunks_and_the_connection_goes_on() -> None:
    async with serving() as (_, port), peer(port) as client:
        await client.send(b"GET /stream HTTP/1.1\r\n\r\n")
        assert (await client.answer())[2] == b"chunk 0;chunk 1;chunk 2;"
        await client.send(b"GET /next HTTP/1.1\r\n\r\n")
        assert (await client.answer())[0] == 200


async def test_connection_close_is_honoured() -> None:
    async with serving() as (_, port), peer(port) as client:
        await client.send(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert (await client.answer())[1]["connection"] == "close"
        assert await client.reader.read() == b""


async def test_an_error_in_the_handler_is_a_500_and_the_connection_goes_on() -> None:
    async with serving() as (_, port), peer(port) as client:
        await client.send(b"GET /fail HTTP/1.1\r\n\r\nGET /ok HTTP/1.1\r\n\r\n")
        assert (await client.answer())[0] == 500
        assert (await client.answer())[0] == 200


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(b"NONSENSE\r\n\r\n", 400, id="not HTTP"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2 preface"),
        pytest.param(b"GET / HTTP/1.1\r\nx: " + b"a" * 5000 + b"\r\n\r\n", 431, id="header too long"),
        pytest.param(
            b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % n for n in range(40)) + b"\r\n", 431, id="too many"
        ),
        pytest.param(b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n", 431, id="target too long"),
        pytest.param(b"POST / HTTP/1.1\r\ncontent-length: 9999\r\n\r\n", 413, id="announced body too large"),
        pytest.param(
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n800\r\n" + b"x" * 2048 + b"\r\n",
            413,
            id="chunked body too large",
        ),
        pytest.param(b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400, id="negative length"),
        pytest.param(
            b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400, id="smuggling"
        ),
    ],
)
async def test_what_breaks_a_limit_is_answered_and_closed(sent: bytes, code: int) -> None:
    limits = Limits(header_bytes=4096, header_count=32, body_bytes=1024)
    async with serving(limits) as (server, port), peer(port) as client:
        await client.send(sent)
        assert (await client.answer())[0] == code
        assert await client.reader.read() == b""
        async with peer(port) as other:
            await other.send(b"GET / HTTP/1.1\r\n\r\n")
            assert (await other.answer())[0] == 200
    assert not server.connections


async def test_half_a_request_and_an_idle_connection_are_closed_by_the_sweep() -> None:
    limits = replace(Limits(), request_seconds=1.0, idle_seconds=10.0)
    async with serving(limits) as (server, port), peer(port) as slow, peer(port) as idle:
        await slow.send(b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nab")
        await idle.send(b"GET / HTTP/1.1\r\n\r\n")
        await idle.answer()
        now = asyncio.get_running_loop().time()
        for connection in list(server.connections):
            connection.enforce(now + 2)
        assert (await slow.answer())[0] == 408
        for connection in list(server.connections):
            connection.enforce(now + 20)
        assert await idle.reader.read() == b""


async def test_a_request_that_drips_in_is_timed_from_its_first_byte() -> None:
    async with serving(replace(Limits(), request_seconds=1.0)) as (server, port), peer(port) as slow:
        await slow.send(b"GE")
        async with peer(port) as other:
            await other.send(b"GET / HTTP/1.1\r\n\r\n")
            await other.answer()
        [connection] = [each for each in server.connections if each._received]
        began = connection._since
        await slow.send(b"T /dripping")
        async with peer(port) as other:
            await other.send(b"GET / HTTP/1.1\r\n\r\n")
            await other.answer()
        assert (connection._received, connection._since) == (13, began)
        connection.enforce(began + 1.5)
        assert (await slow.answer())[0] == 408


async def test_whoever_does_not_read_an_answer_gets_no_further_one() -> None:
    async with serving() as (server, port), peer(port) as greedy:
        body = b"x" * 1_000_000
        for _ in range(12):
            greedy.writer.write(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await until(lambda: any(connection._stalled_since for connection in server.connections))
        assert server.requests < 12
        for _ in range(12):
            assert len((await greedy.answer())[2]) > len(body)
        assert server.buffered == 0


async def test_bodies_of_all_connections_share_one_budget() -> None:
    async with serving(replace(Limits(), buffered_bytes=1000)) as (server, port), peer(port) as first:
        await first.send(b"POST / HTTP/1.1\r\ncontent-length: 901\r\n\r\n" + b"x" * 900)
        await until(lambda: server.buffered == 900)
        async with peer(port) as second:
            await second.send(b"POST / HTTP/1.1\r\ncontent-length: 200\r\n\r\n" + b"x" * 200)
            assert (await second.answer())[0] == 429
        await first.send(b"x")
        assert (await first.answer())[0] == 200
        async with peer(port) as third:
            await third.send(b"POST / HTTP/1.1\r\ncontent-length: 900\r\n\r\n" + b"x" * 900)
            assert (await third.answer())[0] == 200


async def test_a_reader_that_does_not_read_is_closed_and_nobody_else_notices() -> None:
    async with serving() as (server, port), peer(port) as stalled:
        await stalled.send(b"GET /forever HTTP/1.1\r\n\r\n")
        await stalled.reader.readuntil(b"\r\n\r\n")
        async with peer(port) as other:
            while not any(connection._stalled_since for connection in server.connections):
                await other.send(b"GET / HTTP/1.1\r\n\r\n")
                assert (await other.answer())[0] == 200
            now = asyncio.get_running_loop().time()
            for connection in list(server.connections):
                if connection._stalled_since:
                    connection.enforce(now + 3600)
            await other.send(b"GET / HTTP/1.1\r\n\r\n")
            assert (await other.answer())[0] == 200


async def test_more_connections_than_allowed_are_refused_and_the_others_live() -> None:
    async with serving(replace(Limits(), connections=2)) as (_, port), peer(port) as one, peer(port) as two:
        for client in (one, two):
            await client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert (await client.answer())[0] == 200
        async with peer(port) as three:
            try:
                await three.send(b"GET / HTTP/1.1\r\n\r\n")
                assert await three.reader.read() == b""
            except ConnectionError:
                pass
        await one.send(b"GET / HTTP/1.1\r\n\r\n")
        assert (await one.answer())[0] == 200


async def test_stopping_lets_an_answer_under_way_finish() -> None:
    server = HttpServer(echo, refusal)
    port = await server.start("127.0.0.1", 0)
    async with peer(port) as client:
        await client.send(b"GET /slow HTTP/1.1\r\n\r\n")
        async with peer(port) as other:  # by the time this one is answered, the slow one is under way
            await other.send(b"GET / HTTP/1.1\r\n\r\n")
            await other.answer()
        await server.stop(grace=5)
        assert (await client.answer())[0] == 200
