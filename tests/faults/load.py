"""A control plane in a process of its own, a bare HTTP client for it, and the load that crash tests put on it.

The client knows nothing of planform and is strict about HTTP: whatever is not a well-formed answer is an error. It can
also be used wrongly on purpose, byte by byte, which no ordinary client library allows.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import resource
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson

from tests.harness.processes import dies_with_us

TOKEN = "load-test"
PATIENCE_SECONDS = 30.0
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
_READY = re.compile(rb"planform is ready at https?://127\.0\.0\.1:(\d+)")


class BrokenAnswer(Exception):
    """What came back is not HTTP."""


@dataclass(frozen=True)
class Answer:
    """One complete answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        return self.headers.get("connection") == "close"

    def json(self) -> Any:
        return orjson.loads(self.body)

    def failure(self) -> Mapping[str, Any]:
        """The Status of a refusal; raises AssertionError if it is not one."""
        status = self.json()
        assert isinstance(status, dict), self
        assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure"), self
        assert status["code"] == self.status, self
        assert status["message"], self
        return status


class Connection:
    """One keep-alive connection; every wait is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, patience: float) -> None:
        self.reader = reader
        self.writer = writer
        self.patience = patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def request(
        self, method: str, target: str, body: object = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a JSON body (bytes are sent as they are) and read the whole answer."""
        async with asyncio.timeout(self.patience):
            self.send(method, target, body, headers=headers)
            return await self.answer(head=method == "HEAD")

    def send(self, method: str, target: str, body: object = None, *, headers: Mapping[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        lines = {"host": "plane", "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        lines |= {"content-length": str(len(content))} | dict(headers or {})
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.writer.write(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogateescape") + content)

    async def answer(self, *, head: bool = False) -> Answer:
        """The next answer; raises BrokenAnswer, or IncompleteReadError when the connection ends instead."""
        async with asyncio.timeout(self.patience):
            status, headers = await self.answer_head()
            if head or status in (204, 304):
                body = b""
            elif headers.get("transfer-encoding") == "chunked":
                body = b"".join([chunk async for chunk in self.chunks()])
            else:
                body = await self.reader.readexactly(int(headers["content-length"]))
        return Answer(status, headers, body)

    async def answer_head(self) -> tuple[int, dict[str, str]]:
        while True:
            status, headers = parse_head(await self.reader.readuntil(b"\r\n\r\n"))
            if status != 100:
                return status, headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The parts of a chunked body, as they come."""
        while True:
            size = int((await self.reader.readuntil(b"\r\n"))[:-2], 16)
            chunk = await self.reader.readexactly(size + 2)
            if chunk[-2:] != b"\r\n":
                raise BrokenAnswer(f"a chunk of {size} bytes ends with {chunk[-2:]!r}")
            if size == 0:
                return
            yield chunk[:-2]

    async def ended(self) -> bytes:
        """What still comes until the server closes."""
        async with asyncio.timeout(self.patience):
            try:
                return await self.reader.read(-1)
            except ConnectionError:
                return b""


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers of an answer; raises BrokenAnswer for anything that a strict client would trip over."""
    first, *lines = head[:-4].split(b"\r\n")
    found = re.fullmatch(rb"HTTP/1\.1 ([1-5]\d\d) [A-Za-z ]+", first)
    if found is None:
        raise BrokenAnswer(f"no status line: {first!r}")
    headers = {}
    for line in lines:
        if re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*", line) is None:
            raise BrokenAnswer(f"no header: {line!r}")
        name, _, value = line.decode("latin-1").partition(": ")
        headers[name.lower()] = value
    return int(found[1]), headers


@dataclass
class PlaneProcess:
    """`planform up` on a data directory, to be killed."""

    process: subprocess.Popen[bytes]
    errors: Path
    port: int = 0
    tls: ssl.SSLContext | None = None

    @classmethod
    async def start(cls, directory: Path) -> Self:
        """Start it on this directory; returns once it is ready."""
        data, kubeconfig, tokens = (directory / name for name in ("data", "kubeconfig", "tokens.csv"))
        tokens.write_text(f'{TOKEN},load,load,"system:masters"\n')
        command = [sys.executable, "-m", "planform", "up", "--data", str(data), "--listen", "127.0.0.1:0"]
        command += ["--token-file", str(tokens), "--kubeconfig", str(kubeconfig), "--log-level", "error"]
        plane = cls(*spawn(command, directory))
        await plane.ready()
        plane.tls = client_tls(data / "pki" / "ca.crt")
        return plane

    async def ready(self) -> None:
        """Wait for the line that says so; ends the process and raises AssertionError if it does not come."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while (found := _READY.search(self.errors.read_bytes())) is None:
            said = self.errors.read_text(errors="replace")
            assert self.alive, f"the plane ended with {self.process.returncode}:\n{said}"
            if loop.time() > deadline:
                self.kill()
                raise AssertionError(f"the plane is not ready:\n{said}")
            await asyncio.sleep(0.005)
        self.port = int(found[1])

    @asynccontextmanager
    async def connection(self, *, patience: float = PATIENCE_SECONDS) -> AsyncIterator[Connection]:
        async with await self.connect(patience=patience) as connection:
            yield connection

    async def connect(self, *, patience: float = PATIENCE_SECONDS) -> Connection:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls, limit=1 << 20)
        return Connection(reader, writer, patience=patience)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def log(self) -> str:
        """What it said after it was ready; a server that nothing upsets says nothing."""
        _, _, said = self.errors.read_text(errors="replace").partition("export KUBECONFIG=")
        return said.partition("\n")[2]

    def resident_bytes(self, *, peak: bool = False) -> int:
        name = "VmHWM" if peak else "VmRSS"
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def forget_peak(self) -> None:
        """Measure the peak from now on."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)


def spawn(command: list[str], directory: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a program that ends with us; what it says on standard error goes to a file."""
    errors = directory / "stderr.txt"
    with errors.open("wb") as output:
        silent = subprocess.DEVNULL
        process = subprocess.Popen(dies_with_us(command), stdin=silent, stdout=silent, stderr=output)
    return process, errors


@asynccontextmanager
async def running_plane(directory: Path) -> AsyncIterator[PlaneProcess]:
    """A plane for the length of the block."""
    plane = await PlaneProcess.start(directory)
    try:
        yield plane
    finally:
        plane.kill()


def client_tls(authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False
    return context


def allow_descriptors(count: int) -> None:
    """Have room for so many sockets in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= count, f"this machine allows {hard} open files, not {count}"
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


# The load of a crash test

Content = Mapping[str, str]
"""The data of a ConfigMap: a sequence number, a payload and its checksum."""


def content(sequence: int, payload: str) -> Content:
    checksum = hashlib.sha256(payload.encode()).hexdigest()
    return {"sequence": str(sequence), "payload": payload, "checksum": checksum}


def is_whole(data: Content) -> bool:
    return set(data) == {"sequence", "payload", "checksum"} and data == content(int(data["sequence"]), data["payload"])


@dataclass(frozen=True)
class Step:
    """What became of an object in one write: its new content, None when it was deleted. `rv` 0 means not told."""

    content: Content | None
    rv: int = 0


@dataclass
class Told:
    """What one object's writer knows: the content it was told of, every step since the last check, one unanswered."""

    content: Content | None = None
    rv: int = 0
    steps: list[Step] = field(default_factory=list)
    unanswered: Step | None = None


@dataclass
class Writer:
    """Creates, replaces, patches and deletes objects that nobody else writes, one at a time, and remembers it all."""

    number: int
    choose: random.Random
    payloads: tuple[int, ...]
    objects: dict[str, Told]
    sequence: int = 0

    @classmethod
    def of(cls, number: int, seed: int, *, payloads: tuple[int, ...], objects: int = 6) -> Self:
        names = [f"writer-{number}-{index}" for index in range(objects)]
        return cls(number, random.Random(f"{seed}/{number}"), payloads, {name: Told() for name in names})

    async def run(self, connection: Connection, acknowledged: asyncio.Semaphore) -> None:
        """Write until the connection dies; releases the semaphore for each acknowledged write."""
        try:
            while True:
                await self._write(connection)
                acknowledged.release()
        except (ConnectionError, asyncio.IncompleteReadError):
            return

    async def _write(self, connection: Connection) -> None:
        name = self.choose.choice(list(self.objects))
        told = self.objects[name]
        self.sequence += 1
        data = content(self.sequence, self.choose.randbytes(self.choose.choice(self.payloads) // 2).hex())
        metadata: dict[str, Any] = {"name": name, "labels": {"writer": str(self.number)}}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        draw = self.choose.random()
        told.unanswered = Step(data)
        if told.content is None:
            answer = await connection.request("POST", CONFIG_MAPS, manifest)
        elif draw < 0.2:
            told.unanswered = Step(None)
            answer = await connection.request("DELETE", f"{CONFIG_MAPS}/{name}")
        elif draw < 0.4:
            media = {"content-type": "application/merge-patch+json"}
            answer = await connection.request("PATCH", f"{CONFIG_MAPS}/{name}", {"data": data}, headers=media)
        else:
            if draw < 0.7:
                metadata["resourceVersion"] = str(told.rv)
            answer = await connection.request("PUT", f"{CONFIG_MAPS}/{name}", manifest)
        assert answer.status in (200, 201), answer
        step = told.unanswered
        if step.content is not None:
            stored = answer.json()
            assert stored["data"] == step.content
            rv = int(stored["metadata"]["resourceVersion"])
            assert rv > told.rv, f"{name} went from resource version {told.rv} to {rv}"
            step = Step(step.content, rv)
            told.rv = rv
        told.content, told.unanswered = step.content, None
        told.steps.append(step)


@dataclass(frozen=True)
class Event:
    """What a watch told: the object's content, None when it was deleted."""

    name: str
    content: Content | None
    rv: int


@dataclass
class Watcher:
    """Follows objects over crashes: resumes from the last resource version it saw, and keeps the view that results."""

    selector: str = ""
    rv: int = 0
    view: dict[str, tuple[int, Content]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    async def run(self, connection: Connection, *, until: int | None = None) -> None:
        """Follow until the connection dies, or until that resource version has been seen."""
        query = f"watch=true&resourceVersion={self.rv}&labelSelector={self.selector}"
        connection.send("GET", f"{CONFIG_MAPS}?{query}")
        rest = b""
        try:
            status, _ = await connection.answer_head()
            assert status == 200
            async for chunk in connection.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(orjson.loads(line))
                if until is not None and self.rv >= until:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            assert until is None, f"the watch ended at {self.rv}, before {until}"

    def _take(self, event: Any) -> None:
        kind, obj = event["type"], event["object"]
        assert kind in ("ADDED", "MODIFIED", "DELETED"), event
        name, rv = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        assert rv > self.rv, f"{kind} {name} at {rv} came after an event at {self.rv}"
        assert (kind == "ADDED") == (name not in self.view), f"{kind} {name}, known: {name in self.view}"
        self.rv = rv
        if kind == "DELETED":
            del self.view[name]
            self.events.append(Event(name, None, rv))
        else:
            self.view[name] = (rv, obj["data"])
            self.events.append(Event(name, obj["data"], rv))
