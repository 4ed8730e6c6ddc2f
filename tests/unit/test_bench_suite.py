"""All benchmarks in a row: one that fails or hangs is a line of the table, and figures are told over time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from bench import suite
from bench.report import ROWS, Report
from bench.report_page import page
from bench.suite import Ran, Row

FAST = Row("store", "writes / plain SQLite", 0.8, "x", 0.5, at_least=True)
SLOW = Row("engine", "start to ready", 0.9, "s", 0.7, at_least=False)


def test_the_table_tells_what_is_met_what_is_missed_and_what_could_not_run() -> None:
    shown = suite.table(
        [Ran("store", 1.0, (FAST,)), Ran("engine", 61.0, (SLOW,)), Ran("sdk", 1.0, (), "no Go here")],
        {FAST.id: 0.4},
    )
    store, engine, sdk = shown.splitlines()[2:5]
    assert store.split()[0] == "ok"
    assert store.endswith("2.00 x")
    assert engine.split()[0] == "MISS"
    assert engine.endswith("-")
    assert sdk.split() == ["FAIL", "sdk", "no", "Go", "here"]
    assert "1 of 2 bars met, in 1 min 3 s" in shown


def test_the_page_needs_nothing_from_elsewhere_and_draws_the_course_of_a_figure() -> None:
    rows = [{"bench": "store", "name": "<b>", "value": 2.0, "unit": "x", "bar": 1.0, "at_least": True}]
    shown = page("a machine", rows, [{"figures": {"store: <b>": value}} for value in (1.0, 3.0, 2.0)])
    assert "1 of 1 bars met" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "3 runs from 1.00 to 3.00" in shown
    assert "://" not in shown


def test_rows_of_a_benchmark_reach_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROWS, str(tmp_path / "rows"))
    report = Report("anything")
    report.at_least("a ratio", 2.0, 1.5)
    report.at_most("a time", 3.0, 1.0, "s")
    assert report.failures == ["a time"]
    assert len((tmp_path / "rows").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("program", "limit", "problem"),
    [
        pytest.param("", 20.0, "", id="well"),
        pytest.param("raise SystemExit(1)", 20.0, "failed", id="failed"),
        pytest.param("import time; time.sleep(60)", 0.3, "it took longer than 0 s", id="hangs"),
    ],
)
def test_a_benchmark_that_hangs_is_ended(tmp_path: Path, program: str, limit: float, problem: str) -> None:
    with (tmp_path / "output").open("wb") as sink:
        assert suite._watched([sys.executable, "-c", program], dict(os.environ), sink, limit) == problem
