"""`planform function list`, against a control plane over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
import yaml
from click.testing import CliRunner, Result

from planform.api.names import FUNCTION, FUNCTION_REVISION
from planform.app import ControlPlane, Settings, open_control_plane
from planform.cli.function_list import describe, describe_builtins
from planform.cli.main import root
from planform.clock import SystemClock
from planform.controllers.crds import ensure_crds
from planform.controllers.function_catalogue import LiveFunctions
from planform.controllers.functions import FunctionController
from planform.controllers.recording import open_events
from planform.controllers.workbench import Workbench
from planform.reconcile.gate import Gate
from tests.harness.planes import until_condition

Run = Callable[..., Awaitable[Result]]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with open_control_plane(Settings(data=tmp_path / "data")) as plane:
        yield plane


@pytest.fixture
def planform(plane: ControlPlane) -> Run:
    async def run(*arguments: str) -> Result:
        command = [*arguments, "--kubeconfig", str(plane.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, root, command, catch_exceptions=False)

    return run


@pytest.fixture
async def functions(plane: ControlPlane) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Installs a function and waits until it is."""
    clock = SystemClock()
    await ensure_crds(plane.client, clock=clock)
    async with open_events(plane.client, clock=clock, metrics=plane.metrics) as events:
        bench = Workbench(plane.client, plane.plane, events, clock, Random(7), Gate(4), plane.metrics)
        async with LiveFunctions(bench) as live:
            if "functions" not in plane.plane:
                FunctionController(bench, live).start()

            async def install(name: str, package: str, installed: str = "True") -> None:
                function = {
                    "apiVersion": FUNCTION.api_version,
                    "kind": "Function",
                    "metadata": {"name": name},
                    "spec": {"package": package, "revisionHistoryLimit": 2, "activeRevisionLimit": 2},
                }
                applied = await plane.client.apply(function, manager="user", force=True)
                generation = applied["metadata"]["generation"]
                await until_condition(plane.client, applied, "Installed", installed, observedGeneration=generation)

            yield install


async def test_a_plane_without_functions_points_to_the_built_in_ones(planform: Run) -> None:
    done = await planform("function", "list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "planform function list --all" in done.stderr
    shown = (await planform("function", "list", "--all")).stdout.splitlines()
    assert shown[0].split() == ["FUNCTION", "REVISION", "NUMBER", "STATE", "HEALTHY", "ENDPOINT", "PACKAGE"]
    assert ["auto-ready", "builtin", "0", "Active", "True", "builtin:auto-ready", "-"] in [
        line.split() for line in shown
    ]


async def test_functions_are_shown_with_their_revisions_the_newest_first(
    planform: Run, functions: Callable[..., Awaitable[None]]
) -> None:
    await functions("ready", "crossplane-contrib/function-auto-ready:v1")
    await functions("ready", "crossplane-contrib/function-auto-ready:v2")
    await functions("shout", "acme/function-shout:v1", "False")
    done = await planform("function", "list")
    _, second, first, missing = [line.split() for line in done.stdout.splitlines()]
    assert second[1].endswith("*")
    assert second[2:] == ["2", "Active", "True", "builtin:auto-ready", "crossplane-contrib/function-auto-ready:v2"]
    assert first[2:] == ["1", "Active", "True", "builtin:auto-ready", "crossplane-contrib/function-auto-ready:v1"]
    assert missing == ["shout", "-", "-", "-", "False", "-", "acme/function-shout:v1"]
    assert 'shout: "acme/function-shout:v1" is not a built-in function' in done.stderr

    ready, shout = json.loads((await planform("function", "list", "-o", "json")).stdout)
    assert (ready["installed"], ready["healthy"], shout["installed"]) == (True, True, False)
    assert [each["number"] for each in ready["revisions"]] == [2, 1]
    assert [each["current"] for each in ready["revisions"]] == [True, False]
    assert yaml.safe_load((await planform("function", "list", "-o", "yaml")).stdout) == [ready, shout]


def test_a_revision_that_somebody_made_by_hand_is_shown_too() -> None:
    revision = {
        "apiVersion": FUNCTION_REVISION.api_version,
        "kind": "FunctionRevision",
        "metadata": {"name": "fn-1", "labels": {"pkg.crossplane.io/package": "fn"}},
        "spec": {"image": "acme/fn:v1", "revision": 1, "desiredState": "Active"},
    }
    [found] = describe([], [revision, {**revision, "metadata": {"name": "of-nobody"}}])
    assert (found["name"], found["package"], found["installed"]) == ("fn", "acme/fn:v1", None)
    assert [each["name"] for each in found["revisions"]] == ["fn-1"]
    assert found["revisions"][0]["healthy"] is None


def test_a_built_in_is_shown_by_the_names_that_still_mean_it() -> None:
    names = {each["purpose"]: each["names"] for each in describe_builtins({"function-auto-ready"})}
    assert ["auto-ready"] in names.values()
    everything = describe_builtins({"auto-ready", "function-auto-ready"})
    assert not any("auto-ready" in each["names"] for each in everything)
