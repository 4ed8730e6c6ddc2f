"""What `planform dev` reads from a directory, and how it tells what is wrong and what changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planform.api.kinds import gvk_of
from planform.cli.dev.debugging import patient
from planform.cli.dev.directory import read_contents, stamps
from planform.cli.dev.effects import changes
from planform.cli.dev.excerpts import at_field, at_python_line
from planform.cli.dev.session import examples
from planform.cli.dev.testing import concerned
from planform.client.resource_tree import Target

FUNCTION = "apiVersion: meta.pkg.crossplane.io/v1\nkind: Function\nmetadata: {name: function-greet}\n"
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_directory_holds_objects_functions_and_tests_definitions_first(tmp_path: Path) -> None:
    xrd = "apiVersion: apiextensions.crossplane.io/v2\nkind: CompositeResourceDefinition\nmetadata: {name: x}\n"
    write(
        tmp_path,
        {
            "a.yaml": OBJECT % "a",
            "z/xrd.yaml": xrd,
            "greet/function.py": "",
            "greet/package/crossplane.yaml": FUNCTION,
            "greet/example/xr.yaml": OBJECT % "of-the-function-alone",
            "tests/observed.yaml": OBJECT % "observed",
            "tests/app_test.yaml": "kind: CompositionTest",
            "values.yaml": "replicas: 1",
            ".git/config.yaml": OBJECT % "hidden",
        },
    )
    contents = read_contents(tmp_path, stamps(tmp_path))
    assert [each.object["metadata"]["name"] for each in contents.documents] == ["x", "a"]
    assert [(each.name, each.entry.name) for each in contents.functions] == [("function-greet", "function.py")]
    assert [each.name for each in contents.tests] == ["app_test.yaml"]
    assert contents.problems == []


def test_what_cannot_be_read_is_a_problem_with_its_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"bad.yaml": "a: 1\nb: }\nc: 2\n", "good.yaml": OBJECT % "good", "no-name.yaml": "apiVersion: v1\nkind: X"},
    )
    contents = read_contents(tmp_path, stamps(tmp_path))
    assert [each.object["metadata"]["name"] for each in contents.documents] == ["good"]
    bad, nameless = sorted(contents.problems, key=lambda each: str(each.file))
    assert bad.file == tmp_path / "bad.yaml" and bad.line > 1
    assert any(line.startswith(">") for line in bad.lines)
    assert "has no metadata.name" in nameless.message


def test_a_field_that_a_message_names_is_found_in_its_file(tmp_path: Path) -> None:
    write(tmp_path, {"c.yaml": "kind: A\n---\nkind: B\nspec:\n  pipeline:\n  - step: one\n  - stepp: two\n"})
    problem = at_field("B: .spec.pipeline[1].stepp: field not declared", tmp_path / "c.yaml", 2)
    assert problem.line == 7
    assert "> 7 |   - stepp: two" in problem.lines
    assert at_field("nothing is named", tmp_path / "c.yaml", 1).line == 0
    missing = at_field("spec.pipeline[1].input.x: Required value", tmp_path / "c.yaml", 2)
    assert missing.line == 7, "the nearest that is written"


def test_a_line_of_a_functions_source_is_shown(tmp_path: Path) -> None:
    write(tmp_path, {"greet/function.py": "a = 1\nb = a / 0\n"})
    problem = at_python_line("greet failed: ZeroDivisionError (function.py, line 2)", tmp_path)
    assert problem is not None
    assert problem.file == tmp_path / "greet" / "function.py"
    assert "> 2 | b = a / 0" in problem.lines
    assert at_python_line("greet failed", tmp_path) is None


def test_a_test_is_concerned_by_the_files_it_names_and_the_sources_beside_its_functions(tmp_path: Path) -> None:
    test = "common: {xr: ../xr.yaml, function: {function-greet: ../greet/function.py}}\n"
    write(
        tmp_path,
        {"tests/a_test.yaml": test, "xr.yaml": "", "other.yaml": "", "greet/function.py": "", "greet/x.py": ""},
    )
    [name] = tests = [tmp_path / "tests" / "a_test.yaml"]
    for changed, expected in (
        ("xr.yaml", tests),
        ("greet/x.py", tests),
        ("other.yaml", []),
        ("tests/a_test.yaml", [name]),
    ):
        assert concerned(tests, frozenset({tmp_path / changed})) == expected, changed


def obj(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": "1"}, **fields}


def test_what_changed_is_said_without_what_always_changes() -> None:
    def known(*objects: dict[str, Any]) -> dict[Target, dict[str, Any]]:
        return {Target(gvk_of(each), "default", each["metadata"]["name"]): each for each in objects}

    later = obj("same")
    later["metadata"]["resourceVersion"] = "2"
    before = known(obj("same"), obj("gone"), obj("changed", data={"a": "1", "b": "2"}))
    after = known(later, obj("new"), obj("changed", data={"a": "1", "b": "3"}))
    assert list(changes(before, after)) == [
        "~ ConfigMap/changed (default)",
        '    -  b: "2"',
        '    +  b: "3"',
        "- ConfigMap/gone (default)",
        "+ ConfigMap/new (default)",
    ]


def test_examples_are_what_an_xrd_beside_them_defines() -> None:
    xrd = {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": "x"},
        "spec": {"group": "example.org", "names": {"kind": "XApp"}, "claimNames": {"kind": "App"}},
    }
    claim = {"apiVersion": "example.org/v1", "kind": "App", "metadata": {"name": "a"}}
    assert examples([xrd, claim, obj("other")]) == [claim]


def test_only_steps_of_local_functions_may_stand_at_a_breakpoint() -> None:
    steps = [{"step": name, "functionRef": {"name": name}} for name in ("mine", "theirs")]
    made = patient({"spec": {"pipeline": steps}}, frozenset({"mine"}))
    assert [step.get("timeout") for step in made["spec"]["pipeline"]] == ["1h", None]
    assert "timeout" not in steps[0]
