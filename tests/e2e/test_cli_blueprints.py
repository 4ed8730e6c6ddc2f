"""`planform actionset|phase-functions|blueprint` against a control plane that runs."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from typing import Any

import pytest

from tests.e2e.control_plane import PATIENCE_SECONDS, Program, config_map, manifest

pytestmark = pytest.mark.xdist_group("e2e-cli")

BLUEPRINT: dict[str, Any] = {
    "apiVersion": "cr.kanister.io/v1alpha1",
    "kind": "Blueprint",
    "metadata": {"name": "notes"},
    "actions": {
        "backup": {
            "outputArtifacts": {"copy": {"keyValue": {"text": "{{ .Phases.read.Output.text }}"}}},
            "phases": [
                {
                    "func": "Echo",
                    "name": "read",
                    "args": {
                        "message": "reading {{ .Object.metadata.name }}",
                        "output": {"text": '{{ .Object.data.text }}{{ index .Options "mark" }}'},
                    },
                },
                {
                    "func": "Wait",
                    "funcVersion": "v0.0.0",
                    "name": "wait",
                    "args": {
                        "timeout": "10s",
                        "conditions": {
                            "allOf": [
                                {
                                    "condition": '{{ if eq "{ $.metadata.name }" "notes" }}true{{ end }}',
                                    "objectReference": {
                                        "apiVersion": "v1",
                                        "resource": "configmaps",
                                        "name": "{{ .Object.metadata.name }}",
                                        "namespace": "{{ .Object.metadata.namespace }}",
                                    },
                                }
                            ]
                        },
                    },
                },
            ],
        },
        "restore": {
            "inputArtifactNames": ["copy"],
            "phases": [
                {
                    "func": "Echo",
                    "name": "write",
                    "args": {"message": "got {{ .ArtifactsIn.copy.KeyValue.text }}{{ .Options.mark }}"},
                }
            ],
        },
        "break": {
            "phases": [{"func": "Fail", "name": "give-up", "args": {"message": "no more disks"}}],
            "deferPhase": {"func": "Echo", "name": "tidy", "args": {"message": "tidied"}},
        },
        "linger": {
            "phases": [{"func": "Sleep", "name": "doze", "args": {"duration": "600s"}}],
            "deferPhase": {"func": "Echo", "name": "tidy", "args": {"message": "tidied"}},
        },
    },
}


@pytest.fixture
def stage(planform: Program) -> Program:
    """A Blueprint, and a ConfigMap to act on."""
    planform("apply", "-f", "-", stdin=manifest(config_map("notes", {"text": "hello"}), BLUEPRINT))
    return planform


def run_action(stage: Program, name: str, *flags: str, code: int = 0) -> str:
    words = ("actionset", "create", "-a", name, "-b", "notes", "--object", "cm=notes", *flags)
    return stage(*words, code=code).out.strip().removeprefix("actionset/")


def begun(stage: Program, action: str) -> str:
    """An ActionSet of which a phase runs."""
    name = run_action(stage, action)
    stage("wait", f"actionset/{name}", "--for", "jsonpath={.status.actions[0].phases[0].state}=running")
    return name


def test_an_action_runs_to_its_end_and_another_goes_on_from_what_it_left(stage: Program) -> None:
    name = run_action(stage, "backup", "--options", "mark=!", "--wait")
    told = stage("actionset", "status", name)
    assert told.lines[0].endswith(f"/{name}: complete")
    assert "wait    complete   100 %      Wait       v0.0.0    Pin (the phase asks for v0.0.0)" in told.out
    assert "Echo       v0.0.0    Stable (v0.0.0 is stable)" in told.out
    assert "artifact backup/copy: text=hello!" in told.out
    assert stage("actionset", "logs", name).out.startswith("backup/read: reading notes\n")

    done = stage("actionset", "create", "-a", "restore", "--from", name, "--name", "back", "--wait")
    assert done.out == "actionset/back\n"
    assert "restore/write: complete" in done.err.splitlines()
    assert stage("actionset", "logs", "back", "--phase", "write").out == "restore/write: got hello!!\n"
    assert stage("actionset", "logs", "back", "-o", "json").json()[0]["line"] == "got hello!!"


def test_an_action_that_fails_says_where_and_why_and_exits_with_1(stage: Program) -> None:
    failed = stage(
        "actionset",
        "create",
        "-a",
        "break",
        "-b",
        "notes",
        "--object",
        "cm=notes",
        "--name",
        "broken",
        "--wait",
        code=1,
    )
    assert "break/give-up: failed" in failed.err.splitlines()
    assert "error: break/give-up: no more disks" in failed.err.splitlines()
    told = stage("actionset", "status", "broken").out
    assert "tidy (defer)   complete" in told
    missing = stage("actionset", "create", "-a", "restore", "--from", "broken", code=1)
    assert 'ActionSet "broken" is failed, not complete' in missing.err


def test_a_cancelled_action_stops_and_its_defer_phase_runs(stage: Program) -> None:
    name = begun(stage, "linger")
    assert stage("actionset", "cancel", name, "--wait").out == f"actionset/{name} cancelled\n"
    told = stage("actionset", "status", name, "-o", "json").json()["status"]
    assert told["state"] == "failed"
    assert told["errors"][0]["reason"] == "Cancelled"
    assert told["actions"][0]["deferPhase"]["state"] == "complete"
    again = stage("actionset", "cancel", name, code=1)
    assert "is failed: there is nothing to cancel" in again.err


def test_logs_are_followed_until_the_actionset_is_over(stage: Program) -> None:
    name = begun(stage, "linger")
    with stage.following("actionset", "logs", name, "--follow") as lines:
        stage("actionset", "cancel", name, "--wait")
        assert lines.until("tidied") == "linger/tidy: tidied"
        assert lines.process.wait(PATIENCE_SECONDS) == 0
    assert stage("actionset", "logs", name, "-f", "-o", "json", code=2).err.startswith("error: --follow shows text")


def test_waiting_longer_than_allowed_exits_with_3(stage: Program) -> None:
    run_action(stage, "linger", "--name", "long", "--wait", "--timeout", "0.3s", code=3)
    late = stage("actionset", "status", "long", "--wait", "--timeout", "0.2s", code=3)
    assert "actionset/long did not reach its end within 0.2 s" in late.err
    assert "planform actionset status long" in late.err
    stage("actionset", "cancel", "long", "--wait")


def test_on_a_terminal_the_phases_are_drawn_while_they_run(stage: Program) -> None:
    controller, terminal = pty.openpty()
    words = [*stage.command, "actionset", "create", "-a", "backup", "-b", "notes", "--object", "cm=notes", "--wait"]
    try:
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=terminal, env=dict(stage.env), timeout=PATIENCE_SECONDS, check=True
        )
        drawn = os.read(controller, 1 << 16).decode()
    finally:
        os.close(terminal)
        os.close(controller)
    assert done.stdout.startswith(b"actionset/backup-")
    *before, last = re.split("\x1b\\[\\d+A\x1b\\[J", drawn)
    assert before and "\x1b" not in "".join([*before, last])  # NO_COLOR is set
    head, *phases = last.splitlines()
    assert head.endswith(": complete")
    assert phases == ["  ✓ backup/read Echo v0.0.0", "  ✓ backup/wait Wait v0.0.0"]


def test_a_dry_run_prints_the_actionset_and_creates_nothing(stage: Program, namespace: str) -> None:
    flags = ("--dry-run", "-o", "json", "-d", "shop/web", "-s", "db", "--secrets", "login=shop/login", "-p", "store")
    words = ("actionset", "create", "-a", "backup", "-b", "notes", "--options", "a=1,b=2,3", "--options", "c=x=y")
    first, second = stage(*words, *flags).json()["spec"]["actions"]
    assert first["object"] == {"kind": "deployment", "name": "web", "namespace": "shop"}
    assert second["object"] == {"kind": "statefulset", "name": "db", "namespace": namespace}
    assert first["options"] == {"a": "1", "b": "2,3", "c": "x=y"}
    assert first["secrets"] == {"login": {"name": "login", "namespace": "shop"}}
    assert first["profile"] == {"name": "store", "namespace": namespace}
    assert stage("get", "actionsets", "-o", "json").json()["items"] == []


def test_phase_functions_are_listed_by_the_control_plane(stage: Program) -> None:
    listed = {each["name"]: each for each in stage("phase-functions", "list", "-o", "json").json()}
    assert listed["KubeExec"]["stable"] == "v0.0.0"
    assert [each["version"] for each in listed["KubeExec"]["versions"]] == ["v0.1.0", "v0.0.0"]
    pinned = stage("phase-functions", "versions", "Wait", "-o", "json").json()
    assert {each["version"]: each["inUseBy"]["blueprints"] for each in pinned}["v0.0.0"] >= 1


def test_a_stored_blueprint_is_checked_by_name(stage: Program) -> None:
    done = stage("blueprint", "validate", "notes")
    assert done.out == "blueprint/notes is valid\n"
    late = stage("blueprint", "validate", "notes", "--release", "0.4", code=1)
    assert "actions.backup.phases[1].funcVersion" in late.err
    assert "removed in 0.4" in late.err
