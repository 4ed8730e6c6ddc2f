"""Requests and streams of a process that lives: two pools of connections by aiohttp, which only this module imports."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from planform.client.wire import Headers, Limits, NoReply, Reply, keep_alive
from planform.errors import InternalError, system_words

MAX_LINE_LENGTH = 64 * 1024 * 1024
"""Bytes one watch event may have. An object has 3 MiB at most on the way in; what is longer is no event."""

_RESETS = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError, ConnectionError)

_logger = logging.getLogger(__name__)


class PooledHttp:
    """Two pools for one identity: a bounded one for requests and one for watches."""

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
        self._server = server
        self._limits = limits
        self._options: dict[str, Any] = {"server_hostname": tls_server_name} if tls_server_name else {}
        headers = {"User-Agent": user_agent}

        def connector(limit: int) -> aiohttp.TCPConnector:
            return aiohttp.TCPConnector(limit=limit, ssl=tls or True, socket_factory=self._socket)

        self._requests = aiohttp.ClientSession(
            connector=connector(limits.connections),
            timeout=aiohttp.ClientTimeout(total=limits.request_seconds, sock_connect=limits.connect_seconds),
            headers=headers,
            auto_decompress=True,
        )
        self._watches = aiohttp.ClientSession(connector=connector(0), headers=headers)

    async def send(self, method: str, target: str, body: bytes | None, headers: Headers) -> Reply:
        try:
            async with self._requests.request(
                method, self._url(target), data=body, headers=CIMultiDict(headers), **self._options
            ) as response:
                content = await response.read()
                return Reply(response.status, list(response.headers.items()), content)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise _no_reply(error) from error

    async def open_stream(self, target: str, headers: Headers, *, seconds: float) -> aiohttp.ClientResponse:
        """The beginning of an answer that goes on for at most so long; whoever opens it closes it.

        Raises NoReply, and TimeoutError where none begins.
        """
        timeout = aiohttp.ClientTimeout(
            total=seconds, sock_connect=self._limits.connect_seconds, sock_read=self._limits.silent_seconds
        )
        try:
            return await self._watches.get(
                self._url(target), headers=CIMultiDict(headers), timeout=timeout, **self._options
            )
        except TimeoutError:
            raise
        except aiohttp.ClientError as error:
            raise _no_reply(error) from error

    async def close_requests(self) -> None:
        """For another identity from now on; watches may go on until they end."""
        await self._requests.close()

    async def close(self) -> None:
        await self._requests.close()
        await self._watches.close()

    def _url(self, target: str) -> URL:
        return URL(self._server + target, encoded=True)

    def _socket(self, info: tuple[Any, ...]) -> socket.socket:
        made = socket.socket(family=info[0], type=info[1], proto=info[2])
        keep_alive(made, self._limits.request_seconds)
        return made


async def lines_of(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
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


def _no_reply(error: Exception) -> NoReply:
    connected = not isinstance(error, aiohttp.ClientConnectorError)
    return NoReply(
        _message_of(error),
        broken=isinstance(error, _RESETS) and connected,
        untrusted=isinstance(error, aiohttp.ClientSSLError),
    )


def _message_of(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        return system_words(error.os_error)
    return " ".join(str(error).split()) or type(error).__name__
