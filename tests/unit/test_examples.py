"""Every example has tests of its own, and they pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from planform.cli.compositions.cases import find_suites, run_suite

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_every_example_has_tests_and_a_row_in_the_readme() -> None:
    directories = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())
    readme = (EXAMPLES / "README.md").read_text()
    for directory in directories:
        assert find_suites([directory]), directory
        assert f"`{directory.name}`" in readme


@pytest.mark.parametrize("suite", find_suites([EXAMPLES]), ids=lambda path: path.parent.name)
def test_an_example_gives_what_its_tests_say(suite: Path) -> None:
    results = list(run_suite(suite))
    assert results
    assert [problem for result in results for problem in result.problems] == []
