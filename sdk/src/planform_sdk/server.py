"""Serves a function over gRPC: both protocol versions, health, reflection if installed, metrics, graceful drain.

Bytes come in and go out; `Endpoint` does what is between, and knows nothing of gRPC.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from planform_sdk.functions import Function
from planform_sdk.health import Health
from planform_sdk.logs import traceparent
from planform_sdk.metrics import CallMetrics, serve_metrics
from planform_sdk.proto import SERVICES
from planform_sdk.tls import CertificateDirectory
from planform_sdk.types import ResponseMeta, Result, RunFunctionResponse, Severity
from planform_sdk.wire import Codec, WireError

logger = logging.getLogger("planform_sdk")

DEFAULT_ADDRESS = "0.0.0.0:9443"
DEFAULT_MESSAGE_BYTES = 64 << 20
# Sent with each answer of a deterministic function, for callers that know what it means.
DETERMINISTIC_METADATA = (("planform-deterministic", "true"),)

_WORST_FIRST = (Severity.FATAL, Severity.WARNING, Severity.NORMAL)


@dataclass(frozen=True)
class Settings:
    """How to serve. `address` is host:port, or the path of a socket if `network` is unix."""

    address: str = DEFAULT_ADDRESS
    network: str = "tcp"
    insecure: bool = False
    tls_certs_dir: Path | None = None
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES
    grace_seconds: float = 5.0
    metrics_address: str | None = None


class ServeError(Exception):
    """The function cannot be served as told."""


class Endpoint:
    """Answers encoded requests with encoded responses."""

    def __init__(self, function: Function, *, codec: Codec | None = None) -> None:
        self.function = function
        self.metrics = CallMetrics(function.name)
        self._codec = codec or Codec()

    async def answer(self, data: bytes) -> bytes:
        """Answer a request. Raises WireError if the bytes are none."""
        started = time.perf_counter()
        self.metrics.in_flight += 1
        outcome = "error"
        try:
            request = self._codec.decode_request(data)
            response = await self.function.run(request)
            try:
                encoded = self._codec.encode_response(response)
            except Exception as error:  # whatever the author put into the answer
                logger.exception("the answer cannot be encoded", extra={"function": self.function.name})
                message = f'function "{self.function.name}" gave an answer that cannot be sent: {error}'
                response = RunFunctionResponse(
                    meta=ResponseMeta(request.meta.tag),
                    desired=request.desired,
                    results=[Result(Severity.FATAL, message, "InvalidResponse")],
                )
                encoded = self._codec.encode_response(response)
            outcome = _outcome(response)
            return encoded
        finally:
            self.metrics.in_flight -= 1
            self.metrics.observe(outcome, time.perf_counter() - started)


class FunctionServer:
    """A server of one function, from `start` to `stop`. To be made inside a running event loop."""

    def __init__(self, function: Function, settings: Settings) -> None:
        self.endpoint = Endpoint(function)
        self.health = Health(SERVICES.values())
        self.port = 0
        self.metrics_port = 0
        self._settings = settings
        self._metrics_server: asyncio.Server | None = None
        self._server = grpc.aio.server(options=_options(settings))
        methods = {"RunFunction": grpc.unary_unary_rpc_method_handler(self._run)}
        handlers = [grpc.method_handlers_generic_handler(service, methods) for service in SERVICES.values()]
        self._server.add_generic_rpc_handlers((*handlers, self.health.handler()))  # asked in this order

    async def start(self) -> None:
        """Listen and take calls. Raises ServeError if the address or the certificates cannot be used."""
        self.port = self._listen()
        _add_reflection(self._server)
        if self._settings.metrics_address is not None:
            host, port = _host_and_port(self._settings.metrics_address)
            self._metrics_server = await serve_metrics(self.endpoint.metrics, host, port)
            self.metrics_port = self._metrics_server.sockets[0].getsockname()[1]
        await self._server.start()
        self.health.set_serving(True)
        logger.info(
            "serving",
            extra={
                "function": self.endpoint.function.name,
                "address": self.address,
                "tls": not self._settings.insecure,
            },
        )

    @property
    def address(self) -> str:
        """Where it listens: with the port that it got if any would do."""
        settings = self._settings
        return settings.address if settings.network == "unix" else f"{settings.address.rpartition(':')[0]}:{self.port}"

    async def stop(self) -> None:
        """Say that no more calls are taken, let those under way end within the grace period, and close."""
        self.health.stop()
        if self._metrics_server is not None:
            self._metrics_server.close()
        await self._server.stop(self._settings.grace_seconds)

    async def _run(self, data: bytes, context: Any) -> bytes:
        for key, value in context.invocation_metadata() or ():
            if key == "traceparent":
                traceparent.set(value)
        try:
            answer = await self.endpoint.answer(data)
        except WireError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        if self.endpoint.function.deterministic:
            context.set_trailing_metadata(DETERMINISTIC_METADATA)
        return answer

    def _listen(self) -> int:
        settings = self._settings
        address = f"unix:{settings.address}" if settings.network == "unix" else settings.address
        try:
            if settings.insecure:
                return int(self._server.add_insecure_port(address))
            if settings.tls_certs_dir is None:
                raise ServeError("no certificates: give --tls-certs-dir (or TLS_SERVER_CERTS_DIR), or --insecure")
            credentials = CertificateDirectory(settings.tls_certs_dir).credentials()
            return int(self._server.add_secure_port(address, credentials))
        except OSError as error:
            raise ServeError(f"cannot read the certificates: {error}") from error
        except RuntimeError as error:
            raise ServeError(f'cannot listen on "{settings.address}": {error}') from error


async def run_until_signalled(function: Function, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    server = FunctionServer(function, settings)
    await server.start()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    logger.info("draining", extra={"calls": server.endpoint.metrics.in_flight})
    await server.stop()


def _options(settings: Settings) -> Sequence[tuple[str, int]]:
    return (
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        # A second server on the same port is a mistake, not a replica.
        ("grpc.so_reuseport", 0),
        # Callers may keep idle connections alive.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    )


def _add_reflection(server: grpc.aio.Server) -> None:
    """Offer reflection if grpcio-reflection is installed."""
    try:
        from grpc_reflection.v1alpha import reflection
    except ImportError:
        return
    from planform_sdk.proto import messages

    reflection.enable_server_reflection((*SERVICES.values(), reflection.SERVICE_NAME), server, pool=messages())


def _outcome(response: RunFunctionResponse) -> str:
    """The worst severity among the results."""
    if not response.results:
        return "ok"
    found = {result.severity for result in response.results}
    return next((severity.name.lower() for severity in _WORST_FIRST if severity in found), "ok")


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ServeError(f'metrics address "{address}" is not host:port')
    return host.strip("[]") or "0.0.0.0", int(port)
