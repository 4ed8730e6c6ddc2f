"""How every benchmark says what it found: a figure, the bar it is held to, and whether it is met."""

from __future__ import annotations

from dataclasses import dataclass, field


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
        self._row(name, value >= bar, f"{value:,.2f} {unit}", f"at least {bar:g} {unit}")

    def at_most(self, name: str, value: float, bar: float, unit: str = "x") -> None:
        self._row(name, value <= bar, f"{value:,.2f} {unit}", f"at most {bar:g} {unit}")

    def _row(self, name: str, met: bool, value: str, bar: str) -> None:
        print(f"  {'ok  ' if met else 'MISS'} {name:<58} {value:>16}   ({bar})", flush=True)
        if not met:
            self.failures.append(name)
