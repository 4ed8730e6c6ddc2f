"""HTTP to an API server: who we are, how long we wait, what we try again, and errors as `ApiError`s.

It knows nothing of kinds, and leaves the wire to `pooled_http` or, for commands, `plain_http`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import orjson

from planform.client.credentials import Identity
from planform.client.fairness import FairBucket
from planform.client.kubeconfig import Connection
from planform.client.waits import Backoff
from planform.client.wire import Headers, Limits, NoReply, Reply, Wire
from planform.clock import Clock
from planform.errors import ApiError, InternalError, ServiceUnavailable, Timeout, Unauthorized

if TYPE_CHECKING:
    from planform.client.pooled_http import PooledHttp

RETRIES = 5
"""Tries after the first, for answers and failures that ask for another."""

MAX_WARNINGS = 1000
"""Texts of warnings that are remembered, so that each is logged once."""

_WARNING = re.compile(r'^299 \S+ "(.*)"$')  # the form that Kubernetes uses of RFC 7234

_logger = logging.getLogger(__name__)


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
    """One server, one identity at a time. Use it as a context manager: leaving closes every connection.

    `short_lived` is for a process that asks a few things and ends: its requests go without the library of the pools,
    which takes longer to import than they take. A stream imports it all the same.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock,
        rng: Random,
        user_agent: str,
        limits: Limits | None = None,
        fence: Fence | None = None,
        short_lived: bool = False,
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
        self._short_lived = short_lived
        self._wire: Wire | None = None
        self._pools: PooledHttp | None = None
        self._retired: list[PooledHttp] = []
        self._warned: set[str] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        for wire in [*self._retired, self._pools, self._wire]:
            if wire is not None:
                await wire.close()
        self._retired.clear()
        self._pools = self._wire = None

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
            wire = await self._wire_for(identity)
            if self._fence is not None and method != "GET":
                self._fence()  # the last thing before it is sent: waiting above may have taken long
            try:
                reply = await wire.send(method, _target(path, query), body, _with(headers, identity))
            except NoReply as error:
                if repeatable and attempt <= RETRIES and error.broken:
                    await self._clock.sleep(self._backoff.delay(attempt, self._rng))
                    continue
                raise self._unreachable(error) from error
            self._forward_warnings(reply, f"{method} {path}")
            if reply.status < 400:
                return Answer(reply.status, reply.content_type, reply.body)
            failure = error_of(reply.status, reply.body, f"{method} {path}")
            if reply.status == 401 and not renewed and await self._renewed():
                renewed = True
                continue
            wait = _retry_after(next(iter(reply.values("retry-after")), None), self._clock)
            if reply.status in (429, 503) and wait is not None and attempt <= RETRIES:
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
        from planform.client.pooled_http import lines_of

        renewed = False
        while True:
            if self._bucket is not None:
                await self._bucket.take()
            identity = await self._connection.credentials.current()
            pools = await self._pools_for(identity)
            sent = _with([("Accept", accept), *headers], identity)
            try:
                response = await pools.open_stream(_target(path, query), sent, seconds=seconds)
            except TimeoutError as error:
                raise Timeout(f"GET {path}: no answer from {self._connection.server}") from error
            except NoReply as error:
                raise self._unreachable(error) from error
            try:
                if response.status >= 400:
                    content = await response.read()
                    if response.status == 401 and not renewed and await self._renewed():
                        renewed = True
                        continue
                    raise error_of(response.status, content, f"GET {path}")
                stream = lines_of(response)
                try:
                    yield stream
                finally:
                    await stream.aclose()
                return
            finally:
                response.close()

    def _forward_warnings(self, reply: Reply, request: str) -> None:
        """Log what the server warns of (a deprecated version, an unknown field), each text once."""
        for header in reply.values("warning"):
            text = _WARNING.sub(r"\1", header).replace('\\"', '"')
            if text not in self._warned:
                if len(self._warned) >= MAX_WARNINGS:
                    self._warned.clear()
                self._warned.add(text)
                _logger.warning("the server warns: %s", text, extra={"request": request})

    async def _renewed(self) -> bool:
        try:
            return await self._connection.credentials.renew() is not None
        except Unauthorized as error:
            _logger.warning("%s", error)
            return False

    async def _wire_for(self, identity: Identity) -> Wire:
        """What carries requests with this identity's certificate; a new certificate means new connections."""
        if not self._short_lived:
            return await self._pools_for(identity)
        self._refuse_if_closed()
        if self._wire is None or self._wire.certificate != identity.certificate:
            from planform.client.plain_http import PlainHttp

            if self._wire is not None:
                await self._wire.close()
            self._wire = PlainHttp(self._connection.server, **self._how_to_connect(identity))
        return self._wire

    async def _pools_for(self, identity: Identity) -> PooledHttp:
        self._refuse_if_closed()
        if self._pools is None or self._pools.certificate != identity.certificate:
            from planform.client.pooled_http import PooledHttp

            if self._pools is not None:
                await self._pools.close_requests()
                self._retired.append(self._pools)  # its watches may go on until they end
            self._pools = PooledHttp(self._connection.server, **self._how_to_connect(identity))
        return self._pools

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ServiceUnavailable("the client is closed")

    def _how_to_connect(self, identity: Identity) -> dict[str, Any]:
        connection = self._connection
        return {
            "tls": tls_context(connection, identity) if connection.server.startswith("https:") else None,
            "tls_server_name": connection.tls_server_name,
            "certificate": identity.certificate,
            "limits": self._limits,
            "user_agent": self._user_agent,
        }

    def _unreachable(self, error: NoReply) -> ServiceUnavailable:
        hint = "does the kubeconfig's certificate authority belong to this server?" if error.untrusted else None
        return ServiceUnavailable(f"cannot reach {self._connection.server}: {error}", hint=hint)


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
        with _as_file(identity.certificate + b"\n" + identity.key) as file:
            try:
                context.load_cert_chain(file)
            except ssl.SSLError as error:
                raise Unauthorized(f"the client certificate or its key cannot be used: {error.reason}") from error
    return context


@contextmanager
def _as_file(content: bytes) -> Iterator[Path]:
    """The ssl module reads keys from files only. This one is ours alone and gone at the end of the block: in memory
    where the system has such files, so that no key touches a disk."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").exists():
        descriptor = os.memfd_create("planform-client")
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as memory:
                memory.write(content)
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="planform-") as directory:
        file = Path(directory) / "client.pem"
        file.touch(mode=0o600)
        file.write_bytes(content)
        yield file


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


def _target(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def _with(headers: Headers, identity: Identity) -> Headers:
    return [*headers, *([("Authorization", identity.authorization)] if identity.authorization else [])]


def _retry_after(header: str | None, clock: Clock) -> float | None:
    """Seconds from now, whether the header counts them or names a date; None without one."""
    if not header:
        return None
    if header.strip().isdecimal():
        return float(header)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, (parsedate_to_datetime(header) - clock.now()).total_seconds())
    except (ValueError, TypeError):
        return None
