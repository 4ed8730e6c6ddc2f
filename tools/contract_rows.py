"""Checks that every table row of the API specification is a row of the contract suite.

    python tools/contract_rows.py SPECIFICATION [ROWS]

Prints what is missing or stale, a line each, and fails if there is anything. The specification is not part of the
repository; where it is at hand, tests/contract/test_coverage.py runs this too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROWS = Path(__file__).parents[1] / "tests" / "contract" / "rows.yaml"
FIRST, LAST = 2, 16
"""The sections whose tables state behaviour."""


def table_rows(specification: str) -> list[tuple[str, str]]:
    """Section and text of every table row but the headings, from the first cell on."""
    found: list[tuple[str, str]] = []
    section = ""
    for line in specification.splitlines():
        if heading := re.match(r"#+ (\d+(?:\.\d+)?)\b", line):
            section = heading[1]
        elif line.startswith("|---"):
            found.pop()  # the row before the rule is the table's head
        elif line.startswith("| ") and section and FIRST <= float(section) < LAST + 1:
            found.append((section, line.removeprefix("| ")))
    return found


def unmapped(specification: str, rows: Mapping[str, Any]) -> list[str]:
    """What does not fit: table rows without a contract row, contract rows that begin like no table row."""
    tables = table_rows(specification)
    begins = [(name.partition("-")[0], row["spec"], name) for name, row in rows.items() if "spec" in row]
    complaints = [
        f"section {section} has a row that no case covers: {text[:70]}"
        for section, text in tables
        if not any(section == of and text.startswith(start) for of, start, _ in begins)
    ]
    complaints += [
        f"{name} stands for a row that is not there: {start}"
        for of, start, name in begins
        if not any(section == of and text.startswith(start) for section, text in tables)
    ]
    return complaints


def main(specification: str, rows: str = str(ROWS)) -> int:
    complaints = unmapped(Path(specification).read_text(), yaml.safe_load(Path(rows).read_text()))
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
