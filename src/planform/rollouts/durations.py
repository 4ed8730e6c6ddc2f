"""Durations as policies write them: Go's, and days, such as `1m30s` or `14d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> timedelta:
    """Raises ValueError for what is no duration; the API server lets none of those through."""
    total, at = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != at:
            break
        total, at = total + float(part[1]) * _SECONDS[part[2]], part.end()
    if not text or at != len(text):
        raise ValueError(f'"{text}" is not a duration, such as 1m30s or 14d')
    return timedelta(seconds=total)
