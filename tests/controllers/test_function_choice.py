"""Which function revision a step runs: pinned when its composition revision is made, seen by users, spared if used."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from planform.api.kinds import Object
from planform.api.names import COMPOSITION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.features import FeatureGates
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform
from tests.harness.contexts import all_controllers, condition_of, eventually, until_condition

pytestmark = pytest.mark.timeout(180)

BUILT_IN = "registry.example.org/crossplane-contrib/function-go-templating"
"""A package that ships with planform, so that any version of it is installed at once."""


@pytest.fixture
async def platform(context: ControllerContext, unique: str) -> AsyncIterator[Platform]:
    async with all_controllers(context) as controllers:
        platform = Platform(context.client, unique, controllers=controllers)
        await platform.define()
        yield platform


async def install(platform: Platform, version: str, **spec: object) -> str:
    function = {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": "Function",
        "metadata": {"name": "templates", "labels": {"version": version}},
        "spec": {"package": f"{BUILT_IN}:{version}", "revisionHistoryLimit": 4, "activeRevisionLimit": 3, **spec},
    }
    applied = await platform.client.apply(function, manager="user", force=True)
    generation = applied["metadata"]["generation"]
    found = await until_condition(platform.client, applied, "Healthy", observedGeneration=generation)
    return str(found["status"]["currentRevision"])


def step(name: str = "render", text: str = "a") -> Object:
    template = f"""
apiVersion: v1
kind: ConfigMap
metadata:
  annotations:
    gotemplating.fn.crossplane.io/composition-resource-name: {name}
    gotemplating.fn.crossplane.io/ready: "True"
data:
  text: {text}
"""
    given = {
        "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
        "kind": "GoTemplate",
        "source": "Inline",
        "inline": {"template": template},
    }
    return {"step": name, "functionRef": {"name": "templates"}, "input": given}


async def newest_pins(platform: Platform, count: int) -> list[str]:
    """The function revisions that the newest of so many composition revisions names."""

    async def there() -> list[Object] | None:
        found = await platform.revisions()
        return found if len(found) == count else None

    found = await eventually(there, f"{count} composition revisions")
    return [(each.get("functionRevisionRef") or {}).get("name", "") for each in found[-1]["spec"]["pipeline"]]


async def test_a_composition_that_pins_keeps_to_the_revisions_that_were_there(platform: Platform) -> None:
    first = await install(platform, "v0.9.0")
    by_label = {"functionRevisionSelector": {"matchLabels": {"version": "v0.9.0"}}}
    ready = {"step": "ready", "functionRef": {"name": "function-auto-ready"}}
    composition = platform.composition(step(), {**step("chosen"), **by_label}, ready, pinFunctions=True)
    await platform.client.apply(composition, manager="author", force=True)
    assert await newest_pins(platform, 1) == [first, first, ""], "a built-in that nobody installed has no revision"
    [made] = await platform.revisions()
    assert "functionRevisionSelector" not in made["spec"]["pipeline"][1]
    xr = await platform.ready(await platform.create("one"))
    assert condition_of(xr, "Synced") is not None

    second = await install(platform, "v0.10.0")
    await platform.at_rest(xr)
    assert len(await platform.revisions()) == 1, "the Composition is the same"
    changed = platform.composition(step(text="b"), pinFunctions=True)
    await platform.client.apply(changed, manager="author", force=True)
    assert await newest_pins(platform, 2) == [second]


async def test_a_composition_that_pins_waits_for_a_function_that_is_missing(platform: Platform) -> None:
    await platform.client.apply(platform.composition(step(), pinFunctions=True), manager="author", force=True)
    name = f"{platform.unique}-apps"
    about = {"apiVersion": COMPOSITION.api_version, "kind": COMPOSITION.kind, "metadata": {"name": name}}
    told = await until_condition(platform.client, about, "Synced", "False")
    message = (condition_of(told, "Synced") or {})["message"]
    assert 'cannot pin the function of step "render"' in message
    assert await platform.revisions() == []
    first = await install(platform, "v0.9.0")
    assert await newest_pins(platform, 1) == [first]
    await until_condition(platform.client, about, "Synced", "True")


async def test_with_the_gate_off_nothing_is_pinned_and_the_composition_revision_says_so(
    context: ControllerContext, unique: str
) -> None:
    features = FeatureGates({"FunctionRevisionSelectors": False})
    async with all_controllers(context, features=features) as controllers:
        platform = Platform(context.client, unique, controllers=controllers)
        await platform.define()
        await install(platform, "v0.9.0")
        await platform.client.apply(platform.composition(step(), pinFunctions=True), manager="author", force=True)
        assert await newest_pins(platform, 1) == [""]
        [made] = await platform.revisions()
        told = await until_condition(platform.client, made, "ValidPipeline", "True")
        assert "FunctionRevisionSelectors is off" in (condition_of(told, "ValidPipeline") or {})["message"]
        await platform.until_event(made, "ValidPipeline", "FunctionRevisionSelectors is off")
        xr = await platform.ready(await platform.create("one"))
        assert condition_of(xr, "Synced") is not None


async def test_a_revision_says_whether_it_is_in_use_and_is_kept_as_long_as_it_is(platform: Platform) -> None:
    first = await install(platform, "v0.9.0", revisionHistoryLimit=1, activeRevisionLimit=1)
    await platform.client.apply(platform.composition(step(), pinFunctions=True), manager="author", force=True)
    xr = await platform.ready(await platform.create("one"))
    about = {"apiVersion": "pkg.crossplane.io/v1", "kind": "FunctionRevision", "metadata": {"name": first}}
    used = await until_condition(platform.client, about, "InUse", "True", reason="ChosenByPipelines")
    assert used["status"]["users"] == 1
    assert platform.controllers is not None
    shown = platform.controllers.context.metrics.render(openmetrics=False)
    assert f'planform_function_revision_users{{function="templates",revision="{first}"}} 1' in shown
    assert f'function_run_builtin_total{{function_name="go-templating",function_revision="{first}"}}' in shown
    for version in ("v0.10.0", "v0.11.0"):
        await install(platform, version, revisionHistoryLimit=1, activeRevisionLimit=1)
    last = await install(platform, "v0.11.1", revisionHistoryLimit=1, activeRevisionLimit=1)

    async def names() -> set[str]:
        listed = await platform.client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}=templates")
        return {each["metadata"]["name"] for each in listed.items}

    async def collected() -> bool:
        return await names() == {first, last}

    await eventually(collected, "of the unused revisions only the current one is left")
    kept = await until_condition(platform.client, about, "InUse", "True")
    assert kept["spec"]["desiredState"] == "Active", "what is pinned is neither deleted nor deactivated"
    await platform.client.delete(platform.kind, xr["metadata"]["name"], namespace=platform.namespace)
    await platform.gone(xr)
    await until_condition(platform.client, about, "InUse", "False", reason="NotChosen")


async def test_an_xr_is_told_when_another_revision_begins_to_run_a_step(platform: Platform) -> None:
    first = await install(platform, "v0.9.0")
    await platform.compose(step())
    xr = await platform.ready(await platform.create("one"))
    await platform.at_rest(xr)
    assert [each for each in await platform.events(xr) if each["reason"] == "FunctionRevisionChanged"] == []
    second = await install(platform, "v0.10.0")
    await platform.merge(xr, {"spec": {"size": 2}})
    told = await platform.until_event(xr, "FunctionRevisionChanged")
    assert told["message"] == (
        f'Pipeline step "render" runs revision "{second}" of function "templates" now, no longer "{first}"'
    )
