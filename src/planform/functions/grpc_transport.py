"""The transport for functions that serve gRPC: one channel per revision, every call with a deadline and a bound.

A revision's channel is made at its first call and replaced when its endpoint changes; calls in flight on the old one
end in peace. Calls of one revision take turns between XRs, so that one XR's hundred calls do not hold up another's
single one, and a function that hangs or babbles takes only its own turns.

A call is repeated only if it was never sent. What a function serves (v1, or only v1beta1) is remembered per revision.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from planform.functions.endpoints import Endpoints, Remote
from planform.functions.errors import (
    FunctionAnswerInvalid,
    FunctionCrashed,
    FunctionError,
    FunctionFailed,
    FunctionRefused,
    FunctionRequestTooLarge,
    FunctionTimedOut,
    FunctionUnavailable,
    answer_too_large,
    mebibytes,
    object_too_large,
)
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest, FunctionResponse, Severity
from planform.functions.wire import CallerCodec, ObjectTooLarge, WireError
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.telemetry.metrics import MetricsRegistry
from planform.telemetry.tracing import PropagatingTracer, Tracer, format_traceparent
from planform_sdk.proto import METHODS

_SERVICE_CONFIG: Final = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
_NEVER_SENT: Final = re.compile(
    r"failed to connect to all addresses|connections to all backends failing|DNS resolution failed|empty address list"
    r"|no children in",
    re.IGNORECASE,
)
_TOO_LARGE: Final = re.compile(r"larger than max \((\d+) vs\. (\d+)")
_TLS: Final = re.compile(r"ssl|tls|certificate|handshake", re.IGNORECASE)
_LOOK_AGAIN: Final = 0.05
_Code = grpc.StatusCode


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Bounds of every call. Times are in seconds, sizes in bytes."""

    calls_per_revision: int = 32
    connect_timeout: float = 3.0
    """How long a call waits for somebody to take it; a function that is down then fails instead of holding on."""
    keepalive: float = 30.0
    drain: float = 120.0
    """How long calls in flight on a replaced channel may still take."""


@dataclass(slots=True)
class _Connection:
    endpoint: Remote
    max_answer_size: int
    channel: Any
    limiter: ConcurrencyLimiter
    calls: dict[str, Any] = field(default_factory=dict)
    version: str = "v1"
    deterministic: bool = False
    """Whether the function said of its last answer that the same request always gets it."""
    users: int = 0
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the channel open while the block lasts, also for a call that has not begun: it may wait for its turn."""
        self.users += 1
        self.unused.clear()
        try:
            yield
        finally:
            self.users -= 1
            if not self.users:
                self.unused.set()


DETERMINISTIC_METADATA = "planform-deterministic"


class _Moved(Exception):
    """Nobody answered, and meanwhile the revision serves somewhere else, or was started anew."""


class GrpcRunner:
    """Calls functions at their endpoints. `close` it, or use it as a context manager."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        limits: CallLimits = CallLimits(),  # noqa: B008  # frozen
        codec: CallerCodec | None = None,
        metrics: MetricsRegistry | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._tracer: Tracer = tracer if tracer is not None else PropagatingTracer()
        self._limits = limits
        self._codec = codec or CallerCodec()
        self._connections: dict[tuple[str, str], _Connection] = {}
        self._draining: set[asyncio.Task[None]] = set()
        metrics = metrics or MetricsRegistry()
        labels = ("function_name", "function_revision", "grpc_method")
        self._requests = metrics.counter("function_run_function_request_total", "Calls that were started.", labels)
        ended = (*labels, "grpc_code", "result_severity")
        self._responses = metrics.counter("function_run_function_response_total", "Calls that have ended.", ended)
        self._seconds = metrics.histogram("function_run_function_seconds", "How long calls took.", ended)

    async def __aenter__(self) -> GrpcRunner:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every channel; calls in flight are cancelled."""
        connections, self._connections = list(self._connections.values()), {}
        for task in self._draining:
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)
        for connection in connections:
            await connection.channel.close()

    def retain(self, revisions: Collection[FunctionRevision]) -> None:
        """Let go of the channels of all other revisions, once their calls have ended."""
        kept = {(each.function, each.name) for each in revisions}
        for key in [key for key in self._connections if key not in kept]:
            self._drain(self._connections.pop(key))

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        """Raises the FunctionErrors of transports; none of them is about another revision."""
        deadline = time.monotonic() + timeout
        while True:
            connection = self._connect(revision)
            try:
                with connection.in_use():
                    return await self._run(revision, connection, request, deadline)
            except _Moved:
                continue

    async def _run(
        self, revision: FunctionRevision, connection: _Connection, request: FunctionRequest, deadline: float
    ) -> FunctionResponse:
        try:
            data = await self._codec.encode(request)
        except (TypeError, ValueError, OverflowError) as error:
            raise FunctionRefused(f"the request cannot be sent: {error}", revision=revision) from error
        async with AsyncExitStack() as slot:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await slot.enter_async_context(connection.limiter.slot(_asker(request)))
            except TimeoutError as error:
                raise FunctionTimedOut(
                    "no free turn before the step's deadline: its other calls do not end", revision=revision
                ) from error
            started = time.monotonic()
            answer = await self._call(revision, connection, data, deadline)
        try:
            response = await self._codec.decode(answer, request)
        except WireError as error:
            # Made anew and raised below: whoever keeps the error would keep the frames that hold the answer.
            refusal: FunctionError | None = _refusal(error, revision)
        else:
            refusal = None
        del answer
        if refusal is not None:
            self._count(revision, connection.version, _Code.OK.name, started)
            raise refusal
        response.deterministic = connection.deterministic
        self._count(revision, connection.version, _Code.OK.name, started, _worst(response))
        return response

    # -- channels

    def _connect(self, revision: FunctionRevision) -> _Connection:
        endpoint = self._endpoints.endpoint(revision)
        if not isinstance(endpoint, Remote):
            raise FunctionUnavailable("it is not known where it serves", revision=revision)
        key = revision.function, revision.name
        known = self._connections.get(key)
        if known is not None:
            if known.endpoint == endpoint and known.max_answer_size == revision.max_answer_size:
                return known
            self._drain(known)
        size = revision.max_answer_size
        connection = _Connection(
            endpoint, size, self._channel(endpoint, size), ConcurrencyLimiter(self._limits.calls_per_revision)
        )
        for version, method in METHODS.items():
            connection.calls[version] = connection.channel.unary_unary(method)
        self._connections[key] = connection
        return connection

    def _channel(self, endpoint: Remote, max_answer_size: int) -> Any:
        keepalive = int(self._limits.keepalive * 1000)
        options: list[tuple[str, str | int]] = [
            ("grpc.service_config", _SERVICE_CONFIG),
            ("grpc.max_receive_message_length", max_answer_size),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", keepalive),
            ("grpc.keepalive_timeout_ms", keepalive // 3),
            ("grpc.initial_reconnect_backoff_ms", 100),
            # How long an attempt to connect may take; on a busy machine, a handshake can take its time.
            ("grpc.min_reconnect_backoff_ms", int(self._limits.connect_timeout * 1000)),
            ("grpc.max_reconnect_backoff_ms", 5000),
            ("grpc.use_local_subchannel_pool", 1),  # revisions at one address share nothing
            ("grpc.enable_http_proxy", 0),
        ]
        if endpoint.tls is None:
            return grpc.aio.insecure_channel(endpoint.target, options)
        if endpoint.server_name:
            options.append(("grpc.ssl_target_name_override", endpoint.server_name))
        tls = endpoint.tls
        credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
        return grpc.aio.secure_channel(endpoint.target, credentials, options)

    def _drain(self, connection: _Connection) -> None:
        task = asyncio.get_running_loop().create_task(self._close(connection))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _close(self, connection: _Connection) -> None:
        """Close a channel that gets no more calls, once those it was chosen for have ended."""
        try:
            if connection.users:
                async with asyncio.timeout(self._limits.drain):
                    await connection.unused.wait()
        except TimeoutError:
            pass
        finally:
            await connection.channel.close()

    # -- calls

    async def _call(self, revision: FunctionRevision, connection: _Connection, data: bytes, deadline: float) -> bytes:
        give_up = min(deadline, time.monotonic() + self._limits.connect_timeout)
        while True:
            version = connection.version
            try:
                return await self._call_version(revision, connection, version, data, deadline)
            except grpc.aio.AioRpcError as error:
                code, details = error.code(), error.details() or ""
                if code is _Code.UNIMPLEMENTED and version == "v1":
                    return await self._call_beta(revision, connection, data, deadline)
                left = give_up - time.monotonic()
                if code is _Code.UNAVAILABLE and _NEVER_SENT.search(details) and left > 0:
                    await _state_change(connection.channel, min(left, _LOOK_AGAIN))
                    if self._endpoints.endpoint(revision) != connection.endpoint:
                        raise _Moved from error
                    continue
                failure = _named(error, revision, len(data))
            # Not from within: the error would keep the call, and with it the frames that hold request and answer.
            raise failure

    async def _call_beta(
        self, revision: FunctionRevision, connection: _Connection, data: bytes, deadline: float
    ) -> bytes:
        """The legacy version is tried once a revision has said that it does not know the current one."""
        try:
            answer = await self._call_version(revision, connection, "v1beta1", data, deadline)
        except grpc.aio.AioRpcError as error:
            failure = _named(error, revision, len(data))
        else:
            connection.version = "v1beta1"
            return answer
        raise failure

    async def _call_version(
        self, revision: FunctionRevision, connection: _Connection, version: str, data: bytes, deadline: float
    ) -> bytes:
        self._requests.labels(revision.function, revision.name, version).inc()
        started = time.monotonic()
        try:
            with self._tracer.span("call", attributes={"revision": revision.name, "bytes": len(data)}) as span:
                trace = [("traceparent", format_traceparent(span.context))] if span.context is not None else None
                call = connection.calls[version](data, timeout=max(0.001, deadline - started), metadata=trace)
                answer: bytes = await call
            connection.deterministic = _is_deterministic_by(await call.trailing_metadata())
        except grpc.aio.AioRpcError as error:
            self._count(revision, version, error.code().name, started)
            raise
        except asyncio.CancelledError:
            self._count(revision, version, _Code.CANCELLED.name, started)
            raise
        return answer

    def _count(self, revision: FunctionRevision, version: str, code: str, started: float, severity: str = "") -> None:
        labels = (revision.function, revision.name, version, code, severity)
        self._responses.labels(*labels).inc()
        self._seconds.labels(*labels).observe(time.monotonic() - started)


def _is_deterministic_by(metadata: Any) -> bool:
    """Functions written with our SDK say it beside each answer; others say nothing."""
    return any(key == DETERMINISTIC_METADATA and value == "true" for key, value in metadata or ())


async def _state_change(channel: Any, timeout: float) -> None:
    """Wait until the channel has something new to say, but not long."""
    state = channel.get_state(try_to_connect=True)
    try:
        async with asyncio.timeout(timeout):
            await channel.wait_for_state_change(state)
    except TimeoutError:
        pass


def _refusal(error: WireError, revision: FunctionRevision) -> FunctionError:
    if isinstance(error, ObjectTooLarge):
        return object_too_large(str(error), revision)
    return FunctionAnswerInvalid(str(error), revision=revision)


def _named(error: Any, revision: FunctionRevision, request_size: int) -> FunctionError:
    """Our name for a gRPC status. What only the function can know is quoted, addresses are not.

    Both sides word a message that is too large alike; its size tells whether it was the request.
    """
    code, details = error.code(), error.details() or ""
    match code:
        case _Code.DEADLINE_EXCEEDED:
            return FunctionTimedOut("no answer within the step's deadline", revision=revision)
        case _Code.UNAVAILABLE if _NEVER_SENT.search(details):
            if _TLS.search(details):
                return FunctionUnavailable(
                    "no connection: the TLS handshake fails",
                    revision=revision,
                    hint="both sides must have certificates of one authority, or both serve in plain text",
                )
            return FunctionUnavailable("nobody answers at its endpoint", revision=revision)
        case _Code.UNAVAILABLE | _Code.ABORTED | _Code.CANCELLED:
            return FunctionCrashed("the connection ended before the answer", revision=revision)
        case _Code.RESOURCE_EXHAUSTED if (size := _TOO_LARGE.search(details)) is not None:
            if int(size[1]) != request_size:
                return answer_too_large(int(size[1]), revision.max_answer_size, revision)
            return FunctionRequestTooLarge(
                f"the request is {mebibytes(request_size)}, and the function takes at most {mebibytes(int(size[2]))}",
                revision=revision,
                hint="raise the function's limit for received messages (--max-recv-message-size of functions written"
                " with a Crossplane SDK, in the args of its runtime configuration), or split the composition",
            )
        case _Code.UNIMPLEMENTED:
            return FunctionRefused(
                "what answers there is not a function (it serves neither v1 nor v1beta1)", revision=revision
            )
        case _Code.INVALID_ARGUMENT | _Code.FAILED_PRECONDITION | _Code.OUT_OF_RANGE | _Code.NOT_FOUND:
            return FunctionRefused(f"refused the call: {details}", revision=revision)
        case _Code.UNAUTHENTICATED | _Code.PERMISSION_DENIED:
            return FunctionRefused(f"does not trust this control plane: {details}", revision=revision)
        case _Code.INTERNAL if "deserializ" in details.lower() or "decompress" in details.lower():
            return FunctionAnswerInvalid("the answer cannot be read", revision=revision)
        case _:
            return FunctionFailed(f"failed with {code.name}: {details}", revision=revision)


def _worst(response: FunctionResponse) -> str:
    """The severity of the worst result, as metrics name it."""
    known = {each.severity for each in response.results} - {Severity.UNSPECIFIED}
    return min(known).name.capitalize() if known else "Normal"


def _asker(request: FunctionRequest) -> str:
    """The XR in whose name is asked; calls take turns between those."""
    metadata = request.observed.composite.resource.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    return str(metadata.get("uid") or f"{metadata.get('namespace', '')}/{metadata.get('name', '')}")
