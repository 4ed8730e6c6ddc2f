"""The highest resource version that was ever given out, kept beside the database.

SQLite drops the end of a write-ahead log that it cannot read, and says nothing: after bit rot, or when the file is
gone, a database opens as it was some time ago. The mark knows better. It is written after the commit that it names, and
not synced, so a crash can only leave one that is too low: it never refuses a store that is sound. It is read when the
store is opened, and where the database ends before it, acknowledged writes are lost.

Two places take turns, so that a write which a crash tears leaves the other.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from pathlib import Path
from typing import Final
from zlib import crc32

log = logging.getLogger(__name__)

MARK: Final = "planform.mark"
_PLACE: Final = struct.Struct(">4sQI")
_MAGIC: Final = b"plrv"
_STRIDE: Final = 512  # what a disk writes at once


class HighWaterMark:
    """The mark of one data directory. All but opening happens in the writer's thread."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        data = os.pread(self._file, 2 * _STRIDE, 0)
        places = [_read(data[at : at + _PLACE.size]) for at in (0, _STRIDE)]
        if data and not any(places):
            log.warning("the mark of the highest resource version cannot be read; it begins anew: %s", path)
        self.value = max(places)
        self._next = places.index(min(places))
        self._failed = False

    def raise_to(self, rv: int) -> None:
        """Note that this resource version is durable. A failure to do so is no failure of the write."""
        if rv <= self.value:
            return
        body = _PLACE.pack(_MAGIC, rv, crc32(rv.to_bytes(8, "big")))
        try:
            os.pwrite(self._file, body, self._next * _STRIDE)
        except OSError as error:
            if not self._failed:
                log.warning("the mark of the highest resource version cannot be written: %s", error)
            self._failed = True
            return
        self.value, self._next, self._failed = rv, 1 - self._next, False

    def sync(self) -> None:
        """Make what was noted durable; without it the system does so in its own time."""
        with contextlib.suppress(OSError):
            os.fdatasync(self._file)

    def close(self) -> None:
        self.sync()
        os.close(self._file)


def _read(place: bytes) -> int:
    """The resource version in a place; 0 if nothing readable stands there."""
    if len(place) < _PLACE.size:
        return 0
    magic, rv, checksum = _PLACE.unpack(place)
    return int(rv) if magic == _MAGIC and checksum == crc32(rv.to_bytes(8, "big")) else 0
