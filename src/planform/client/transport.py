"""HTTP to an API server: who we are, how long we wait, what we try again, and errors as `ApiError`s.

This is the only module of the client that imports aiohttp. It knows nothing of kinds.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
import orjson
from multidict import CIMultiDict
from yarl import URL

from planform.client.credentials import Identity
from planform.client.fairness import FairBucket
from planform.client.kubeconfig import Connection
from planform.client.waits import Backoff
from planform.clock import Clock
from planform.errors import ApiError, InternalError, ServiceUnavailable, Timeout, Unauthorized, system_words

RETRIES = 5
"""Tries after the first, for answers and failures that ask for another."""

MAX_LINE_LENGTH = 64 * 1024 * 1024
"""Bytes one watch event may have. An object has 3 MiB at most on the way in; what is longer is no event."""

MAX_WARNINGS = 1000
"""Texts of warnings that are remembered, so that each is logged once."""

_WARNING = re.compile(r'^299 \S+ "(.*)"$')  # the form that Kubernetes uses of RFC 7234

_RESETS = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError, ConnectionError)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may use. Watches have connections of their own, so that they never crowd requests out."""

    connections: int = 32
    request_seconds: float = 30.0
    connect_seconds: float = 10.0
    per_second: float = 0.0  # 0: as fast as the server lets us; it has priority and fairness of its own
    burst: int = 1
    silent_seconds: float = 180.0
    """A watch that says nothing for so long is taken for dead: servers send bookmarks about once a minute."""


Fence = Callable[[], None]
"""Asked before each write is sent; raises if this process may not write any more, as when it lost its Lease."""


class Answer(NamedTuple):
    """A success."""

    status: int
    content_type: str
    body: bytes

    def json(self) -> Any:
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise InternalError(f"the server's answer is not JSON: {self.body[:80]!r}") from error


class Transport:
    """One server, one identity at a time. Use it as a context manager: leaving closes every connection."""

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock,
        rng: Random,
        user_agent: str,
        limits: Limits | None = None,
        fence: Fence | None = None,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._rng = rng
        self._user_agent = user_agent
        self._limits = limits if limits is not None else Limits()
        self._fence = fence
        self._bucket: FairBucket | None = None
        if self._limits.per_second:
            self._bucket = FairBucket(self._limits.per_second, self._limits.burst, clock=clock)
        self._backoff = Backoff(first=0.1, maximum=5, jitter=0.5)
        self._sessions: _Sessions | None = None
        self._retired: list[_Sessions] = []
        self._warned: set[str] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        for sessions in [*self._retired, self._sessions]:
            if sessions is not None:
                await sessions.close()
        self._retired.clear()
        self._sessions = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        repeatable: bool = False,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """One request, tried again where that is safe; raises the ApiError that the answer, or its lack, means.

        A server that is too busy is asked again when it says so. A broken connection is tried again only if the
        request is `repeatable`: for others nobody knows whether it was carried out. A server that cannot be reached at
        all is reported at once. The time limit covers all tries.
        """
        sent = [("Accept", accept), *headers]
        if body is not None:
            sent.append(("Content-Type", content_type))
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                return await self._tries(method, path, query or {}, body, sent, repeatable)
        except TimeoutError as error:
            raise Timeout(
                f"{method} {path}: no answer from {self._connection.server} within {self._limits.request_seconds:g} s"
            ) from error

    async def _tries(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        headers: Sequence[tuple[str, str]],
        repeatable: bool,
    ) -> Answer:
        renewed = False
        for attempt in range(1, RETRIES + 2):
            if self._bucket is not None:
                await self._bucket.take()
            identity = await self._connection.credentials.current()
            session = (await self._sessions_for(identity)).requests
            if self._fence is not None and method != "GET":
                self._fence()  # the last thing before it is sent: waiting above may have taken long
            try:
                async with session.request(
                    method, self._url(path, query), data=body, headers=_with(headers, identity), **self._tls_options()
                ) as response:
                    content = await response.read()
            except _RESETS as error:
                never_connected = isinstance(error, aiohttp.ClientConnectorError)
                if repeatable and attempt <= RETRIES and not never_connected:
                    await self._clock.sleep(self._backoff.delay(attempt, self._rng))
                    continue
                raise self._unreachable(error) from error
            except aiohttp.ClientError as error:
                raise self._unreachable(error) from error
            self._forward_warnings(response, f"{method} {path}")
            if response.status < 400:
                return Answer(response.status, response.content_type, content)
            failure = error_of(response.status, content, f"{method} {path}")
            if response.status == 401 and not renewed and await self._renewed():
                renewed = True
                continue
            wait = _retry_after(response.headers.get("Retry-After"), self._clock)
            if response.status in (429, 503) and wait is not None and attempt <= RETRIES:
                await self._clock.sleep(wait)
                continue
            raise failure
        raise AssertionError("unreachable: the last try returns or raises")

    @asynccontextmanager
    async def lines(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        accept: str,
        seconds: float,
        headers: Sequence[tuple[str, str]] = (),
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a streamed answer, until the server ends it, the connection breaks or the time is over."""
        timeout = aiohttp.ClientTimeout(
            total=seconds, sock_connect=self._limits.connect_seconds, sock_read=self._limits.silent_seconds
        )
        renewed = False
        while True:
            if self._bucket is not None:
                await self._bucket.take()
            identity = await self._connection.credentials.current()
            session = (await self._sessions_for(identity)).watches
            try:
                response = await session.get(
                    self._url(path, query),
                    headers=_with([("Accept", accept), *headers], identity),
                    timeout=timeout,
                    **self._tls_options(),
                )
            except TimeoutError as error:
                raise Timeout(f"GET {path}: no answer from {self._connection.server}") from error
            except aiohttp.ClientError as error:
                raise self._unreachable(error) from error
            try:
                if response.status >= 400:
                    content = await response.read()
                    if response.status == 401 and not renewed and await self._renewed():
                        renewed = True
                        continue
                    raise error_of(response.status, content, f"GET {path}")
                stream = _lines_of(response)
                try:
                    yield stream
                finally:
                    await stream.aclose()
                return
            finally:
                response.close()

    def _forward_warnings(self, response: aiohttp.ClientResponse, request: str) -> None:
        """Log what the server warns of (a deprecated version, an unknown field), each text once."""
        for header in response.headers.getall("Warning", ()):
            text = _WARNING.sub(r"\1", header).replace('\\"', '"')
            if text not in self._warned:
                if len(self._warned) >= MAX_WARNINGS:
                    self._warned.clear()
                self._warned.add(text)
                _logger.warning("the server warns: %s", text, extra={"request": request})

    def _url(self, path: str, query: Mapping[str, str]) -> URL:
        url = URL(self._connection.server + path, encoded=True)
        return url.with_query(query) if query else url

    def _tls_options(self) -> dict[str, Any]:
        name = self._connection.tls_server_name
        return {"server_hostname": name} if name else {}

    async def _renewed(self) -> bool:
        try:
            return await self._connection.credentials.renew() is not None
        except Unauthorized as error:
            _logger.warning("%s", error)
            return False

    async def _sessions_for(self, identity: Identity) -> _Sessions:
        """Connections that carry this identity's certificate; a new certificate means new connections."""
        if self._closed:
            raise ServiceUnavailable("the client is closed")
        if self._sessions is None or self._sessions.certificate != identity.certificate:
            if self._sessions is not None:
                await self._sessions.requests.close()
                self._retired.append(self._sessions)  # its watches may go on until they end
            self._sessions = _Sessions(self._connection, identity, self._limits, self._user_agent)
        return self._sessions

    def _unreachable(self, error: Exception) -> ServiceUnavailable:
        hint = None
        if isinstance(error, aiohttp.ClientSSLError):
            hint = "does the kubeconfig's certificate authority belong to this server?"
        return ServiceUnavailable(f"cannot reach {self._connection.server}: {_message_of(error)}", hint=hint)


class _Sessions:
    """Two pools for one identity: a bounded one for requests and one for watches."""

    def __init__(self, connection: Connection, identity: Identity, limits: Limits, user_agent: str) -> None:
        self.certificate = identity.certificate
        trust: ssl.SSLContext | bool = True
        if connection.server.startswith("https:"):
            trust = tls_context(connection, identity)
        headers = {"User-Agent": user_agent}
        # A byte that is not acknowledged within the time of a request is never delivered: a write that was given up
        # must not reach the server once a cut network is whole again. An open watch notices a dead peer as soon.
        patience = limits.request_seconds

        def connector(limit: int) -> aiohttp.TCPConnector:
            return aiohttp.TCPConnector(limit=limit, ssl=trust, socket_factory=lambda info: _socket(info, patience))

        self.requests = aiohttp.ClientSession(
            connector=connector(limits.connections),
            timeout=aiohttp.ClientTimeout(total=limits.request_seconds, sock_connect=limits.connect_seconds),
            headers=headers,
            auto_decompress=True,
        )
        self.watches = aiohttp.ClientSession(connector=connector(0), headers=headers)

    async def close(self) -> None:
        await self.requests.close()
        await self.watches.close()


def _socket(info: tuple[Any, ...], patience: float) -> socket.socket:
    """A socket for this address whose peer is given up on after so many seconds without a sign of life."""
    made = socket.socket(family=info[0], type=info[1], proto=info[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_USER_TIMEOUT", round(patience * 1000)),
        ("TCP_KEEPIDLE", max(1, round(patience / 2))),
        ("TCP_KEEPINTVL", max(1, round(patience / 6))),
        ("TCP_KEEPCNT", 3),
    ):
        if hasattr(socket, option):  # each system knows some of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def tls_context(connection: Connection, identity: Identity) -> ssl.SSLContext:
    """How to trust the server of a connection, and who to be there. Raises Unauthorized for what cannot be used."""
    if connection.insecure:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif connection.ca:
        try:
            context = ssl.create_default_context(cadata=connection.ca.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise Unauthorized("the certificate authority of the connection is not PEM") from error
    else:
        context = ssl.create_default_context()
    if identity.certificate:
        # The ssl module reads keys from files only. This one is ours alone and gone at the end of the block.
        with tempfile.TemporaryDirectory(prefix="planform-") as directory:
            file = Path(directory) / "client.pem"
            file.touch(mode=0o600)
            file.write_bytes(identity.certificate + b"\n" + identity.key)
            try:
                context.load_cert_chain(file)
            except ssl.SSLError as error:
                raise Unauthorized(f"the client certificate or its key cannot be used: {error.reason}") from error
    return context


async def _lines_of(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Whole lines; a broken connection ends them, and the rest of a broken line is dropped."""
    rest = b""
    try:
        async for chunk in response.content.iter_any():
            *whole, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
            for line in whole:
                if line:
                    yield line
            if len(rest) > MAX_LINE_LENGTH:
                raise InternalError(f"a watch event of {response.url.path} is longer than {MAX_LINE_LENGTH} bytes")
    except (*_RESETS, TimeoutError) as error:
        _logger.debug("stream of %s ended: %s", response.url.path, _message_of(error))


def error_of(status: int, content: bytes, request: str) -> ApiError:
    """The error that an answer means: its Status, or what its code says where something else answered."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        document = None
    if isinstance(document, dict) and document.get("kind") == "Status":
        return ApiError.from_status({"code": status} | document)
    text = " ".join(content.decode(errors="replace").split())[:200]
    return ApiError.from_status({"code": status, "message": f"{request}: HTTP {status}: {text}"})


def _with(headers: Sequence[tuple[str, str]], identity: Identity) -> CIMultiDict[str]:
    """A name may stand several times, as that of impersonated groups."""
    own = [("Authorization", identity.authorization)] if identity.authorization else []
    return CIMultiDict([*headers, *own])


def _retry_after(header: str | None, clock: Clock) -> float | None:
    """Seconds from now, whether the header counts them or names a date; None without one."""
    if not header:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - clock.now()).total_seconds())
    except (ValueError, TypeError):
        return None


def _message_of(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        return system_words(error.os_error)
    return " ".join(str(error).split()) or type(error).__name__
