"""What people who write controllers import: names that stay, and nothing that comes along by accident."""

from __future__ import annotations

from types import ModuleType

import pytest

import planform.client
import planform.controller

CONTROLLER = {
    "AlreadyExists",
    "Conflict",
    "ControllerManager",
    "Forbidden",
    "GroupVersionKind",
    "NotFound",
    "Object",
    "ObjectKey",
    "PlanformError",
    "Result",
    "Source",
    "gvk",
    "open_manager",
    "to_owner",
    "to_self",
}
CLIENT = {"Client", "ObjectList", "Patch", "PatchType", "Propagation", "Watch", "WatchEvent"}


@pytest.mark.parametrize(
    ("door", "names"), [(planform.controller, CONTROLLER), (planform.client, CLIENT)], ids=["controller", "client"]
)
def test_the_names_that_programs_import_are_there_and_stay(door: ModuleType, names: set[str]) -> None:
    assert set(door.__all__) == names
    assert list(door.__all__) == sorted(door.__all__)
    assert all(hasattr(door, name) for name in names)
