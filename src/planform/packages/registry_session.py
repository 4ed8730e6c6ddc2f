"""HTTP to registries: schemes, logins, tokens, and trying again. Knows URLs and headers, not images."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from planform.client.waits import Backoff, time_limit
from planform.clock import Clock
from planform.errors import system_words
from planform.packages.credentials import Credentials, Login
from planform.packages.errors import (
    InvalidPackage,
    PackageNotFound,
    PackageTooLarge,
    RegistryRefused,
    RegistryUnavailable,
)
from planform.packages.oci import MANIFEST_BYTES, parse_json
from planform.packages.references import Reference, is_loopback

RETRIES: Final = 5
"""Tries after the first."""

_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_WAIT: Final = 60.0
_TOKEN_BYTES: Final = 256 << 10
_ERROR_BYTES: Final = 16 << 10
_PARAMETER: Final = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s,]+))')
FAILURES: Final = (aiohttp.ClientError, TimeoutError, ConnectionError)
"""What a request ends with if no answer comes, or none that makes sense."""


@dataclass(frozen=True, slots=True)
class Access:
    """How registries are reached. Those on this machine speak plain HTTP in any case."""

    plain_http: Collection[str] = frozenset()
    """Registries, as HOST[:PORT], that have no TLS."""
    skip_verification: bool = False
    """Take any certificate."""
    authorities: Path | None = None
    """A file of certificates to trust besides the system's."""
    connect_seconds: float = 10.0
    read_seconds: float = 60.0
    """How long a registry may say nothing in the middle of an answer."""
    answer_seconds: float = 120.0
    """How long an answer may take in all, if it is not a blob."""
    slowest: int = 1024
    """Bytes of a blob that must come in a second, on average over `read_seconds`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that has been read."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


Body = Callable[[], Any]
"""Makes the body of a request anew for each try."""


class RegistrySession:
    """Requests to any registry. Use it as a context manager: leaving closes every connection."""

    def __init__(self, credentials: Credentials, *, clock: Clock, rng: Random, access: Access = Access()) -> None:  # noqa: B008
        self._credentials = credentials
        self._clock = clock
        self._rng = rng
        self._access = access
        self._backoff = Backoff(first=0.25, maximum=8, jitter=0.5)
        self._session: aiohttp.ClientSession | None = None
        self._grants: dict[tuple[str, str, bool], str] = {}  # what to send in Authorization, by repository and purpose

    async def __aenter__(self) -> Self:
        access = self._access
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=access.connect_seconds, sock_read=access.read_seconds)
        connector = aiohttp.TCPConnector(ssl=self._tls(), limit=16, limit_per_host=8)
        agent = {"User-Agent": "planform"}
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=agent, auto_decompress=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        reference: Reference,
        path: str | URL,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        push: bool = False,
        expect: Collection[int] = (200,),
        limit: int = MANIFEST_BYTES,
    ) -> Answer:
        """One request, tried again while that makes sense; raises the error that any other answer means.

        `path` is below the repository's own, or a URL that the registry gave us.
        """
        for attempt in range(1, RETRIES + 2):
            try:
                async with (
                    time_limit(self._clock, self._access.answer_seconds),
                    self.stream(method, reference, path, headers=headers, body=body, push=push) as response,
                ):
                    if response.status in expect:
                        content = b"" if method == "HEAD" else await read_limited(response, limit, str(reference))
                        return Answer(response.status, response.headers, content)
                    failure = await self.failure(response, reference)
                    wait = retry_after(response)
            except aiohttp.ClientConnectorError as error:
                raise unreachable(reference, error) from error  # nobody is there: waiting is up to the caller
            except FAILURES as error:
                failure, wait = unreachable(reference, error), None
            if not failure.retryable or attempt > RETRIES:
                raise failure
            await self.pause(attempt, wait)
        raise AssertionError("unreachable: the last try returns or raises")

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        reference: Reference,
        path: str | URL,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        push: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer whose body the caller reads; not tried again, except once to log in."""
        key = (reference.registry, reference.repository, push)
        for last in (False, True):
            url, sent = self.url(reference, path), dict(headers or {})
            if key in self._grants and is_same_place(self._root(reference), url):
                sent["Authorization"] = self._grants[key]
            async with self._send(method, url, sent, body) as response:
                if response.status == 401 and not last:
                    challenges = response.headers.getall("WWW-Authenticate", [])
                    if await self._log_in(key, reference, challenges):
                        continue
                yield response
                return

    def url(self, reference: Reference, path: str | URL) -> URL:
        """Where a path of the repository is; registries may also answer with places relative to themselves."""
        if isinstance(path, URL) and path.is_absolute():
            return path
        root = self._root(reference)
        return root.join(path) if isinstance(path, URL) else URL(f"{root}v2/{reference.repository}/{path}")

    def _root(self, reference: Reference) -> URL:
        return URL(f"{'http' if self._is_plain(reference) else 'https'}://{reference.registry}/")

    def _is_plain(self, reference: Reference) -> bool:
        return reference.is_loopback or reference.registry in self._access.plain_http

    async def pause(self, attempt: int, wait: float | None) -> None:
        """Wait before the next try, as long as the registry asked for, within reason."""
        await self._clock.sleep(min(wait, _MAX_WAIT) if wait is not None else self._backoff.delay(attempt, self._rng))

    def pace(self) -> Pace:
        """For a download that begins now."""
        return Pace(self._clock, self._access)

    async def failure(self, response: aiohttp.ClientResponse, reference: Reference) -> Failure:
        """The error that an answer means, in the registry's own words where it has some."""
        message = ""
        if response.method != "HEAD":
            message = _words(await response.content.read(_ERROR_BYTES))
        what = f"{reference.registry} answers {response.status} for {reference}{f': {message}' if message else ''}"
        match response.status:
            case 404:
                return PackageNotFound(
                    f"{reference} does not exist, or may not be seen{f': {message}' if message else ''}"
                )
            case 401 | 403:
                return RegistryRefused(what, hint=f"log in: docker login {reference.registry}")
            case status if status in _BUSY:
                return RegistryUnavailable(what)
            case _:
                return RegistryRefused(what)

    def _send(
        self, method: str, url: URL, headers: Mapping[str, str], body: Body | None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("the session is not open")
        data = body() if body is not None else None
        return self._session.request(method, url, headers=headers, data=data, max_redirects=5, proxy=_proxy_for(url))

    async def _log_in(self, key: tuple[str, str, bool], reference: Reference, challenges: list[str]) -> bool:
        """Do what the registry asks for; False if it asks for nothing new that we could do."""
        login = self._credentials.login_for(reference)
        for challenge in challenges:
            scheme, _, rest = challenge.partition(" ")
            asked = {name.lower(): quoted or bare for name, quoted, bare in _PARAMETER.findall(rest)}
            if scheme.lower() == "basic" and login is not None:
                known, self._grants[key] = self._grants.get(key), login.basic
                return known != login.basic
            if scheme.lower() == "bearer" and asked.get("realm"):
                self._grants[key] = await self._token(reference, login, asked, push=key[2])
                return True
        return False

    async def _token(self, reference: Reference, login: Login | None, asked: Mapping[str, str], *, push: bool) -> str:
        if login is not None and login.registry_token:
            return f"Bearer {login.registry_token}"
        realm = URL(asked["realm"])
        if realm.scheme != "https" and not self._is_plain(reference):
            raise RegistryRefused(f"{reference.registry} wants logins to be sent to {realm} without TLS")
        scope = f"repository:{reference.repository}:{'pull,push' if push else 'pull'}"
        query = {"scope": scope} | ({"service": asked["service"]} if asked.get("service") else {})
        headers, form, method = {}, None, "GET"
        if login is not None and login.identity_token:
            method = "POST"
            form = {
                **query,
                "grant_type": "refresh_token",
                "refresh_token": login.identity_token,
                "client_id": "planform",
            }
        elif login is not None:
            headers = {"Authorization": login.basic}
        url = realm if form else realm.update_query(query)
        try:
            async with self._send(method, url, headers, (lambda: aiohttp.FormData(form)) if form else None) as response:
                if response.status != 200:
                    raise await self.failure(response, reference)
                body = await read_limited(response, _TOKEN_BYTES, f"the token of {reference.registry}")
        except FAILURES as error:
            raise unreachable(reference, error) from error
        answer = parse_json(body, f"the token of {reference.registry}")
        token = answer.get("token") or answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str):
            raise RegistryRefused(f"{realm.host} gives no token for {reference}")
        return f"Bearer {token}"

    def _tls(self) -> ssl.SSLContext | bool:
        if self._access.skip_verification:
            return False
        context = ssl.create_default_context()
        if self._access.authorities is not None:
            context.load_verify_locations(self._access.authorities)
        return context


class Pace:
    """Whether so little comes that a download would never end. It hears how many bytes have come since it began."""

    def __init__(self, clock: Clock, access: Access) -> None:
        self._clock = clock
        self._access = access
        self._since = clock.monotonic()
        self._seen = 0
        self.is_slow = False

    def see(self, size: int) -> None:
        """Check what came since the last time."""
        now = self._clock.monotonic()
        came = size - self._seen
        self.is_slow = came <= 0 or came < self._access.slowest * (now - self._since)
        self._since, self._seen = now, size

    def see_now_and_then(self, size: int) -> bool:
        """The same, once in a while; whether it is slow."""
        if self._clock.monotonic() - self._since >= self._access.read_seconds:
            self.see(size)
        return self.is_slow


Failure = PackageNotFound | RegistryRefused | RegistryUnavailable


def is_same_place(root: URL, url: URL) -> bool:
    """Whether a URL that a registry names is its own. To others it may send us, but not with our login."""
    return (root.scheme, root.host, root.port) == (url.scheme, url.host, url.port)


def _proxy_for(url: URL) -> str | None:
    """The proxy that the environment names for a URL; to let aiohttp look would also send the logins of ~/.netrc."""
    host = url.host or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    return getproxies().get(url.scheme)


async def read_limited(response: aiohttp.ClientResponse, limit: int, where: str) -> bytes:
    """A body of at most so many bytes. Raises PackageTooLarge before more is in memory."""
    if (response.content_length or 0) > limit:
        raise PackageTooLarge(f"{where}: the answer has {response.content_length} bytes; at most {limit} are taken")
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 << 10):
        body += chunk
        if len(body) > limit:
            raise PackageTooLarge(f"{where}: the answer has more than {limit} bytes")
    return bytes(body)


def unreachable(reference: Reference, error: BaseException) -> RegistryUnavailable:
    if isinstance(error, asyncio.TimeoutError):
        message = "it said nothing for too long"
    elif isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        message = system_words(error.os_error)
    else:
        message = str(error) or repr(error)
    return RegistryUnavailable(f"{reference.registry} cannot be reached: {message}")


def retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Seconds that the registry asks us to wait."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", "")))
    except ValueError:
        return None


def _words(body: bytes) -> str:
    """What a registry says about an error, on one line."""
    try:
        errors = parse_json(body, "the error")["errors"]
        return "; ".join(str(each.get("message") or each.get("code")) for each in errors)[:300]
    except (InvalidPackage, LookupError, TypeError, AttributeError):
        return ""
