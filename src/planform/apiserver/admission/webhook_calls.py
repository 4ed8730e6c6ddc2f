"""HTTPS calls of webhooks, of conversion and of admission alike: where to, whom to trust, how long and how much.

Only https is called, redirects are not followed and no proxy is asked. An answer is read up to a limit and up to a
deadline that holds for the whole call, however slowly it comes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import aiohttp

MAX_BYTES = 16 << 20
"""The largest answer: a patch may replace the largest object, in base64, and a conversion brings a page of them."""
_MAX_AUTHORITIES = 64
_SHOWN_BYTES = 512


class CallFailed(Exception):
    """A webhook could not be called, or did not answer; the text is what follows `failed to call webhook: `."""


class _HungUp(Exception):
    """The server closed the connection before it answered."""


class Endpoint(NamedTuple):
    """Where a Service is served on this machine."""

    host: str
    port: int


class Services(Protocol):
    """Knows which Services are served here: the embedded engine has no network of a cluster."""

    def endpoint(self, namespace: str, name: str, port: int, /) -> Endpoint | None: ...


class NoServices:
    def endpoint(self, namespace: str, name: str, port: int, /) -> Endpoint | None:
        return None


class Target(NamedTuple):
    """Where a call goes. `server_name` is whom the certificate must be of; empty for the host of the URL."""

    url: str
    server_name: str = ""


class WebhookCalls:
    """One HTTP session for all webhooks; connections are kept. Close it."""

    def __init__(self, services: Services | None = None) -> None:
        self.services: Services = services or NoServices()
        self._session: aiohttp.ClientSession | None = None
        self._authorities: dict[bytes, ssl.SSLContext] = {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def target(self, config: Mapping[str, Any]) -> Target:
        """Where the `clientConfig` of a webhook points to. Raises CallFailed."""
        url = config.get("url")
        if url:
            if urlsplit(str(url)).scheme != "https":
                raise CallFailed(f"{url} is no https URL")
            return Target(str(url))
        service = config.get("service") or {}
        namespace, name = str(service.get("namespace") or ""), str(service.get("name") or "")
        port = int(service.get("port") or 443)
        found = self.services.endpoint(namespace, name, port)
        path = str(service.get("path") or "").lstrip("/")
        shown = f"https://{name}.{namespace}.svc:{port}/{path}"
        if found is None:
            raise CallFailed(
                f'Post "{shown}": service "{name}" in namespace "{namespace}" is not served by this control plane: '
                "a webhook is reached by clientConfig.url, or by the Service of a provider that runs here"
            )
        return Target(f"https://{found.host}:{found.port}/{path}", f"{name}.{namespace}.svc")

    async def post(self, config: Mapping[str, Any], body: bytes, *, seconds: float, query: str = "") -> bytes:
        """The body of the answer to a POST of JSON; raises CallFailed."""
        target = self.target(config)
        url = f"{target.url}?{query}" if query else target.url
        try:
            async with asyncio.timeout(seconds):
                try:
                    return await self._post(url, target.server_name, config.get("caBundle"), body)
                except _HungUp:
                    # On a kept connection that says nothing of the call: the server may have closed it long ago.
                    return await self._post(url, target.server_name, config.get("caBundle"), body)
        except _HungUp as error:
            raise CallFailed(f'Post "{url}": EOF') from error
        except TimeoutError as error:
            raise CallFailed(f'Post "{url}": context deadline exceeded') from error

    async def _post(self, url: str, server_name: str, ca_bundle: str | None, body: bytes) -> bytes:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=256, keepalive_timeout=30),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        try:
            async with self._session.post(
                url,
                data=body,
                headers={"content-type": "application/json", "accept": "application/json, */*"},
                ssl=await self._trust(ca_bundle),
                server_hostname=server_name or None,
                allow_redirects=False,
            ) as response:
                answer = await _bounded(response.content, url)
                if response.status != 200:
                    raise CallFailed(_refused(response.status, answer))
                return answer
        except (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError) as error:
            raise _HungUp from error
        except (aiohttp.ClientError, OSError, ssl.SSLError, ValueError, asyncio.IncompleteReadError) as error:
            raise CallFailed(f'Post "{url}": {str(error) or type(error).__name__}') from error

    async def _trust(self, ca_bundle: str | None) -> ssl.SSLContext:
        """A bundle is all that is trusted; without one, it is the authorities of the system."""
        key = hashlib.sha256((ca_bundle or "").encode()).digest()
        context = self._authorities.get(key)
        if context is None:
            context = await asyncio.to_thread(_context, ca_bundle)  # reading those of the system takes a while
            while len(self._authorities) >= _MAX_AUTHORITIES:
                self._authorities.pop(next(iter(self._authorities)))
            self._authorities[key] = context
        return context


def _context(ca_bundle: str | None) -> ssl.SSLContext:
    if not ca_bundle:
        context = ssl.create_default_context()
    else:
        try:
            context = ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode("ascii"))
        except (binascii.Error, ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise CallFailed("unable to load root certificates: the caBundle holds no certificate in PEM") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _bounded(content: Any, url: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_BYTES:
            raise CallFailed(f'Post "{url}": the answer is larger than {MAX_BYTES} bytes')
    return b"".join(parts)


def _refused(status: int, body: bytes) -> str:
    """An answer with another code than 200, in the words of a client of Kubernetes."""
    match status:
        case 404:
            return "the server could not find the requested resource"
        case 401:
            return "the server has asked for the client to provide credentials"
        case 429:
            return "the server has received too many requests and has asked us to try again later"
    message = body[:_SHOWN_BYTES].decode("utf-8", "replace").strip() or "unknown"
    if status >= 500:
        return f'an error on the server ("{message}") has prevented the request from succeeding'
    return f'the server rejected our request for an unknown reason (it answered {status}: "{message}")'
