"""Which revision of their Composition live XRs use, and when they move, on both engines."""

from __future__ import annotations

import pytest

from planform.api.kinds import Object
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, XRD
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform, a_platform, becomes
from tests.controllers.test_xr_selection import name, on, revision_of, version
from tests.harness.contexts import condition_of, read, until_condition

pytestmark = pytest.mark.timeout(120)


async def test_automatic_follows_by_watch_also_back_and_manual_does_not_change_a_byte(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(version("1"))
        automatic = await platform.create("automatic", compositionUpdatePolicy="Automatic")
        manual = await platform.create("manual", compositionUpdatePolicy="Manual")
        await on(platform, automatic, one)
        pinned = await on(platform, manual, one)
        composed = await platform.composed(manual)
        runs = await platform.runs(manual)
        two = await platform.compose(version("2"))
        await on(platform, automatic, two)
        assert (await platform.composed(automatic))["it"]["data"] == {"version": "2"}
        late = await platform.create("late", compositionUpdatePolicy="Manual")
        await on(platform, late, two)
        again = await platform.compose(version("1"))
        assert name(again) == name(one) and again["spec"]["revision"] == 3
        await on(platform, automatic, again)
        assert (await platform.composed(automatic))["it"]["data"] == {"version": "1"}
        assert await platform.get(manual) == pinned and await platform.composed(manual) == composed
        assert await platform.runs(manual) == runs
        assert revision_of(await platform.get(late)) == name(two)


async def test_a_selector_narrows_automatic_and_pins_manual_where_the_specs_list_ignores_it_there(
    context: ControllerContext, unique: str
) -> None:
    stable, fast = ({"matchLabels": {"channel": each}} for each in ("stable", "fast"))
    async with a_platform(context, unique) as platform:
        one = await platform.compose(version("1"), labels={"channel": "stable"})
        two = await platform.compose(version("2"), labels={"channel": "fast"})
        automatic = await platform.create("automatic", compositionRevisionSelector=stable)
        manual = await platform.create("manual", compositionRevisionSelector=stable, compositionUpdatePolicy="Manual")
        lost = await platform.create("lost", compositionRevisionSelector={"matchLabels": {"channel": "none"}})
        for xr in (automatic, manual):
            await on(platform, xr, one)
        await platform.failed(lost, f'"{name(one)}" has channel=stable')
        three = await platform.compose(version("3"), labels={"channel": "stable"})
        await on(platform, automatic, three)
        assert revision_of((await platform.at_rest(manual))[0]) == name(one)
        # An edit of the reference wins until the selector changes.
        await platform.merge(manual, {"spec": {"crossplane": {"compositionRevisionRef": {"name": name(two)}}}})
        await becomes(lambda: _version(platform, manual), "2", "the edited reference is used")
        assert revision_of((await platform.at_rest(manual))[0]) == name(two)
        await platform.merge(manual, {"spec": {"crossplane": {"compositionRevisionSelector": fast}}})
        await platform.until(manual, lambda xr: xr["status"]["planform"]["revisionSelector"] == fast, "it was resolved")
        four = await platform.compose(version("4"), labels={"channel": "fast"})
        assert revision_of((await platform.at_rest(manual))[0]) == name(two)
        await platform.merge(manual, {"spec": {"crossplane": {"compositionRevisionSelector": stable}}})
        await on(platform, manual, three)
        await platform.merge(manual, {"spec": {"crossplane": {"compositionRevisionSelector": fast}}})
        await on(platform, manual, four)


async def _version(platform: Platform, xr: Object) -> str:
    return str((await platform.composed(xr))["it"]["data"]["version"])


async def test_revisions_that_are_not_the_compositions_are_refused_or_ignored(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        mine = await platform.compose(version("1"))
        other = await platform.compose(version("other"), name=f"{unique}-other")
        foreign = await platform.create(
            "foreign",
            compositionUpdatePolicy="Manual",
            compositionRef={"name": f"{unique}-apps"},
            compositionRevisionRef={"name": name(other)},
        )
        await platform.failed(foreign, f'has no revision "{name(other)}"')
        await platform.merge(foreign, {"spec": {"crossplane": {"compositionRevisionRef": {"name": name(mine)}}}})
        await on(platform, foreign, mine)
        # One that carries the name but is controlled by somebody else does not count, whatever its number.
        theirs = await context.client.get(COMPOSITION, f"{unique}-other")
        owner = {"apiVersion": COMPOSITION.api_version, "kind": "Composition", "name": name(theirs), "controller": True}
        false = {
            "apiVersion": COMPOSITION_REVISION.api_version,
            "kind": COMPOSITION_REVISION.kind,
            "metadata": {
                "name": f"{unique}-false",
                "labels": {"crossplane.io/composition-name": f"{unique}-apps"},
                "ownerReferences": [owner | {"uid": theirs["metadata"]["uid"]}],
            },
            "spec": {**mine["spec"], "pipeline": [version("false")], "revision": 99},
        }
        await context.client.create(false)
        automatic = await platform.create("automatic", compositionRef={"name": f"{unique}-apps"})
        await on(platform, automatic, mine)


async def test_a_revision_in_use_is_never_collected_and_statuses_count_their_xrs(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(version("1"), revisionHistoryLimit=1)
        manual = await platform.create("manual", compositionUpdatePolicy="Manual")
        automatic = await platform.create("automatic")
        for xr in (manual, automatic):
            await on(platform, xr, one)
        last = one
        for each in ("2", "3", "4"):
            last = await platform.compose(version(each), revisionHistoryLimit=1)
        await on(platform, automatic, last)

        async def numbers() -> list[int]:
            return [each["spec"]["revision"] for each in await platform.revisions()]

        await becomes(numbers, [1, 3, 4], "one unused revision is kept beside those in use")

        async def counted() -> list[int]:
            return [(each.get("status") or {}).get("composites", 0) for each in await platform.revisions()]

        await becomes(counted, [1, 0, 1], "each revision counts its XRs")
        assert await read(context.client, COMPOSITION_REVISION, name(one)) is not None


async def test_an_enforced_update_policy_overrides_that_of_the_xrs(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique, xrd={"enforceCompositionUpdatePolicy": "Manual"}) as platform:
        one = await platform.compose(version("1"))
        xr = await platform.create(compositionUpdatePolicy="Automatic")
        before = await on(platform, xr, one)
        told = condition_of(before, "CompositionUpdatePolicyEnforced") or {}
        assert (told["status"], told["reason"]) == ("True", "EnforcedByDefinition")
        enforces = f'the XRD "apps.{platform.group}" enforces the composition update policy'
        assert told["message"] == f"{enforces} Manual; compositionUpdatePolicy: Automatic of this XR has no effect"
        two = await platform.compose(version("2"))
        assert await platform.at_rest(xr) == [before]
        xrd = {"metadata": {"name": f"apps.{platform.group}"}}
        await platform.edit(XRD, xrd, {"spec": {"enforceCompositionUpdatePolicy": "Automatic"}})
        after = await on(platform, xr, two)
        assert (condition_of(after, "CompositionUpdatePolicyEnforced") or {})["message"] == f"{enforces} Automatic"
        await platform.edit(XRD, xrd, {"spec": {"enforceCompositionUpdatePolicy": None}})
        await until_condition(context.client, xr, "CompositionUpdatePolicyEnforced", "False", reason="NotEnforced")


async def test_an_xr_whose_policy_nobody_enforces_has_no_condition_about_it_until_somebody_does(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(version("1"))
        xr = await platform.create()
        assert condition_of(await on(platform, xr, one), "CompositionUpdatePolicyEnforced") is None
        xrd = {"metadata": {"name": f"apps.{platform.group}"}}
        await platform.edit(XRD, xrd, {"spec": {"enforceCompositionUpdatePolicy": "Manual"}})
        await until_condition(context.client, xr, "CompositionUpdatePolicyEnforced")
        await platform.at_rest(xr)
