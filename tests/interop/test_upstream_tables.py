"""The built-ins answer what the unit tests of the published functions ask, and their examples, as those do.

The tests of each Go module were run in a copy, with a hook that wrote down every request and answer; tools/testbins.py
does that. Every difference is an entry of improvements.yaml.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from planform.builtin.catalogue import find_builtin
from planform.functions.jsonform import request_from_json
from planform.functions.values import FunctionRequest, FunctionResponse, Object
from tests.harness.programs import programs
from tests.interop.comparing import compare, differences, plain

FUNCTIONS = ("patch-and-transform", "go-templating", "auto-ready", "cel-filter")

pytestmark = pytest.mark.xdist_group("go-functions")


def tables(function: str) -> Iterator[Object]:
    name = f"function-{function}-tables"
    done = subprocess.run([programs(name) / name], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        found = archive.extractfile("tables.jsonl")
        assert found is not None
        yield from map(json.loads, found.read().splitlines())


def answer(function: str, request: FunctionRequest) -> FunctionResponse:
    builtin: Any = find_builtin(function)
    made: FunctionResponse = builtin(request) if callable(builtin) else builtin.call(request)
    return made


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_the_unit_tests_of_the_published_function_ask_is_answered_as_it_answers(name: str) -> None:
    found = []
    for number, row in enumerate(tables(name)):
        request = request_from_json(plain(row["request"]))
        theirs = row.get("response") or {"rpcError": row.get("rpcError")}
        compared, _ = compare(name, request, answer(name, request), theirs)
        found += [f"{number}: {each}" for each in differences(compared.ours, compared.theirs)]
    assert found == []
