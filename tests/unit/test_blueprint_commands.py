"""`planform blueprint validate` and `planform phase-functions` where no control plane is asked, and what they draw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from planform.apimachinery import yaml_loader
from planform.cli.blueprints.actionset import _after
from planform.cli.blueprints.progress import Changes, picture, problems, summary
from planform.cli.blueprints.requests import mixed_targets, pairs, targets
from planform.cli.main import root
from planform.errors import PlanformError, UsageError


def planform(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(root, list(words), input=stdin)


def blueprint(*phases: dict[str, Any], name: str = "b") -> str:
    return yaml_loader.dump(
        {
            "apiVersion": "cr.kanister.io/v1alpha1",
            "kind": "Blueprint",
            "metadata": {"name": name},
            "actions": {"act": {"phases": list(phases)}},
        }
    )


def phase(func: str, version: str = "", **args: Any) -> dict[str, Any]:
    made = {"name": func.lower(), "func": func, "args": args}
    return {**made, "funcVersion": version} if version else made


CONDITION = {"condition": "true", "objectReference": {"apiVersion": "v1", "resource": "pods", "name": "p"}}
ECHO = phase("Echo", message="hello {{ .Object.metadata.name }}")


def test_the_functions_of_this_installation_are_listed_as_objects_with_name_stable_and_versions() -> None:
    listed = {
        each["name"]: each for each in json.loads(planform("phase-functions", "list", "--local", "-o", "json").output)
    }
    assert listed["BackupData"]["stable"] == "v1.0.0"
    assert [each["version"] for each in listed["BackupData"]["versions"]] == ["v1.0.0", "v0.0.0"]
    gone = listed["CreateVolumeSnapshot"]
    assert (gone["stable"], gone["versions"][0]["state"]) == ("", "removed")


def test_versions_tell_what_becomes_of_each() -> None:
    [head, *rows] = planform("phase-functions", "versions", "Wait", "--local").output.splitlines()
    assert head.split()[:3] == ["VERSION", "STATE", "SINCE"]
    assert [row.split()[:2] for row in rows] == [["v1.0.0", "preview"], ["v0.0.0", "stable"]]


def test_a_version_is_described_however_it_is_spelled_and_the_stable_one_if_none_is_named() -> None:
    assert planform("phase-functions", "describe", "KubeExec", "--local").output.startswith(
        "KubeExec v0.0.0 (stable)\n"
    )
    told = planform("phase-functions", "describe", "KubeExec", "0.1.0", "--local").output
    assert told.startswith("KubeExec v0.1.0\n")
    assert "Required arguments:  command, namespace, pod" in told
    unknown = planform("phase-functions", "describe", "KubeExec", "v9.0.0", "--local")
    assert isinstance(unknown.exception, PlanformError)
    assert unknown.exception.message == 'phase function "KubeExec" has no version "v9.0.0"'


def test_a_function_whose_name_is_nearly_right_is_suggested() -> None:
    error = planform("phase-functions", "versions", "kubeexec", "--local").exception
    assert isinstance(error, PlanformError)
    assert error.hint is not None
    assert 'did you mean "KubeExec"?' in error.hint


def test_a_valid_blueprint_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "b.yaml"
    file.write_text(blueprint(ECHO))
    done = planform("blueprint", "validate", str(file))
    assert (done.exit_code, done.stdout) == (0, "blueprint/b is valid\n")


def test_of_a_directory_each_file_is_told_and_what_is_no_object_is_left_out(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "b.yaml").write_text(blueprint(ECHO if name == "one" else phase("Nothing")))
    (tmp_path / "values.yaml").write_text("replicas: 3")
    (tmp_path / "one" / "run.yaml").write_text(
        "{apiVersion: cr.kanister.io/v1alpha1, kind: ActionSet, metadata: {generateName: run-}, spec: {actions: []}}"
    )
    done = planform("blueprint", "validate", str(tmp_path))
    assert (done.exit_code, done.stdout.splitlines()) == (
        1,
        [f"{tmp_path}/one/b.yaml: blueprint/b is valid", f"{tmp_path}/one/run.yaml: actionset/run-... is valid"],
    )
    left_out, wrong = click.unstyle(done.stderr).splitlines()
    assert left_out == f"left out: {tmp_path}/values.yaml, document 1: apiVersion is missing"
    assert wrong.startswith(f"error: {tmp_path}/two/b.yaml: blueprint/b: actions.act.phases[0].func:")


def test_everything_that_is_wrong_is_told_at_once_and_where() -> None:
    wrong = blueprint(
        phase("Echo", message="{{ .Broken "), phase("Nothing"), phase("KubeExec", "v7.0.0"), phase("Sleep", wrong="1")
    )
    done = planform("blueprint", "validate", "-", "-o", "json", stdin=wrong)
    assert done.exit_code == 1
    [told] = json.loads(done.stdout)
    assert told["valid"] is False
    assert [each["field"] for each in told["errors"]][:3] == [
        "actions.act.phases[0].args.message",
        "actions.act.phases[1].func",
        "actions.act.phases[2].funcVersion",
    ]
    assert {each["field"] for each in told["errors"][3:]} == {"actions.act.phases[3].args"}


@pytest.mark.parametrize(
    ("release", "code", "said"),
    [
        ("", 0, ""),
        ("0.2", 0, "Wait v0.0.0: deprecated since 0.2, stops working in 0.4, move to v1.0.0"),
        ("0.3", 0, "Wait v0.0.0: deprecated since 0.2"),
        ("0.4", 1, "removed in 0.4"),
    ],
)
def test_a_pinned_version_works_warns_warns_and_is_refused_release_by_release(
    release: str, code: int, said: str
) -> None:
    text = blueprint(phase("Wait", "v0.0.0", timeout="1s", conditions={"anyOf": [CONDITION]}))
    done = planform("blueprint", "validate", "-", *(["--release", release] if release else []), stdin=text)
    assert done.exit_code == code, done.stderr
    assert said in click.unstyle(done.stderr)


def test_warnings_fail_only_who_asks_for_it() -> None:
    text = blueprint(
        phase("BackupData", "v0.0.0", namespace="n", pod="p", container="c", includePath="/", backupArtifactPrefix="x")
    )
    assert planform("blueprint", "validate", "-", stdin=text).exit_code == 0
    strict = planform("blueprint", "validate", "-", "--warnings-as-errors", stdin=text)
    assert strict.exit_code == 1
    assert "move to v1.0.0" in click.unstyle(strict.stderr)


def test_a_release_that_does_not_exist_is_an_error_that_lists_those_that_do() -> None:
    error = planform("blueprint", "validate", "-", "--release", "9.9", stdin=blueprint(ECHO)).exception
    assert isinstance(error, PlanformError)
    assert 'release "9.9" is not listed (there are: kanister, 0.0, 0.1' in error.message
    error = planform("blueprint", "validate", "-", "--release", "0.0", stdin=blueprint(ECHO)).exception
    assert isinstance(error, UsageError)
    assert error.message == "release 0.0 is over: what it had is not in this installation"


def test_an_overlay_moves_the_stable_version(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("functions: {KubeExec: {stable: v0.1.0}}\n")
    text = blueprint(phase("KubeExec", namespace="n", pod="p", command=["id"], stdin="x"))
    assert planform("blueprint", "validate", "-", stdin=text).exit_code == 1  # v0.0.0 knows no stdin
    done = planform("blueprint", "validate", "-", "--overlay", str(overlay), stdin=text)
    assert done.exit_code == 0, done.stderr


def test_pairs_are_split_at_commas_that_another_name_follows() -> None:
    assert pairs("--options", ["a=1,b=2,3", "c="]) == {"a": "1", "b": "2,3", "c": ""}
    with pytest.raises(UsageError, match='--options: "x" is not NAME=VALUE'):
        pairs("--options", ["x"])


def test_objects_are_named_with_or_without_a_namespace() -> None:
    assert targets("--pvc", "pvc", ["a", "n/b"]) == [("pvc", "", "a"), ("pvc", "n", "b")]
    assert mixed_targets("--object", ["deploy=n/a"]) == [("deploy", "n", "a")]
    for wrong in ("n/", "a/b/c", ""):
        with pytest.raises(UsageError, match="is not"):
            targets("--pvc", "pvc", [wrong])
    with pytest.raises(UsageError, match="KIND="):
        mixed_targets("--object", ["web"])


def running(percent: str, *states: str) -> dict[str, Any]:
    phases = [
        {"name": f"p{index}", "state": state, "func": "Echo", "funcVersion": "v0.0.0"}
        for index, state in enumerate(states)
    ]
    phases[0]["progress"] = {"progressPercent": percent}  # type: ignore[assignment]  # a map beside texts
    return {
        "metadata": {"name": "run", "namespace": "n"},
        "status": {
            "state": "running",
            "progress": {"percentCompleted": percent},
            "actions": [{"name": "act", "phases": phases}],
        },
    }


def test_changes_are_told_once_each() -> None:
    changes = Changes()
    assert list(changes.since(running("0", "running", "pending"))) == ["act/p0: running"]
    assert list(changes.since(running("0", "running", "pending"))) == []
    assert list(changes.since(running("40", "running", "pending"))) == ["act/p0: 40 %"]
    assert list(changes.since(running("100", "complete", "running"))) == ["act/p0: complete", "act/p1: running"]


def test_the_picture_marks_each_phase() -> None:
    lines = [click.unstyle(line) for line in picture(running("40", "running", "pending"))]
    assert lines == ["run: running, 40 %", "  ▸ act/p0 Echo v0.0.0 40 %", "  · act/p1 Echo v0.0.0"]


def test_a_picture_fits_its_terminal() -> None:
    lines = picture(running("40", "complete", "running", *["pending"] * 30), width=12, height=10)
    assert [click.unstyle(line) for line in lines] == ["run: running", "  ▸ act/p1 Ec"[:12]]


def test_an_actionset_that_nobody_has_looked_at_is_pending() -> None:
    assert list(summary({"metadata": {"name": "new", "namespace": "n"}})) == ["n/new: pending"]


def test_problems_are_told_with_their_places_and_one_alone_without() -> None:
    errors = [{"action": "a", "phase": "p", "message": "m"}, {"message": "n"}]
    assert list(problems({"status": {"errors": errors}})) == ["error: a/p: m", "error: n"]
    assert list(problems({"status": {"error": {"message": "only"}}})) == ["error: only"]


def test_of_a_log_that_is_read_again_only_what_is_new_is_shown() -> None:
    a, b, c = ({"line": text} for text in "abc")
    assert _after(None, [a, b]) == [a, b]
    assert _after(b, [a, b, c]) == [c]
    assert _after(c, [a, b, c]) == []
    assert _after(a, [b, c]) == [b, c]
