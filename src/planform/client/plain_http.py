"""Requests of a command, which asks a few things and ends: HTTP/1.1 on asyncio's own connections.

A connection carries one request at a time and is kept for the next. Answers are read whole; what is streamed goes
through `pooled_http`.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from planform.client.wire import Headers, Limits, NoReply, Reply, keep_alive
from planform.errors import system_words

_SAFE_TWICE: Final = frozenset({"GET", "PUT", "DELETE", "HEAD", "OPTIONS"})
"""Methods that a server may have been asked already, on a connection it was closing, and may be asked again."""

_GZIP: Final = zlib.MAX_WBITS | 16


class PlainHttp:
    """The connections of one identity to one server."""

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None,
        tls_server_name: str,
        certificate: bytes,
        limits: Limits,
        user_agent: str,
    ) -> None:
        self.certificate = certificate
        url = urlsplit(server)
        self._host, self._port = url.hostname or "", url.port or (443 if tls else 80)
        self._prefix = url.path.rstrip("/")
        self._tls = tls
        self._tls_server_name = tls_server_name
        self._limits = limits
        self._always = f"Host: {url.netloc.rpartition('@')[2]}\r\nUser-Agent: {user_agent}\r\nAccept-Encoding: gzip\r\n"
        self._idle: list[_Connection] = []
        self._slots = asyncio.Semaphore(limits.connections)
        self._closed = False

    async def send(self, method: str, target: str, body: bytes | None, headers: Headers) -> Reply:
        request = self._request(method, target, body, headers)
        async with self._slots:
            while self._idle:
                kept = self._idle.pop()
                if not kept.usable:
                    continue
                try:
                    return await self._exchange(kept, request)
                except NoReply as error:
                    # The server may have closed it before it saw the request, as one that restarts does.
                    if not error.broken or kept.answering or method not in _SAFE_TWICE:
                        raise
            return await self._exchange(await self._connect(), request)

    async def close(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _request(self, method: str, target: str, body: bytes | None, headers: Headers) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        if any(value.count("\n") or value.count("\r") for pair in headers for value in pair):
            raise ValueError("a header has a line break")
        length = f"Content-Length: {len(body or b'')}\r\n" if body is not None or method != "GET" else ""
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._always}{lines}{length}\r\n"
        return head.encode("latin-1") + (body or b"")

    async def _exchange(self, connection: _Connection, request: bytes) -> Reply:
        try:
            reply = await connection.exchange(request)
        except BaseException:
            connection.close()  # also when cancelled: an answer that comes later is nobody's
            raise
        if connection.usable and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        return reply

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        name = (self._tls_server_name or self._host) if self._tls else None
        try:
            async with asyncio.timeout(self._limits.connect_seconds):
                transport, connection = await loop.create_connection(
                    _Connection, self._host, self._port, ssl=self._tls, server_hostname=name
                )
        except TimeoutError as error:
            raise NoReply(f"no connection within {self._limits.connect_seconds:g} s") from error
        except ssl.SSLError as error:
            raise NoReply(" ".join(str(error).split()), untrusted=True) from error
        except OSError as error:
            raise NoReply(system_words(error)) from error
        keep_alive(transport.get_extra_info("socket"), self._limits.request_seconds)
        return connection


class _Connection(asyncio.Protocol):
    """One connection, and the answer that is being read from it."""

    def __init__(self) -> None:
        self._transport = cast("asyncio.Transport", None)
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Reply] | None = None
        self._status = 0
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._whole = False
        self.answering = False
        """Whether anything of the present answer has come."""

    @property
    def usable(self) -> bool:
        return not self._transport.is_closing()

    async def exchange(self, request: bytes) -> Reply:
        self._waiting = asyncio.get_running_loop().create_future()
        self._whole = self.answering = False
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        self._transport.abort()

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.answering = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(NoReply(f"the answer is not HTTP: {error}"))
        if self._waiting is None:
            self._transport.abort()  # it speaks without being asked: whatever follows would be taken for an answer

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is None or self._waiting.done():
            return
        if self._status and not self._whole and not self._has("content-length") and not self._has("transfer-encoding"):
            self._finish()  # an answer without a length ends with its connection
            return
        words = system_words(error) if isinstance(error, OSError) else "the server closed the connection"
        self._fail(NoReply(words, broken=True))

    # -- called by the parser

    def on_message_begin(self) -> None:
        self._status, self._headers, self._body = 0, [], []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self._status >= 200:  # what comes before is no answer yet
            self._whole = True
            self._finish()

    def _finish(self) -> None:
        if not self._parser.should_keep_alive():
            self._transport.close()
        body = b"".join(self._body)
        if self._has("content-encoding", "gzip"):
            try:
                body = zlib.decompress(body, wbits=_GZIP)
            except zlib.error as error:
                self._fail(NoReply(f"the answer cannot be decompressed: {error}"))
                return
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(Reply(self._status, self._headers, body))

    def _fail(self, error: NoReply) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
        self._transport.abort()

    def _has(self, name: str, value: str = "") -> bool:
        return any(each.lower() == name and value in held.lower() for each, held in self._headers)
