"""A small S3-compatible server on loopback. It checks the signature of every request as AWS describes it.

The signature is computed here from the request as it arrived, by code that shares nothing with ours.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from aiohttp import web

KEY, SECRET, REGION = "AKIDTEST", "wJalrXUtnFEMI/K7MDENG+test", "eu-test-1"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]+)"
)


@dataclass
class S3Server:
    """Its buckets, and how many requests it refused."""

    url: str = ""
    buckets: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"backups": {}})
    refused: int = 0
    page: int = 1000
    failures: int = 0
    """How many requests it answers with 503 before it works."""
    holds: str = ""
    """Writes of keys with this in them are not answered while it is set."""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    """A write is being held."""

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.failures:
            self.failures -= 1
            return web.Response(status=503)
        problem = self._problem(request, body)
        if problem:
            self.refused += 1
            return self._error(403, "SignatureDoesNotMatch", problem)
        bucket, _, key = unquote(request.rel_url.raw_path).lstrip("/").partition("/")
        objects = self.buckets.get(bucket)
        if objects is None:
            return self._error(404, "NoSuchBucket", "the bucket does not exist")
        if not key:
            return self._listing(objects, request.query.get("prefix", ""), request.query.get("continuation-token", ""))
        if request.method == "PUT":
            while self.holds and self.holds in key:
                self.held.set()
                await asyncio.sleep(0.01)
            objects[key] = body
            return web.Response()
        if request.method == "DELETE":
            objects.pop(key, None)
            return web.Response(status=204)
        if key not in objects:
            return self._error(404, "NoSuchKey", "the key does not exist")
        return web.Response(body=objects[key])

    def _problem(self, request: web.Request, body: bytes) -> str:
        match = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
        if match is None:
            return "no signature"
        key, day, region, names, signature = match.groups()
        digest = hashlib.sha256(body).hexdigest()
        if key != KEY or region != REGION:
            return "unknown key or region"
        if request.headers.get("x-amz-content-sha256") != digest:
            return "the body is not the one that was signed"
        if "host" not in names.split(";"):
            return "the host is not signed"
        pairs = [part.partition("=") for part in request.rel_url.raw_query_string.split("&") if part]
        query = "&".join(
            f"{quote(unquote(name), safe='-._~')}={quote(unquote(value), safe='-._~')}"
            for name, _, value in sorted(pairs)
        )
        headers = "".join(f"{name}:{request.headers[name].strip()}\n" for name in names.split(";"))
        canonical = f"{request.method}\n{request.rel_url.raw_path}\n{query}\n{headers}\n{names}\n{digest}"
        scope = f"{day}/{region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{request.headers['x-amz-date']}\n{scope}\n{_sha256(canonical)}"
        signing = _hmac(_hmac(_hmac(_hmac(f"AWS4{SECRET}".encode(), day), region), "s3"), "aws4_request")
        return "" if hmac.compare_digest(_hmac(signing, text).hex(), signature) else "the signature is wrong"

    def _listing(self, objects: dict[str, bytes], prefix: str, after: str) -> web.Response:
        keys = [key for key in sorted(objects) if key.startswith(prefix) and key > after]
        shown = keys[: self.page]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key])}</Size></Contents>" for key in shown
        )
        more = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if len(keys) > len(shown) else ""
        namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
        return web.Response(
            text=f'<ListBucketResult xmlns="{namespace}">{rows}{more}</ListBucketResult>',
            content_type="application/xml",
        )

    def _error(self, status: int, code: str, message: str) -> web.Response:
        body = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        return web.Response(status=status, text=body, content_type="application/xml")


@asynccontextmanager
async def s3_server() -> AsyncIterator[S3Server]:
    """Serve for the length of the block."""
    server = S3Server()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        server.url = f"http://127.0.0.1:{port}"
        yield server
    finally:
        await runner.cleanup()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
