"""Of which inputs it is certain that a function does not look at what the control plane keeps in an XR."""

from __future__ import annotations

from typing import Any

import pytest

from planform.builtin import find_builtin
from planform.builtin.bookkeeping import sees_bookkeeping
from planform.builtin.compiled import CompiledFunction


def sees(name: str, value: Any) -> bool:
    function = find_builtin(name)
    assert isinstance(function, CompiledFunction)
    return function.sees_bookkeeping(value)


@pytest.mark.parametrize(
    "path", ["spec.size", "status.address", "metadata.name", "metadata.annotations[a/b]", "spec.list[0].name"]
)
def test_what_users_and_functions_write_is_no_bookkeeping(path: str) -> None:
    assert not sees_bookkeeping(path)


@pytest.mark.parametrize(
    "path",
    [
        "spec",
        "status",
        "metadata",
        "status.conditions[0].status",
        "status['conditions']",
        "status[*]",
        "spec.crossplane.compositionRef.name",
        "spec.resourceRefs",
        "metadata.generation",
        "metadata.labels[crossplane.io/composite]",
        "status.planform.generation",
        "not a ] path",
    ],
)
def test_what_the_control_plane_writes_is(path: str) -> None:
    assert sees_bookkeeping(path)


def test_patches_from_the_xr_decide_for_patch_and_transform() -> None:
    def resources(*patches: Any) -> Any:
        return {"resources": [{"name": "a", "patches": list(patches)}]}

    conditions = "status.conditions[0].status"
    assert not sees("patch-and-transform", resources({"fromFieldPath": "spec.size", "toFieldPath": "spec.size"}))
    assert sees("patch-and-transform", resources({"fromFieldPath": conditions, "toFieldPath": "spec.x"}))
    assert not sees("patch-and-transform", resources({"type": "ToCompositeFieldPath", "fromFieldPath": conditions}))
    combined = {"type": "CombineFromComposite", "combine": {"variables": [{"fromFieldPath": conditions}]}}
    assert sees("patch-and-transform", resources(combined))
    assert sees("patch-and-transform", {"patchSets": [{"name": "x", "patches": [combined]}]})
    assert sees("patch-and-transform", "nonsense")


def test_functions_that_run_code_of_users_may_look_at_anything() -> None:
    assert sees("cel-validation", {"rules": []})
    assert not sees("auto-ready", None)
