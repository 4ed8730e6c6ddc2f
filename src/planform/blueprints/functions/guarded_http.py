"""HTTP that goes only where it may: public addresses, and what the operator opens.

Names are resolved once and the connection goes to the address that was checked, so that a name cannot mean something
else a moment later; every redirect is checked again, and takes no credentials to another host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.policy import ADDRESSES, Policy

MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(PhaseFailed):
    """The request would go where phases may not go."""

    reason = "AddressRefused"


@dataclass(frozen=True, kw_only=True)
class WebRequest:
    """What to ask, and how much of an answer to take."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    follow: bool = True
    seconds: float = 30.0
    most_bytes: int = 1 << 20


async def send(request: WebRequest, policy: Policy) -> tuple[int, bytes]:
    """Status and body of the answer. Raises AddressRefused, or PhaseFailed if there is none or it is too large."""
    guard = Guard(policy)
    connector = aiohttp.TCPConnector(resolver=guard, use_dns_cache=False, force_close=True)
    told = f"{request.method} {shown(request.url)}"
    try:
        async with (
            asyncio.timeout(request.seconds),
            aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
        ):
            return await _followed(session, guard, request)
    except TimeoutError as error:
        raise PhaseFailed(f"{told} took longer than {request.seconds:g} s") from error
    except aiohttp.ClientError as error:
        if guard.refusal is not None:
            raise guard.refusal from None
        raise PhaseFailed(f"{told}: {' '.join(str(error).split()) or type(error).__name__}") from error


def shown(address: str) -> str:
    """The address without what may be secret in it."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def _followed(session: aiohttp.ClientSession, guard: Guard, request: WebRequest) -> tuple[int, bytes]:
    url = guard.checked(request.url)
    method, headers, body = request.method, dict(request.headers), request.body
    for _ in range(MOST_REDIRECTS + 1):
        async with session.request(method, url, headers=headers, data=body, allow_redirects=False) as response:
            target = response.headers.get("Location")
            if not (request.follow and response.status in _REDIRECTS and target):
                return response.status, await _limited(response, request.most_bytes)
            status = response.status
        there = guard.checked(str(url.join(URL(target))))
        if there.origin() != url.origin():
            headers = {key: value for key, value in headers.items() if key.lower() not in _CREDENTIALS}
        if status == 303 or (status in (301, 302) and method == "POST"):
            method, body = "GET", None
        url = there
    raise PhaseFailed(f"{shown(request.url)} redirects more than {MOST_REDIRECTS} times")


async def _limited(response: aiohttp.ClientResponse, most: int) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > most:
            raise PhaseFailed(f"the answer of {response.url.host} is larger than {most} bytes")
    return bytes(content)


class Guard(AbstractResolver):
    """Resolves names, and lets through the addresses that a request may go to."""

    def __init__(self, policy: Policy) -> None:
        self._networks = [_network(each) for each in policy.addresses]
        self._hosts = {each.lower() for each in policy.addresses}
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
            f'phases may not call "{host}": {number} is no public address',
            hint=f"the operator opens networks and hosts with {ADDRESSES}, a list with commas",
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
