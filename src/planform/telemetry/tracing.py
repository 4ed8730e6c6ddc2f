"""A seam for traces: code opens spans, and only a configured OpenTelemetry makes anything of them.

Without one, `PropagatingTracer` records nothing but still passes an incoming trace on, so that planform never breaks a
trace that passes through it. The OpenTelemetry packages are imported by `open_telemetry_tracer` and nowhere else.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from planform.errors import UsageError
from planform.telemetry.masking import masked

Attribute = str | bool | int | float

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")


class SpanContext(NamedTuple):
    """Where in which trace we are; what a traceparent header carries."""

    trace_id: str
    span_id: str
    sampled: bool


class Span(Protocol):
    """One timed piece of work."""

    @property
    def context(self) -> SpanContext | None:
        """What to send along with calls made inside the span; None when there is no trace."""
        ...

    def set(self, **attributes: Attribute) -> None: ...


class Tracer(Protocol):
    """Opens spans. An exception that leaves the block marks the span as failed and passes on."""

    def span(
        self, name: str, *, parent: SpanContext | None = None, attributes: Mapping[str, Attribute] | None = None
    ) -> AbstractContextManager[Span]:
        """A span below `parent`, or below the span that encloses this one in the same task."""
        ...


def parse_traceparent(header: str) -> SpanContext | None:
    """The W3C `traceparent` header; None for anything that is not one, as the standard asks."""
    match = _TRACEPARENT.match(header.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return SpanContext(trace_id, span_id, bool(int(flags, 16) & 1))


def format_traceparent(context: SpanContext) -> str:
    """The header for a call made on behalf of this span."""
    return f"00-{context.trace_id}-{context.span_id}-{'01' if context.sampled else '00'}"


class _PropagatedSpan:
    """Carries the enclosing trace and forgets everything else."""

    __slots__ = ("context",)

    def __init__(self, context: SpanContext | None) -> None:
        self.context = context

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def set(self, **attributes: Attribute) -> None:
        return None


class PropagatingTracer:
    """Records nothing; spans carry whatever trace came in."""

    def __init__(self) -> None:
        self._current: ContextVar[SpanContext | None] = ContextVar("current_trace", default=None)

    def span(
        self, name: str, *, parent: SpanContext | None = None, attributes: Mapping[str, Attribute] | None = None
    ) -> AbstractContextManager[Span]:
        return _PropagatedSpan(self._current.get()) if parent is None else self._below(parent)

    @contextmanager
    def _below(self, parent: SpanContext) -> Iterator[Span]:
        token = self._current.set(parent)
        try:
            yield _PropagatedSpan(parent)
        finally:
            self._current.reset(token)


class _TelemetrySpan:
    def __init__(self, span: Any) -> None:
        self._span = span

    @property
    def context(self) -> SpanContext | None:
        context = self._span.get_span_context()
        if not context.is_valid:
            return None
        return SpanContext(f"{context.trace_id:032x}", f"{context.span_id:016x}", bool(context.trace_flags & 1))

    def set(self, **attributes: Attribute) -> None:
        self._span.set_attributes(_masked(attributes))


class TelemetryTracer:
    """Spans of an OpenTelemetry tracer. `close` sends what is still buffered."""

    def __init__(self, provider: Any) -> None:
        self._api = importlib.import_module("opentelemetry.trace")
        self._provider = provider
        self._tracer = provider.get_tracer("planform")

    @contextmanager
    def span(
        self, name: str, *, parent: SpanContext | None = None, attributes: Mapping[str, Attribute] | None = None
    ) -> Iterator[Span]:
        above = self._context_of(parent) if parent is not None else None
        # What an exception says is masked first, so it is not left to the library to note it.
        with self._tracer.start_as_current_span(
            name,
            context=above,
            attributes=_masked(attributes or {}),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield _TelemetrySpan(span)
            except Exception as error:
                kind, text = type(error).__name__, masked(str(error))
                span.add_event("exception", {"exception.type": kind, "exception.message": text})
                span.set_status(self._api.Status(self._api.StatusCode.ERROR, f"{kind}: {text}"))
                raise

    def close(self) -> None:
        self._provider.shutdown()

    def _context_of(self, parent: SpanContext) -> Any:
        api = self._api
        remote = api.SpanContext(
            int(parent.trace_id, 16), int(parent.span_id, 16), True, api.TraceFlags(1 if parent.sampled else 0)
        )
        return api.set_span_in_context(api.NonRecordingSpan(remote))


def _masked(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {name: masked(value) if isinstance(value, str) else value for name, value in attributes.items()}


def open_telemetry_tracer(endpoint: str, *, service: str = "planform") -> TelemetryTracer:
    """A tracer that sends spans to an OTLP/HTTP collector; raises UsageError where OpenTelemetry is not installed."""
    try:
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        resources = importlib.import_module("opentelemetry.sdk.resources")
        otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"traces cannot be sent to {endpoint}: {error.name} is not installed",
            hint="install opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http, or leave the endpoint out",
        ) from error
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": service}))
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter(endpoint=endpoint)))
    return TelemetryTracer(provider)
