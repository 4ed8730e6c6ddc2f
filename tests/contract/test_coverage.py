"""Every row has a case, every case a row, and few differences are wanted."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.contract_rows import unmapped

from tests.contract.engines import HERE

ROWS: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "rows.yaml").read_text())
DIFFERENCES: list[dict[str, Any]] = yaml.safe_load((HERE / "differences.yaml").read_text())
SPECIFICATION = Path(__file__).parents[3] / "shared" / "spec" / "kubernetes-api.md"
MAX_DIFFERENCES = 10


def cases() -> Counter[str]:
    """How many tests are the case of each row."""
    found: Counter[str] = Counter()
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(f"tests.contract.{path.stem}")
        for name, value in vars(module).items():
            if name.startswith("test_"):
                found.update(getattr(value, "rows", ()))
    return found


def test_every_row_has_a_case_or_a_reason_to_have_none() -> None:
    covered = cases()
    assert [name for name, row in ROWS.items() if "untested" not in row and name not in covered] == []
    assert [name for name, row in ROWS.items() if "untested" in row and name in covered] == []
    assert all(row.get("says") for row in ROWS.values())


def test_every_case_has_a_row() -> None:
    assert sorted(set(cases()) - set(ROWS)) == []


def test_every_test_of_an_engine_names_its_rows() -> None:
    nameless = []
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(f"tests.contract.{path.stem}")
        for name, value in vars(module).items():
            is_case = name.startswith("test_") and {"engine", "client"} & set(getattr(value, "__annotations__", ()))
            if is_case and not getattr(value, "rows", ()):
                nameless.append(f"{path.name}: {name}")
    assert nameless == []


def test_differences_are_few_reasoned_and_used() -> None:
    assert len(DIFFERENCES) <= MAX_DIFFERENCES
    for entry in DIFFERENCES:
        assert set(entry) == {"case", "kubernetes", "embedded", "reason"} and entry["reason"], entry
        assert entry["kubernetes"] != entry["embedded"], entry
    named = [entry["case"] for entry in DIFFERENCES]
    assert sorted(named) == sorted(set(named)) and set(named) <= set(ROWS)
    used = set()
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "expected":
                used.add(ast.literal_eval(node.args[0]))
    assert used == set(named)


@pytest.mark.skipif(not SPECIFICATION.exists(), reason="the specification is not part of the repository")
def test_every_table_row_of_the_specification_is_a_row() -> None:
    assert unmapped(SPECIFICATION.read_text(), ROWS) == []
