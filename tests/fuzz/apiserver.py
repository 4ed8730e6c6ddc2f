"""Requests that are almost right, against a live plane: never an internal error, a hang, or an answer that is not HTTP.

Every request is a mutation of a valid one. Most are mutated by their parts (method, path, query, headers, a value in
the body), some as bytes, head included; after those the server may just as well close the connection.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path

from tests.faults.load import TOKEN, Answer, BrokenAnswer, Connection, PlaneProcess, running_plane
from tests.fuzz._requests import CRDS, VALID, Sent, crd, mutated, mutated_bytes

CLIENTS = 3
PATIENCE_SECONDS = 20.0


def check(sent: object, answer: Answer, *, head: bool) -> None:
    """Raise AssertionError if an answer is not one that a client can work with."""
    assert answer.status < 500 or answer.status == 504, (sent, answer)
    if head or answer.status < 400:
        return
    if answer.headers.get("content-type", "").startswith("text/plain"):
        assert answer.status in (404, 405, 406), (sent, answer)
        return
    answer.failure()


class Client:
    """Sends mutated requests over one connection, and opens another where that one was closed."""

    def __init__(self, plane: PlaneProcess, choose: random.Random) -> None:
        self.plane = plane
        self.choose = choose
        self.sent = 0

    async def run(self, until: float) -> None:
        while time.monotonic() < until:
            async with self.plane.connection(patience=PATIENCE_SECONDS) as connection:
                usable = True
                while usable and time.monotonic() < until:
                    usable = await self.send_one(connection)

    async def send_one(self, connection: Connection) -> bool:
        """Whether the connection can be used again."""
        sent = self.choose.choice(VALID)
        for _ in range(self.choose.randint(0, 3)):
            sent = mutated(self.choose, sent)
        self.sent += 1
        if self.choose.random() < 0.1:
            await self.send_broken(connection, sent)
            return False
        try:
            answer = await self.answer_to(connection, sent)
        except (asyncio.IncompleteReadError, ConnectionError, BrokenAnswer, TimeoutError, KeyError) as error:
            raise AssertionError(f"{type(error).__name__} {error} for {sent}") from error
        check(sent, answer, head=sent.method == "HEAD")
        return not answer.closes

    async def answer_to(self, connection: Connection, sent: Sent) -> Answer:
        """The whole answer; of a watch only its head, since it need not end."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            connection.send(sent.method, sent.target, sent.content(), headers=sent.headers)
            if "watch" not in sent.target:
                return await connection.answer(head=sent.method == "HEAD")
            status, headers = await connection.answer_head()
            body = b""
            if "content-length" in headers and sent.method != "HEAD":
                body = await connection.reader.readexactly(int(headers["content-length"]))
            return Answer(status, headers | {"connection": "close"}, body)

    async def send_broken(self, connection: Connection, sent: Sent) -> None:
        content = sent.content()
        lines = {
            "host": "plane",
            "authorization": f"Bearer {TOKEN}",
            "content-length": str(len(content)),
        } | sent.headers
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        data = f"{sent.method} {sent.target} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogateescape")
        broken = mutated_bytes(self.choose, data) + content
        connection.writer.write(broken)
        try:
            async with asyncio.timeout(0.5):  # it may rightly wait for more
                check(broken, await connection.answer(), head=True)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass


async def fuzz(seconds: int, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="planform-fuzz-") as directory:
        async with running_plane(Path(directory)) as plane:
            async with plane.connection() as connection:
                answer = await connection.request("POST", CRDS, crd("widgets", "Widget"))
                assert answer.status == 201, answer
            clients = [Client(plane, random.Random(f"{seed}/{number}")) for number in range(CLIENTS)]
            try:
                until = time.monotonic() + seconds
                async with asyncio.TaskGroup() as tasks:
                    for client in clients:
                        tasks.create_task(client.run(until))
            finally:
                said = plane.log()
                print(f"apiserver: {sum(client.sent for client in clients)} requests", flush=True)
                assert plane.alive, f"the server is dead: {said}"
            assert said == "", said
            async with plane.connection() as connection:
                assert (await connection.request("GET", "/readyz")).status == 200


def run(seconds: int, seed: int) -> None:
    """Fuzz a live plane; raises AssertionError with the request that was answered wrongly."""
    asyncio.run(fuzz(seconds, seed))
