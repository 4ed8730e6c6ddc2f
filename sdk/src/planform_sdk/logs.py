"""Logs of a serving function: one JSON object per line, or, for a person who debugs, one readable line."""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

import msgspec

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# The W3C trace context of the call that is being answered, to be sent on by functions that call others.
traceparent: ContextVar[str] = ContextVar("traceparent", default="")


def set_up(*, debug: bool, stream: TextIO | None = None) -> None:
    """Send everything that is logged to standard error: JSON from `info` up, or text from `debug` up.

    What the event loop and gRPC say of themselves helps no author, and is left out below `info`.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_TextFormatter() if debug else _JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for name in ("asyncio", "grpc"):
        logging.getLogger(name).setLevel(logging.INFO)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created)
        fields = "".join(f"  {name}={value}" for name, value in _extra(record).items())
        text = f"{moment:%H:%M:%S}.{int(record.msecs):03d} {record.levelname:<7} {record.getMessage()}{fields}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _extra(record: logging.LogRecord) -> dict[str, object]:
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if trace := trace_id():
        fields["trace_id"] = trace
    return fields


def trace_id() -> str:
    """The trace that the current call belongs to; empty if its caller does not trace."""
    parts = traceparent.get().split("-")
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else ""
