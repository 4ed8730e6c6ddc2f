"""An S3-compatible bucket: requests signed with AWS Signature Version 4, whole objects in and out.

Objects are small (the repository cuts data into chunks), so there are no multipart uploads. Buckets are addressed by
path, which every S3-compatible server understands; without an endpoint it is AWS's own for the region.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import aiohttp
from yarl import URL

from planform.blueprints.errors import PhaseFailed
from planform.clock import Clock

TRIES: Final = 4
REQUEST_SECONDS: Final = 120.0
LARGEST_ANSWER: Final = 64 << 20

_UNRESERVED: Final = "-._~"
_ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Who to be."""

    key: str
    secret: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said."""

    status: int
    body: bytes


def signed_headers(
    method: str,
    host: str,
    path: str,
    query: Mapping[str, str],
    body: bytes,
    *,
    credentials: S3Credentials,
    region: str,
    moment: datetime,
) -> dict[str, str]:
    """The headers that prove who asks, and for what. `path` is already escaped."""
    digest = hashlib.sha256(body).hexdigest()
    stamp = moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    request = "\n".join(
        [
            method,
            path,
            canonical_query(query),
            *(f"{name}:{headers[name]}" for name in sorted(headers)),
            "",
            names,
            digest,
        ]
    )
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    to_sign = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{credentials.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, to_sign.encode(), "sha256").hexdigest()
    del headers["host"]
    headers["Authorization"] = (
        f"{_ALGORITHM} Credential={credentials.key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def canonical_query(query: Mapping[str, str]) -> str:
    return "&".join(
        f"{quote(key, safe=_UNRESERVED)}={quote(value, safe=_UNRESERVED)}" for key, value in sorted(query.items())
    )


class S3Bucket:
    """One bucket, while the `async with` block of `open` lasts."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        endpoint: str,
        bucket: str,
        region: str,
        credentials: S3Credentials,
        clock: Clock,
    ) -> None:
        self._session = session
        self._endpoint = endpoint.rstrip("/")
        self._host = urlsplit(self._endpoint).netloc
        self._base = urlsplit(self._endpoint).path + "/" + quote(bucket, safe=_UNRESERVED)
        self._bucket = bucket
        self._region = region
        self._credentials = credentials
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open(
        cls, *, bucket: str, endpoint: str, region: str, credentials: S3Credentials, verify: bool, clock: Clock
    ) -> AsyncIterator[S3Bucket]:
        if not bucket:
            raise PhaseFailed("a profile's location of type s3Compliant needs a bucket")
        address = endpoint or f"https://s3.{region}.amazonaws.com"
        address = address if "://" in address else f"https://{address}"
        if urlsplit(address).scheme not in ("http", "https"):
            raise PhaseFailed(f'the endpoint "{endpoint}" is no http(s) address')
        connector = aiohttp.TCPConnector(limit=8, ssl=verify)
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=10)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            yield cls(session, address, bucket, region, credentials, clock)

    async def put(self, key: str, data: bytes) -> None:
        self._expect(await self._request("PUT", key, body=data), f"write {key}", 200, 201, 204)

    async def get(self, key: str) -> bytes | None:
        answer = await self._request("GET", key)
        if answer.status == 404 and b"NoSuchBucket" not in answer.body:
            return None
        self._expect(answer, f"read {key}", 200)
        return answer.body

    async def delete(self, key: str) -> None:
        self._expect(await self._request("DELETE", key), f"delete {key}", 200, 204, 404)

    async def list(self, prefix: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        token = ""
        while True:
            query = {"list-type": "2", "prefix": prefix} | ({"continuation-token": token} if token else {})
            answer = await self._request("GET", "", query=query)
            self._expect(answer, f"list {prefix}", 200)
            page = _parsed(answer.body)
            found += [(_value(each, "Key"), int(_value(each, "Size") or 0)) for each in page.iterfind("{*}Contents")]
            token = _value(page, "NextContinuationToken")
            if not token:
                return sorted(found)

    async def _request(
        self, method: str, key: str, *, query: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """One request. Servers that are busy, and connections that break, are tried again: all of these are safe to."""
        path = self._base + (f"/{quote(key, safe=_UNRESERVED + '/')}" if key else "")
        query = query or {}
        url = URL(f"{self._endpoint.partition('://')[0]}://{self._host}{path}?{canonical_query(query)}", encoded=True)
        for attempt in range(1, TRIES + 1):
            headers = signed_headers(
                method,
                self._host,
                path,
                query,
                body,
                credentials=self._credentials,
                region=self._region,
                moment=self._clock.now(),
            )
            try:
                async with self._session.request(
                    method, url, data=body if method == "PUT" else None, headers=headers, allow_redirects=False
                ) as response:
                    content = await _bounded(response)
                    if response.status < 500 and response.status != 429:
                        return Answer(response.status, content)
                    problem = f"HTTP {response.status}"
            except (aiohttp.ClientError, TimeoutError) as error:
                problem = " ".join(str(error).split()) or type(error).__name__
            if attempt < TRIES:
                await self._clock.sleep(0.2 * 2**attempt)
        raise PhaseFailed(f'bucket "{self._bucket}" at {self._endpoint}: {method} failed {TRIES} times: {problem}')

    def _expect(self, answer: Answer, what: str, *codes: int) -> None:
        if answer.status in codes:
            return
        try:
            error = ElementTree.fromstring(answer.body)
            message = f"{_value(error, 'Code')}: {_value(error, 'Message')}"
        except ElementTree.ParseError:
            message = f"HTTP {answer.status}"
        raise PhaseFailed(f'bucket "{self._bucket}" at {self._endpoint}: cannot {what}: {message}')


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(1 << 18):
        body += chunk
        if len(body) > LARGEST_ANSWER:
            raise PhaseFailed(f"the answer of {response.url.host} is larger than {LARGEST_ANSWER} bytes")
        await asyncio.sleep(0)
    return bytes(body)


def _parsed(body: bytes) -> ElementTree.Element:
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise PhaseFailed("the bucket's listing is no plain XML")
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise PhaseFailed(f"the bucket's listing is no XML: {error}") from error


def _value(element: ElementTree.Element, name: str) -> str:
    found = element.find(f"{{*}}{name}")
    return "" if found is None or found.text is None else found.text
