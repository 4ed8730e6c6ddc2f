"""`planform apply|get|describe|delete|events|wait|status`: enough for a user who has no kubectl."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.e2e.control_plane import PATIENCE_SECONDS, Done, Program, config_map, manifest
from tests.e2e.widgets import WIDGETS, widget

pytestmark = pytest.mark.xdist_group("e2e-cli")

Apply = Callable[..., Done]


@pytest.fixture
def apply(planform: Program) -> Apply:
    def run(*objects: dict[str, Any], flags: tuple[str, ...] = (), code: int = 0) -> Done:
        return planform("apply", "-f", "-", *flags, stdin=manifest(*objects), code=code)

    return run


def test_apply_says_what_it_did(planform: Program, apply: Apply) -> None:
    assert apply(config_map("c", {"a": "1"})).out == "configmap/c created\n"
    assert apply(config_map("c", {"a": "1"})).out == "configmap/c unchanged\n"
    assert apply(config_map("c", {"a": "2"})).out == "configmap/c configured\n"
    assert apply(config_map("c", {"a": "3"}), flags=("--dry-run",)).out == "configmap/c configured (dry run)\n"
    assert planform("get", "cm/c", "-o", "json").json()["data"] == {"a": "2"}


def test_apply_takes_definitions_first_whatever_the_order(planform: Program, namespace: str) -> None:
    definition = {**WIDGETS, "metadata": {"name": "gadgets.e2e.planform.dev"}}
    definition["spec"] = {**WIDGETS["spec"], "names": {"plural": "gadgets", "kind": "Gadget"}}
    gadget = {**widget("g"), "kind": "Gadget"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{namespace}-2"}}
    inside = config_map("c", namespace=f"{namespace}-2")
    files = planform.directory / namespace
    files.mkdir()
    (files / "a.yaml").write_text(manifest(gadget, inside))
    (files / "b.json").write_text(manifest(definition))
    (files / "c.yml").write_text(manifest({"apiVersion": "v1", "kind": "List", "items": [space]}))
    (files / "notes.txt").write_text("not a manifest")
    assert planform("apply", "-f", str(files)).lines == [
        f"namespace/{namespace}-2 created",
        "customresourcedefinition.apiextensions.k8s.io/gadgets.e2e.planform.dev created",
        "gadget.e2e.planform.dev/g created",
        "configmap/c created",
    ]
    assert len(planform("delete", "-f", str(files)).lines) == 4


def test_apply_hints_at_the_kind_that_was_meant(apply: Apply, widgets: None) -> None:
    hints = {
        'did you mean "Widget"? planform get --kinds lists all': {**widget("x"), "kind": "Wiget"},
        "Widget is served in e2e.planform.dev/v1": {**widget("x"), "apiVersion": "e2e.planform.dev/v7"},
    }
    for hint, obj in hints.items():
        assert apply(obj, code=1).err.splitlines()[1] == f"hint: {hint}"


def test_apply_reports_each_failure_and_applies_the_rest(planform: Program, apply: Apply, widgets: None) -> None:
    done = apply(widget("bad", colour="pink"), {**widget("x"), "kind": "Gizmo"}, config_map("good"), code=1)
    assert done.out == "configmap/good created\n"
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert errors[0].startswith(
        'error: Widget/bad: Widget.e2e.planform.dev "bad" is invalid: [spec.colour: Unsupported'
    )
    assert errors[1].startswith('error: Gizmo/x: no matches for kind "Gizmo"')


def test_apply_meets_conflicts_and_forces_when_told(apply: Apply, kubectl: Program) -> None:
    apply(config_map("c", {"a": "1"}), flags=("--field-manager", "other"))
    refused = apply(config_map("c", {"a": "2"}), code=1).err
    assert 'conflict with "other"' in refused
    assert "hint: --force-conflicts takes the fields over" in refused
    assert apply(config_map("c", {"a": "2"}), flags=("--force-conflicts",)).out == "configmap/c configured\n"
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.a}").out == "2"


def test_get_shows_tables_objects_and_names(planform: Program, apply: Apply, namespace: str, widgets: None) -> None:
    apply(widget("a", replicas=2), widget("b", colour="blue"))
    assert [line.split()[:2] for line in planform("get", "widgets").lines] == [
        ["NAME", "COLOUR"],
        ["a", "red"],
        ["b", "blue"],
    ]
    assert planform("get", "wg", "a", "-o", "wide").lines[1].split()[:3] == ["a", "red", "2"]
    assert planform("get", "Widget", "-o", "name").out == "widget.e2e.planform.dev/a\nwidget.e2e.planform.dev/b\n"
    assert planform("get", "widgets.e2e.planform.dev/a", "-o", "yaml").out.startswith("apiVersion: e2e.planform.dev/v1")
    several = yaml.safe_load(planform("get", "widget", "a", "b", "-o", "yaml").out)
    assert (several["kind"], len(several["items"])) == ("List", 2)
    everywhere = [line.split()[:2] for line in planform("get", "widgets", "-A").lines]
    assert everywhere[0] == ["NAMESPACE", "NAME"]
    assert [namespace, "b"] in everywhere
    assert planform("get", "ns", "default", "-o", "name", "-n", "elsewhere").out == "namespace/default\n"


def test_get_selects(planform: Program, apply: Apply) -> None:
    apply(config_map("a", labels={"x": "1"}), config_map("b", labels={"x": "2"}))
    assert planform("get", "cm", "-l", "x=2", "-o", "name").out == "configmap/b\n"
    assert planform("get", "cm", "--field-selector", "metadata.name=a", "-o", "name").out == "configmap/a\n"
    none = planform("get", "cm", "-l", "x=3")
    assert (none.out, none.err.startswith("no configmaps in namespace ")) == ("", True)


def test_get_shows_several_kinds_in_one_document(planform: Program, apply: Apply, widgets: None) -> None:
    apply(config_map("a"), widget("w"))
    shown = planform("get", "cm,widgets", "-o", "json").json()
    assert [item["kind"] for item in shown["items"]] == ["ConfigMap", "Widget"]
    assert yaml.safe_load(planform("get", "cm,widgets", "-o", "yaml").out) == shown
    assert planform("get", "cm,widgets", "-o", "name").lines == ["configmap/a", "widget.e2e.planform.dev/w"]
    assert planform("get", "cm,widgets").lines[2] == "", "a table for each"
    assert "--watch follows all objects of one kind" in planform("get", "cm,widgets", "-w", code=2).err


def test_get_of_what_is_not_there_fails_with_a_hint(planform: Program) -> None:
    assert planform("get", "cm", "nope", code=1).err == 'error: configmaps "nope" not found\n'
    unknown = planform("get", "configmapz", code=2).err
    assert 'error: the control plane serves no kind "configmapz"' in unknown
    assert 'hint: did you mean "configmaps"?' in unknown


def test_get_lists_kinds(planform: Program, widgets: None) -> None:
    rows = [line.split() for line in planform("get", "--kinds").lines]
    assert ["widgets", "wg", "e2e.planform.dev/v1", "true", "Widget"] in rows
    assert {"group": "", "version": "v1", "kind": "ConfigMap", "plural": "configmaps", "namespaced": True} in planform(
        "get", "--kinds", "-o", "json"
    ).json()


def test_get_watches_until_interrupted(planform: Program, apply: Apply) -> None:
    apply(config_map("a"))
    with planform.following("get", "cm", "-w") as watch:
        watch.until("a ")
        apply(config_map("b"))
        assert watch.until("configmap/b").split() == ["ADDED", "configmap/b"], "also if it comes before the watch does"
        planform("delete", "cm", "b")
        assert watch.until("DELETED").split() == ["DELETED", "configmap/b"]
        watch.process.send_signal(signal.SIGINT)
        assert watch.process.wait(PATIENCE_SECONDS) == 130


def test_describe_shows_conditions_events_and_no_secret(planform: Program, apply: Apply, kubectl: Program) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "hunter2"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"tier": "web"}}}
    apply(secret, {**pod, "spec": {"containers": [{"name": "c", "image": "example.invalid/c"}]}})
    described = planform("describe", "secret/s").out
    assert "password: 7 bytes" in described
    assert "aHVudGVyMg" not in described
    status = '{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Cold","message":"too cold"}]}}'
    kubectl("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", status)
    described = planform("describe", "pod", "p").out
    assert "tier=web" in described
    assert [line.split() for line in described.splitlines() if "Cold" in line] == [
        ["Ready", "False", "Cold", "too", "cold"]
    ]
    assert described.rstrip().endswith("no events")


def test_events_are_shown_newest_last(planform: Program, kubectl: Program, namespace: str, apply: Apply) -> None:
    apply(config_map("c"))
    for minute, reason in ((2, "Later"), (1, "Sooner")):
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": reason.lower()},
            "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "namespace": namespace},
            "type": "Normal",
            "reason": reason,
            "message": "something",
            "lastTimestamp": f"2026-01-01T00:0{minute}:00Z",
        }
        kubectl("create", "-f", "-", stdin=manifest(event))
    rows = [line.split() for line in planform("events").lines[1:]]
    assert [row[0] for row in rows] == ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]
    assert [row[2] for row in rows] == ["Sooner", "Later"]
    assert [row[3] for row in rows] == ["configmap/c", "configmap/c"]
    assert len(planform("events", "--for", "cm/c", "-o", "json").json()["items"]) == 2
    assert planform("events", "--for", "cm/other").err == "no events\n"


def test_delete_waits_until_the_object_is_gone(planform: Program, apply: Apply, kubectl: Program) -> None:
    apply(config_map("a", finalizers=["e2e.planform.dev/hold"]))
    late = planform("delete", "cm", "a", "--timeout", "0.3s", code=3)
    assert "waiting for configmap/a: e2e.planform.dev/hold" in late.err
    assert "error: configmap/a was not deleted within 0.3 s" in late.err
    with planform.following("delete", "cm", "a") as deleting:
        deleting.until("waiting for configmap/a")
        kubectl("patch", "cm", "a", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert deleting.process.wait(PATIENCE_SECONDS) == 0
    assert "not found" in planform("delete", "cm", "a", code=1).err
    assert planform("delete", "cm", "a", "--ignore-not-found").out == ""


def test_delete_takes_selectors_all_and_policies(planform: Program, apply: Apply, kubectl: Program) -> None:
    apply(config_map("a", labels={"x": "1"}), config_map("b"))
    uid = planform("get", "cm", "b", "-o", "json").json()["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": uid}
    apply(config_map("child", ownerReferences=[owner]))
    assert planform("delete", "cm", "-l", "x=1").out == "configmap/a deleted\n"
    planform("delete", "cm", "b", "--cascade", "orphan")
    assert "ownerReferences" not in planform("get", "cm", "child", "-o", "json").json()["metadata"]
    assert planform("delete", "cm", "--all").out == "configmap/child deleted\n"
    assert planform("delete", "cm", "-l", "x=1").err.endswith(" with labels x=1\n"), "not silent where it did nothing"


def test_delete_reports_each_failure_and_deletes_the_rest(planform: Program, apply: Apply) -> None:
    objects = config_map("a"), {**widget("x"), "kind": "Gizmo"}, config_map("absent")
    apply(objects[0])
    done = planform("delete", "-f", "-", stdin=manifest(*objects), code=1)
    assert done.out == "configmap/a deleted\n"
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert 'no matches for kind "Gizmo"' in errors[0]
    assert errors[1] == 'error: configmaps "absent" not found'
    assert planform("delete", "-f", "-", "--ignore-not-found", stdin=manifest(*objects)).err == ""


def test_wait_follows_conditions_fields_and_existence(
    planform: Program, apply: Apply, kubectl: Program, widgets: None
) -> None:
    with planform.following("wait", "widget/a", "--for", "create") as waiting:
        apply(widget("a"))
        assert waiting.until("widget/a created")
    with planform.following("wait", "widget/a", "--for", "condition=Ready", "--timeout", "20s") as waiting:
        status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
        kubectl("patch", "widget", "a", "--subresource=status", "--type=merge", "-p", status)
        assert waiting.until("widget/a condition met")
    assert planform("wait", "widget/a", "--for", "jsonpath={.spec.colour}=red").out == "widget/a condition met\n"
    late = planform("wait", "widget/a", "--for", "condition=Ready=False", "--timeout", "0.3", code=3)
    assert "did not reach condition=Ready=False within 0.3 s (now: Ready=True)" in late.err
    with planform.following("wait", "widget", "a", "--for", "delete") as waiting:
        kubectl("delete", "widget", "a")
        assert waiting.until("widget/a deleted")
    assert "not found" in planform("wait", "widget/a", "--for", "condition=Ready", code=1).err
    assert "error: no widgets in namespace" in planform("wait", "widgets", "--for", "condition=Ready", code=1).err
    assert planform("wait", "widgets", "--for", "delete").out == ""


@pytest.mark.parametrize("command", ["describe", "revisions"])
def test_built_in_function_is_not_said_to_be_missing(planform: Program, command: str) -> None:
    said = planform("function", command, "function-patch-and-transform", code=2).err
    assert 'error: function "function-patch-and-transform" comes with planform' in said
    assert 'there is no function "nope"' in planform("function", command, "nope", code=2).err


def test_an_interrupted_wait_ends_with_130(planform: Program, apply: Apply) -> None:
    apply(config_map("c"))
    with planform.following("wait", "cm/c", "--for", "delete", "--timeout", "25s") as waiting:
        waiting.until("waiting for configmap/c")
        waiting.process.send_signal(signal.SIGINT)
        assert waiting.process.wait(PATIENCE_SECONDS) == 130


def test_status_tells_health_and_contents(planform: Program, apply: Apply) -> None:
    apply(config_map("c"))
    shown = planform("status", "-o", "json").json()
    assert shown["ready"] is True
    counts = {entry["kind"]: entry["count"] for entry in shown["objects"]}
    assert counts["ConfigMap"] >= 1
    assert counts["Namespace"] >= 4
    first = planform("status").lines[0]
    assert first.startswith(shown["server"])
    assert first.endswith("ready")
