"""What every suite shares: one real cluster a worker, started when the first test asks for it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import settings

from tests.harness.kubernetes import kubernetes_engine

__all__ = ["kubernetes_engine", "pytest_collection_modifyitems", "pytest_terminal_summary"]

settings.register_profile("planform", deadline=None)  # a busy machine breaks no law
settings.load_profile("planform")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
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
    note_failed(terminalreporter)


def note_failed(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what failed in the file that PLANFORM_FAILED tells, one to a line, so that it can be run once more."""
    file = os.environ.get("PLANFORM_FAILED")
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    if file and failed:
        names = dict.fromkeys(re.sub(r"@[\w-]+$", "", report.nodeid) for report in failed)  # less the group
        Path(file).write_text("\n".join(names) + "\n")
