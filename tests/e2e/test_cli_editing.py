"""`planform get` in forms of one's own, `label|annotate|patch|edit|diff|explain`: as kubectl does it, where it does."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.control_plane import Done, Program, config_map, manifest
from tests.e2e.widgets import widget

pytestmark = pytest.mark.xdist_group("e2e-cli")

FORMS = (
    "jsonpath={.metadata.name} has {.data.a}",
    'jsonpath={range .items[*]}{.metadata.name}{"\\t"}{.data}{"\\n"}{end}',
    'jsonpath={range .items[*]}{.metadata.name}:{range .metadata.labels}{.team}{end};{end}{"."}',
    "custom-columns=NAME:.metadata.name,A:.data.a,TEAM:.metadata.labels.team,GONE:.spec.nothing",
)


def labelled(name: str, data: dict[str, str], **labels: str) -> dict[str, Any]:
    obj = config_map(name, data)
    obj["metadata"]["labels"] = labels
    return obj


@pytest.fixture
def three(planform: Program) -> None:
    objects = (labelled("c", {"a": "1"}, team="web"), labelled("a", {"a": "3"}), labelled("b", {"a": "2"}, team="db"))
    planform("apply", "-f", "-", stdin=manifest(*objects))


def mine(what: tuple[str, ...]) -> tuple[str, ...]:
    """The ConfigMaps of a test, and none that the control plane puts into namespaces."""
    return ("get", *what, "--field-selector", "metadata.name!=kube-root-ca.crt") if what == ("cm",) else ("get", *what)


@pytest.mark.usefixtures("three")
def test_forms_print_what_kubectl_prints(planform: Program, kubectl: Program) -> None:
    for form in FORMS:
        for what in (("cm",), ("cm", "a"), ("cm", "b", "c")):
            ours, theirs = (program(*mine(what), "-o", form).out for program in (planform, kubectl))
            assert [line.split() for line in ours.splitlines()] == [line.split() for line in theirs.splitlines()]


@pytest.mark.usefixtures("three")
def test_objects_are_sorted_by_a_field(planform: Program, kubectl: Program) -> None:
    for path in (".data.a", ".metadata.name", "{.metadata.labels.team}"):
        named = ("get", "cm", "-l", "team", "--sort-by", path, "-o", "name")
        assert planform(*named).out == kubectl(*named).out
        table = [line.split()[0] for line in planform("get", "cm", "-l", "team", "--sort-by", path).lines[1:]]
        assert [f"configmap/{name}" for name in table] == planform(*named).lines


@pytest.mark.usefixtures("three")
def test_labels_are_shown_as_columns(planform: Program) -> None:
    shown = planform("get", "cm", "a", "c", "--show-labels", "-L", "team").lines
    assert shown[0].split()[-2:] == ["TEAM", "LABELS"]
    assert [line.split()[-2:] for line in shown[1:]] == [["-", "<none>"], ["web", "team=web"]]


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ("jsonpath={range .items[*]}", "has no {end}"),
        ("jsonpath={end}", "{end} without {range}"),
        ("custom-columns=NAME", "is not HEADER:PATH"),
        ("csv", "is none of table, wide"),
    ],
)
def test_forms_that_cannot_be_are_refused(planform: Program, form: str, problem: str) -> None:
    assert problem in planform("get", "cm", "-o", form, code=2).err


@pytest.mark.usefixtures("three")
def test_labels_and_annotations_are_set_and_removed(planform: Program, kubectl: Program) -> None:
    assert planform("label", "cm", "a", "team=web", "tier=1").out == "configmap/a labeled\n"
    assert planform("label", "cm/a", "team=web").out == "configmap/a unchanged\n"
    refused = planform("label", "cm", "a", "team=db", code=2).err
    assert "configmap/a has team=web already" in refused
    assert "hint: --overwrite changes it" in refused
    planform("label", "cm", "a", "team=db", "--overwrite")
    planform("label", "cm", "a", "tier-", "--dry-run")
    assert kubectl("get", "cm", "a", "-o", "jsonpath={.metadata.labels}").out == '{"team":"db","tier":"1"}'
    planform("label", "cm", "-l", "team=db", "tier-")
    planform("annotate", "cm", "--all", "example.org/note=by all")
    assert kubectl("get", "cm", "a", "-o", "jsonpath={.metadata.labels}").out == '{"team":"db"}'
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.metadata.annotations.example\\.org/note}").out == "by all"
    assert "what to label?" in planform("label", "cm", "a", code=2).err


@pytest.mark.usefixtures("widgets")
def test_fields_are_patched_in_every_form(planform: Program, kubectl: Program) -> None:
    planform("apply", "-f", "-", stdin=manifest(widget("w", replicas=1)))
    patched = "widget.e2e.planform.dev/w patched\n"
    assert planform("patch", "widget", "w", "-p", "spec: {replicas: 2}").out == patched
    assert planform("patch", "widget/w", "-p", '{"spec":{"replicas":2}}').out.endswith("unchanged\n")
    operation = '[{"op": "replace", "path": "/spec/replicas", "value": 3}]'
    assert planform("patch", "widget", "w", "--type", "json", "-p", operation).out == patched
    assert kubectl("get", "widget", "w", "-o", "jsonpath={.spec.replicas}").out == "3"
    assert "is a list of operations" in planform("patch", "widget", "w", "--type", "json", "-p", "{}", code=2).err
    refused = planform("patch", "widget", "w", "--type", "strategic", "-p", "spec: {replicas: 4}", code=1).err
    assert "hint: custom kinds take no strategic merge patches: --type merge" in refused


@pytest.mark.usefixtures("three")
def test_an_object_is_edited(planform: Program, kubectl: Program, tmp_path: Path) -> None:
    def edit(script: str) -> Done:
        """Edit with a script of sh as the editor; the file is $1."""
        program = tmp_path / "editor"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return planform("edit", "cm", "a", env={"VISUAL": str(program), "EDITOR": str(program)})

    assert edit('sed -i \'s/a: "3"/a: "9"/\' $1').out == "configmap/a edited\n"
    assert kubectl("get", "cm", "a", "-o", "jsonpath={.data.a}").out == "9"
    assert "nothing was changed" in edit("true").err
    # What is refused is shown again with the reason, and can be mended.
    mend = f'cp $1 {tmp_path}/seen; sed -i \'s/a: 5/a: "5"/; s/a: "9"/a: 5/\' $1'
    assert edit(mend).out == "configmap/a edited\n"
    assert "# refused: " in (tmp_path / "seen").read_text()
    assert kubectl("get", "cm", "a", "-o", "jsonpath={.data.a}").out == "5"


@pytest.mark.usefixtures("three")
def test_a_difference_is_shown_before_it_is_made(planform: Program) -> None:
    same = manifest(labelled("c", {"a": "1"}, team="web"))
    assert planform("diff", "-f", "-", stdin=same).out == ""
    changed = manifest(labelled("c", {"a": "7"}, team="web"), config_map("new", {"x": "y"}))
    shown = planform("diff", "-f", "-", stdin=changed, code=1).lines
    assert '-  a: "1"' in shown
    assert '+  a: "7"' in shown
    assert "+++ merged/configmap/new" in shown
    assert planform("get", "cm", "c", "-o", "jsonpath={.data.a}").out == "1"


@pytest.mark.usefixtures("widgets")
def test_the_fields_of_a_kind_are_explained(planform: Program) -> None:
    whole = planform("explain", "widgets").out
    assert whole.startswith("KIND:     Widget\nVERSION:  e2e.planform.dev/v1\n")
    assert "  spec <object>" in whole
    field = planform("explain", "widget.spec.colour").out
    assert "FIELD:    spec.colour <string>" in field
    assert "one of: " in field
    assert "    labels <map of string>" in planform("explain", "cm", "--recursive").out
    assert planform("explain", "widget.spec.colour", "-o", "json").json()["type"] == "string"
    assert 'has no field "size"' in planform("explain", "widget.spec.size", code=2).err
