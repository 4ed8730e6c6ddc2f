"""Finds the real programs that a test needs, so that the test itself says nothing about where they come from."""

from __future__ import annotations

import subprocess
import sys
import unittest
from functools import cache
from pathlib import Path

from tests.harness.processes import dies_with_us

TESTBINS = Path(__file__).parents[2] / "tools" / "testbins.py"

# Shorter than the limit of a test. `make test` gets everything beforehand: only a bare pytest on a new machine waits.
PATIENCE_SECONDS = 240


class ProgramMissing(unittest.SkipTest):
    """A real program cannot be had here. pytest turns it into a skip, whether a test or a fixture raises it."""


@cache
def programs(*names: str) -> Path:
    """Give a directory that holds these programs, checked, making them first if need be. Raises ProgramMissing."""
    command = dies_with_us([sys.executable, str(TESTBINS), "ensure", *names])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ProgramMissing(
            f"{', '.join(names)}: not made within {PATIENCE_SECONDS} s; make them first: tools/testbins.py ensure"
        ) from error
    if done.returncode != 0:
        raise ProgramMissing((done.stderr.strip().splitlines() or ["tools/testbins.py said nothing"])[-1])
    return Path(done.stdout.strip())
