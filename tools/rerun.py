#!/usr/bin/env python3
"""Runs tests that failed beside others once more, alone, only to tell apart what is broken from what is flaky.

    tools/rerun.py FILE [OPTIONS OF PYTEST]   FILE names one test to a line, as PLANFORM_FAILED has it written

Exit codes: 0 all of them pass alone, 1 some do not. With PLANFORM_FLAKY=fail, as in continuous integration, also 1 if
one passes alone: such a test is to be mended, not to be run until it passes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    file = Path(arguments[0])
    names = file.read_text().splitlines()
    again = file.with_suffix(".alone")
    again.unlink(missing_ok=True)
    print(f"== {len(names)} failed beside the others; run once more, alone, to name what is flaky ==", flush=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", f"@{file}", *arguments[1:]]
    code = subprocess.run(command, env={**os.environ, "PLANFORM_FAILED": str(again)}, check=False).returncode
    broken = again.read_text().splitlines() if again.exists() else []
    flaky = [name for name in names if name not in broken] if code in (0, 1) else []
    for name in broken:
        print(f"broken: {name}")
    for name in flaky:
        print(f"flaky: {name}")
    if flaky:
        print(f"== {len(flaky)} flaky: failed beside the others, passed alone; make them safe to run in parallel ==")
    return 1 if code or (flaky and os.environ.get("PLANFORM_FLAKY") == "fail") else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
