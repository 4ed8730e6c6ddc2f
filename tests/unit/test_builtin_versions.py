"""The version of a built-in changes with what it answers: recorded answers tell when it should have.

After a change of behaviour, raise the version in `planform/builtin/catalogue.py` and record anew:

    PLANFORM_UPDATE_GOLDEN=1 pytest tests/unit/test_builtin_versions.py -p no:xdist

The requests are those of the examples on the reference pages and of all steps of the golden compositions, and for
patch-and-transform some that are generated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planform.builtin import list_builtins
from planform.builtin.catalogue import BuiltinName
from planform.functions.inprocess import InProcessRunner
from planform.functions.jsonform import request_from_json, request_to_json, response_to_json
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest, FunctionResponse
from tests.interop.compositions import Author
from tests.unit import test_builtin_golden as golden
from tests.unit.test_builtin_docs import RESULTS, answer, ask, examples

FOLDER = Path(__file__).parents[1] / "golden" / "answers"
EXTRAS = {"starlark": "starlark", "kcl": "kcl_lib"}
BUILTINS = list(list_builtins())
GENERATED = 60


def recorded(builtin: BuiltinName) -> tuple[str, list[dict[str, Any]]]:
    """The version that answered, and each request with its answer."""
    file = FOLDER / f"{builtin.name}.jsonl"
    if not file.exists():
        return "", []
    first, *lines = map(json.loads, file.read_text().splitlines())
    return str(first["version"]), lines


def answered(builtin: BuiltinName, request: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(response_to_json(answer(builtin.name, request_from_json(request)))))
    return made


@pytest.mark.parametrize("builtin", BUILTINS, ids=lambda each: each.name)
def test_what_a_built_in_answers_is_what_its_version_answered(builtin: BuiltinName) -> None:
    if extra := EXTRAS.get(builtin.name):
        pytest.importorskip(extra, reason=f"the extra `{builtin.name}` is not installed")
    version, cases = recorded(builtin)
    others = [case["case"] for case in cases if answered(builtin, case["request"]) != case["response"]]
    assert others == [] or version != builtin.version, (
        f"{builtin.name} answers otherwise and is still {version}: raise its version in planform/builtin/catalogue.py"
    )
    if os.environ.get("PLANFORM_UPDATE_GOLDEN") and version != builtin.version:
        return  # `test_answers_are_recorded_anew` writes them
    assert version == builtin.version, (
        f"record what {builtin.name} {builtin.version} answers: see the head of this file"
    )
    assert len(cases) >= 3


@pytest.mark.skipif(not os.environ.get("PLANFORM_UPDATE_GOLDEN"), reason="answers are recorded when they are asked for")
def test_answers_are_recorded_anew(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: dict[str, list[dict[str, Any]]] = {each.name: list(_documented(each)) for each in BUILTINS}
    run, case = InProcessRunner.run_builtin, ""

    async def recording(
        self: InProcessRunner, name: str, revision: FunctionRevision, request: FunctionRequest, *, timeout: float
    ) -> FunctionResponse:
        asked[name].append({"case": f"{case}, call {len(asked[name])}", "request": request_to_json(request)})
        return await run(self, name, revision, request, timeout=timeout)

    monkeypatch.setattr(InProcessRunner, "run_builtin", recording)
    for case in golden.CASES:
        golden.render(golden.FOLDER / case, capsys)
    FOLDER.mkdir(exist_ok=True)
    for builtin in BUILTINS:
        if recorded(builtin)[0] != builtin.version:
            lines = [{**each, "response": answered(builtin, each["request"])} for each in asked[builtin.name]]
            written = [json.dumps(each, sort_keys=True) for each in ({"version": builtin.version}, *lines)]
            (FOLDER / f"{builtin.name}.jsonl").write_text("\n".join(written) + "\n")


def _documented(builtin: BuiltinName) -> Iterator[dict[str, Any]]:
    for title, parts in examples(builtin.name):
        request = FunctionRequest()
        for role, content in parts:
            if not role.startswith(RESULTS):
                ask(request, role, content)
        yield {"case": title, "request": request_to_json(request)}
    if builtin.name == "patch-and-transform":
        for seed in range(GENERATED):
            yield {"case": f"seed {seed}", "request": request_to_json(Author(seed).request())}


def test_the_versions_are_on_the_reference_page() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "functions" / "index.md").read_text()
    rows = [f"| {each.name} | {each.version} | {each.like or '-'} |" for each in BUILTINS]
    assert [row for row in rows if row not in text] == []
