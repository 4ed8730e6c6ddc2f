"""What phases told while they ran: the last lines of each ActionSet, also after a restart where there is a directory.

They are answered below `/planform/v1/actionsets`:

    GET /planform/v1/actionsets/UID/logs     {"lines": [{"time", "action", "phase", "line"}]}

These are no resources, so that only those may read them whom RBAC lets read such paths.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from pathlib import Path
from typing import Final

import orjson

from planform.blueprints import LOGS_PATH, LOGS_PREFIX
from planform.clock import Clock, micro_timestamp
from planform.errors import ApiError, NotFound

MAX_LINES: Final = 1000
MAX_LENGTH: Final = 4096
MAX_SETS: Final = 1000
MAX_FILES: Final = 2000
"""Left in the directory by a process; its successor forgets the oldest beyond them."""
MAX_BYTES: Final = 4 << 20
"""Of one ActionSet on disk; what comes then is kept in memory only."""

_UID: Final = re.compile(r"[0-9A-Za-z-]{1,64}\Z")


class PhaseLogs:
    """Lines by ActionSet. `directory` is our own; without one, lines are forgotten with the process."""

    def __init__(self, clock: Clock, directory: Path | None = None) -> None:
        self._clock = clock
        self._directory = directory
        self._lines: OrderedDict[str, deque[dict[str, str]]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        if directory is not None and directory.is_dir():
            files = sorted(directory.glob("*.jsonl"), key=lambda file: file.stat().st_mtime, reverse=True)
            for file in files[MAX_FILES:]:
                file.unlink(missing_ok=True)

    def append(self, uid: str, action: str, phase: str, text: str) -> None:
        """Keep what a phase said, a line each; the oldest lines of the ActionSet make room."""
        lines = self._known(uid)
        for line in text.splitlines() or [""]:
            entry = {"time": micro_timestamp(self._clock.now()), "action": action, "phase": phase}
            entry["line"] = line[:MAX_LENGTH]
            lines.append(entry)
            self._write(uid, entry)

    def read(self, uid: str) -> list[dict[str, str]]:
        return list(self._known(uid)) if _UID.match(uid) else []

    def forget(self, uid: str) -> None:
        """The ActionSet is gone."""
        self._lines.pop(uid, None)
        self._sizes.pop(uid, None)
        if self._directory is not None:
            self._file(uid).unlink(missing_ok=True)

    def _known(self, uid: str) -> deque[dict[str, str]]:
        lines = self._lines.get(uid)
        if lines is None:
            lines = self._lines[uid] = deque(self._stored(uid), MAX_LINES)
            if len(self._lines) > MAX_SETS:
                self._lines.popitem(last=False)
        self._lines.move_to_end(uid)
        return lines

    def _stored(self, uid: str) -> list[dict[str, str]]:
        if self._directory is None or not self._file(uid).exists():
            return []
        found = []
        for line in self._file(uid).read_bytes().splitlines():
            try:
                found.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                continue  # a line that a crash cut short
        return found

    def _write(self, uid: str, entry: dict[str, str]) -> None:
        if self._directory is None or not _UID.match(uid):
            return
        line = orjson.dumps(entry) + b"\n"
        size = self._sizes.get(uid)
        if size is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            size = self._file(uid).stat().st_size if self._file(uid).exists() else 0
        if size + len(line) > MAX_BYTES:
            return
        try:
            with self._file(uid).open("ab") as file:
                file.write(line)
        except OSError:
            return  # a full disk must not fail a phase
        self._sizes[uid] = size + len(line)

    def _file(self, uid: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{uid}.jsonl"


def answer(logs: PhaseLogs, path: str) -> tuple[int, bytes]:
    """The status and body of a GET; a refusal is a Status object."""
    parts = tuple(part for part in path.split("/") if part)
    if parts[:3] == LOGS_PREFIX and len(parts) == 5 and parts[4] == "logs" and _UID.match(parts[3]):
        return 200, orjson.dumps({"lines": logs.read(parts[3])})
    error: ApiError = NotFound(f"ask for {LOGS_PATH}/UID/logs")
    return error.code, orjson.dumps(error.to_status())
