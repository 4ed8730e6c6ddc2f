"""`planform xpkg install` makes the object that installs a package, and waits for it."""

from __future__ import annotations

import pytest

from tests.e2e.control_plane import Program

pytestmark = pytest.mark.xdist_group("e2e-cli")

BUILT_IN = "registry.example.org/crossplane-contrib/function-auto-ready:v0.7.0"


def test_function_is_installed_under_a_name_of_its_own(planform: Program) -> None:
    done = planform("xpkg", "install", "function", BUILT_IN, "--wait", "20s")
    assert done.out == "function.pkg.crossplane.io/crossplane-contrib-function-auto-ready\n"
    installed = planform("get", "function/crossplane-contrib-function-auto-ready", "-o", "json").json()
    assert installed["spec"]["package"] == BUILT_IN
    assert installed["spec"]["revisionHistoryLimit"] == 1, "what was not said is left to the default"
    again = planform("xpkg", "install", "function", BUILT_IN, code=1)
    assert "already exists" in again.err
    planform("delete", "function/crossplane-contrib-function-auto-ready")


def test_package_that_cannot_be_had_is_waited_for_only_so_long(planform: Program) -> None:
    done = planform("xpkg", "install", "function", "127.0.0.1:1/no/such:v1", "lost", "-m", "--wait", "1s", code=3)
    assert "did not reach condition=Healthy within 1 s" in done.err
    assert planform("get", "function/lost", "-o", "json").json()["spec"]["revisionActivationPolicy"] == "Manual"
    planform("delete", "function/lost")


def test_object_is_printed_for_programs(planform: Program) -> None:
    made = planform("xpkg", "install", "function", BUILT_IN, "printed", "-r", "3", "-o", "json").json()
    assert (made["metadata"]["name"], made["spec"]["revisionHistoryLimit"]) == ("printed", 3)
    planform("delete", "function/printed")
