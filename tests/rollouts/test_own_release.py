"""planform's own release under a policy: what built-in functions of another version change waits, all else goes on.

A process that is started with another version of a built-in function is another release; where that shall also answer
differently, the function is exchanged for one that does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import PREVIEW, ROLLOUT
from planform.builtin import find_builtin
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.packages import function_catalogue
from planform.reconcile.context import ControllerContext
from planform.xrs.last_run import decode
from planform.xrs.releases import changed_builtins
from tests.controllers.composing import CONFIG_MAP, Platform, a_process, script
from tests.harness.contexts import eventually
from tests.rollouts.rolling import act, fleet, good, policy

embedded = pytest.mark.parametrize("context", ["embedded"], indirect=True)

EVENT = GroupVersionKind("", "v1", "Event")
LATER = {"patch-and-transform": "v9.0.0"}
CAREFUL = {"accept": ["summary.changed == 0"]}
SCRIPT = """
def main(req):
    return {"desired": {"resources": {"it": {
        "resource": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"by": "script"}}, "ready": "READY_TRUE"}}}}
"""


class Later:
    """patch-and-transform of a later release, which labels what it composes."""

    name = "patch-and-transform"
    deterministic = True

    def __call__(self, request: FunctionRequest, /) -> FunctionResponse:
        function: Any = find_builtin(self.name)
        answer: FunctionResponse = function(request)
        for each in answer.desired.resources.values():
            each.resource["data"] = {**each.resource["data"], "release": "later"}
        return answer


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have processes that begin from then on answer as the later release."""

    def find(reference: str) -> Any:
        found = find_builtin(reference)
        return Later() if getattr(found, "name", "") == Later.name else found

    return lambda: monkeypatch.setattr(function_catalogue, "find_builtin", find)


async def versions_remembered(platform: Platform) -> set[tuple[str, ...]]:
    """Of all XRs, with which functions they were last run, by version."""
    assert platform.controllers is not None
    kept = await platform.controllers.journal.last_runs(f"App.{platform.group}")
    runs = [decode(each) for each in kept.values()]
    return {tuple(digest for _, digest in run.functions) for run in runs if run is not None}


async def data_of(platform: Platform, xr: Object) -> Object:
    found: Object = (await platform.composed(xr))["it"]["data"]
    return found


async def written(platform: Platform) -> list[tuple[str, str]]:
    """XRs, what they compose and what is told of them, each with its version."""
    found = [each for kind in (platform.kind, CONFIG_MAP, EVENT) for each in (await platform.client.list(kind)).items]
    return [(each["metadata"]["name"], each["metadata"]["resourceVersion"]) for each in found]


async def is_followed(platform: Platform, xr: Object) -> None:
    async def is_later() -> bool:
        return (await data_of(platform, xr)).get("release") == "later"

    await eventually(is_later, "the XR is of the later release", seconds=30)


async def begun(platform: Platform, count: int, **demand: Any) -> list[Object]:
    """XRs of a Composition that a policy holds, at rest."""
    await platform.define()
    await platform.compose(good("one"))
    await policy(platform, **demand)
    xrs = await fleet(platform, count)
    return await platform.at_rest(*xrs)


async def release_rollout(platform: Platform, phase: str, *, attempt: int = 1) -> Object:
    async def look() -> Object | None:
        for each in (await platform.client.list(ROLLOUT)).items:
            if (each["spec"]["changes"][0].get("cause") or {}).get("release") and each["spec"]["attempt"] == attempt:
                return each if (each.get("status") or {}).get("phase") == phase else None
        return None

    return await eventually(look, f"the Rollout of the release is {phase}", seconds=30)


@embedded
async def test_a_release_that_answers_alike_is_taken_without_a_write(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    async with a_process(context, unique, tmp_path) as platform:
        await begun(platform, 8)
    before = await written(platform)
    async with a_process(context, unique, tmp_path, builtin_versions=LATER) as platform:

        async def taken() -> bool:
            return await versions_remembered(platform) == {("builtin:patch-and-transform:v9.0.0",)}

        await eventually(taken, "all XRs are of the later release", seconds=20)
        assert await written(platform) == before
        assert not (await platform.client.list(ROLLOUT)).items
        assert not (await platform.client.list(PREVIEW)).items


@embedded
async def test_what_a_release_changes_waits_and_nothing_else_does(
    context: ControllerContext, unique: str, tmp_path: Path, later: Callable[[], None]
) -> None:
    async with a_process(context, unique, tmp_path) as platform:
        xrs = await begun(platform, 4, preview=CAREFUL)
        await platform.compose(script(SCRIPT), name=f"{unique}-other")
        other = await platform.create("other", compositionRef={"name": f"{unique}-other"})
        await platform.ready(other)
        [other] = await platform.at_rest(other)
    later()
    async with a_process(context, unique, tmp_path, builtin_versions=LATER) as platform:
        rollout = await release_rollout(platform, "AwaitingApproval")
        assert "0 unchanged, 4 changed" in rollout["status"]["waiting"]["message"]
        for xr in xrs:
            assert (await platform.get(xr))["metadata"]["resourceVersion"] == xr["metadata"]["resourceVersion"]
            assert "release" not in await data_of(platform, xr)
            await platform.until_event(xr, "HeldByRelease", "patch-and-transform v1")
        assert await platform.get(other) == other

        await platform.merge(xrs[0], {"spec": {"size": 9}})

        await is_followed(platform, xrs[0])
        await platform.until_event(xrs[0], "ReleaseTaken", "the XR was changed")
        assert "release" not in await data_of(platform, xrs[1])

        await act(platform, rollout, "Approve")
        await release_rollout(platform, "Completed")
        for xr in xrs:
            await is_followed(platform, xr)


@embedded
async def test_a_release_that_is_aborted_leaves_xrs_as_they_are_until_it_is_tried_again(
    context: ControllerContext, unique: str, tmp_path: Path, later: Callable[[], None]
) -> None:
    async with a_process(context, unique, tmp_path) as platform:
        xrs = await begun(platform, 2, preview=CAREFUL)
    later()
    async with a_process(context, unique, tmp_path, builtin_versions=LATER) as platform:
        await act(platform, await release_rollout(platform, "AwaitingApproval"), "Abort")
        aborted = await release_rollout(platform, "Aborted")
    async with a_process(context, unique, tmp_path, builtin_versions=LATER) as platform:
        for xr in xrs:
            await platform.until_event(xr, "HeldByRelease", "waits for Rollout")
        await platform.at_rest(*xrs)
        for xr in xrs:
            assert "release" not in await data_of(platform, xr)
        await act(platform, aborted, "Retry")
        await act(platform, await release_rollout(platform, "AwaitingApproval", attempt=2), "Approve")
        for xr in xrs:
            await is_followed(platform, xr)


@embedded
async def test_without_a_policy_a_release_is_followed_at_once(
    context: ControllerContext, unique: str, tmp_path: Path, later: Callable[[], None]
) -> None:
    async with a_process(context, unique, tmp_path) as platform:
        await platform.define()
        await platform.compose(good("one"))
        [xr] = await platform.at_rest(*await fleet(platform, 1))
    later()
    async with a_process(context, unique, tmp_path, builtin_versions=LATER) as platform:
        await is_followed(platform, xr)
        assert not (await platform.client.list(ROLLOUT)).items


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([("a", "builtin:x:v1")], [("a", "builtin:x:v1")], []),
        ([("a", "builtin:x:v1")], [("a", "builtin:x:v2")], ["x v1 -> v2"]),
        ([("a", "builtin:x:v1")], [("b", "builtin:x:v2")], []),
        ([("a", "builtin:x:v1")], [("a", "builtin:y:v2")], []),
        ([("a", "sha256:1")], [("a", "sha256:2")], []),
        ([("a", "builtin:x:v1"), ("b", "sha256:1")], [("a", "builtin:x:v2"), ("b", "sha256:2")], []),
        (
            [("a", "builtin:x:v1"), ("b", "builtin:y:v1"), ("c", "builtin:x:v1")],
            [("a", "builtin:x:v2"), ("b", "builtin:y:v3"), ("c", "builtin:x:v2")],
            ["x v1 -> v2", "y v1 -> v3"],
        ),
    ],
    ids=["same", "version", "other step", "other built-in", "package", "both", "several"],
)
def test_only_versions_of_built_in_functions_count(
    before: list[tuple[str, str]], now: list[tuple[str, str]], expected: list[str]
) -> None:
    assert changed_builtins(before, now) == expected
