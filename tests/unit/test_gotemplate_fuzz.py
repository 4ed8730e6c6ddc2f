"""What fuzzing found stays fixed, and a little fuzzing goes on with every run of the tests."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.gotemplate import FINDINGS, check, run
from tests.gotemplate.corpus import data

KEPT = [json.loads(line) for line in FINDINGS.read_text().splitlines()]


@pytest.mark.parametrize("text", KEPT, ids=range(len(KEPT)))
def test_a_template_that_was_found_by_fuzzing_is_answered(text: str) -> None:
    check(text, data())
    check(text, "\udcff\ud800")


def test_a_second_of_fuzzing_finds_nothing() -> None:
    run(seconds=1, seed=1)
