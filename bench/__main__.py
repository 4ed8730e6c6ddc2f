"""`python -m bench [NAME] [OPTIONS]`: run one benchmark, or all; with `--against COMMIT`, one on two commits.

Without a name all of them run, each a process of its own: `python -m bench --help`.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import platform
import sys
from timeit import timeit

import bench
from bench import against, suite

_PARTS = frozenset({"__main__", "against", "report", "report_page", "sandbox_calls", "suite"})
_COMPARING = frozenset({"sandbox"})
"""Benchmarks that have a comparison of their own, call by call."""


def main() -> int:
    names = [module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in _PARTS]
    if not sys.argv[1:] or sys.argv[1].startswith("-"):
        print(_conditions(), flush=True)
        return suite.main(names, sys.argv[1:])
    chosen = sys.argv[1]
    if chosen not in names:
        print(f"there is no benchmark {chosen!r}; there are: {', '.join(names)}", file=sys.stderr)
        return 2
    print(_conditions())
    asked = any(each.partition("=")[0] == "--against" for each in sys.argv[2:])
    if asked and chosen not in _COMPARING:
        return against.main(chosen, sys.argv[2:])
    result = importlib.import_module(f"bench.{chosen}").main(sys.argv[2:])
    return result if isinstance(result, int) else 0


def _conditions() -> str:
    """What the figures stand on: a Python that was built without optimisation takes a third longer for all of it."""
    seconds = timeit("for number in numbers: total += number", "total = 0; numbers = range(2_000_000)", number=1)
    return (
        f"Python {platform.python_version()} on {os.cpu_count()} cores, {seconds * 1000:.0f} ms for 2,000,000 additions"
    )


if __name__ == "__main__":
    sys.exit(main())
