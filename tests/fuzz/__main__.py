"""Runs every fuzzer for its share of the time: `python -m tests.fuzz --seconds 60 --seed 1`, or only those named."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast


class Fuzzer(Protocol):
    """A module of this package."""

    def run(self, seconds: int, seed: int) -> None:
        """Fuzz for about so long; raises with what reproduces it when something is wrong."""
        ...


def names() -> list[str]:
    found = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    return sorted(name for name in found if not name.startswith("_"))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz for a while.")
    parser.add_argument("--seconds", type=int, default=60, help="for all of them together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("fuzzers", nargs="*", metavar="NAME", help=f"some of: {', '.join(names())}; none means all")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.fuzzers) - set(names())):
        parser.error(f"no such fuzzer: {', '.join(unknown)}")
    chosen = options.fuzzers or names()
    share = max(1, options.seconds // len(chosen))
    failed = 0
    for name in chosen:
        print(f"{name}: fuzzing for {share} s from seed {options.seed}", flush=True)
        began = time.monotonic()
        try:
            cast("Fuzzer", importlib.import_module(f"tests.fuzz.{name}")).run(share, options.seed)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"{name}: FAILED after {time.monotonic() - began:.1f} s", flush=True)
        else:
            print(f"{name}: passed after {time.monotonic() - began:.1f} s", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
