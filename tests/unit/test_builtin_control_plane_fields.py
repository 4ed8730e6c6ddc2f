"""Of which inputs it is certain that a function does not look at what the control plane keeps in an XR."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from planform.api.xr import STATUS_FIELDS
from planform.builtin import find_builtin
from planform.builtin.compiled import CompiledFunction
from planform.builtin.control_plane_fields import reads_control_plane_fields
from planform.builtin.patch_and_transform import inputs
from planform.builtin.patch_and_transform.patches import ENVIRONMENT_ROUTES, TEMPLATE_ROUTES, Place
from planform.pipeline import xr_status


def sees(name: str, value: Any) -> bool:
    function = find_builtin(name)
    assert isinstance(function, CompiledFunction)
    return function.reads_control_plane_fields(value)


@pytest.mark.parametrize(
    "path", ["spec.size", "status.address", "metadata.name", "metadata.annotations[a/b]", "spec.list[0].name"]
)
def test_what_users_and_functions_write_is_no_bookkeeping(path: str) -> None:
    assert not reads_control_plane_fields(path)


@pytest.mark.parametrize(
    "path",
    [
        "spec",
        "status",
        "metadata",
        "status.conditions[0].status",
        "status['conditions']",
        "status[*]",
        "[*].conditions",
        "",
        "spec.crossplane.compositionRef.name",
        "spec.resourceRefs",
        "metadata.generation",
        "metadata.labels[crossplane.io/composite]",
        "status.planform.generation",
        "not a ] path",
    ],
)
def test_what_the_control_plane_writes_is(path: str) -> None:
    assert reads_control_plane_fields(path)


CONDITIONS = "status.conditions[0].status"


def resources(**members: Any) -> Any:
    return {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", **members}


def patched(*patches: Any) -> Any:
    return resources(resources=[{"name": "a", "patches": list(patches)}])


def patch(kind: str | None, path: str) -> Any:
    """A patch of any type that takes what is at this path."""
    typed = {} if kind is None else {"type": kind}
    if kind is not None and kind.startswith("Combine"):
        combine = {"strategy": "string", "string": {"fmt": "%s"}, "variables": [{"fromFieldPath": path}]}
        return {**typed, "combine": combine, "toFieldPath": "spec.x"}
    return {**typed, "fromFieldPath": path, "toFieldPath": "spec.x"}


@pytest.mark.parametrize("kind", [None, *TEMPLATE_ROUTES])
def test_patches_of_templates_that_read_the_xr_decide_for_patch_and_transform(kind: str | None) -> None:
    from_xr = kind is None or TEMPLATE_ROUTES[kind][0] is Place.COMPOSITE
    assert sees("patch-and-transform", patched(patch(kind, CONDITIONS))) is from_xr
    assert not sees("patch-and-transform", patched(patch(kind, "spec.size")))
    in_set = resources(patchSets=[{"name": "x", "patches": [patch(kind, CONDITIONS)]}])
    assert sees("patch-and-transform", in_set) is from_xr


@pytest.mark.parametrize("kind", list(ENVIRONMENT_ROUTES))
def test_patches_of_the_environment_that_read_the_xr_decide_as_well(kind: str) -> None:
    from_xr = ENVIRONMENT_ROUTES[kind][0] is Place.COMPOSITE
    assert sees("patch-and-transform", resources(environment={"patches": [patch(kind, CONDITIONS)]})) is from_xr
    assert not sees("patch-and-transform", resources(environment={"patches": [patch(kind, "spec.size")]}))


def test_what_is_not_known_is_taken_to_look() -> None:
    assert sees("patch-and-transform", "nonsense")
    assert sees("patch-and-transform", patched(patch("FromTheFuture", "spec.size")))
    assert sees("patch-and-transform", resources(environment={"patches": [patch("CombineFromEnvironment", "spec.x")]}))
    assert sees("patch-and-transform", resources(future=1))


def test_everything_else_of_an_input_that_reads_the_xr_decides_too() -> None:
    label = {"key": "a", "type": "FromCompositeFieldPath", "valueFromFieldPath": "metadata.labels[zone]"}
    config = {"type": "Selector", "selector": {"matchLabels": [label]}}
    assert sees("patch-and-transform", resources(environment={"environmentConfigs": [config]}))
    fixed = {"type": "Selector", "selector": {"matchLabels": [{"key": "a", "type": "Value", "value": "b"}]}}
    assert not sees("patch-and-transform", resources(environment={"environmentConfigs": [fixed]}))
    secret = {"name": "s", "patches": [patch("FromCompositeFieldPath", CONDITIONS)]}
    assert sees("patch-and-transform", resources(writeConnectionSecretToRef=secret))
    # Whether the XR gets a Secret of its own depends on spec.crossplane, which the control plane writes.
    details = [{"name": "a", "type": "FromValue", "value": "b"}]
    assert sees("patch-and-transform", resources(resources=[{"name": "a", "connectionDetails": details}]))


def test_a_new_member_of_the_input_must_be_looked_at_here() -> None:
    """Whoever adds a member decides whether it reads the XR, says so in `fields_read`, and lists it here."""
    assert {each: set(each.__struct_fields__) - {"api_version", "kind", "metadata"} for each in MEMBERS} == MEMBERS


MEMBERS: dict[type[msgspec.Struct], set[str]] = {
    inputs.Resources: {"patch_sets", "environment", "resources", "write_connection_secret_to_ref"},
    inputs.Template: {"name", "base", "patches", "connection_details", "readiness_checks"},
    inputs.Environment: {"patches", "environment_configs", "default_data", "policy"},
    inputs.ConnectionSecret: {"name", "namespace", "patches"},
    inputs.Patch: {"type", "from_field_path", "to_field_path", "combine", "patch_set_name", "transforms", "policy"},
}


def test_the_fields_of_the_status_that_the_control_plane_keeps_are_all_known() -> None:
    kept = dict.fromkeys(("conditions", *STATUS_FIELDS), 1)
    assert not xr_status.functions_part(kept)
    assert all(reads_control_plane_fields(f"status.{name}") for name in kept)


def test_functions_that_run_code_of_users_may_look_at_anything() -> None:
    assert sees("cel-validation", {"rules": []})
    assert not sees("auto-ready", None)
