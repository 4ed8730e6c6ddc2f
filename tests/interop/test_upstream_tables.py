"""The built-ins answer what the unit tests of the published functions ask, and their examples, as those do.

The tests of each Go module were run in a copy, with a hook that wrote down every request and answer; tools/testbins.py
does that. Every difference is an entry of improvements.yaml.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from planform.builtin.catalogue import find_builtin
from planform.functions.jsonform import request_from_json
from planform.functions.values import FunctionRequest, FunctionResponse
from tests.harness.programs import programs
from tests.interop.comparing import compare, differences, plain

FUNCTIONS = ("patch-and-transform", "go-templating", "auto-ready", "cel-filter")

pytestmark = pytest.mark.xdist_group("go-functions")


def unpacked(function: str, folder: Path) -> Path:
    """What its unit tests asked, as `tables.jsonl`, and its `example` folder."""
    name = f"function-{function}-tables"
    done = subprocess.run([programs(name) / name], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive.getmembers():
            if (content := archive.extractfile(member)) is not None:
                target = folder / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    return folder


def compared_tables(function: str, folder: Path) -> tuple[list[str], set[str]]:
    """What differs in the answers to the function's own unit tests, and the entries that do not count as such."""
    found: list[str] = []
    used: set[str] = set()
    rows = (unpacked(function, folder) / "tables.jsonl").read_text().splitlines()
    assert rows
    for number, row in enumerate(map(json.loads, rows)):
        request = request_from_json(plain(row["request"]))
        theirs = row.get("response") or {"rpcError": row.get("rpcError")}
        case, rules = compare(function, request, answer(function, request), theirs)
        found += [f"{number}: {each}" for each in differences(case.ours, case.theirs)]
        used |= rules
    return found, used


def answer(function: str, request: FunctionRequest) -> FunctionResponse:
    builtin: Any = find_builtin(function)
    made: FunctionResponse = builtin(request) if callable(builtin) else builtin.call(request)
    return made


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_the_unit_tests_of_the_published_function_ask_is_answered_as_it_answers(name: str, tmp_path: Path) -> None:
    found, _ = compared_tables(name, tmp_path)
    assert found == []
