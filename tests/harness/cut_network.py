"""A network that can be cut: a TCP proxy on loopback that at a word lets nothing through, in either direction.

As behind a real cut, connections stay open and new ones are neither accepted nor refused. What a sender has given up
on meanwhile is never delivered: a kernel does not send again for a socket that was closed or has timed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CutNetwork:
    """Between any number of clients and one server; `cut` and `mend` as often as you like."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        onward: asyncio.StreamWriter | None = None
        try:
            await self._whole.wait()
            if reader.at_eof():
                return
            back, onward = await asyncio.open_connection(*self._target)
            await asyncio.gather(self._pump(reader, onward, reader), self._pump(back, writer, reader))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # a callback of the stream reader would log the cancellation of this task as an error
        finally:
            for end in (writer, onward):
                if end is not None:
                    end.close()
            self._tasks.discard(task)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamReader
    ) -> None:
        while data := await reader.read(65536):
            if not self._whole.is_set():
                await self._whole.wait()
                if client.at_eof() or client.exception() is not None or _has_ended(client):
                    raise ConnectionResetError("the client gave up while the network was cut")
            writer.write(data)
            await writer.drain()
        writer.close()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


def _has_ended(reader: asyncio.StreamReader) -> bool:
    """Whether the peer has closed, though some of what it sent before is still to be read."""
    return bool(getattr(reader, "_eof", False))


@asynccontextmanager
async def cut_network(host: str, port: int) -> AsyncIterator[CutNetwork]:
    """A way to the server at this address; `port` of what it gives is where clients connect."""
    network = CutNetwork(host, port)
    server = await asyncio.start_server(network._serve, "127.0.0.1", 0)
    network.port = server.sockets[0].getsockname()[1]
    try:
        yield network
    finally:
        server.close()
        network.mend()
        network.close()
