"""The benchmarks as a page: each figure beside its bar, and its course over the runs of this machine. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _RUNS = 160, 28, 40

_STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --quiet: #62686f; --line: #d9dde1; --good: #1a7f4b; --bad: #c4320a;
  --back: #fff }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8ea; --quiet: #9aa1a8; --line: #33393f; --good: #4cc38a;
  --bad: #ff8b5e; --back: #151718 } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem }
table { border-collapse: collapse; width: 100% } td { padding: .35rem .6rem; border-top: 1px solid var(--line) }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap } .quiet { color: var(--quiet) }
.bar { width: 12rem; height: .55rem; background: var(--line); border-radius: .3rem; overflow: hidden }
.bar i { display: block; height: 100%; background: var(--good) } .missed .bar i { background: var(--bad) }
.word { white-space: nowrap; color: var(--good) } .missed .word { color: var(--bad) }
svg { display: block } polyline { fill: none; stroke: var(--quiet); stroke-width: 1.5 } circle { fill: var(--text) }
"""


def page(machine: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]) -> str:
    """A self-contained HTML page. `rows` are those of the last run, `history` all runs, the oldest first."""
    benches: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        benches.setdefault(str(row["bench"]), []).append(row)
    met = sum(_met(row) for row in rows)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>planform benchmarks</title><style>{_STYLE}</style>",
        f"<h1>planform benchmarks: {met} of {len(rows)} bars met</h1>",
        f"<p class=quiet>{escape(machine)}, {len(history)} runs. A full bar: the figure meets what it is held to.",
    ]
    for bench, figures in benches.items():
        parts.append(f"<h2>{escape(bench)}</h2><table>")
        parts += [_row(bench, row, history) for row in figures]
        parts.append("</table>")
    return "\n".join(parts) + "\n"


def _row(bench: str, row: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> str:
    met, value, bar = _met(row), float(row["value"]), float(row["bar"])
    share = _share(value, bar, at_least=bool(row["at_least"]))
    course = [run["figures"][key] for run in history if (key := f"{bench}: {row['name']}") in run.get("figures", {})]
    sign = "at least" if row["at_least"] else "at most"
    return (
        f"<tr class={'met' if met else 'missed'}><td class=word>{'✓ met' if met else '✗ missed'}"
        f"<td>{escape(str(row['name']))}<td class=number>{value:,.2f} {escape(str(row['unit']))}"
        f"<td class='number quiet'>{sign} {bar:g} {escape(str(row['unit']))}"
        f"<td><div class=bar><i style='width:{share:.0f}%'></i></div><td>{_course(course[-_RUNS:])}"
    )


def _met(row: Mapping[str, Any]) -> bool:
    return bool(row["value"] >= row["bar"] if row["at_least"] else row["value"] <= row["bar"])


def _share(value: float, bar: float, *, at_least: bool) -> float:
    """How much of the way to the bar it is, in percent."""
    if at_least:
        return 100.0 if not bar else max(2.0, min(100.0, 100 * value / bar))
    return 100.0 if value <= bar else max(2.0, 100 * bar / value)


def _course(values: Sequence[float]) -> str:
    """The figure over the runs, as a small line."""
    if len(values) < 2:
        return "<span class=quiet>first run</span>"
    low, high = min(values), max(values)
    spread = (high - low) or 1.0
    points = [
        (_WIDTH * at / (len(values) - 1), _HEIGHT - 3 - (_HEIGHT - 6) * (value - low) / spread)
        for at, value in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    label = f"{len(values)} runs from {low:,.2f} to {high:,.2f}"
    return (
        f"<svg width={_WIDTH + 4} height={_HEIGHT} role=img aria-label='{label}'><title>{label}</title>"
        f"<polyline points='{line}'/><circle cx={x:.1f} cy={y:.1f} r=2.5 /></svg>"
    )
