"""From `planform init` to a function of one's own that is tested, runs and is rolled out: the tutorial as it stands."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.test_tutorial import FIRST_FUNCTION, Reader, blocks, package_environment

_LINES = 20
_SECONDS = 300.0


def test_the_tutorial_ends_with_a_rolled_out_function_within_five_minutes(tmp_path: Path) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    started = time.monotonic()
    with ExitStack() as stack:
        reader = Reader(directory, stack, package_environment(tmp_path))
        for block in blocks(FIRST_FUNCTION):
            reader.follow(block)
    assert time.monotonic() - started < _SECONDS


def test_the_author_writes_at_most_twenty_lines() -> None:
    [written] = [block.text for block in blocks(FIRST_FUNCTION) if "file" in block.options]
    assert len([line for line in written.splitlines() if line.strip()]) <= _LINES
