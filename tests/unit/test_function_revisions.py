"""`planform function revisions|describe|logs`, against a control plane over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planform.api.names import FUNCTION, FUNCTION_REVISION
from planform.app import ControlPlane, Settings, open_control_plane
from planform.cli.functions.revisions import lines, summary
from planform.cli.main import root
from planform.clock import SystemClock
from planform.packages.runtimes.logs import Follower, Logs, last_lines, log_file, logs_directory
from tests.harness.contexts import until_condition

Run = Callable[..., Awaitable[Result]]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with open_control_plane(Settings(data=tmp_path / "data")) as plane:
        for version in ("v0.4.0", "v0.5.0"):
            function = {
                "apiVersion": FUNCTION.api_version,
                "kind": "Function",
                "metadata": {"name": "ready", "labels": {"release-channel": "alpha"}},
                "spec": {
                    "package": f"example.org/crossplane-contrib/function-auto-ready:{version}",
                    "revisionHistoryLimit": 2,
                    "activeRevisionLimit": 2,
                },
            }
            applied = await plane.client.apply(function, manager="user", force=True)
            generation = applied["metadata"]["generation"]
            await until_condition(plane.client, applied, "Installed", observedGeneration=generation)
        yield plane


@pytest.fixture
def planform(plane: ControlPlane) -> Run:
    async def run(*arguments: str) -> Result:
        command = ["function", *arguments, "--kubeconfig", str(plane.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, root, command)

    return run


async def test_revisions_are_shown_the_newest_first_with_who_uses_them(planform: Run) -> None:
    shown = [line.split() for line in (await planform("revisions", "ready")).stdout.splitlines()]
    assert shown[0] == ["REVISION", "NUMBER", "STATE", "HEALTHY", "USERS", "VERSION", "DIGEST", "ENDPOINT"]
    assert [(row[1], row[2], row[3]) for row in shown[1:]] == [("2", "Active", "True"), ("1", "Active", "True")]
    assert [row[0].endswith("*") for row in shown[1:]] == [True, False]
    names = (await planform("revisions", "ready", "-o", "name")).stdout.split()
    told = json.loads((await planform("revisions", "ready", "-o", "json")).stdout)
    assert [each["name"] for each in told] == names
    assert told[0]["labels"] == {"release-channel": "alpha"}
    assert [each["version"] for each in told] == ["v0.5.0", "v0.4.0"]


async def test_a_function_is_described_with_its_limits_and_revisions(planform: Run) -> None:
    text = (await planform("describe", "ready")).stdout
    assert "Policy:    Automatic, 2 active, 2 kept" in text
    assert "Installed: True (ActivePackageRevision)" in text
    assert "  Endpoint:      builtin:auto-ready" in text
    assert "  Capabilities:  composition, operation, deterministic" in text
    told = json.loads((await planform("describe", "ready", "-o", "json")).stdout)
    assert [each["number"] for each in told["revisions"]] == [2, 1]
    missing = await planform("describe", "lost")
    assert missing.exit_code != 0


async def test_what_a_revision_tells_though_it_is_healthy_is_a_note(plane: ControlPlane, planform: Run) -> None:
    [newest, _] = (await planform("revisions", "ready", "-o", "name")).stdout.split()
    revision = await plane.client.get(FUNCTION_REVISION, newest)
    assert summary(revision, {})["remarks"] == []
    for each in revision["status"]["conditions"]:
        each["message"] = "it does not apply" if each["type"] == "RuntimeHealthy" else ""
    told = summary(revision, {})
    assert (told["problems"], told["remarks"], told["healthy"]) == ([], ["it does not apply"], True)
    shown = list(lines({"name": "ready", "package": "", "conditions": [], "revisions": [told]}))
    assert shown[-1] == "  Note:          it does not apply"


async def test_the_log_of_a_revision_is_shown(plane: ControlPlane, planform: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    [_, first] = (await planform("revisions", "ready", "-o", "name")).stdout.split()
    assert (await planform("logs", "ready", "--revision", "1", "--data", str(data))).exit_code != 0
    note = Logs(logs_directory(data), clock=SystemClock()).writer(first)
    for number in range(5):
        note(f"line {number}")
    as_json = (await planform("logs", "ready", "--revision", "1", "--data", str(data), "-o", "json")).stdout
    told = [json.loads(each) for each in as_json.splitlines()]
    assert told[-1]["revision"].startswith("ready-")
    assert {"revision", "line"} == set(told[-1])
    shown = (await planform("logs", "ready", "--revision", "1", "--tail", "2", "--data", str(data))).stdout
    assert [line.partition(" ")[2] for line in shown.splitlines()] == ["line 3", "line 4"]


def test_a_log_is_bounded_and_can_be_followed_over_the_change_of_files(tmp_path: Path) -> None:
    logs = Logs(tmp_path, clock=SystemClock(), max_bytes=2000)
    path = log_file(tmp_path, "fn-1")
    note, follower = logs.writer("fn-1", "0"), Follower(path)
    seen: list[str] = []
    for number in range(100):
        note(f"line {number}")
        seen += [line.rpartition("line ")[2] for line in follower.read()]
    follower.close()
    assert seen == [str(number) for number in range(100)]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2000
    kept = last_lines(path, 0)
    assert kept[-1].endswith("[0] line 99")
    assert last_lines(path, 1) == kept[-1:]
