"""The size of a scratch directory on disk, where it cannot be a tmpfs with a size: looked at, again and again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from planform.sandbox.isolation import Prepared
from planform.sandbox.limits import Limits

_PAUSE: Final = 0.25
_MAX_FILES: Final = 16_384


class ScratchFull(Exception):
    """The child wrote more into its scratch directory than it may."""


async def watch_scratch(prepared: Prepared, limits: Limits) -> None:
    """Raise ScratchFull once there is too much in it. Returns at once if there is nothing to watch."""
    if prepared.scratch is None or limits.scratch is None:
        return
    while True:
        await asyncio.sleep(_PAUSE)
        if await asyncio.to_thread(_is_full, prepared.scratch, limits.scratch):
            raise ScratchFull


def _is_full(directory: Path, maximum: int) -> bool:
    taken = files = 0
    for where, _, names in os.walk(directory):
        for name in names:
            files += 1
            try:
                taken += os.lstat(f"{where}/{name}").st_blocks * 512
            except OSError:
                continue
            if taken > maximum or files > _MAX_FILES:
                return True
    return False
