"""Finds the real programs that a test needs, so that the test itself says nothing about where they come from."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from functools import cache
from pathlib import Path

from tools.testbins import READY

from planform.sandbox import Isolation, available_isolation
from tests.harness.processes import dies_with_us

TESTBINS = Path(__file__).parents[2] / "tools" / "testbins.py"

SUITE = "PLANFORM_SUITE"
"""The variable that says whose tests run: `quick` in `make test`, `rest` in `make test-all`."""

# Shorter than the limit of a test. Make gets everything beforehand: only a bare pytest on a new machine waits.
PATIENCE_SECONDS = 240


class ProgramMissing(unittest.SkipTest):
    """A real program cannot be had here. pytest turns it into a skip, whether a test or a fixture raises it."""


@cache
def programs(*names: str) -> Path:
    """Give a directory that holds these programs, checked, making them first if need be. Raises ProgramMissing.

    In `make test` nothing is built: what is not ready there belongs to `make test-all`, and asking for it is an error.
    """
    quick = os.environ.get(SUITE) == "quick"
    if quick and (built := sorted(set(names) - READY)):
        raise AssertionError(f"{', '.join(built)} must be built: mark this test with `pytest.mark.programs`")
    command = dies_with_us([sys.executable, str(TESTBINS), "ensure", *(["--ready"] if quick else []), *names])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ProgramMissing(
            f"{', '.join(names)}: not made within {PATIENCE_SECONDS} s; make them first: tools/testbins.py ensure"
        ) from error
    if done.returncode != 0:
        raise ProgramMissing((done.stderr.strip().splitlines() or ["tools/testbins.py said nothing"])[-1])
    return Path(done.stdout.strip())


def container_runtime() -> Path:
    """The directory that holds runc, where it can run containers. Raises ProgramMissing."""
    if Isolation.NAMESPACES not in available_isolation():
        raise ProgramMissing("containers take user namespaces, which this machine refuses")
    return programs("runc")
