"""Structured logs on the standard library: one line for a person at a terminal, or one JSON object for a machine.

Code logs the usual way, `logger.info("what happened", extra={"key": key})`; what a whole block has in common is said
once with `fields(...)`, which follows the task, not the thread. Secrets are masked last, when the line is whole.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import orjson

from planform.telemetry.masking import SecretMask

Format = Literal["text", "json"]

_FIELDS: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default={})  # noqa: B039  (never changed in place)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_COLOURS = {"DEBUG": "\033[2m", "INFO": "", "WARNING": "\033[33m", "ERROR": "\033[31m", "CRITICAL": "\033[1;31m"}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@+*")


class fields:  # a function with a `yield` would do, but every reconcile enters one
    """Add these fields to every line that is logged inside the block, also by tasks started in it."""

    __slots__ = ("_token", "_values")

    def __init__(self, **values: object) -> None:
        self._values = values

    def __enter__(self) -> None:
        self._token = _FIELDS.set({**_FIELDS.get(), **self._values})

    def __exit__(self, *_: object) -> None:
        _FIELDS.reset(self._token)


def set_up_logging(
    stream: TextIO, *, format: Format, level: str = "INFO", mask: SecretMask | None = None, root: str = "planform"
) -> logging.Handler:
    """Send what is logged under `root` to a stream, in place of any handler set up before; give the handler."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown log level {level!r}; use one of debug, info, warning, error")
    handler = logging.StreamHandler(stream)
    mask = mask if mask is not None else SecretMask()
    handler.setFormatter(JsonFormatter(mask) if format == "json" else TextFormatter(mask, colour=_wants_colour(stream)))
    logger = logging.getLogger(root)
    logger.handlers[:] = [handler]
    logger.setLevel(number)
    logger.propagate = False
    return handler


class JsonFormatter(logging.Formatter):
    """`{"time", "level", "logger", "message", ...fields, "error"}`; a contract that only grows."""

    def __init__(self, mask: SecretMask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _moment(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._mask.text(record.getMessage()),
        }
        for name, value in _fields_of(record):
            line.setdefault(name, _json_value(self._mask, name, value))
        if record.exc_info:
            line["error"] = self._mask.text(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode()


class TextFormatter(logging.Formatter):
    """`12:00:00.000 WARNING reconcile.queue: message  key=default/x`, then a traceback if there is one."""

    def __init__(self, mask: SecretMask, *, colour: bool = False) -> None:
        super().__init__()
        self._mask = mask
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname:<7}"
        if self._colour and (code := _COLOURS.get(record.levelname)):
            level = f"{code}{level}\033[0m"
        text = f"{_moment(record):%H:%M:%S}.{int(record.msecs):03d} {level} {record.name.removeprefix('planform.')}: "
        text += self._mask.text(record.getMessage())
        pairs = [f"{name}={_quoted(self._mask.field(name, str(value)))}" for name, value in _fields_of(record)]
        if pairs:
            text += "  " + " ".join(pairs)
        if record.exc_info:
            text += "\n" + self._mask.text(self.formatException(record.exc_info))
        return text


def _fields_of(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Fields of the block first, then the record's own, which win."""
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    yield from ({**_FIELDS.get(), **own}).items()


def _json_value(mask: SecretMask, name: str, value: object) -> object:
    if isinstance(value, bool | int | float) or value is None:
        return value
    return mask.field(name, str(value))


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _quoted(value: str) -> str:
    return value if value and _PLAIN.issuperset(value) else orjson.dumps(value).decode()


def _wants_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")
