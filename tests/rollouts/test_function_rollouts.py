"""Functions roll out through revisions of Compositions that pin them: held, together, and back without a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import COMPOSITION, FUNCTION, FUNCTION_REVISION, PREVIEW, ROLLOUT, ROLLOUT_POLICY
from planform.client.protocol import Patch, PatchType
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform, a_platform, a_process
from tests.controllers.test_function_choice import BUILT_IN
from tests.controllers.trying_functions import NAME as TRIED_FUNCTION
from tests.controllers.trying_functions import REPOSITORY, trying
from tests.harness.contexts import condition_of, eventually, until_condition
from tests.rollouts.rolling import act, all_on, fleet, policy, release, revision_of, rollouts, until_phase

pytestmark = pytest.mark.timeout(120)
CANARY = {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}}


def name_of_function(platform: Platform) -> str:
    return f"{platform.unique}-templates"


async def install(platform: Platform, version: str, *, labels: dict[str, str] | None = None, **spec: Any) -> str:
    """Install a version of the platform's function, which ships with planform; gives its revision."""
    function = {
        "apiVersion": FUNCTION.api_version,
        "kind": FUNCTION.kind,
        "metadata": {"name": name_of_function(platform), "labels": labels or {}},
        "spec": {"package": f"{BUILT_IN}:{version}", "revisionHistoryLimit": 4, **spec},
    }
    applied = await platform.client.apply(function, manager="user", force=True)
    generation = applied["metadata"]["generation"]

    async def installed() -> str:
        found = await platform.client.get(FUNCTION, name_of_function(platform))
        condition = condition_of(found, "Installed") or {}
        return str(found["status"]["currentRevision"]) if condition.get("observedGeneration") == generation else ""

    return await eventually(installed, f"version {version} is installed")


def step(platform: Platform, text: str = "a", **more: Any) -> Object:
    template = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:\n"
        "    gotemplating.fn.crossplane.io/composition-resource-name: it\n"
        '    gotemplating.fn.crossplane.io/ready: "True"\n'
        f"data:\n  text: {text}\n"
    )
    given = {
        "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
        "kind": "GoTemplate",
        "source": "Inline",
        "inline": {"template": template},
    }
    return {"step": "render", "functionRef": {"name": name_of_function(platform)}, "input": given, **more}


def pins(revision: Object) -> list[str]:
    return [(each.get("functionRevisionRef") or {}).get("name", "") for each in revision["spec"]["pipeline"]]


async def newest(platform: Platform, wanted: list[str], composition: str = "") -> Object:
    """Wait until the newest revision of a Composition pins this, and says whether it is released."""

    async def look() -> Object | None:
        found = await platform.revisions(composition)
        told = found and pins(found[-1]) == wanted and condition_of(found[-1], "ValidPipeline") is not None
        return found[-1] if told else None

    return await eventually(look, f"the newest revision pins {wanted}")


async def until_release(platform: Platform, revision: Object, status: str, reason: str) -> None:
    async def look() -> bool:
        found = [
            each for each in await platform.revisions() if each["metadata"]["name"] == revision["metadata"]["name"]
        ]
        return bool(found) and release(found[0]) == (status, reason)

    await eventually(look, f"{revision['metadata']['name']} is {reason}")


async def test_a_policy_pins_what_runs_and_releases_it_at_once_and_unpins_when_it_goes(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        first = await install(platform, "v0.9.0")
        plain = await platform.compose(step(platform))
        xrs = await fleet(platform, 3)
        waves = [{"name": "all", "approval": {"count": 1}}]
        held = await policy(platform, waves=waves)
        pinned = await newest(platform, [first])
        assert pinned["metadata"]["name"] != plain["metadata"]["name"]
        await all_on(platform, xrs, pinned)
        await until_release(platform, pinned, "True", "Released")
        assert await rollouts(platform) == [], "nothing changes by it, so nobody is asked"
        composition = await platform.client.get(COMPOSITION, f"{unique}-apps")
        assert composition["status"]["stableRevision"]["name"] == pinned["metadata"]["name"]

        await platform.client.delete(ROLLOUT_POLICY, held["metadata"]["name"])
        unpinned = await newest(platform, [""])
        assert unpinned["metadata"]["name"] == plain["metadata"]["name"]
        await all_on(platform, xrs, unpinned)


async def test_a_new_function_revision_is_held_until_its_rollout_is_through(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        first = await install(platform, "v0.9.0")
        await platform.compose(step(platform))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        await policy(platform, waves=[CANARY, {"name": "all", "approval": {"count": 1}}])
        before = await newest(platform, [first])
        await all_on(platform, xrs, before)
        second = await install(platform, "v0.10.0")
        after = await newest(platform, [second])
        assert release(after) in (("False", "Held"), ("False", "InRollout"))

        async def waits() -> Object | None:
            found = await rollouts(platform)
            waiting = (found[0].get("status") or {}).get("waiting") or {} if found else {}
            return found[0] if waiting.get("for") == "Approval" else None

        rollout = await eventually(waits, "the second wave waits for an approval")
        change = rollout["spec"]["changes"][0]
        assert change["cause"] == {"function": name_of_function(platform), "revision": second}
        assert (change["from"], change["to"]) == (before["metadata"]["name"], after["metadata"]["name"])
        used = [revision_of(await platform.get(xr)) for xr in xrs]
        assert used == [after["metadata"]["name"]] + [before["metadata"]["name"]] * 3
        await act(platform, rollout, "Approve", wave="all")
        await until_phase(platform, "Completed")
        await all_on(platform, xrs, after)
        assert len(await platform.revisions()) == 3


async def test_undo_of_a_function_runs_the_revision_before_it_which_stayed_active(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        first = await install(platform, "v0.9.0", activeRevisionLimit=1, inUsePolicy="Deactivate")
        await platform.compose(step(platform))
        xrs = await fleet(platform, 2)
        await policy(platform)
        before = await newest(platform, [first])
        second = await install(platform, "v0.10.0", activeRevisionLimit=1, inUsePolicy="Deactivate")
        after = await newest(platform, [second])
        done = await until_phase(platform, "Completed")
        await all_on(platform, xrs, after)
        drained = {"apiVersion": FUNCTION_REVISION.api_version, "kind": "FunctionRevision", "metadata": {"name": first}}
        found = await until_condition(platform.client, drained, "InUse", "True", reason="Pinned")
        assert (found["spec"]["desiredState"], found["status"]["users"]) == ("Active", 0)
        function = await platform.client.get(FUNCTION, name_of_function(platform))
        exceeded = condition_of(function, "ActiveRevisionLimitExceeded")
        assert exceeded is None or exceeded["status"] == "False", "what is pinned does not count"

        await act(platform, done, "Undo")
        await until_phase(platform, "Undone")
        await all_on(platform, xrs, before)
        for xr in xrs:
            assert condition_of(await platform.ready(xr), "Synced") is not None


async def test_two_compositions_of_one_function_have_one_rollout_and_one_verdict(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        first = await install(platform, "v0.9.0")
        other = f"{unique}-others"
        await platform.compose(step(platform))
        await platform.compose(step(platform, "b"), name=other)
        xrs = []
        for number, composition in enumerate([f"{unique}-apps", other]):
            xr = platform.xr(f"x{number}", compositionRef={"name": composition})
            xr["metadata"]["labels"] = {"canary": "true"}
            xrs.append(await platform.client.create(xr))
        for xr in xrs:
            await platform.ready(xr)
        functions: Object = {"for": {"functions": {"names": [name_of_function(platform)]}}}
        await policy(platform, **functions, waves=[{**CANARY, "soak": "1h"}])
        before = [await newest(platform, [first], each) for each in (f"{unique}-apps", other)]
        second = await install(platform, "v0.10.0")
        after = [await newest(platform, [second], each) for each in (f"{unique}-apps", other)]
        rollout = await until_phase(platform, "Running")
        assert [each["composition"] for each in rollout["spec"]["changes"]] == [f"{unique}-apps", other]
        assert rollout["metadata"]["name"].startswith(name_of_function(platform))
        await _all_are_on(platform, xrs, after)
        await act(platform, rollout, "Abort", reason="p99 doubled")
        await until_phase(platform, "Aborted")
        await _all_are_on(platform, xrs, before)

        await act(platform, rollout, "Retry")
        again = await until_phase(platform, "Running", attempt=2)
        assert len(again["spec"]["changes"]) == 2
        await act(platform, again, "PromoteFull")
        await until_phase(platform, "Completed", attempt=2)
        await _all_are_on(platform, xrs, after)
        await act(platform, again, "Undo")
        await until_phase(platform, "Undone", attempt=2)
        await _all_are_on(platform, xrs, before)
        assert len([each for each in (await platform.client.list(ROLLOUT)).items if _is_ours(each, unique)]) == 2


async def test_a_change_of_one_composition_supersedes_and_takes_the_others_along(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        first = await install(platform, "v0.9.0")
        other = f"{unique}-others"
        await platform.compose(step(platform))
        await platform.compose(step(platform, "b"), name=other)
        xr = platform.xr("x", compositionRef={"name": other})
        xr["metadata"]["labels"] = {"canary": "true"}
        await platform.ready(await platform.client.create(xr))
        functions: Object = {"for": {"functions": {"names": [name_of_function(platform)]}}}
        await policy(platform, **functions, waves=[{**CANARY, "soak": "1h"}])
        for each in (f"{unique}-apps", other):
            await newest(platform, [first], each)
        second = await install(platform, "v0.10.0")
        both = await until_phase(platform, "Running")
        assert len(both["spec"]["changes"]) == 2
        wanted = platform.composition(step(platform, "c"), name=other)
        await platform.client.apply(wanted, manager="author", force=True)

        async def next_one() -> Object | None:
            found = [each for each in await rollouts(platform) if each["spec"].get("attempt") == 2]
            return found[0] if found and (found[0].get("status") or {}).get("phase") == "Running" else None

        following = await eventually(next_one, "what was superseded begins again, with both")
        assert [each["composition"] for each in following["spec"]["changes"]] == [f"{unique}-apps", other]
        assert pins((await platform.revisions(other))[-1]) == [second]
        await act(platform, following, "PromoteFull")

        async def completed() -> bool:
            found = await platform.client.get(ROLLOUT, following["metadata"]["name"])
            return bool(found["status"]["phase"] == "Completed")

        await eventually(completed, "both are released")


async def test_pins_stay_while_a_revision_does_not_serve_and_a_rollout_waits_for_it(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        manual: Object = {"revisionActivationPolicy": "Manual", "activeRevisionLimit": 2}
        first = await install(platform, "v0.9.0", **manual)
        await _set_state(platform, first, "Active")
        await platform.compose(step(platform))
        xrs = await fleet(platform, 2)
        await policy(platform, waves=[{"name": "all", "approval": {"count": 1}}])
        before = await newest(platform, [first])
        await all_on(platform, xrs, before)
        second = await install(platform, "v0.10.0", **manual)
        await platform.at_rest(*xrs)
        assert len(await platform.revisions()) == 2, "nobody has activated it, so it is not what runs"
        await _set_state(platform, second, "Active")
        after = await newest(platform, [second])
        rollout = await until_phase(platform, "Running")
        await _set_state(platform, second, "Inactive")
        await act(platform, rollout, "Approve", wave="all")

        async def waits() -> bool:
            found = (await platform.client.get(ROLLOUT, rollout["metadata"]["name"])).get("status") or {}
            waiting = found.get("waiting") or {}
            return waiting.get("for") == "FunctionRevision" and "function activate" in waiting["message"]

        await eventually(waits, "the Rollout waits for the function revision")
        assert pins((await platform.revisions())[-1]) == [second], "pins never step back"
        assert {revision_of(await platform.get(xr)) for xr in xrs} == {before["metadata"]["name"]}
        await _set_state(platform, second, "Active")
        await until_phase(platform, "Completed")
        await all_on(platform, xrs, after)


async def test_a_package_that_goes_back_is_a_way_back_for_everybody_at_once(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        first = await install(platform, "v0.9.0")
        await platform.compose(step(platform))
        xrs = await fleet(platform, 2)
        await policy(platform, waves=[{"name": "all", "approval": {"count": 1}}])
        before = await newest(platform, [first])
        await all_on(platform, xrs, before)
        second = await install(platform, "v0.10.0")
        after = await newest(platform, [second])
        await act(platform, await until_phase(platform, "Running"), "PromoteFull")
        await until_phase(platform, "Completed")
        await all_on(platform, xrs, after)
        assert await install(platform, "v0.9.0") == first
        await all_on(platform, xrs, before)
        last = (await rollouts(platform))[-1]
        assert last["spec"]["changes"][0]["cause"]["rollback"] is True


async def test_without_a_policy_functions_move_as_ever_and_make_no_revision(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await install(platform, "v0.9.0", labels={"channel": "stable"})
        chosen: Object = {"functionRevisionSelector": {"matchLabels": {"channel": "stable"}}}
        plain = await platform.compose(step(platform, **chosen))
        [xr] = await fleet(platform, 1)
        somewhere: Object = {"for": {"compositions": {"names": ["somewhere-else"]}}}
        await policy(platform, **somewhere)
        await install(platform, "v0.10.0", labels={"channel": "stable"})
        await platform.at_rest(xr)
        [only] = await platform.revisions()
        for field in ("name", "labels", "annotations"):
            assert only["metadata"].get(field) == plain["metadata"].get(field)
        assert only["spec"] == plain["spec"]


async def test_a_preview_that_is_demanded_looks_at_the_xrs_of_all_compositions(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        first = await install(platform, "v0.9.0")
        compositions = [f"{unique}-apps", f"{unique}-others"]
        for composition in compositions:
            await platform.compose(step(platform, composition), name=composition)
            xr = platform.xr(composition, compositionRef={"name": composition})
            await platform.ready(await platform.client.create(xr))
        functions: Object = {"for": {"functions": {"names": [name_of_function(platform)]}}}
        await policy(platform, **functions, preview={})
        for composition in compositions:
            await newest(platform, [first], composition)
        await install(platform, "v0.10.0")
        done = await until_phase(platform, "Completed")
        preview = await platform.client.get(PREVIEW, done["spec"]["previewRef"]["name"])
        wanted = [{"composition": each["composition"], "name": each["to"]} for each in done["spec"]["changes"]]
        assert preview["spec"]["change"] == {"revisions": wanted}
        assert preview["status"]["summary"]["xrs"] == 2


async def test_a_bad_version_of_a_function_reaches_the_canary_and_goes_back_without_a_registry(tmp_path: Path) -> None:
    async with trying(tmp_path) as trial:
        platform = trial.platform
        trial.publish("v1.0.0", "config('it', version='1')")
        trial.publish("v2.0.0", "rsp.fatal('broken on purpose')")
        trial.publish("v3.0.0", "config('it', version='3')")
        first = await trial.install("v1.0.0", activeRevisionLimit=1)
        await platform.compose({"step": "compose", "functionRef": {"name": TRIED_FUNCTION}})
        xrs = await fleet(platform, 5, {0: {"canary": "true"}})
        await policy(platform, waves=[CANARY])
        before = await newest(platform, [first])
        await all_on(platform, xrs, before)
        await trial.install("v2.0.0", activeRevisionLimit=1)
        trial.blobs.forget_names([f"{REPOSITORY}:v3.0.0"])  # no registry has it, and here nobody knows its name
        aborted = await until_phase(platform, "Aborted")
        assert "1 XR of wave" in aborted["status"]["history"][0]["reason"]
        await all_on(platform, xrs, before)
        for xr in xrs:
            composed = await platform.composed(await platform.ready(xr))
            assert [each["data"]["version"] for each in composed.values()] == ["1"]
        third = await trial.install("v3.0.0", activeRevisionLimit=1)
        after = await newest(platform, [third])
        await until_phase(platform, "Completed", revision=after["metadata"]["name"])
        await all_on(platform, xrs, after)


async def test_a_policy_that_comes_with_a_change_pins_what_is_released_before_it_holds_the_change(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    async with a_process(context, unique, tmp_path / "before") as platform:
        await platform.define()
        first = await install(platform, "v0.9.0")
        await platform.compose(step(platform))
        xrs = await fleet(platform, 2)
    await policy(platform, waves=[{"name": "all", "approval": {"count": 1}}])
    await platform.client.apply(platform.composition(step(platform, "b")), manager="author", force=True)
    async with a_process(context, unique, tmp_path / "after") as platform:
        running = await until_phase(platform, "Running")
        revisions = await platform.revisions()
        assert [pins(each) for each in revisions] == [[""], [first], [first]]
        await all_on(platform, xrs, revisions[1])
        change = running["spec"]["changes"][0]
        assert (change["from"], change["to"]) == (revisions[1]["metadata"]["name"], revisions[2]["metadata"]["name"])
        await act(platform, running, "Abort")
        await until_phase(platform, "Aborted")
        await all_on(platform, xrs, revisions[1])


async def _all_are_on(platform: Platform, xrs: list[Object], revisions: list[Object]) -> None:
    wanted = [each["metadata"]["name"] for each in revisions]

    async def there() -> bool:
        return [revision_of(await platform.get(xr)) for xr in xrs] == wanted

    await eventually(there, f"XRs are on {wanted}")
    for xr in xrs:
        await platform.ready(xr)


async def _set_state(platform: Platform, revision: str, state: str) -> None:
    body = {"spec": {"desiredState": state}}
    await platform.client.patch(FUNCTION_REVISION, revision, Patch(PatchType.MERGE, body), manager="user")


def _is_ours(rollout: Object, unique: str) -> bool:
    return str(rollout["spec"]["changes"][0]["composition"]).startswith(unique)
