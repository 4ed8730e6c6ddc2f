"""`python -m bench [NAME] [OPTIONS]`: run one benchmark, or all of them."""

from __future__ import annotations

import importlib
import os
import pkgutil
import platform
import sys
from timeit import timeit

import bench

_PARTS = frozenset({"__main__", "report"})


def main() -> int:
    names = [module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in _PARTS]
    chosen = sys.argv[1:2]
    if chosen and chosen[0] not in names:
        print(f"there is no benchmark {chosen[0]!r}; there are: {', '.join(names)}", file=sys.stderr)
        return 2
    print(_conditions())
    worst = 0
    for name in chosen or names:
        result = importlib.import_module(f"bench.{name}").main(sys.argv[2:])
        worst = max(worst, result if isinstance(result, int) else 0)
    return worst


def _conditions() -> str:
    """What the figures stand on: a Python that was built without optimisation takes a third longer for all of it."""
    seconds = timeit("for number in numbers: total += number", "total = 0; numbers = range(2_000_000)", number=1)
    return (
        f"Python {platform.python_version()} on {os.cpu_count()} cores, {seconds * 1000:.0f} ms for 2,000,000 additions"
    )


if __name__ == "__main__":
    sys.exit(main())
