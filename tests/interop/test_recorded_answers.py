"""The built-ins answer as the upstream functions did that cannot be built here: requests and answers recorded before.

The records lie beside the checkout, in `../shared/recorded`: the cases of the functions' own unit tables, and generated
ones. Every difference is an entry of improvements.yaml.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from planform.builtin.catalogue import find_builtin
from planform.builtin.compiled import CompiledFunction
from planform.functions.jsonform import request_from_json
from planform.functions.values import Object
from tests.interop.comparing import IMPROVEMENTS, RULES, compare, differences, listed, plain

CHECKOUT = Path(__file__).resolve().parents[2]
PLACES = [parent.parent / "shared" / "recorded" for parent in (CHECKOUT, *CHECKOUT.parents[:1])]
FUNCTIONS = ("sequencer", "tag-manager", "status-transformer", "environment-configs", "extra-resources")


def recorded(function: str) -> Iterator[Object]:
    """The cases of a function; skips the test that wants them where they are not."""
    for place in PLACES:
        file = place / f"function-{function}.jsonl"
        if file.is_file():
            yield from map(json.loads, file.read_text().splitlines())
            return
    pytest.skip(f"no recorded answers of function-{function}: they are expected in ../shared/recorded")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_recorded_requests_have_the_answers_of_the_upstream_function(name: str) -> None:
    function = find_builtin(name)
    assert isinstance(function, CompiledFunction)
    found, used, count = [], set(), 0
    for case in recorded(name):
        request = request_from_json(plain(case["request"]))
        compared, rules = compare(name, request, function(request), case["response"])
        found += [f"{case['case']}: {each}" for each in differences(compared.ours, compared.theirs)]
        used |= rules
        count += 1
    assert found == []
    assert count > 200
    assert {entry["id"] for entry in listed(name)} == used, "what is listed must be seen"


def test_every_record_is_of_a_function_that_is_compared() -> None:
    found = {file.name for place in PLACES for file in place.glob("*.jsonl")}
    assert found <= {f"function-{name}.jsonl" for name in FUNCTIONS}


def test_every_rule_is_an_entry_of_the_list() -> None:
    assert set(RULES) <= {entry["id"] for entry in IMPROVEMENTS}
