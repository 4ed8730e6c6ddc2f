"""HTTPRequest: call a web service, but none that only this machine can reach.

Options of an ActionSet end up in addresses, so a request may go to public addresses only, unless the operator opens
others. Names are resolved once and the connection goes to the address that was checked, so that a name cannot mean
something else a moment later; every redirect is checked again, and takes no credentials to another host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, phase_function
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.blueprints.functions.durations import seconds_of
from planform.blueprints.functions.policy import ADDRESSES, Policy

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MOST_REDIRECTS: Final = 5
MOST_BYTES: Final = 1 << 20
LONGEST_SECONDS: Final = 3600.0
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_EMBEDDED: Final = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("2002::/16"))

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(PhaseFailed):
    """The request would go where phases may not go."""

    reason = "AddressRefused"


@phase_function(
    "HTTPRequest",
    required=["url"],
    arguments=["method", "headers", "body", "expectedStatus", "timeout", "maxBytes", "followRedirects"],
)
async def http_request(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Calls a web service; gives `status`, `body` and, if the body is JSON, `json`."""
    method = args.text("method", "GET").upper()
    if method not in METHODS:
        raise ArgumentInvalid(f'{args.of}: method "{method}" is not one of {", ".join(METHODS)}')
    headers = {key: str(value) for key, value in args.table("headers", {}).items()}
    body = _body(args, headers)
    seconds = min(seconds_of(args, "timeout", 30.0), LONGEST_SECONDS)
    most = min(args.integer("maxBytes", MOST_BYTES), MOST_BYTES)
    guard = _Guard(policy)
    connector = aiohttp.TCPConnector(resolver=guard, use_dns_cache=False, force_close=True)
    try:
        async with (
            asyncio.timeout(seconds),
            aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
        ):
            status, content = await _followed(
                session, guard, args.text("url"), method, headers, body, args.flag("followRedirects", True), most
            )
    except TimeoutError as error:
        raise PhaseFailed(f"{method} {_shown(args.text('url'))} took longer than {seconds:g} s") from error
    except aiohttp.ClientError as error:
        if guard.refusal is not None:
            raise guard.refusal from None
        said = " ".join(str(error).split()) or type(error).__name__
        raise PhaseFailed(f"{method} {_shown(args.text('url'))}: {said}") from error
    expected = {int(each) for each in args.texts("expectedStatus", [])}
    if status not in expected and (expected or not 200 <= status < 300):
        raise PhaseFailed(
            f"{method} {_shown(args.text('url'))} answered {status}: {content[:200].decode(errors='replace')}",
            details={"status": status},
        )
    return {"status": status, "body": content.decode(errors="replace"), **_json(content)}


def _body(args: Arguments, headers: dict[str, str]) -> bytes | None:
    given = args.get("body")
    if given is None:
        return None
    if isinstance(given, Mapping | list):
        headers.setdefault("Content-Type", "application/json")
        return orjson.dumps(given)
    return args.text("body").encode()


async def _followed(
    session: aiohttp.ClientSession,
    guard: _Guard,
    address: str,
    method: str,
    headers: dict[str, str],
    body: bytes | None,
    follow: bool,
    most: int,
) -> tuple[int, bytes]:
    url = guard.checked(address)
    for _ in range(MOST_REDIRECTS + 1):
        async with session.request(method, url, headers=headers, data=body, allow_redirects=False) as response:
            target = response.headers.get("Location")
            if not (follow and response.status in _REDIRECTS and target):
                return response.status, await _limited(response, most)
            status = response.status
        there = guard.checked(str(url.join(URL(target))))
        if there.origin() != url.origin():
            headers = {key: value for key, value in headers.items() if key.lower() not in _CREDENTIALS}
        if status == 303 or (status in (301, 302) and method == "POST"):
            method, body = "GET", None
        url = there
    raise PhaseFailed(f"{_shown(address)} redirects more than {MOST_REDIRECTS} times")


async def _limited(response: aiohttp.ClientResponse, most: int) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > most:
            raise PhaseFailed(f"the answer of {response.url.host} is larger than {most} bytes")
    return bytes(content)


class _Guard(AbstractResolver):
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
            raise AddressRefused(f"{_shown(address)}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AddressRefused(f"{_shown(address)} is no http(s) address")
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
        if number in _EMBEDDED[0]:
            return ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)
    return number


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _json(content: bytes) -> dict[str, Any]:
    try:
        return {"json": orjson.loads(content)}
    except orjson.JSONDecodeError:
        return {}


def _shown(address: str) -> str:
    """The address without what may be secret in it."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
