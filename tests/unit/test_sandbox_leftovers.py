"""Children in sandboxes end with the process that started them, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio
from planform.rollouts.gates.expressions import Expressions

async def main():
    return await Expressions().holds("values.all(v, v > 0)", {"values": [1, 2, 3]}, large=True)

print(asyncio.run(main()))
"""


LEAVING = """
import tempfile
from planform.sandbox.leftovers import scratch_prefix
tempfile.mkdtemp(prefix=scratch_prefix())
print(True)
"""


@pytest.mark.parametrize("program", [PROGRAM, LEAVING], ids=["workers", "whatever is still there"])
def test_a_process_that_ends_takes_the_scratch_directories_of_its_children_with_it(
    program: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr
    assert list(tmp_path.iterdir()) == []
