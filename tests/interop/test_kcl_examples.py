"""The published examples of function-kcl run on the built-in as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from planform.builtin.kcl import ModularRequest, function
from planform.functions.values import FunctionRequest, FunctionResponse, Resource, State
from tests.harness.go_modules import go_module

pytest.importorskip("kcl_lib", reason="the extra `kcl` is not installed")

EXAMPLES = (
    "default/connection_details",
    "default/debug_print",
    "default/dependencies",
    "default/external_deps",
    "default/extra_resources",
    "default/function_ctx",
    "default/read_ocds_resource",
    "default/resources",
    "default/resources_without_xr",
    "patch_desired/patching",
    "patch_desired/patching_multiple",
    "patch_resources/patching",
    "patch_resources/patching_multiple",
    "resources/basic",
    "resources/condition",
    "resources/custom_composition_resource_name",
    "resources/custom_external_name",
    "resources/database",
    "resources/format",
    "resources/loop",
    "resources/network",
    "resources/options",
    "resources/options_oxr",
    "resources/pass_data",
    "resources/regex",
    "xr/patching",
)
FETCHING = frozenset({"default/dependencies", "default/external_deps"})
"""Those that fetch KCL packages while they run, which the built-in refuses."""
NEEDING_STATE = frozenset({"default/extra_resources", "default/read_ocds_resource"})
"""Those that read what only a live XR has; they are asked with it below."""


@pytest.fixture(scope="module")
def module() -> Path:
    return go_module(
        "github.com/crossplane-contrib/function-kcl", "0.10.10", "h1:PtheER73O5QFcnSJ9DKePpTjSQ2O7wOnkD0W79SCLGw="
    )


def run_example(directory: Path) -> list[FunctionResponse]:
    composition = yaml.safe_load((directory / "composition.yaml").read_text())
    xr = next(iter(yaml.safe_load_all((directory / "xr.yaml").read_text())))
    responses: list[FunctionResponse] = []
    desired = State()
    for step in composition["spec"]["pipeline"]:
        given: dict[str, Any] = step.get("input") or {}
        if not str(given.get("apiVersion", "")).startswith("krm.kcl.dev"):
            continue
        request = FunctionRequest(observed=State(Resource(xr)), desired=desired, input=given)
        responses.append(function.call(ModularRequest(request)))
        desired = responses[-1].desired
    assert responses
    return responses


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_published_example_runs(module: Path, example: str) -> None:
    responses = run_example(module / "examples" / example)
    fatal = next((response.fatal.message for response in responses if response.fatal), "")
    if example in FETCHING:
        assert "spec.dependencies" in fatal
    elif example not in NEEDING_STATE:
        assert fatal == ""
        assert responses[-1].desired.resources or responses[-1].desired.composite.resource


def test_no_published_example_is_left_out(module: Path) -> None:
    found = {str(path.parent.relative_to(module / "examples")) for path in module.glob("examples/**/composition.yaml")}
    assert found == set(EXAMPLES)


def test_the_example_of_resources_composes_users_keys_and_status(module: Path) -> None:
    [response] = run_example(module / "examples" / "default" / "resources")
    kinds = sorted(one.resource["kind"] for one in response.desired.resources.values())
    assert kinds == sorted(["AccessKey", "User"] * (len(kinds) // 2))
    assert response.desired.composite.resource["status"] == {"dummy": "cool-status"}


def test_the_example_of_patches_changes_what_an_earlier_step_desires(module: Path) -> None:
    responses = run_example(module / "examples" / "patch_desired" / "patching_multiple")
    networks = {
        name: one.resource["spec"]["forProvider"]["network"] for name, one in responses[-1].desired.resources.items()
    }
    assert networks == {"bucket1": "some-override-network1", "bucket2": "some-override-network2"}
