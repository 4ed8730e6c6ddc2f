"""Finds a phase's output in what a command prints: lines with `###Phase-output###:` and a JSON object after it.

    ###Phase-output###: {"key": "rows", "value": "42"}

Output comes in pieces of any size, so a marker may be cut anywhere. Several markers may share a line; a later value of
a key replaces an earlier one; a marker with anything else than such an object after it fails the phase, since whoever
wrote it counts on it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from planform.blueprints.errors import OutputInvalid

MARKER: Final = "###Phase-output###:"
MAX_LINE_LENGTH: Final = 4 << 20
"""Bytes of a line with a marker. Lines without one may be longer: they are told in pieces and forgotten."""
MAX_LOGGED: Final = 4096

_MARK: Final = MARKER.encode()
_KEY: Final = re.compile(r"[A-Za-z0-9_]+\Z")
_decoder: Final = json.JSONDecoder()


class MarkerReader:
    """Reads one stream. `log` gets the lines that are no output, for the log."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.output: dict[str, str] = {}
        self._log = log
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Take the next piece. Raises OutputInvalid for a marker that cannot be read."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._rest += line
            self._line(bytes(self._rest))
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > MAX_LINE_LENGTH:
            self._shorten()

    def end(self) -> dict[str, str]:
        """The stream is over: what the last line says counts too."""
        if self._rest:
            self._line(bytes(self._rest))
            self._rest.clear()
        return self.output

    def _line(self, line: bytes) -> None:
        before, *marked = line.split(_MARK)
        text = before.decode(errors="replace").rstrip()
        if text or not marked:
            self._log(text[:MAX_LOGGED])
        for part in marked:
            key, value = _parsed(part.decode(errors="replace"))
            self.output[key] = value

    def _shorten(self) -> None:
        if _MARK in self._rest:
            raise OutputInvalid(f"a line of phase output is longer than {MAX_LINE_LENGTH} bytes")
        self._log(self._rest[:MAX_LOGGED].decode(errors="replace"))
        del self._rest[: 1 - len(_MARK)]  # a marker may have begun


def _parsed(text: str) -> tuple[str, str]:
    try:
        value, end = _decoder.raw_decode(text.lstrip())
    except json.JSONDecodeError as error:
        raise OutputInvalid(f"phase output is not JSON ({error.msg}): {_shown(text)}") from error
    if text.lstrip()[end:].strip():
        raise OutputInvalid(f"phase output has more than one JSON object after its marker: {_shown(text)}")
    if not isinstance(value, dict) or value.keys() != {"key", "value"}:
        raise OutputInvalid(f'phase output must be an object with "key" and "value": {_shown(text)}')
    key, content = value["key"], value["value"]
    if not isinstance(key, str) or not _KEY.match(key):
        raise OutputInvalid(f"the key of phase output must be letters, digits and underscores, not {key!r}")
    if not isinstance(content, str):
        raise OutputInvalid(f'the value of phase output "{key}" must be a text, not a {type(content).__name__}')
    return key, content


def _shown(text: str) -> str:
    return repr(text.strip()[:120])
