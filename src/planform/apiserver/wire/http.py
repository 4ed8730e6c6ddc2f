"""HTTP/1.1 on asyncio, small enough to own: httptools parses, this module keeps every limit.

A connection handles one request at a time; pipelined ones wait in order. Slow writers, idle connections and readers
that stop reading are closed by one sweep over all connections, not by a timer each. What a client may send is bounded
before it is parsed: header bytes, header count, body size, number of connections. What it makes us keep is bounded as
well: the bodies of all connections together, and no answer is begun while the one before has not been read.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import httptools

log = logging.getLogger(__name__)

_REASONS = {
    100: b"Continue",
    200: b"OK",
    201: b"Created",
    202: b"Accepted",
    204: b"No Content",
    301: b"Moved Permanently",
    302: b"Found",
    304: b"Not Modified",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    408: b"Request Timeout",
    409: b"Conflict",
    410: b"Gone",
    413: b"Request Entity Too Large",
    415: b"Unsupported Media Type",
    422: b"Unprocessable Entity",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    507: b"Insufficient Storage",
}
_STATUS_LINES = {code: b"HTTP/1.1 %d %s\r\n" % (code, reason) for code, reason in _REASONS.items()}
_LARGE_CHUNK = 64 * 1024
_OTHER_FILES = 256  # file descriptors that are not for connections
_SWEEP_SECONDS = 5.0
_SWEEP_SLICE = 2000


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client, and all of them together, may take."""

    header_bytes: int = 64 * 1024
    header_count: int = 128
    body_bytes: int = 3 * 1024 * 1024
    buffered_bytes: int = 128 * 1024 * 1024
    """Bodies of all connections together that are still arriving or not yet answered."""
    unread_bytes: int = 128 * 1024 * 1024
    """Answers of all connections together that their clients have not read yet."""
    connections: int = 20_000
    pipelined: int = 16
    request_seconds: float = 30.0
    idle_seconds: float = 600.0
    stalled_seconds: float = 60.0
    handshake_seconds: float = 15.0


@dataclass(slots=True)
class HttpRequest:
    """One request as it came in. Header names are lower case; repeated headers are joined with a comma."""

    method: str
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes
    peer_certificate: Mapping[str, Any] | None = None
    remote: str = ""

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")


@dataclass(slots=True)
class HttpResponse:
    """An answer: bytes at once, or chunks as they come. `headers` are complete but for length and connection."""

    status: int
    body: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    content_type: bytes = b"application/json"
    chunks: AsyncIterator[bytes] | None = None
    close: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    """What the audit log says beside it."""
    stream: Stream | None = None
    """Set for chunks that go on and on: by it others can end them."""


class Stream:
    """An answer that goes on until its source or its reader ends it, or somebody else does by `end`."""

    __slots__ = ("_connection", "_on_end")

    def __init__(self) -> None:
        self._connection: _Connection | None = None
        self._on_end: list[Callable[[], None]] = []

    def on_end(self, callback: Callable[[], None]) -> None:
        """Have it called once the stream is over, however it ends."""
        self._on_end.append(callback)

    def end(self, last: bytes) -> None:
        """Send this last answer to a client that reads, and close the connection; one that does not read is cut off."""
        if self._connection is not None:
            self._connection.end_stream(last)

    def begins(self, connection: _Connection) -> None:
        self._connection = connection

    def ended(self) -> None:
        self._connection = None
        for callback in self._on_end:
            callback()
        self._on_end.clear()


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]
Refusal = Callable[[int, str], HttpResponse]
"""Words an answer to something that never became a request: a code and what was wrong."""


class HttpServer:
    """Listens, keeps the connections, and closes them all when it is left."""

    def __init__(
        self,
        handler: Handler,
        refusal: Refusal,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.handler = handler
        self.refusal = refusal
        self.limits = limits or Limits()
        self.connections: set[_Connection] = set()
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        spare = files - _OTHER_FILES if files != resource.RLIM_INFINITY else self.limits.connections
        self.max_connections = min(self.limits.connections, max(spare, 1))
        self.requests = 0
        self.buffered = 0
        self.unread = 0
        self._stalled: dict[_Connection, None] = {}  # those whose clients leave something unread, the longest first
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._emptied: asyncio.Event | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which matters when 0 was asked for."""
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"backlog": 4096}
        if self._tls is not None:
            options |= {"ssl": self._tls, "ssl_handshake_timeout": self.limits.handshake_seconds}
        self._server = await loop.create_server(lambda: _Connection(self, loop), host, port, **options)
        self._sweeper = asyncio.create_task(self._sweep(), name="http-sweep")
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self, grace: float = 5.0) -> None:
        """Accept nothing new, let answers under way finish for `grace` seconds, then close what is left."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.finish()
        if self.connections:
            self._emptied = asyncio.Event()
            try:
                async with asyncio.timeout(grace):
                    await self._emptied.wait()
            except TimeoutError:
                log.info("closing %d connections that did not finish in time", len(self.connections))
        for connection in list(self.connections):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    def forget(self, connection: _Connection) -> None:
        self.connections.discard(connection)
        self.resumed(connection)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def stalled(self, connection: _Connection) -> None:
        """A client has so much unread that nothing more is written to it. Beyond the limit, the longest goes."""
        self._stalled[connection] = None
        self.unread += connection.unread
        while self.unread > self.limits.unread_bytes and self._stalled:
            slowest = next(iter(self._stalled))
            self.resumed(slowest)
            slowest.abort()

    def resumed(self, connection: _Connection) -> None:
        if connection in self._stalled:
            del self._stalled[connection]
            self.unread -= connection.unread
            connection.unread = 0

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = asyncio.get_running_loop().time()
            for count, connection in enumerate(list(self.connections)):
                connection.enforce(now)
                if count % _SWEEP_SLICE == _SWEEP_SLICE - 1:
                    await asyncio.sleep(0)


class _Connection(asyncio.Protocol):
    """One client's connection; the parser calls the `on_` methods."""

    __slots__ = (
        "_body",
        "_drained",
        "_finishing",
        "_head_size",
        "_headers",
        "_held",
        "_in_body",
        "_loop",
        "_parser",
        "_peer",
        "_queue",
        "_received",
        "_refused",
        "_remote",
        "_server",
        "_since",
        "_size",
        "_stalled_since",
        "_streaming",
        "_target",
        "_task",
        "_transport",
        "unread",
    )

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._parser: Any = None
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._queue: deque[tuple[HttpRequest, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._since = loop.time()
        self._stalled_since = 0.0
        self._received = 0  # bytes since the last complete request
        self.unread = 0  # bytes that the client had not read when it stalled
        self._held = 0  # bytes of bodies that count against the server's limit
        self._finishing = self._streaming = self._refused = self._in_body = False
        self._peer: Mapping[str, Any] | None = None
        self._remote = ""
        self._reset()

    def _reset(self) -> None:
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._size = self._head_size = 0
        self._in_body = False

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        server = self._server
        if len(server.connections) >= server.max_connections:
            self._transport.abort()
            return
        server.connections.add(self)
        self._parser = httptools.HttpRequestParser(self)
        self._peer = transport.get_extra_info("peercert") or None
        address = transport.get_extra_info("peername")
        self._remote = str(address[0]) if address else ""

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        self._release(self._held)
        self._parser = None  # it knows this connection: the two would stay until garbage is collected
        if self._task is not None:
            self._task.cancel()
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(ConnectionResetError())
            self._drained.exception()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if not self._received and self._task is None:
            self._since = self._loop.time()
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "protocol upgrades are not supported")
        except httptools.HttpParserError as error:
            if not self._refused:
                self._refuse(400, f"the request is not HTTP/1.1: {error}")
            return
        limits = self._server.limits
        # Whatever is not body: a header that does not end, chunks of one byte, trailers.
        if self._received - self._size > limits.header_bytes + (limits.body_bytes if self._in_body else 0):
            self._refuse(431, f"request headers exceed {limits.header_bytes} bytes")

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()
        self._stalled_since = self._loop.time()
        self.unread = self._transport.get_write_buffer_size()
        self._server.stalled(self)

    def resume_writing(self) -> None:
        self._stalled_since = 0.0
        self._server.resumed(self)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # -- the parser's side

    def on_message_begin(self) -> None:
        self._reset()

    def on_url(self, url: bytes) -> None:
        self._target += url
        if len(self._target) > self._server.limits.header_bytes:
            self._refuse(431, f"the request target exceeds {self._server.limits.header_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if self._head_size > self._server.limits.header_bytes:
            self._refuse(431, f"request headers exceed {self._server.limits.header_bytes} bytes")
        name = name.lower()
        if name in self._headers:
            value = self._headers[name] + b"," + value
        self._headers[name] = value
        if len(self._headers) > self._server.limits.header_count:
            self._refuse(431, f"the request has more than {self._server.limits.header_count} headers")

    def on_headers_complete(self) -> None:
        self._in_body = True
        length = self._headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length) > self._server.limits.body_bytes:
            self._too_large()
        elif b"expect" in self._headers and not self._refused:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._server.limits.body_bytes:
            self._body.clear()
            self._too_large()
            return
        if self._refused:
            return
        self._hold(len(data))
        if self._server.buffered > self._server.limits.buffered_bytes:
            self._body.clear()
            self._refuse(429, "too many large requests are under way; try again later")
            return
        self._body.append(data)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._received = 0
        if self._refused:
            return
        request = HttpRequest(
            self._parser.get_method().decode("latin-1"),
            self._target,
            self._headers,
            b"".join(self._body),
            self._peer,
            self._remote,
        )
        keep_alive = self._parser.should_keep_alive()
        self._reset()
        self._queue.append((request, keep_alive))
        if len(self._queue) > self._server.limits.pipelined:
            self._refuse(429, "too many pipelined requests")
            return
        if self._task is None:
            self._task = self._loop.create_task(self._serve())

    # -- answering

    async def _serve(self) -> None:
        """Answer what is queued, in order; ends when nothing is."""
        keep_alive = True
        while self._queue and keep_alive:
            request, keep_alive = self._queue.popleft()
            self._server.requests += 1
            try:
                response = await self._server.handler(request)
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("request failed", extra={"method": request.method, "target": request.target[:200]})
                response = self._server.refusal(
                    500, "an internal error occurred; the log of the control plane says more"
                )
            keep_alive = keep_alive and not response.close and not self._finishing
            self._release(len(request.body))
            if response.chunks is None:
                self._write_whole(response, keep_alive, head=request.method == "HEAD")
                keep_alive = keep_alive and await self._drain()
            else:
                keep_alive = await self._write_stream(response, keep_alive)
        self._task = None
        self._since = self._loop.time()
        if not keep_alive:
            self._transport.close()

    def _write_whole(self, response: HttpResponse, keep_alive: bool, *, head: bool) -> None:
        parts = [_head(response, keep_alive), b"content-length: %d\r\n\r\n" % len(response.body)]
        if not head:
            parts.append(response.body)
        self._transport.write(b"".join(parts))

    async def _drain(self) -> bool:
        """Wait until the client has read enough to be answered again; False if it is gone."""
        if self._drained is not None:
            try:
                await self._drained
            except ConnectionResetError:
                return False
        return True

    async def _write_stream(self, response: HttpResponse, keep_alive: bool) -> bool:
        chunks = response.chunks
        assert chunks is not None
        self._transport.write(_head(response, keep_alive) + b"transfer-encoding: chunked\r\n\r\n")
        self._streaming = True
        if response.stream is not None:
            response.stream.begins(self)
        try:
            async for chunk in chunks:
                if chunk:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                if self._drained is not None:
                    await self._drained
                elif len(chunk) > _LARGE_CHUNK:  # a fast reader of much must not keep the loop to itself
                    await asyncio.sleep(0)
            self._transport.write(b"0\r\n\r\n")
        except ConnectionResetError:
            return False
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("stream failed")
            return False
        finally:
            self._streaming = False
            if response.stream is not None:
                response.stream.ended()
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        return keep_alive

    def _hold(self, size: int) -> None:
        self._held += size
        self._server.buffered += size

    def _release(self, size: int) -> None:
        size = min(size, self._held)  # a connection that was lost has given back everything already
        self._held -= size
        self._server.buffered -= size

    def _too_large(self) -> None:
        self._refuse(413, f"Request entity too large: limit is {self._server.limits.body_bytes}")

    def _refuse(self, status: int, text: str) -> None:
        """Answer something that never became a request, after what is under way, and close."""
        if self._refused:
            return
        self._refused = True
        if self._task is None:
            self._write_whole(self._server.refusal(status, text), False, head=False)
        self._finishing = True
        if self._task is None:
            self._transport.close()

    # -- limits and endings

    def enforce(self, now: float) -> None:
        """Close what takes too long: half a request, an idle connection, a reader that does not read."""
        limits = self._server.limits
        if self._stalled_since and now - self._stalled_since > limits.stalled_seconds:
            self._transport.abort()
        elif self._task is None:
            partial = bool(self._received or self._target or self._headers or self._in_body)
            waited = now - self._since
            if partial and waited > limits.request_seconds:
                self._refuse(408, "the request did not arrive in time")
            elif waited > limits.idle_seconds:
                self._transport.close()

    def finish(self) -> None:
        """Close once the answer under way is out; streams end now."""
        self._finishing = True
        if self._task is None:
            self._transport.close()
        elif self._streaming:
            self._task.cancel()
            self._transport.close()

    def end_stream(self, last: bytes) -> None:
        """End the stream under way. What is written here falls between two chunks: writing never waits."""
        if not self._streaming or self._task is None:
            return
        self._finishing = True
        if self._drained is None:
            self._transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))
            self._transport.close()
        else:
            self._transport.abort()
        self._task.cancel()

    def abort(self) -> None:
        self._transport.abort()


def _head(response: HttpResponse, keep_alive: bool) -> bytes:
    lines = [
        _STATUS_LINES.get(response.status) or b"HTTP/1.1 %d Status\r\n" % response.status,
        b"content-type: ",
        response.content_type,
        b"\r\n",
    ]
    for name, value in response.headers:
        lines += (name, b": ", value, b"\r\n")
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    return b"".join(lines)
