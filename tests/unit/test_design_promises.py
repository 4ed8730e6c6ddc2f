"""The promises of the designs: each says what became of it, its tests exist, and the page says the same."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tools import reference

from tests.harness.edge_cases import missing

DATA: Final = Path(__file__).parents[1] / "controllers" / "designs" / "promises.yaml"
DESIGNS: Final[list[dict[str, Any]]] = yaml.safe_load(DATA.read_text())
ROWS: Final[dict[str, list[dict[str, Any]]]] = {
    design["design"]: list(chain.from_iterable(section["promises"] for section in design["sections"]))
    for design in DESIGNS
}


@pytest.mark.parametrize("design", ROWS)
def test_every_test_that_shows_a_promise_exists(design: str) -> None:
    named = (test.split("::") for row in ROWS[design] for test in row["tests"])
    assert [gone for file, name in named for gone in missing({file: (name,)})] == []


@pytest.mark.parametrize("design", ROWS)
def test_a_promise_that_is_not_kept_as_designed_says_why(design: str) -> None:
    assert {row["state"] for row in ROWS[design]} <= reference.STATES.keys()
    assert [row["promise"] for row in ROWS[design] if row["state"] != "works" and not row.get("why")] == []


@pytest.mark.parametrize("design", ROWS)
def test_no_promise_and_no_test_of_it_is_listed_twice(design: str) -> None:
    counted = Counter(row["promise"] for row in ROWS[design])
    assert [promise for promise, times in counted.items() if times > 1] == []
    assert [row["promise"] for row in ROWS[design] if len(set(row["tests"])) != len(row["tests"])] == []


def test_all_five_designs_are_listed() -> None:
    assert list(ROWS) == [
        "composition-revisions",
        "composition-functions",
        "extra-resources",
        "controlled-rollout-of-functions",
        "function-version-management",
    ]


def test_the_page_says_what_the_list_says() -> None:
    assert reference.PROMISES.read_text() == reference.promises_page(), "run tools/reference.py"
