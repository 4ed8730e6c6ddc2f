"""How every benchmark says what it found: a figure, the bar it is held to, and whether it is met."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

ROWS = "PLANFORM_BENCH_ROWS"
"""The variable that names a file to which rows are added, a JSON value a line; `bench.suite` makes its table of it."""


@dataclass
class Report:
    """Rows of one benchmark, printed as they come."""

    title: str
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        print(f"\n{self.title}\n{'-' * len(self.title)}", flush=True)

    def note(self, text: str) -> None:
        print(f"       {text}", flush=True)

    def at_least(self, name: str, value: float, bar: float, unit: str = "x") -> None:
        self._row(name, value, bar, unit, at_least=True)

    def at_most(self, name: str, value: float, bar: float, unit: str = "x") -> None:
        self._row(name, value, bar, unit, at_least=False)

    def _row(self, name: str, value: float, bar: float, unit: str, *, at_least: bool) -> None:
        met = value >= bar if at_least else value <= bar
        shown, limit = f"{value:,.2f} {unit}", f"at {'least' if at_least else 'most'} {bar:g} {unit}"
        print(f"  {'ok  ' if met else 'MISS'} {name:<58} {shown:>16}   ({limit})", flush=True)
        if not met:
            self.failures.append(name)
        if path := os.environ.get(ROWS):
            row = {"title": self.title, "name": name, "value": value, "bar": bar, "unit": unit, "atLeast": at_least}
            with open(path, "a") as file:  # noqa: PTH123  (one line at a time, from several processes)
                file.write(json.dumps(row) + "\n")
