"""Which Composition live XRs use, and when they use another, on both engines."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import COMPOSITION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.client.protocol import Patch, PatchType
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform, a_platform, config_map, templates

pytestmark = pytest.mark.timeout(120)


def version(value: str) -> Object:
    """A step that makes one ConfigMap which says which revision made it."""
    return templates(config_map("it", version=value))


def composition_fields(xr: Object) -> Any:
    return xr["spec"].get("crossplane") or {}


def composition_of(xr: Object) -> str | None:
    return (composition_fields(xr).get("compositionRef") or {}).get("name")


def revision_of(xr: Object) -> str | None:
    return (composition_fields(xr).get("compositionRevisionRef") or {}).get("name")


def name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


async def on(platform: Platform, xr: Object, revision: Object) -> Object:
    """Wait until the XR uses that revision and is ready; gives it once nothing happens any more."""
    await platform.until(xr, lambda found: revision_of(found) == name(revision), f"{name(xr)} is on {name(revision)}")
    await platform.ready(xr)
    return (await platform.at_rest(xr))[0]


async def test_a_reference_beats_a_selector_and_the_default_is_for_those_with_neither(
    context: ControllerContext, unique: str
) -> None:
    default, blue = f"{unique}-default", f"{unique}-blue"
    async with a_platform(context, unique, xrd={"defaultCompositionRef": {"name": default}}) as platform:
        await platform.compose(version("default"), name=default)
        await platform.compose(version("blue"), name=blue, labels={"colour": "blue"})
        selector = {"matchLabels": {"colour": "blue"}}
        neither = await platform.create("neither")
        selecting = await platform.create("selecting", compositionSelector=selector)
        both = await platform.create("both", compositionSelector=selector, compositionRef={"name": default})
        for xr, wanted in ((neither, default), (selecting, blue), (both, default)):
            assert composition_of(await platform.ready(xr)) == wanted
        # A choice stays: neither another selector nor a better fitting composition selects again.
        await platform.merge(selecting, {"spec": {"crossplane": {"compositionSelector": {"matchLabels": {"a": "b"}}}}})
        assert composition_of((await platform.at_rest(selecting))[0]) == blue


async def test_the_enforced_composition_beats_everything_and_the_default_revision_selector_overwrites_nothing(
    context: ControllerContext, unique: str
) -> None:
    enforced, other = f"{unique}-enforced", f"{unique}-other"
    channel: Object = {"matchLabels": {"channel": "stable"}}
    xrd = {
        "enforcedCompositionRef": {"name": enforced},
        "defaultCompositionRef": {"name": other},
        "defaultCompositionRevisionSelector": channel,
    }
    async with a_platform(context, unique, xrd=xrd) as platform:
        await platform.compose(version("other"), name=other, labels={"channel": "stable"})
        stable = await platform.compose(version("1"), name=enforced, labels={"channel": "stable"})
        newest = await platform.compose(version("2"), name=enforced, labels={"channel": "fast"})
        own = {"matchLabels": {"channel": "fast"}}
        plain = await platform.create("plain", compositionRef={"name": other})
        choosy = await platform.create("choosy", compositionRevisionSelector=own)
        for xr, revision, selector in ((plain, stable, channel), (choosy, newest, own)):
            found = await on(platform, xr, revision)
            assert composition_of(found) == enforced
            assert composition_fields(found)["compositionRevisionSelector"] == selector
        before = (await platform.at_rest(plain))[0]
        await platform.merge(plain, {"spec": {"crossplane": {"compositionRef": {"name": other}}}})
        after = await platform.until(plain, lambda xr: composition_of(xr) == enforced, "enforced again")
        assert composition_fields(after) == composition_fields(before)
        rested = await platform.at_rest(plain)
        assert [await platform.get(plain)] == rested


async def test_expressions_of_the_default_revision_selector_choose_what_xrs_follow_and_what_is_kept(
    context: ControllerContext, unique: str
) -> None:
    not_fast: Object = {"matchExpressions": [{"key": "channel", "operator": "NotIn", "values": ["fast"]}]}
    async with a_platform(context, unique, xrd={"defaultCompositionRevisionSelector": not_fast}) as platform:
        stable = await platform.compose(version("1"), labels={"channel": "stable"})
        await platform.compose(version("2"), labels={"channel": "fast"}, revisionHistoryLimit=1)
        xr = await platform.create("plain")
        found = await on(platform, xr, stable)
        assert composition_fields(found)["compositionRevisionSelector"] == {"matchLabels": {}, **not_fast}
        beta = await platform.compose(version("3"), labels={"channel": "beta"}, revisionHistoryLimit=1)
        await on(platform, xr, beta)
        own: Object = {"matchExpressions": [{"key": "channel", "operator": "In", "values": ["stable"]}]}
        await platform.merge(xr, {"spec": {"crossplane": {"compositionRevisionSelector": {**own}}}})
        found = await on(platform, xr, stable)
        assert found["status"]["planform"]["revisionSelector"] == {"matchLabels": {}, **own}


async def test_an_xr_without_a_fitting_composition_says_what_is_near_and_is_composed_once_there_is_one(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        xr = await platform.create(compositionSelector={"matchLabels": {"colour": "blue"}})
        await platform.failed(xr, "no composition is for App")
        other_version = {"apiVersion": f"{platform.group}/v9", "kind": "App"}
        await platform.compose(
            version("9"), name=f"{unique}-nine", labels={"colour": "blue"}, compositeTypeRef=other_version
        )
        await platform.failed(xr, "is for version v9")
        await platform.compose(version("red"), name=f"{unique}-red", labels={"colour": "red"})
        await platform.failed(xr, "has colour=red")
        await platform.compose(version("blue"), name=f"{unique}-blue", labels={"colour": "blue"})
        assert composition_of(await platform.ready(xr)) == f"{unique}-blue"
        named = await platform.create("named", compositionRef={"name": f"{unique}-nine"})
        await platform.failed(named, f"is for App ({platform.group}/v9), and this XR is App ({platform.group}/v1)")
        missing = await platform.create("missing", compositionRef={"name": f"{unique}-missing"})
        await platform.failed(missing, "has no revisions")


async def test_a_revision_whose_function_cannot_compose_is_refused_with_that_message_until_it_can(
    context: ControllerContext, unique: str
) -> None:
    function = f"function-{unique}"
    async with a_platform(context, unique) as platform:
        made = await context.client.create(
            {
                "apiVersion": FUNCTION_REVISION.api_version,
                "kind": FUNCTION_REVISION.kind,
                "metadata": {"name": f"{function}-1", "labels": {PACKAGE_LABEL: function}},
                "spec": {"image": "example/function:v1.0.0", "revision": 1, "desiredState": "Active"},
            }
        )

        async def can(capability: str, endpoint: str | None) -> None:
            body = Patch(PatchType.MERGE, {"status": {"capabilities": [capability], "endpoint": endpoint}})
            await context.client.patch(FUNCTION_REVISION, name(made), body, subresource="status")

        await can("operation", "127.0.0.1:9")
        await platform.compose({"step": "it", "functionRef": {"name": function}})
        xr = await platform.create()
        await platform.failed(xr, f'without the capability "composition": "{name(made)}" of function "{function}"')
        assert not composition_fields(await platform.get(xr)).get("resourceRefs")
        await can("composition", None)
        await platform.failed(xr, "endpoint")  # it may be called now, but nobody said where
        await context.client.delete(FUNCTION_REVISION, name(made))


async def test_an_xr_may_change_its_composition_and_outlives_one_that_is_deleted(
    context: ControllerContext, unique: str
) -> None:
    one, two = f"{unique}-one", f"{unique}-two"
    async with a_platform(context, unique) as platform:
        first = await platform.compose(version("1"), name=one)
        second = await platform.compose(
            templates(config_map("it", version="2"), config_map("more", version="2")), name=two
        )
        automatic = await platform.create("automatic", compositionRef={"name": one})
        manual = await platform.create("manual", compositionRef={"name": one}, compositionUpdatePolicy="Manual")
        for xr in (automatic, manual):
            await on(platform, xr, first)
        before = (await platform.composed(automatic))["it"]
        for xr in (automatic, manual):
            await platform.merge(xr, {"spec": {"crossplane": {"compositionRef": {"name": two}}}})
        await on(platform, automatic, second)
        composed = await platform.composed(automatic)
        assert composed.keys() == {"it", "more"} and composed["it"]["metadata"]["uid"] == before["metadata"]["uid"]
        # A pinned revision is one of the composition before, and what to do about it is said.
        await platform.failed(manual, "set compositionRevisionRef to one of its revisions, or remove it")
        await platform.merge(manual, {"spec": {"crossplane": {"compositionRevisionRef": None}}})
        await on(platform, manual, second)
        await context.client.delete(COMPOSITION, two)
        await platform.failed(automatic, f'composition "{two}" has no revisions')
        assert (await platform.composed(automatic)).keys() == {"it", "more"}
        again = await platform.compose(version("3"), name=two)
        await on(platform, automatic, again)
        assert (await platform.composed(automatic))["it"]["data"] == {"version": "3"}
