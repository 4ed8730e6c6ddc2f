"""The logs of functions and providers: one file per revision, bounded, readable while it is written.

    DIRECTORY/REVISION.log      the newest lines
    DIRECTORY/REVISION.log.1    those before, once the first has grown to half of what may be kept

Lines are written at once and without waiting; a disk that is full loses lines and stops nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from planform.apiserver.auth.private_files import make_private_directory
from planform.clock import Clock, micro_timestamp

MAX_BYTES: Final = 8 << 20
_SUFFIX: Final = ".log"


class Logs:
    """The log files below one directory."""

    def __init__(self, directory: Path, *, clock: Clock, max_bytes: int = MAX_BYTES) -> None:
        self._directory = directory
        self._clock = clock
        self._max_bytes = max_bytes
        make_private_directory(directory)

    def writer(self, revision: str, source: str = "") -> Callable[[str], None]:
        """What notes a line of this revision; `source` tells its processes apart."""
        path = log_file(self._directory, revision)
        mark = f" [{source}]" if source else ""

        def note(line: str) -> None:
            try:
                self._append(path, f"{micro_timestamp(self._clock.now())}{mark} {line}\n".encode())
            except OSError:
                pass  # what a function says is worth less than that it runs

        return note

    def remove(self, revision: str) -> None:
        path = log_file(self._directory, revision)
        for each in (path, _older(path)):
            each.unlink(missing_ok=True)

    def _append(self, path: Path, data: bytes) -> None:
        with path.open("ab", buffering=0) as file:
            if file.tell() + len(data) > self._max_bytes // 2 and file.tell():
                path.replace(_older(path))
                with path.open("ab", buffering=0) as fresh:
                    fresh.write(data)
            else:
                file.write(data)


def logs_directory(data: Path) -> Path:
    """Where a control plane with this data keeps the logs of what it runs."""
    return data / "logs"


def log_file(directory: Path, revision: str) -> Path:
    return directory / (revision + _SUFFIX)


def last_lines(path: Path, count: int) -> list[str]:
    """The newest lines of a log, oldest first; all of them if `count` is 0."""
    found: deque[str] = deque(maxlen=count or None)
    for each in (_older(path), path):
        try:
            with each.open(encoding="utf-8", errors="replace") as file:
                found.extend(line.rstrip("\n") for line in file)
        except FileNotFoundError:
            continue
    return list(found)


class Follower:
    """Gives the whole lines that were added since it was last asked, across the change to a new file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self._open(at_end=True)

    def read(self) -> Iterator[str]:
        if self._file is None:
            self._open(at_end=False)
        if self._file is None:
            return
        yield from self._lines()
        try:
            moved = self._path.stat().st_ino != self._inode
        except FileNotFoundError:
            return
        if moved:
            yield from self._lines()
            self._file.close()
            self._open(at_end=False)
            yield from self._lines()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self, *, at_end: bool) -> None:
        try:
            self._file = self._path.open("rb")
        except FileNotFoundError:
            self._file = None
            return
        self._inode = self._path.stat().st_ino
        if at_end:
            self._file.seek(0, 2)

    def _lines(self) -> Iterator[str]:
        assert self._file is not None
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")
