"""Where a function failed: its own file and line, and a traceback without what called it."""

from __future__ import annotations

import traceback
from pathlib import Path

TRACEBACK = "Traceback"
"""The reason of the result that carries a traceback."""

_HERE = str(Path(__file__).parent)
_FRAMES = 12
_LENGTH = 4096


def where_raised(error: BaseException) -> str:
    """` (function.py, line 12)`: the innermost line of the author's own code, or nothing if there is none."""
    frames = _own(error)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def traceback_text(error: BaseException) -> str:
    """What Python would print, from the author's code inwards, and no longer than a condition may be."""
    frames = _inwards(error)[-_FRAMES:]
    lines = ["Traceback (most recent call last):\n"] if frames else []
    lines += traceback.format_list(frames)
    lines += traceback.format_exception_only(error)
    text = "".join(lines).rstrip()
    return text if len(text) <= _LENGTH else f"{text[: _LENGTH - 4]} ..."


def _own(error: BaseException) -> list[traceback.FrameSummary]:
    """Frames of code that its author may change: neither ours nor of an installed package."""
    return [frame for frame in _inwards(error) if "site-packages" not in frame.filename and _is_file(frame.filename)]


def _inwards(error: BaseException) -> list[traceback.FrameSummary]:
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_HERE, "<frozen")) and "asyncio" not in Path(frame.filename).parts
    ]


def _is_file(name: str) -> bool:
    return not name.startswith("<") and "lib/python" not in name
