"""kubectl apply from the client and from the server, the change from one to the other, and diff."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.control_plane import Done, Program, config_map, manifest
from tests.e2e.widgets import widget

pytestmark = pytest.mark.xdist_group("e2e")

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def apply(kubectl: Program, *objects: dict[str, Any], flags: tuple[str, ...] = (), code: int = 0) -> Done:
    return kubectl("apply", *flags, "-f", "-", stdin=manifest(*objects), code=code)


def data_of(kubectl: Program, name: str) -> dict[str, str]:
    found: dict[str, str] = kubectl("get", "cm", name, "-o", "json").json().get("data", {})
    return found


def managers(kubectl: Program, name: str) -> set[tuple[str, str]]:
    metadata = kubectl("get", "cm", name, "-o", "json", "--show-managed-fields").json()["metadata"]
    return {(entry["manager"], entry["operation"]) for entry in metadata["managedFields"]}


def test_apply_creates_configures_and_leaves_unchanged(kubectl: Program) -> None:
    assert apply(kubectl, config_map("c", {"a": "1", "b": "2"})).out == "configmap/c created\n"
    assert apply(kubectl, config_map("c", {"a": "1", "b": "2"})).out == "configmap/c unchanged\n"
    assert apply(kubectl, config_map("c", {"a": "3"})).out == "configmap/c configured\n"
    assert data_of(kubectl, "c") == {"a": "3"}


def test_apply_keeps_what_others_added(kubectl: Program) -> None:
    apply(kubectl, config_map("c", {"a": "1"}))
    kubectl("patch", "cm", "c", "--type=merge", "-p", '{"data":{"theirs":"x"}}')
    apply(kubectl, config_map("c", {"b": "2"}))
    assert data_of(kubectl, "c") == {"b": "2", "theirs": "x"}


def test_apply_prunes_what_left_the_files(kubectl: Program, namespace: str) -> None:
    labels = {"set": "one"}
    prune = ("--prune", "-l", "set=one", "--prune-allowlist=core/v1/ConfigMap")
    apply(kubectl, config_map("a", labels=labels), config_map("b", labels=labels), flags=prune)
    assert "configmap/b pruned" in apply(kubectl, config_map("a", labels=labels), flags=prune).lines
    kubectl("get", "cm", "b", code=1)


def test_apply_set_last_applied_and_view(kubectl: Program) -> None:
    apply(kubectl, config_map("c", {"a": "1"}))
    viewed = kubectl("apply", "view-last-applied", "cm/c", "-o", "json").json()
    assert viewed["data"] == {"a": "1"}


def test_apply_of_a_deployment_merges_lists_by_key(kubectl: Program) -> None:
    kubectl("create", "deployment", "d", "--image=example.invalid/app:1")
    drawn = kubectl(
        "create", "deployment", "d", "--image=example.invalid/app:2", "--dry-run=client", "-o", "json"
    ).json()
    done = apply(kubectl, drawn)
    assert "missing the kubectl.kubernetes.io/last-applied-configuration annotation" in done.err
    containers = kubectl("get", "deploy", "d", "-o", "jsonpath={.spec.template.spec.containers[*].image}").out
    assert containers == "example.invalid/app:2"


def test_server_side_apply_owns_fields_and_reports_conflicts(kubectl: Program) -> None:
    mine = ("--server-side", "--field-manager=mine")
    yours = ("--server-side", "--field-manager=yours")
    assert apply(kubectl, config_map("c", {"a": "1"}), flags=mine).out == "configmap/c serverside-applied\n"
    refused = apply(kubectl, config_map("c", {"a": "2"}), flags=yours, code=1).err
    assert 'Apply failed with 1 conflict: conflict with "mine": .data.a' in refused
    assert data_of(kubectl, "c") == {"a": "1"}
    apply(kubectl, config_map("c", {"a": "2"}), flags=(*yours, "--force-conflicts"))
    assert data_of(kubectl, "c") == {"a": "2"}
    refused = apply(kubectl, config_map("c", {"a": "3"}), flags=mine, code=1).err
    assert 'conflict with "yours": .data.a' in refused


def test_server_side_apply_removes_what_its_manager_stops_sending(kubectl: Program) -> None:
    mine = ("--server-side", "--field-manager=mine")
    yours = ("--server-side", "--field-manager=yours")
    apply(kubectl, config_map("c", {"a": "1", "b": "1"}), flags=mine)
    apply(kubectl, config_map("c", {"b": "1", "c": "1"}), flags=yours)
    apply(kubectl, config_map("c", {}), flags=mine)
    assert data_of(kubectl, "c") == {"b": "1", "c": "1"}


def test_server_side_apply_takes_over_from_client_side_apply(kubectl: Program) -> None:
    apply(kubectl, config_map("c", {"a": "1", "b": "1"}))
    assert managers(kubectl, "c") == {("kubectl-client-side-apply", "Update")}
    apply(kubectl, config_map("c", {"a": "2"}), flags=("--server-side",))
    assert data_of(kubectl, "c") == {"a": "2"}, "what only the client-side apply had set must go"
    assert managers(kubectl, "c") == {("kubectl", "Apply"), ("kubectl-last-applied", "Apply")}
    kept = kubectl("get", "cm", "c", "-o", "json").json()["metadata"]["annotations"][LAST_APPLIED]
    assert json.loads(kept)["data"] == {"a": "2"}
    apply(kubectl, config_map("c", {"b": "3"}))
    assert data_of(kubectl, "c") == {"b": "3"}, "and back to the client"


def test_server_side_apply_of_defined_kinds_validates(kubectl: Program, widgets: None) -> None:
    refused = apply(kubectl, widget("a", replicas=5), flags=("--server-side",), code=1).err
    assert "red widgets come in threes at most" in refused
    assert apply(kubectl, widget("a"), flags=("--server-side", "--dry-run=server")).out.endswith(
        "serverside-applied (server dry run)\n"
    )
    kubectl("get", "widget", "a", code=1)


@pytest.mark.parametrize("flags", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_diff_shows_what_an_apply_would_change(kubectl: Program, flags: tuple[str, ...]) -> None:
    apply(kubectl, config_map("c", {"a": "1"}), flags=flags)
    same = kubectl("diff", *flags, "-f", "-", stdin=manifest(config_map("c", {"a": "1"})))
    assert same.out == ""
    changed = kubectl("diff", *flags, "-f", "-", stdin=manifest(config_map("c", {"a": "2"}), config_map("new")), code=1)
    lines = changed.lines
    assert '-  a: "1"' in lines
    assert '+  a: "2"' in lines
    assert "+  name: new" in lines
    assert data_of(kubectl, "c") == {"a": "1"}
    kubectl("get", "cm", "new", code=1)
