"""Input meant to hurt: each gets a proper Status or a clean close, and others are served while it is dealt with.

All cases share one plane, and each ends by checking that it is well: alive, answering, silent in its log, and of a
bounded size. What is slow on purpose has a plane of its own with short limits.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from planform.clock import SystemClock
from planform.store import Key, Write, open_store
from tests.faults.load import CONFIG_MAPS, TOKEN, Answer, Connection, PlaneProcess, parse_head, running_plane

pytestmark = pytest.mark.xdist_group("hostile input")

MAX_BYTES = 512 << 20
YAML = {"content-type": "application/yaml"}
LIMIT = 3 * 1024 * 1024
PROMPT_SECONDS = 0.5  # for a small request meanwhile, on a machine that is busy with other tests; usually below 50 ms


def config_map(name: str = "hostile", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneProcess]:
    plane = asyncio.run(PlaneProcess.start(tmp_path_factory.mktemp("hostile")))
    yield plane
    plane.kill()


@pytest.fixture
async def plane(running: PlaneProcess) -> AsyncIterator[PlaneProcess]:
    """The shared plane; afterwards it must be well."""
    yield running
    assert running.alive, "the server is dead"
    async with running.connection() as connection:
        assert (await connection.request("GET", "/readyz")).status == 200
    assert running.log() == ""
    assert running.resident_bytes(peak=True) < MAX_BYTES


async def send(plane: PlaneProcess, method: str, target: str, body: object, headers: Mapping[str, str]) -> Answer:
    async with plane.connection() as connection:
        return await connection.request(method, target, body, headers=headers)


# Bodies


def alias_bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 12)]
    return "\n".join(["metadata: {name: bomb}", *lines]).encode()


def merge_bomb() -> bytes:
    lines = ["m0: &m0 {" + ", ".join(f"k{index}: {'v' * 50}" for index in range(100)) + "}"]
    lines += [f"m{level}: &m{level} {{a: *m{level - 1}, b: *m{level - 1}}}" for level in range(1, 30)]
    return "\n".join(["metadata: {name: bomb}", *lines]).encode()


def many_values(count: int) -> bytes:
    return orjson.dumps(config_map(data={f"k{index}": "" for index in range(count)}))


def nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return b'{"metadata":{"name":"deep"},"data":' + opening * depth + b"1" + closing * depth + b"}"


BODIES: dict[str, tuple[bytes, Mapping[str, str], int, str]] = {
    "a YAML alias bomb": (alias_bomb(), YAML, 400, "alias"),
    "a YAML merge bomb": (merge_bomb(), YAML, 400, "alias"),
    "an alias of itself": (b"metadata: {name: x}\ndata: &a [*a]\n", YAML, 400, ""),
    "YAML nested in flow style": (b"[" * 100_000, YAML, 400, ""),
    "YAML nested by indentation": (b"".join(b" " * level + b"a:\n" for level in range(2000)), YAML, 400, ""),
    "YAML with a tag that makes objects": (b"metadata: !!python/object/apply:os.system [id]", YAML, 400, ""),
    "several YAML documents": (b"metadata: {name: a}\n---\nmetadata: {name: b}\n", YAML, 400, "document"),
    "YAML that is a list": (b"- a\n", YAML, 400, "object"),
    "a lot of YAML": (b"metadata: {name: a}\ndata:\n" + b"- a\n" * 500_000, YAML, 400, ""),
    "JSON nested in lists": (nested(b"[", b"]", 100_000), {}, 400, "depth"),
    "JSON nested in objects": (nested(b'{"a":', b"}", 10_000), {}, 400, ""),
    "JSON of many values": (many_values(60_000), {}, 400, "values"),
    "NaN": (b'{"metadata":{"name":"x"},"data":{"a":NaN}}', {}, 400, ""),
    "Infinity": (b'{"metadata":{"name":"x"},"data":{"a":-Infinity}}', {}, 400, ""),
    "YAML's NaN": (b"metadata: {name: x}\ndata: {a: .nan}\n", YAML, 400, ""),
    "a number beyond all": (b'{"metadata":{"name":"x"},"data":{"a":1e999999}}', {}, 400, ""),
    "half an object": (b'{"metadata":{"name":"x"', {}, 400, ""),
    "a lone surrogate": (rb'{"metadata":{"name":"x"},"data":{"a":"\ud800"}}', {}, 400, ""),
    "bytes that are not UTF-8": (b'{"metadata":{"name":"\xff\xfe"}}', {}, 400, ""),
    "a zero byte": (b'{"metadata":{"name":"x"}}\0', {}, 400, ""),
    "nothing": (b"", {}, 400, ""),
    "a text": (b'"text"', {}, 400, "object"),
    "null": (b"null", {}, 400, "object"),
    "a wrong type for metadata": (b'{"metadata":[]}', {}, 400, ""),
    "a wrong type for data": (b'{"metadata":{"name":"x"},"data":{"a":{"b":1}}}', {}, 400, ""),
    "a wrong type for labels": (b'{"metadata":{"name":"x","labels":{"a":1}}}', {}, 400, ""),
    "a wrong kind": (b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}', {}, 400, "kind"),
    "an unknown format": (b"<xml/>", {"content-type": "application/xml"}, 415, "media types"),
    "broken protobuf": (b"k8s\0\xff\xff\xff", {"content-type": "application/vnd.kubernetes.protobuf"}, 400, "protobuf"),
}  # fmt: skip


@pytest.mark.parametrize("case", BODIES)
async def test_a_body_that_cannot_be_an_object_is_refused_with_a_status(plane: PlaneProcess, case: str) -> None:
    body, headers, status, part = BODIES[case]
    answer = await send(plane, "POST", CONFIG_MAPS, body, headers)
    assert (answer.status, part in answer.failure()["message"]) == (status, True), answer


async def test_a_body_beyond_the_limit_is_refused_whether_or_not_it_says_how_long_it_is(plane: PlaneProcess) -> None:
    body = orjson.dumps(config_map(data={"a": "x" * LIMIT}))
    refused = (await send(plane, "POST", CONFIG_MAPS, body, {})).failure()
    assert (refused["code"], refused["reason"]) == (413, "RequestEntityTooLarge")
    async with plane.connection() as connection:
        head = request_head("POST", CONFIG_MAPS, "content-type: application/json", "transfer-encoding: chunked")
        connection.writer.write(head + b"100000\r\n" + b"x" * 0x100000 + b"\r\n")
        for _ in range(3):
            connection.writer.write(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")
        assert (await connection.answer()).failure()["code"] == 413
        assert await connection.ended() == b""


async def test_fields_given_twice_are_warned_about_or_refused(plane: PlaneProcess) -> None:
    body = b'{"metadata":{"name":"twice"},"data":{"a":"1","a":"2"}}'
    strict = await send(plane, "POST", f"{CONFIG_MAPS}?fieldValidation=Strict", body, {})
    assert (strict.failure()["code"], 'duplicate field "data.a"' in strict.failure()["message"]) == (400, True)
    warned = await send(plane, "POST", f"{CONFIG_MAPS}?dryRun=All", body, {})
    assert (warned.status, warned.json()["data"]) == (201, {"a": "2"})
    assert "duplicate field" in warned.headers["warning"]


async def test_unknown_fields_are_refused_or_dropped_and_a_flood_of_them_is_cut_off(plane: PlaneProcess) -> None:
    body = config_map("unknown") | {f"f{index}": index for index in range(10_000)}
    strict = await send(plane, "POST", f"{CONFIG_MAPS}?fieldValidation=Strict", body, {})
    assert strict.failure()["code"] == 400
    dropped = await send(plane, "POST", f"{CONFIG_MAPS}?dryRun=All", body, {})
    assert (dropped.status, "f1" in dropped.json()) == (201, False)


NAMES = (
    *("../../etc/passwd", "..", ".", "a/b", "a%2fb", "a\\b", "A", "-a", "a-", "a_b", "a b", "a\0b", "\u00e9", "a\nb"),
    *("x" * 254, "a..b", "", " ", "a?b", "a#b", "\u202ea", "con:"),
)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
async def test_a_name_that_is_no_name_is_refused(plane: PlaneProcess, name: str) -> None:
    refused = (await send(plane, "POST", CONFIG_MAPS, config_map(name), {})).failure()
    assert (refused["code"], refused["reason"]) == (422, "Invalid")
    spaced = await send(plane, "POST", "/api/v1/namespaces", {"metadata": {"name": name}}, {})
    assert spaced.failure()["code"] == 422


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/configmaps/../../../secrets",
        "/api/v1/namespaces/default/configmaps/%2e%2e/secrets",
        "/api/v1/namespaces/..%2fkube-system/configmaps",
        "/api/v1/namespaces/default/configmaps/a%2fb",
        "/api/v1/namespaces/default/configmaps/a%00b",
        "/api/v1/namespaces/default/configmaps/%ff",
        "/api/v1/namespaces/default/configmaps/a/b/c/d/e",
        "/../../etc/passwd",
        "/openapi/v3/../../../etc/passwd",
        "/openapi/v3/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/apis/" + "a/" * 500,
        "/" + "%41" * 5000,
    ],
    ids=lambda path: path[:60],
)
async def test_a_path_that_leads_elsewhere_leads_nowhere(plane: PlaneProcess, path: str) -> None:
    answer = await send(plane, "GET", path, None, {})
    assert answer.status in (400, 404), answer
    assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "query",
    [
        "limit=-9&continue=x",
        "limit=" + "9" * 5000,
        "limit=1e9",
        "continue=%00",
        "continue=" + "A" * 10_000,
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTk5OTk5OTk5LCJzdGFydCI6ImEifQ",
        "resourceVersion=-1",
        "resourceVersion=%C2%B2",
        "resourceVersion=" + "9" * 30,
        "resourceVersion=x&watch=1",
        "resourceVersion=1&resourceVersionMatch=Sometimes",
        "labelSelector=a%20in%20(",
        "labelSelector=" + "a," * 20_000 + "!",
        "labelSelector=a%3D%3D%3Db",
        "fieldSelector=metadata.labels.x%3D1",
        "fieldSelector=%FF",
        "watch=1&timeoutSeconds=" + "9" * 400,
        "watch=1&sendInitialEvents=true",
        "%FF=1",
    ],
    ids=lambda query: query[:50],
)
async def test_a_query_that_makes_no_sense_is_refused(plane: PlaneProcess, query: str) -> None:
    answer = await send(plane, "GET", f"{CONFIG_MAPS}?{query}", None, {})
    assert answer.failure()["code"] in (400, 422, 504), answer


async def test_parameters_without_end_are_answered(plane: PlaneProcess) -> None:
    answer = await send(plane, "GET", f"{CONFIG_MAPS}?{'a=b&' * 12_000}", None, {})
    assert answer.status == 200


# The wire


def request_head(method: str, target: str, *lines: str) -> bytes:
    head = [f"{method} {target} HTTP/1.1", "host: plane", f"authorization: Bearer {TOKEN}", *lines]
    return "\r\n".join([*head, "", ""]).encode("latin-1")


GET = request_head("GET", "/livez")[:-2]
POST = request_head("POST", CONFIG_MAPS, "content-type: application/json")[:-2]
WIRE: dict[str, tuple[bytes, int]] = {
    "too many headers": (GET + b"".join(b"x-%d: y\r\n" % index for index in range(500)) + b"\r\n", 431),
    "one header too large": (GET + b"x: " + b"y" * 70_000 + b"\r\n\r\n", 431),
    "a header without end": (GET + b"x: " + b"y" * 200_000, 431),
    "a target without end": (b"GET /" + b"a" * 200_000, 431),
    "a header with a zero byte": (GET + b"x: a\0b\r\n\r\n", 400),
    "a header without a colon": (GET + b"nonsense\r\n\r\n", 400),
    "a space before the colon": (GET + b"x : y\r\n\r\n", 400),
    "a folded header": (GET + b"x: a\r\n b\r\n\r\n", 400),
    "two lengths": (POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", 400),
    "length and chunks": (POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "a negative length": (POST + b"content-length: -1\r\n\r\n", 400),
    "a length beyond all": (POST + b"content-length: " + b"9" * 50 + b"\r\n\r\n", 400),
    "a length beyond the limit": (POST + b"content-length: 999999999\r\n\r\n", 413),
    "a chunk beyond all": (POST + b"transfer-encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n", 400),
    "a chunk that is no number": (POST + b"transfer-encoding: chunked\r\n\r\nxyz\r\n", 400),
    "trailers without end": (POST + b"transfer-encoding: chunked\r\n\r\n0\r\nx: " + b"y" * (LIMIT + 100_000), 431),
    "chunks of one byte": (POST + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 900_000, 431),
    "an unknown encoding": (POST + b"transfer-encoding: gzip\r\n\r\n", 400),
    "no HTTP at all": (b"\x16\x03\x01\x02\x00" * 10, 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "an unknown method": (b"GRAB / HTTP/1.1\r\n\r\n", 400),
}


@pytest.mark.parametrize("case", WIRE)
async def test_what_is_not_a_request_gets_a_status_and_a_closed_connection(plane: PlaneProcess, case: str) -> None:
    data, status = WIRE[case]
    async with plane.connection() as connection:
        connection.writer.write(data)
        answer = await connection.answer()
        assert (answer.failure()["code"], answer.closes) == (status, True)
        assert await connection.ended() == b""


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 1000, b"\x16\x03\x03\x40\x00" + b"x" * 16384])
async def test_what_is_not_tls_is_closed(plane: PlaneProcess, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", plane.port)) as raw:
        raw.setblocking(False)
        await loop.sock_sendall(raw, data)
        async with asyncio.timeout(10):
            try:
                while await loop.sock_recv(raw, 1000):
                    pass
            except ConnectionError:
                pass


async def test_credentials_that_are_none_are_refused(plane: PlaneProcess) -> None:
    for credentials in (
        "Bearer ",
        "Bearer \u00ff\u00fe",
        "Bearer a.b.c",
        "Basic !!!",
        "x" * 5000,
        "Bearer " + "a" * 50_000,
    ):
        async with plane.connection() as connection:
            head = f"GET {CONFIG_MAPS} HTTP/1.1\r\nhost: plane\r\nauthorization: {credentials}\r\n\r\n"
            connection.writer.write(head.encode("latin-1"))
            assert (await connection.answer()).failure()["code"] in (401, 403), credentials


# Load


class Prompt:
    """Small requests of an innocent client, one after the other, for the length of the block."""

    def __init__(self, plane: PlaneProcess) -> None:
        self.plane = plane
        self.times: list[float] = []
        self._stop = asyncio.Event()

    async def __aenter__(self) -> Prompt:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await self._task
        slowest = sorted(self.times)[-3:]
        print(
            f"{len(self.times)} small gets, the slowest took {', '.join(f'{each * 1000:.1f}' for each in slowest)} ms"
        )

    async def _run(self) -> None:
        async with self.plane.connection() as connection:
            while not self._stop.is_set():
                began = time.perf_counter()
                assert (await connection.request("GET", "/api/v1/namespaces/default")).status == 200
                self.times.append(time.perf_counter() - began)
                await asyncio.sleep(0.002)


async def test_nobody_waits_for_the_bodies_of_others(plane: PlaneProcess) -> None:
    yaml = b"metadata: {name: a}\ndata:\n" + b"- a\n" * 300_000
    json = many_values(100_000)
    twice = b'{"metadata":{"name":"a"},"data":{' + b",".join([b'"k":"x"'] * 200_000) + b"}}"
    async with Prompt(plane) as prompt, asyncio.TaskGroup() as tasks:
        for body, headers in ((yaml, YAML), (json, {}), (twice, {}), (alias_bomb(), YAML)) * 2:
            tasks.create_task(send(plane, "POST", CONFIG_MAPS, body, headers))
    assert max(prompt.times) < PROMPT_SECONDS


async def test_slow_writers_hold_nobody_up_and_share_a_budget(plane: PlaneProcess) -> None:
    half = request_head("POST", CONFIG_MAPS, "content-type: application/json", f"content-length: {LIMIT}")
    refused = asyncio.Semaphore(0)

    async def write_half(connection: Connection) -> None:
        connection.writer.write(half + b" " * (2 << 20))
        try:
            answer = await connection.answer()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        assert answer.failure()["code"] == 429
        refused.release()

    connections = [await plane.connect() for _ in range(100)]
    try:
        async with Prompt(plane) as prompt, asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            for connection in connections:  # 200 MiB in all, of which 128 may wait
                tasks.create_task(write_half(connection))
                await asyncio.sleep(0.01)
            for _ in range(30):
                await refused.acquire()
            for connection in connections:
                connection.writer.transport.abort()
        assert max(prompt.times) < PROMPT_SECONDS
    finally:
        for connection in connections:
            connection.writer.transport.abort()


async def test_slow_readers_are_not_answered_until_they_have_read(plane: PlaneProcess) -> None:
    big = config_map("big", data={"a": "x" * 1_000_000})
    assert (await send(plane, "POST", CONFIG_MAPS, big, {})).status == 201
    plane.forget_peak()
    before = plane.resident_bytes()
    getting, watching = [[await plane.connect() for _ in range(10)] for _ in range(2)]
    try:
        async with Prompt(plane) as prompt:
            for connection in (*getting, *watching):
                pause_reading(connection)
                target = f"{CONFIG_MAPS}?watch=1" if connection in watching else f"{CONFIG_MAPS}/big"
                connection.writer.write(request_head("GET", target) * (1 if connection in watching else 15))
            for number in range(30):
                changed = config_map("big", data={"a": str(number) + "x" * 1_000_000})
                assert (await send(plane, "PUT", f"{CONFIG_MAPS}/big", changed, {})).status == 200
        assert max(prompt.times) < PROMPT_SECONDS
        # They want 450 MB: as much as is on its way to each, beside 30 versions that the store keeps for all of them.
        assert plane.resident_bytes(peak=True) - before < 200 << 20
        resume_reading(getting[5])
        for _ in range(15):
            assert len((await getting[5].answer()).body) > 1_000_000
    finally:
        for connection in (*getting, *watching):
            connection.writer.transport.abort()
    assert (await send(plane, "DELETE", f"{CONFIG_MAPS}/big", None, {})).status == 200


def pause_reading(connection: Connection) -> None:
    transport = connection.writer.transport
    assert isinstance(transport, asyncio.ReadTransport)
    transport.pause_reading()


def resume_reading(connection: Connection) -> None:
    transport = connection.writer.transport
    assert isinstance(transport, asyncio.ReadTransport)
    transport.resume_reading()


async def test_pipelined_requests_are_answered_in_order_or_not_at_all(plane: PlaneProcess) -> None:
    async with plane.connection() as connection:
        connection.writer.write(b"".join(request_head("GET", f"{CONFIG_MAPS}/n{number}") for number in range(10)))
        names = [(await connection.answer()).failure()["details"]["name"] for _ in range(10)]
        assert names == [f"n{number}" for number in range(10)]
        connection.writer.write(request_head("GET", CONFIG_MAPS) * 1000)
        rest = await connection.ended()
    assert rest.startswith(b"HTTP/1.1 ")
    parse_head(rest[: rest.index(b"\r\n\r\n") + 4])


async def test_a_list_of_twenty_thousand_holds_nobody_up(tmp_path: Path) -> None:
    await fill_store(tmp_path / "data" / "store", 20_000)
    async with running_plane(tmp_path) as plane:
        async with Prompt(plane) as prompt:
            for query in ("labelSelector=number%3D7", "labelSelector=number!%3D7", "", "watch=1&timeoutSeconds=1"):
                answer = await send(plane, "GET", f"{CONFIG_MAPS}?{query}", None, {})
                assert answer.status == 200
        assert max(prompt.times) < PROMPT_SECONDS
        assert plane.log() == ""


async def fill_store(directory: Path, count: int) -> None:
    """Put ConfigMaps into a store that no plane has opened yet."""
    async with await open_store(directory, clock=SystemClock()) as store:
        writes = []
        for number in range(1, count + 1):
            metadata = {
                "name": f"n{number}",
                "namespace": "default",
                "labels": {"number": str(number % 10)},
                "uid": f"00000000-0000-4000-8000-{number:012}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "resourceVersion": str(number),
            }
            value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "x" * 500}}
            writes.append(Write(Key("configmaps", "default", f"n{number}"), orjson.dumps(value)))
        await store.stage_many(writes)
