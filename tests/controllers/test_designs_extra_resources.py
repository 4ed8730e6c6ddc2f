"""What the design "Composition Functions - Extra Resources" prints runs as printed, on both engines."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from planform.api.kinds import Object
from planform.api.names import ENVIRONMENT_CONFIG
from planform.reconcile.context import ControllerContext
from tests.controllers.stage import Stage, an_xr, open_stage, printed

pytestmark = pytest.mark.timeout(120)

NOP = ("nop.crossplane.io/v1alpha1", "NopResource")


@pytest.fixture
async def stage(context: ControllerContext) -> AsyncIterator[Stage]:
    async with open_stage(context) as stage:
        yield stage


@pytest.fixture
async def environments(stage: Stage) -> Stage:
    """What the extra resources design takes for granted: the API and three EnvironmentConfigs."""
    await stage.define("example.org/v1alpha1", "XSQLInstance", scope="Namespaced")
    # The two that are selected come in the order of their priority, which is not that of their names.
    for name, priority, labels in (
        ("example-environment-1", 9, {}),
        ("example-environment-2", 2, {"stage": "prod"}),
        ("example-environment-3", 1, {"stage": "prod"}),
    ):
        await stage.apply(
            {
                "apiVersion": "apiextensions.crossplane.io/v1alpha1",
                "kind": "EnvironmentConfig",
                "metadata": {"name": name, "labels": labels},
                "data": {"priority": priority, "complex": {"c": {"f": f"from {name}"}}},
            }
        )
    return stage


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param("extra-resources-environment", id="resources_mode_environment"),
        pytest.param("extra-resources-pipeline", id="environment_configs_as_a_step"),
        pytest.param("extra-resources-one-step", id="environment_of_patch_and_transform"),
    ],
)
async def test_extra_resources_design_environment_configs_reach_the_composed_resource(
    environments: Stage, manifest: str
) -> None:
    await environments.apply(printed(manifest))
    instance = await environments.apply(
        an_xr("example.org/v1alpha1", "XSQLInstance", {}, namespace="default", labels={"stage": "prod"})
    )
    [nop] = (await environments.composed(instance, *NOP)).values()
    assert nop["metadata"]["annotations"]["valueFromEnv"] == "from example-environment-2"
    await environments.ready(instance)
    config = {"apiVersion": ENVIRONMENT_CONFIG.api_version, "kind": "EnvironmentConfig"}
    await environments.merge(
        {**config, "metadata": {"name": "example-environment-2"}}, {"data": {"complex": {"c": {"f": "changed"}}}}
    )
    await environments.until(
        nop, lambda each: each["metadata"]["annotations"]["valueFromEnv"] == "changed", "heard of the change"
    )


def asking_for(entry: Object) -> Object:
    """The design's Composition with allowed resources, for a type of XR and with a list of what is asked for."""
    composition = printed("extra-resources-allowed")
    composition["spec"]["compositeTypeRef"] = {"apiVersion": "example.org/v1alpha1", "kind": "XSQLInstance"}
    [step] = composition["spec"]["pipeline"]
    step["input"] = {
        "apiVersion": "extra-resources.fn.crossplane.io/v1beta1",
        "kind": "Input",
        "spec": {"extraResources": [{"into": "found", **entry}]},
    }
    tell = {
        "step": "tell",
        "functionRef": {"name": "function-go-templating"},
        "input": {
            "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
            "kind": "GoTemplate",
            "source": "Inline",
            "inline": {"template": TELL},
        },
    }
    composition["spec"]["pipeline"].append(tell)
    return composition


TELL = """
{{- $found := index .context "apiextensions.crossplane.io/extra-resources" "found" }}
apiVersion: v1
kind: ConfigMap
metadata:
  annotations:
    {{ setResourceNameAnnotation "told" }}
data:
  names: {{ range $found }}{{ .metadata.name }} {{ end }}
"""
SOMETHING = {"apiVersion": "example.test.com/v1", "kind": "Something"}
SOMETHING_ELSE = {"apiVersion": "example.test.com/v1", "kind": "SomethingElse"}
OLD_ENVIRONMENT = {"apiVersion": "apiextensions.crossplane.io/v1alpha1", "kind": "EnvironmentConfig"}


def labelled(key: str, value: str) -> Object:
    return {"type": "Selector", "selector": {"matchLabels": [{"type": "Value", "key": key, "value": value}]}}


@pytest.fixture
async def somethings(environments: Stage) -> Stage:
    for kind in (SOMETHING, SOMETHING_ELSE):
        await environments.serve(kind["apiVersion"], kind["kind"])
    await environments.apply({**SOMETHING, "metadata": {"name": "any", "labels": {"a": "b"}}})
    await environments.apply({**SOMETHING_ELSE, "metadata": {"name": "something-else-1"}})
    await environments.apply({**OLD_ENVIRONMENT, "metadata": {"name": "qa", "labels": {"environment": "qa"}}})
    return environments


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        pytest.param({**SOMETHING, "type": "Reference", "ref": {"name": "any"}}, "any", id="a kind, by name"),
        pytest.param({**SOMETHING, **labelled("a", "b")}, "any", id="a kind, by label"),
        pytest.param(
            {**SOMETHING_ELSE, "ref": {"name": "something-else-1"}}, "something-else-1", id="a name that matches"
        ),
        pytest.param({**OLD_ENVIRONMENT, **labelled("environment", "qa")}, "qa", id="a label that matches"),
    ],
)
async def test_extra_resources_design_policy_lets_a_step_read_what_it_allows(
    somethings: Stage, asked: Object, found: str
) -> None:
    await somethings.apply(asking_for(asked))
    instance = await somethings.apply(an_xr("example.org/v1alpha1", "XSQLInstance", {}, namespace="default"))
    [told] = (await somethings.composed(instance, "v1", "ConfigMap")).values()
    assert told["data"]["names"].split() == [found]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({**SOMETHING_ELSE, "ref": {"name": "other"}}, id="another name"),
        pytest.param({**SOMETHING_ELSE, **labelled("a", "b")}, id="labels where names are allowed"),
        pytest.param({**OLD_ENVIRONMENT, **labelled("environment", "dev2")}, id="another label"),
        pytest.param({**OLD_ENVIRONMENT, "ref": {"name": "qa"}}, id="a name where labels are allowed"),
        pytest.param({"apiVersion": "v1", "kind": "Secret", "ref": {"name": "x"}}, id="another kind"),
    ],
)
async def test_extra_resources_design_policy_denies_everything_else(somethings: Stage, asked: Object) -> None:
    await somethings.apply(asking_for(asked))
    instance = await somethings.apply(an_xr("example.org/v1alpha1", "XSQLInstance", {}, namespace="default"))
    problem = await somethings.failure(instance)
    assert problem["step"] == "get-extra-resources"
    assert "is denied: the step's allowedExtraResources allows Something (example.test.com/v1)" in problem["message"]
