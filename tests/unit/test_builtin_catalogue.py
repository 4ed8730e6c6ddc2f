"""Which names and package references mean a built-in function."""

from __future__ import annotations

import subprocess
import sys

import pytest

from planform.builtin import find_builtin, list_builtins
from planform.functions.inprocess import InProcessRunner
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("patch-and-transform", "patch-and-transform"),
        ("function-patch-and-transform", "patch-and-transform"),
        ("xpkg.crossplane.io/crossplane-contrib/function-patch-and-transform:v0.8.2", "patch-and-transform"),
        ("xpkg.upbound.io/crossplane-contrib/function-patch-and-transform", "patch-and-transform"),
        ("registry.example.org:5000/mirror/crossplane-contrib/function-auto-ready:v0.5.0", "auto-ready"),
        ("crossplane-contrib/function-sequencer@sha256:0a1b", "sequencer"),
        ("crossplane-contrib/function-environment-configs:v0.4.0@sha256:0a1b", "environment-configs"),
        ("function-extra-resources", "extra-resources"),
    ],
)
def test_names_and_packages_of_any_registry_and_tag_mean_their_builtin(reference: str, name: str) -> None:
    found = find_builtin(reference)
    assert found is not None
    assert found.name == name
    assert found.deterministic


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "function-of-mine",
        "registry.example.org/acme/function-patch-and-transform:v1.0.0",
        "acme/auto-ready",
        "xpkg.crossplane.io/crossplane-contrib/provider-nop",
        "xpkg.crossplane.io/crossplane-contrib/function-patch-and-transform-fork",
    ],
)
def test_other_functions_and_other_publishers_are_not_replaced(reference: str) -> None:
    assert find_builtin(reference) is None


def test_the_list_names_exactly_what_can_be_found() -> None:
    names = [entry.name for entry in list_builtins()]
    assert names == sorted(names)
    assert {"auto-ready", "environment-configs", "extra-resources", "patch-and-transform", "sequencer"} <= set(names)
    for entry in list_builtins():
        for spelling in (entry.name, *entry.aliases):
            found = find_builtin(spelling)
            assert found is not None and found.name == entry.name


def test_the_same_function_is_found_every_time() -> None:
    assert find_builtin("auto-ready") is find_builtin("xpkg.upbound.io/crossplane-contrib/function-auto-ready:v1")


def test_asking_what_there_is_imports_no_function() -> None:
    program = (
        "import sys; from planform.builtin import list_builtins; list(list_builtins());"
        "sys.exit(any(name.startswith('planform.builtin.') and '.catalogue' not in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_what_is_said_of_a_builtin_without_loading_it_is_true() -> None:
    for entry in list_builtins():
        function = find_builtin(entry.name)
        assert function is not None
        assert (entry.deterministic, entry.quick) == (function.deterministic, callable(function)), entry.name


@pytest.mark.parametrize("name", [entry.name for entry in list_builtins()])
async def test_every_builtin_answers_a_call_as_pipelines_make_it(name: str) -> None:
    found = find_builtin(name)
    assert found is not None
    revision = FunctionRevision(name, f"{name}-1", name, max_answer_size=1 << 20)
    response = await InProcessRunner([found]).run(revision, FunctionRequest(tag="t"), timeout=30.0)
    assert response.tag == "t"
