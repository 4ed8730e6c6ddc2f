"""The standard health service, `grpc.health.v1.Health`, without a package of its own.

Its messages have one field each, so they are written out here: the request's first field is the name of a service,
the response's first field a status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

SERVICE = "grpc.health.v1.Health"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = (bytes((0x08, status)) for status in (1, 2, 3))


class Health:
    """Says whether the server, and each of its services, takes calls."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = {"", *services}
        self._serving = False
        self._stopped = False
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """Say that no more calls are taken, and end all watches, which else would hold up the server's end."""
        self._stopped = True
        self.set_serving(False)

    def set_serving(self, serving: bool) -> None:
        self._serving = serving
        self._changed.set()
        self._changed = asyncio.Event()

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self._check),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
            },
        )

    def _status(self, request: bytes) -> bytes:
        if _service(request) not in self._services:
            return SERVICE_UNKNOWN
        return SERVING if self._serving else NOT_SERVING

    async def _check(self, request: bytes, context: Any) -> bytes:
        status = self._status(request)
        if status == SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f'no service "{_service(request)}" here')
        return status

    async def _watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        last = b""
        while True:
            changed = self._changed
            status = self._status(request)
            if status != last:
                last = status
                yield status
            if self._stopped:
                return
            await changed.wait()


def _service(request: bytes) -> str:
    """The first field of the request: a tag, a length (names are short) and the name."""
    if len(request) < 2 or request[0] != 0x0A:
        return ""
    return request[2 : 2 + request[1]].decode(errors="replace")
