"""Functions on an author's machine: which revision they stand for, and how they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planform.cli.functions.local import functions_from, used_by
from planform.cli.functions.local_resolver import FIELD, local_resolver, unlabelled_notes
from planform.functions.errors import FunctionNotFound, VersionNotFound
from planform.packages.revisions import VERSION_LABEL
from planform.pipeline.steps import Step
from tests.unit.test_render_command import Run, composition, run, write, xr

__all__ = ["run"]  # a fixture

GREET = """
from planform_sdk import Request, Response, function

@function
def greet(req: Request, rsp: Response) -> None:
    rsp.desired.resources["one"] = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"who": req.xr.get("spec.region")}}
"""
STABLE = {"release-channel": "stable"}


def step(**more: Any) -> dict[str, Any]:
    return {"step": "greet", "functionRef": {"name": "function-greet"}, **more}


def document(labels: dict[str, str], *, kind: str = "Function", name: str = "function-greet") -> dict[str, Any]:
    labels = labels if kind == "Function" else {"pkg.crossplane.io/package": "function-greet", **labels}
    spec = {"package": "xpkg.example.org/team/function-greet:v0.8.1"}
    return {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": spec if kind == "Function" else {"image": spec["package"], "revision": 1},
    }


def selecting(labels: dict[str, str]) -> Step:
    return Step("greet", "function-greet", revision_selector=labels)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"functionRevisionSelector": {"matchLabels": STABLE}}, id="by labels"),
        pytest.param({"functionRevisionRef": {"name": "function-greet-0123456789ab"}}, id="by name"),
    ],
)
def test_a_function_without_a_document_stands_for_every_revision_and_that_is_said_once(
    run: Run, more: dict[str, Any]
) -> None:
    Path("function.py").write_text(GREET)
    write("xr.yaml", xr())
    write("composition.yaml", composition(step(**more), {**step(**more), "step": "again"}))
    ran = run("render", "xr.yaml", "composition.yaml", "--function", "function-greet=function.py")
    assert ran.code == 0, ran.err
    assert ran.documents[1]["data"] == {"who": "eu"}
    assert ran.err.count("stands for every revision of its name") == 1


def test_a_test_says_it_once_for_all_its_cases(run: Run) -> None:
    Path("function.py").write_text(GREET)
    write("xr.yaml", xr())
    write("composition.yaml", composition(step(functionRevisionSelector={"matchLabels": STABLE})))
    common = {"xr": "xr.yaml", "composition": "composition.yaml", "function": {"function-greet": "function.py"}}
    cases = [{"name": name, "expect": {"count": 1}} for name in ("one", "two")]
    write(
        "app_test.yaml",
        {"apiVersion": "test.planform.dev/v1alpha1", "kind": "CompositionTest", "common": common, "cases": cases},
    )
    ran = run("test")
    assert ran.code == 0, ran.out
    assert ran.err.count("stands for every revision of its name") == 1


def test_a_function_from_a_file_has_the_labels_of_its_document() -> None:
    [function] = functions_from([document(STABLE)], ["function-greet=patch-and-transform"])
    resolve = local_resolver([function, function])
    assert resolve(selecting(STABLE)).version.id == "function-greet-local"
    assert resolve(selecting({VERSION_LABEL: "v0.8.1"})).version.id == "function-greet-local"
    with pytest.raises(VersionNotFound) as refused:
        resolve(selecting({"release-channel": "beta"}))
    assert refused.value.rejected == (("function-greet-local", "does not have the labels release-channel=beta"),)
    assert "metadata.labels {release-channel: beta}" in (refused.value.hint or "")
    assert "planform function" not in (refused.value.hint or "")


def test_revisions_in_files_are_chosen_as_a_control_plane_would() -> None:
    revisions = [
        document(STABLE, kind="FunctionRevision", name="function-greet-aaa"),
        document({"release-channel": "beta"}, kind="FunctionRevision", name="function-greet-bbb"),
    ]
    for each in revisions:
        each["metadata"]["annotations"] = {"render.crossplane.io/runtime": "Development"}
    functions = functions_from(revisions, [])
    resolve = local_resolver(functions)
    assert resolve(selecting(STABLE)).version.id == "function-greet-aaa"
    assert (
        resolve(Step("greet", "function-greet", revision_ref="function-greet-bbb")).version.id == "function-greet-bbb"
    )
    with pytest.raises(VersionNotFound):
        resolve(Step("greet", "function-greet", revision_ref="function-greet-ccc"))
    assert unlabelled_notes([composition(step(functionRevisionSelector={"matchLabels": STABLE}))], functions) == []


def test_a_name_that_is_nearly_right_is_suggested_in_words_of_the_command_that_was_used() -> None:
    made = composition({"step": "ready", "functionRef": {"name": "function-auto-redy"}})
    resolve = local_resolver(used_by([made], []), how=FIELD)
    with pytest.raises(FunctionNotFound) as refused:
        resolve(Step("ready", "function-auto-redy"))
    assert 'did you mean "function-auto-ready"?' in (refused.value.hint or "")
    assert "`function: {function-auto-redy: FILE.py}` in the test" in (refused.value.hint or "")


def test_a_function_that_fails_shows_file_line_and_source(run: Run) -> None:
    Path("function.py").write_text(GREET.replace('req.xr.get("spec.region")', 'req.xr["spec"]["rgion"]'))
    write("xr.yaml", xr())
    write("composition.yaml", composition(step()))
    ran = run("render", "xr.yaml", "composition.yaml", "--function", "function-greet=function.py")
    assert ran.code == 3
    [line] = [line for line in ran.err.splitlines() if line.startswith("error:")]
    assert line.endswith("(function.py, line 6)")
    assert 'req.xr["spec"]["rgion"]' in ran.err
    [condition] = ran.documents[0]["status"]["conditions"]
    assert condition["message"].endswith("(function.py, line 6)"), "short: one line"
    write("request.yaml", {"observed": {"composite": {"resource": xr()}}})
    asked = run("function", "test", "function.py", "request.yaml")
    assert asked.code == 1
    assert "function.py, line 6" in asked.out
    cases = [{"name": "one", "xr": "xr.yaml", "composition": "composition.yaml"}]
    write(
        "app_test.yaml",
        {
            "apiVersion": "test.planform.dev/v1alpha1",
            "kind": "CompositionTest",
            "common": {"function": {"function-greet": "function.py"}},
            "cases": cases,
        },
    )
    assert 'req.xr["spec"]["rgion"]' in run("test").out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("1 / 0", ["line 1", "1 / 0", "ZeroDivisionError"], id="it raises"),
        pytest.param("def (", ["line 1", "SyntaxError"], id="it is no Python"),
        pytest.param("import nothing_like_it", ["'nothing_like_it' (function.py, line 1)"], id="import"),
    ],
)
def test_a_function_that_dies_at_import_shows_why(run: Run, text: str, shown: list[str]) -> None:
    Path("function.py").write_text(text)
    write("xr.yaml", xr())
    write("composition.yaml", composition(step()))
    ran = run("render", "xr.yaml", "composition.yaml", "--function", "function-greet=function.py")
    assert ran.code == 1
    for each in shown:
        assert each in ran.err
    assert "planform_sdk" not in ran.err, "the author's own frames only"


def test_a_talkative_function_does_not_stand_still(run: Run) -> None:
    Path("function.py").write_text("import sys\nsys.stderr.write('x' * 300_000 + '\\n')\n" + GREET)
    write("xr.yaml", xr())
    write("composition.yaml", composition(step()))
    assert run("render", "xr.yaml", "composition.yaml", "--function", "function-greet=function.py").code == 0
