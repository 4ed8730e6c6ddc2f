#!/usr/bin/env python3
"""Prints which Python `make install` makes .venv with: `python3`, or another one here if that is much faster.

Pythons of the same version differ by half and more, for some are built without the optimisations that distributions
build theirs with. planform computes in one thread, so all it does takes as much longer. The builds do not tell reliably
how they were made, so each is timed, for a fraction of a second of the CPU: beside other work the clock on the wall
tells nothing.

`PYTHON=... make install` chooses by hand. Runs on any Python 3, for `python3` may be too old for planform.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
MUCH_FASTER = 1.25
ROUNDS = 3

# What planform does all day: call, make small objects, look into dicts. Fails where no .venv can be made.
_PROBE = f"""
import ensurepip, os, sys, time, venv
assert sys.version_info >= {OLDEST}
class Value:
    def __init__(self, number):
        self.number = number
    def doubled(self):
        return 2 * self.number
def work():
    begun = time.process_time()
    for number in range(40000):
        held = {{"number": Value(number).doubled(), "inner": {{"name": "value"}}}}
        held.get("inner").get("name")
    return time.process_time() - begun
print(min(work() for _ in range(3)), sys.version.split()[0], os.path.realpath(sys.executable))
"""


def timed(python: str) -> tuple[float, str, str] | None:
    """CPU seconds for the probe, version and path; nothing for one that planform cannot be installed with."""
    try:
        told = subprocess.run(
            [python, "-I", "-c", _PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    seconds, version, path = told.stdout.decode().strip().split(" ", 2)
    return float(seconds), version, path


def candidates() -> list[str]:
    """Every Python 3 on the PATH, each once; `python3` is the first."""
    names = ["python3", *(f"python3.{minor}" for minor in range(OLDEST[1], 30))]
    paths = [Path(place, name) for name in names for place in os.get_exec_path()]
    return list(dict.fromkeys(str(path.resolve()) for path in paths if path.is_file() and os.access(path, os.X_OK)))


def fastest_times(pythons: list[str]) -> dict[str, tuple[float, str]]:
    """Seconds and version of each that planform can be installed with, in turn, for machines are noisy."""
    best: dict[str, tuple[float, str]] = {}
    for _ in range(ROUNDS):
        for python in pythons:
            found = timed(python)
            if found is not None:
                seconds, version, path = found
                best[path] = min(best.get(path, (seconds, version)), (seconds, version))
        pythons = list(best)
    return best


def main() -> int:
    best = fastest_times(candidates())
    if not best:
        wanted = ".".join(map(str, OLDEST))
        print(
            f"error: planform needs Python {wanted} or newer with its venv module; none is on the PATH", file=sys.stderr
        )
        print("hint: on Debian: apt-get install python3 python3-venv", file=sys.stderr)
        return 1
    usual = next(iter(best))
    chosen = min(best, key=lambda path: best[path][0])
    ratio = best[usual][0] / best[chosen][0]
    if ratio < MUCH_FASTER:
        chosen = usual
    else:
        print(
            f"taking {chosen} (Python {best[chosen][1]}), {ratio:.1f} times as fast as {usual}; "
            "to choose another: PYTHON=... make install",
            file=sys.stderr,
        )
    print(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
