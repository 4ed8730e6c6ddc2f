"""All benchmarks in a row, each a process of its own with a time limit; then one table, one picture, and a history.

    python -m bench                    small sizes, for any machine
    python -m bench --full             the sizes that the documentation speaks of
    python -m bench --save-baseline    keep this run to compare later ones with

A benchmark that cannot run here, or takes too long, is a line of the table and stops nobody. Missed bars do not fail
the run unless `--strict` is given: small sizes and busy machines miss some. What was measured is kept in `bench/out`,
by machine; `report.html` there shows it over time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.report import ROWS
from bench.report_page import page

OUT = Path(__file__).parent / "out"
SMALL: dict[str, tuple[str, ...]] = {
    "blueprints": ("--actionsets", "100", "--resolves", "2000"),
    "cli": ("--rounds", "7"),
    "composition": ("--quick", "--count", "200"),
    "dashboard": ("--quick",),
    "engine": ("--quick",),
    "function_restart": ("--kills", "2"),
    "functions": ("--rounds", "3"),
    "gotemplate": ("--seconds", "0.3"),
    "kubernetes": ("--quick", "--count", "60"),
    "packages": ("--quick",),
    "patch_and_transform": ("--calls", "500"),
    "preview": ("--xrs", "300"),
    "render": ("--rounds", "3"),
    "rollouts": ("--quick",),
    "sandbox": ("--rounds", "2"),
    "sdk": ("--rounds", "3"),
    "store": ("--writes", "4000", "--objects", "20000"),
}
"""Options that make a benchmark small; one that is not named here is run as it is."""
_SECONDS_SMALL, _SECONDS_FULL = 240, 3600
_LAST_LINES = 3


@dataclass(frozen=True)
class Row:
    """One figure, and the bar it is held to."""

    bench: str
    name: str
    value: float
    unit: str
    bar: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    @property
    def id(self) -> str:
        return f"{self.bench}: {self.name}"


@dataclass(frozen=True)
class Ran:
    """How one benchmark ended."""

    bench: str
    seconds: float
    rows: tuple[Row, ...]
    problem: str = ""


def main(names: Sequence[str], arguments: Sequence[str]) -> int:
    options = _options(arguments)
    OUT.mkdir(exist_ok=True)
    history = OUT / f"{machine()}.jsonl"
    baseline = OUT / f"{machine()}.baseline.json"
    results = [_run(name, options) for name in names]
    rows = [row for each in results for row in each.rows]
    before = _figures(baseline)
    print(table(results, before), flush=True)
    _remember(history, rows, full=options.full)
    if options.save_baseline:
        baseline.write_text(json.dumps({row.id: row.value for row in rows}, indent=1))
    runs = list(_history(history))
    report = OUT / "report.html"
    report.write_text(page(platform.node() or "this machine", [asdict(row) for row in rows], runs))
    print(f"\n{report.relative_to(OUT.parents[1])} shows it, beside {len(runs) - 1} earlier runs of this machine")
    broken = [each.bench for each in results if each.problem]
    missed = [row.id for row in rows if not row.met]
    return 1 if broken or (options.strict and missed) else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="full sizes")
    parser.add_argument("--strict", action="store_true", help="fail for a missed bar, too")
    parser.add_argument("--save-baseline", action="store_true", help="compare later runs with this one")
    return parser.parse_args(arguments)


def _run(name: str, options: argparse.Namespace) -> Ran:
    arguments = () if options.full else SMALL.get(name, ())
    limit = _SECONDS_FULL if options.full else _SECONDS_SMALL
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planform-bench-") as folder:
        file, output = Path(folder, "rows"), Path(folder, "output")
        file.touch()
        command = [sys.executable, "-m", "bench", name, *arguments]
        with output.open("wb") as sink:
            problem = _watched(command, {**os.environ, ROWS: str(file)}, sink, limit)
        text = output.read_text(errors="replace")
        print(text, flush=True)
        rows = tuple(_row(name, json.loads(line)) for line in file.read_text().splitlines())
    if problem == "failed" and any(not row.met for row in rows):
        problem = ""  # a missed bar is the benchmark's exit code 1, and has a row that says so
    elif problem == "failed":
        problem = " | ".join(text.strip().splitlines()[-_LAST_LINES:]) or "it ended without a word"
    return Ran(name, time.monotonic() - started, rows, problem)


def _watched(command: Sequence[str], environment: dict[str, str], sink: Any, limit: float) -> str:
    """What went wrong: nothing, `failed`, or a sentence. The benchmark is the leader of a group, which ends with it."""
    process = subprocess.Popen(command, env=environment, stdout=sink, stderr=sink, start_new_session=True)
    try:
        return "failed" if process.wait(limit) else ""
    except subprocess.TimeoutExpired:
        return f"it took longer than {limit:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 15)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()


def _row(bench: str, row: dict[str, Any]) -> Row:
    return Row(bench, row["name"], row["value"], row["unit"], row["bar"], row["atLeast"])


def table(results: Iterable[Ran], before: dict[str, float]) -> str:
    """Every figure with its bar, and how it compares with the baseline, as a text."""
    lines = ["", f"{'':4} {'BENCHMARK':<20} {'FIGURE':<62} {'VALUE':>16} {'BAR':>20} {'BASELINE':>9}"]
    for each in results:
        for row in each.rows:
            than = f"{row.value / before[row.id]:.2f} x" if before.get(row.id) else "-"
            bar = f"{'>=' if row.at_least else '<='} {row.bar:g} {row.unit}"
            shown = f"{row.value:,.2f} {row.unit}"
            lines.append(
                f"{'ok' if row.met else 'MISS':<4} {row.bench:<20} {row.name:<62} {shown:>16} {bar:>20} {than:>9}"
            )
        if each.problem:
            lines.append(f"{'FAIL':<4} {each.bench:<20} {each.problem}")
    total = sum(each.seconds for each in results)
    rows = [row for each in results for row in each.rows]
    met = sum(row.met for row in rows)
    lines.append(f"\n{met} of {len(rows)} bars met, in {total / 60:.0f} min {total % 60:.0f} s")
    return "\n".join(lines)


def machine() -> str:
    """Runs are compared with runs of the same machine only: processor, cores and Python."""
    cpu = next((line for line in _cpu_info() if line.startswith("model name")), platform.machine())
    facts = f"{cpu} {os.cpu_count()} {platform.python_version()}"
    return sha256(facts.encode()).hexdigest()[:12]


def _cpu_info() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _figures(path: Path) -> dict[str, float]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def _remember(path: Path, rows: Sequence[Row], *, full: bool) -> None:
    run = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "full": full,
        "figures": {r.id: r.value for r in rows},
    }
    with path.open("a") as file:
        file.write(json.dumps(run) + "\n")


def _history(path: Path) -> Iterable[dict[str, Any]]:
    for line in path.read_text().splitlines():
        try:
            yield dict(json.loads(line))
        except ValueError:
            continue  # a run that was killed while it wrote
