"""HTTP on behalf of others that goes only where it may: public addresses, and what the operator opens.

Whoever writes a policy, a Blueprint or an ActionSet may name an address that only this process can reach: its own
machine, a cloud's metadata service, a database. So names are resolved once and the connection goes to the address that
was checked, and a name cannot mean something else a moment later; every redirect is checked again, and takes no
credentials to another host. Time and size of an answer are limited, and proxies of the environment are not asked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from planform.client.web_requests import (
    AddressRefused,
    Answer,
    Reach,
    RequestFailed,
    RequestTimedOut,
    WebRequest,
    shown,
)

MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


async def send(request: WebRequest, reach: Reach) -> Answer:
    """The answer, whatever its status. Raises AddressRefused, RequestTimedOut, or RequestFailed if there is none or it
    is too large. No message has a header, a query or a body in it."""
    guard = Guard(reach)
    described = f"{request.method} {shown(request.url)}"
    trust = await _trust(request.ca_bundle, described) if request.ca_bundle else True
    connector = aiohttp.TCPConnector(resolver=guard, use_dns_cache=False, force_close=True, ssl=trust)
    try:
        async with (
            asyncio.timeout(request.seconds),
            aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
        ):
            return await _followed(session, guard, request)
    except TimeoutError as error:
        raise RequestTimedOut(f"{described} took longer than {request.seconds:g} s") from error
    except aiohttp.InvalidURL as error:
        raise RequestFailed(f"{described} is no address") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if guard.refusal is not None:
            raise guard.refusal from None
        raise RequestFailed(f"{described}: {' '.join(str(error).split()) or type(error).__name__}") from error


async def _trust(bundle: str, described: str) -> ssl.SSLContext:
    try:
        return await asyncio.to_thread(_context, bundle)
    except (ssl.SSLError, ValueError) as error:
        raise RequestFailed(f"{described}: caBundle holds no certificates in PEM") from error


@lru_cache(maxsize=64)
def _context(bundle: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=bundle)


async def _followed(session: aiohttp.ClientSession, guard: Guard, request: WebRequest) -> Answer:
    url = guard.checked(request.url)
    method, headers, body = request.method, dict(request.headers), request.body
    for _ in range(MAX_REDIRECTS + 1):
        async with session.request(method, url, headers=headers, data=body, allow_redirects=False) as response:
            target = response.headers.get("Location")
            if not (request.follow and response.status in _REDIRECTS and target):
                given = {name.lower(): value for name, value in response.headers.items()}
                return Answer(response.status, given, await _limited(response, request.max_bytes))
            status = response.status
        there = guard.checked(str(url.join(URL(target))))
        if there.origin() != url.origin():
            headers = {key: value for key, value in headers.items() if key.lower() not in _CREDENTIALS}
        if status == 303 or (status in (301, 302) and method == "POST"):
            method, body = "GET", None
        url = there
    raise RequestFailed(f"{shown(request.url)} redirects more than {MAX_REDIRECTS} times")


async def _limited(response: aiohttp.ClientResponse, maximum: int) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > maximum:
            raise RequestFailed(f"the answer of {response.url.host} is larger than {maximum} bytes")
    return bytes(content)


class Guard(AbstractResolver):
    """Resolves names, and lets through the addresses that a request may go to."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._networks = [_network(each) for each in reach.addresses]
        self._hosts = {each.lower() for each in reach.addresses}
        self.refusal: AddressRefused | None = None
        """Why a name was not resolved: aiohttp passes on only errors of the system."""

    def checked(self, address: str) -> URL:
        """The address if its form is right and, where it is a number, it may be reached. Raises AddressRefused."""
        parts = urlsplit(address)
        try:
            port = parts.port
        except ValueError as error:
            raise AddressRefused(f"{shown(address)}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AddressRefused(f"{shown(address)} is no http(s) address")
        number = _number(parts.hostname)
        port = port or (443 if parts.scheme == "https" else 80)
        if number is not None and not self._open(parts.hostname, port, number):
            raise self._refused(parts.hostname, number)
        return URL(address)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        results: list[ResolveResult] = []
        for kind, _, protocol, _, target in found:
            number = ipaddress.ip_address(target[0])
            if not self._open(host, port, number):
                self.refusal = self._refused(host, number)
                raise OSError("refused") from self.refusal
            results.append(
                ResolveResult(
                    hostname=host,
                    host=str(number),
                    port=port,
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        return results

    async def close(self) -> None:
        """Nothing is kept open."""

    def _open(self, host: str, port: int, number: Address) -> bool:
        if host.lower() in self._hosts or f"{host.lower()}:{port}" in self._hosts:
            return True
        real = _real(number)
        if any(
            network is not None and real.version == network.version and real in network for network in self._networks
        ):
            return True
        return real.is_global and not real.is_multicast

    def _refused(self, host: str, number: Address) -> AddressRefused:
        return AddressRefused(
            f'{self._reach.whose} may not call "{host}": {number} is no public address',
            hint=f"the operator opens networks and hosts with {self._reach.opened_by}, a list with commas",
        )


def _number(host: str) -> Address | None:
    """The address that a host is, also in the spellings that only system libraries take for one (`127.1`, `0x7f.1`)."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _real(number: Address) -> Address:
    """The IPv4 address inside an IPv6 one that merely carries it."""
    if isinstance(number, ipaddress.IPv6Address):
        if number.ipv4_mapped is not None:
            return number.ipv4_mapped
        if number.sixtofour is not None:
            return number.sixtofour
        if number in _NAT64:
            return ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)
    return number


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
