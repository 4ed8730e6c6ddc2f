"""`planform function list|activate|deactivate`, against a control plane over HTTP."""

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
from planform.cli.functions.activation import choose
from planform.cli.functions.listing import describe, describe_builtins
from planform.cli.main import root
from planform.clock import SystemClock
from planform.definitions.own_crds import ensure_crds
from planform.errors import UsageError
from planform.packages.function_catalogue import LiveFunctions
from planform.packages.function_controller import FunctionController
from planform.reconcile.context import ControllerContext
from planform.reconcile.events import open_events
from planform.reconcile.limiter import ConcurrencyLimiter
from tests.harness.contexts import until_condition

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
        context = ControllerContext(
            plane.client, plane.manager, events, clock, Random(7), ConcurrencyLimiter(4), plane.metrics
        )
        async with LiveFunctions(context) as live:
            if "functions" not in plane.manager:
                FunctionController(context, live).start()

            async def install(name: str, package: str, installed: str = "True", policy: str = "Automatic") -> None:
                function = {
                    "apiVersion": FUNCTION.api_version,
                    "kind": "Function",
                    "metadata": {"name": name},
                    "spec": {
                        "package": package,
                        "revisionHistoryLimit": 2,
                        "activeRevisionLimit": 2,
                        "revisionActivationPolicy": policy,
                    },
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
    await functions("ready", "registry.example.org/crossplane-contrib/function-auto-ready:v1")
    await functions("ready", "registry.example.org/crossplane-contrib/function-auto-ready:v2")
    await functions("shout", "127.0.0.1:1/acme/function-shout:v1", "False")
    done = await planform("function", "list")
    _, second, first, missing = [line.split() for line in done.stdout.splitlines()]
    assert second[1].endswith("*")
    assert second[2:] == [
        "2",
        "Active",
        "True",
        "builtin:auto-ready",
        "registry.example.org/crossplane-contrib/function-auto-ready:v2",
    ]
    assert first[2:] == [
        "1",
        "Active",
        "True",
        "builtin:auto-ready",
        "registry.example.org/crossplane-contrib/function-auto-ready:v1",
    ]
    assert missing == ["shout", "-", "-", "-", "False", "-", "127.0.0.1:1/acme/function-shout:v1"]
    assert "shout: " in done.stderr and "127.0.0.1:1" in done.stderr

    ready, shout = json.loads((await planform("function", "list", "-o", "json")).stdout)
    assert (ready["installed"], ready["healthy"], shout["installed"]) == (True, True, False)
    assert [each["number"] for each in ready["revisions"]] == [2, 1]
    assert [each["current"] for each in ready["revisions"]] == [True, False]
    assert yaml.safe_load((await planform("function", "list", "-o", "yaml")).stdout) == [ready, shout]


async def test_people_activate_where_it_is_left_to_them(
    planform: Run, functions: Callable[..., Awaitable[None]], plane: ControlPlane
) -> None:
    await functions("ready", "registry.example.org/crossplane-contrib/function-auto-ready:v1", "False", policy="Manual")
    assert (await planform("function", "activate", "ready")).stdout.endswith(" is now active\n")
    await functions("ready", "registry.example.org/crossplane-contrib/function-auto-ready:v2", "False", policy="Manual")
    assert (await planform("function", "activate", "ready")).stdout.endswith(" is now active\n")
    again = await planform("function", "activate", "ready", "--revision", "2")
    assert again.stdout.endswith(" is already active\n")
    told = json.loads((await planform("function", "activate", "ready", "--revision", "2", "-o", "json")).stdout)
    assert (told["state"], told["changed"]) == ("Active", False)
    assert (await planform("function", "deactivate", "ready", "--revision", "1")).stdout.endswith(" is now inactive\n")
    found = (await plane.client.list(FUNCTION_REVISION)).items
    assert {each["spec"]["revision"]: each["spec"]["desiredState"] for each in found} == {1: "Inactive", 2: "Active"}


async def test_what_the_control_plane_would_undo_is_refused(
    planform: Run, functions: Callable[..., Awaitable[None]]
) -> None:
    await functions("ready", "registry.example.org/crossplane-contrib/function-auto-ready:v1")
    with pytest.raises(UsageError, match="activates its newest revisions by itself") as caught:
        await planform("function", "activate", "ready")
    assert "revisionActivationPolicy: Manual" in str(caught.value.hint)


def test_a_revision_that_is_not_there_is_refused_with_those_that_are() -> None:
    revision = {"metadata": {"name": "fn-1"}, "spec": {"revision": 4}}
    assert choose("fn", [revision], "4") is choose("fn", [revision], "fn-1") is choose("fn", [revision], "")
    with pytest.raises(UsageError, match='has no revision "5"') as caught:
        choose("fn", [revision], "5")
    assert caught.value.hint == "there are: fn-1 (4)"
    with pytest.raises(UsageError, match="has no revisions"):
        choose("fn", [], "")


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
