"""Resources mode as a pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from planform.pipeline.modes import InvalidComposition, mode_of, pipeline_of, to_pipeline_mode, unused_part

BUCKET = {"name": "bucket", "base": {"apiVersion": "s3.example.org/v1", "kind": "Bucket"}}
STEP = {"step": "one", "functionRef": {"name": "f"}}


def composition(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": "app"},
        "spec": {"compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "App"}, **spec},
    }


@pytest.mark.parametrize(
    ("spec", "mode"),
    [
        ({"pipeline": [STEP]}, "Pipeline"),
        ({"resources": [BUCKET]}, "Resources"),
        ({"mode": "Resources", "resources": [BUCKET]}, "Resources"),
        ({"mode": "Pipeline", "pipeline": [STEP], "resources": [BUCKET]}, "Pipeline"),
    ],
)
def test_an_absent_mode_follows_from_what_is_given(spec: dict[str, Any], mode: str) -> None:
    assert mode_of(spec) == mode


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, "spec.pipeline is empty"),
        ({"mode": "Resources", "pipeline": [STEP]}, "spec.resources is empty"),
        ({"mode": "Magic", "pipeline": [STEP]}, 'no mode "Magic"'),
    ],
)
def test_a_composition_that_cannot_run_is_explained(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidComposition, match=problem):
        mode_of(spec, "app")


def test_resources_become_one_patch_and_transform_step_and_every_resource_has_a_name() -> None:
    unnamed = {"base": {"apiVersion": "v1", "kind": "ConfigMap"}}
    [step] = pipeline_of({"resources": [BUCKET, unnamed], "patchSets": [{"name": "p", "patches": []}]})
    assert step["functionRef"] == {"name": "builtin/patch-and-transform"}, "which no Function can be called"
    assert [resource["name"] for resource in step["input"]["resources"]] == ["bucket", "resource-1"]
    assert step["input"]["patchSets"] == [{"name": "p", "patches": []}]


def test_converting_moves_environment_configs_into_a_step_of_their_own() -> None:
    config = {"type": "Reference", "ref": {"name": "dev"}}
    patches = [{"fromFieldPath": "spec.a", "toFieldPath": "b"}]
    environment = {"environmentConfigs": [config], "patches": patches}
    converted = to_pipeline_mode(composition(mode="Resources", resources=[BUCKET], environment=environment))
    first, second = converted["spec"]["pipeline"]
    assert first["input"]["spec"] == {"environmentConfigs": [config]}
    assert second["input"]["environment"] == {"patches": patches}
    assert converted["spec"]["mode"] == "Pipeline"
    assert "resources" not in converted["spec"]


def test_converting_a_pipeline_changes_nothing() -> None:
    already = composition(mode="Pipeline", pipeline=[STEP])
    assert to_pipeline_mode(already) == already
    once = to_pipeline_mode(composition(resources=[BUCKET]))
    assert to_pipeline_mode(once) == once


def test_a_composition_with_resources_and_a_pipeline_is_told_which_of_them_runs() -> None:
    both = {"resources": [{"name": "a"}], "pipeline": [{"step": "a"}]}
    assert unused_part(both).startswith("spec.resources is not used")
    assert unused_part({**both, "mode": "Resources"}).startswith("spec.pipeline is not used")
    assert unused_part({"pipeline": [{"step": "a"}]}) == ""
