"""What every suite shares: one real cluster a worker, started when the first test asks for it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.harness.kubernetes import kubernetes_engine
from tests.harness.programs import SUITE
from tests.suites import QUICK, REST, split

__all__ = ["kubernetes_engine", "pytest_collection_modifyitems", "pytest_terminal_summary"]

COUNTS: pytest.StashKey[str] = pytest.StashKey()
"""How many tests this run has, and how many the other suite."""

# A busy machine breaks no law. make test tries the same examples each time; make test-long tries new ones.
settings.register_profile("planform", deadline=None, derandomize=SUITE in os.environ)
settings.load_profile("planform")


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """A command that a test runs in its own process sets levels and handlers up for good: the next test has none."""
    top, transport = logging.getLogger("planform"), logging.getLogger("planform.client.transport")
    handlers, propagate, levels = list(top.handlers), top.propagate, (top.level, transport.level)
    yield
    top.handlers[:], top.propagate = handlers, propagate
    top.setLevel(levels[0])
    transport.setLevel(levels[1])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests of the suite that was asked for, and keep together what must run on one worker."""
    _take_suite(config, items)
    _keep_groups(config, items)


def _take_suite(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the other suite runs; without a suite, everything stays."""
    suite = os.environ.get(SUITE, "")
    if suite not in (QUICK, REST):
        return
    both = split(items)
    items[:] = both.of(suite)
    config.hook.pytest_deselected(items=list(both.rest if suite == QUICK else both.quick))
    counts = f"make test: {len(both.quick)} tests; make test-all: {len(both.rest)} more"
    config.stash[COUNTS] = counts
    if hasattr(config, "workeroutput"):
        config.workeroutput["counts"] = counts


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker counted is told by the process that has the terminal."""
    counts = getattr(node, "workeroutput", {}).get("counts")
    if counts:
        node.config.stash[COUNTS] = counts


def _keep_groups(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of an xdist_group on one worker.

    pytest-xdist 3.8 tells the group by writing `_nodeid`, which pytest 9.2 no longer reads: without this every worker
    would start a cluster. It does nothing where the two agree.
    """
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid:
            item._id = type(item.id).parse(grouped)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have counted, such as crash points; a worker's own output would not be seen."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
    if counts := terminalreporter.config.stash.get(COUNTS, ""):
        terminalreporter.write_line(counts)
    note_failed(terminalreporter)


def note_failed(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what failed in the file that PLANFORM_FAILED tells, one to a line, so that it can be run once more."""
    file = os.environ.get("PLANFORM_FAILED")
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    if file and failed:
        names = dict.fromkeys(re.sub(r"@[\w-]+$", "", report.nodeid) for report in failed)  # less the group
        Path(file).write_text("\n".join(names) + "\n")
