"""What `planform function init` writes: the smallest function worth keeping, with tests that pass."""

from __future__ import annotations

import re

from planform.cli.functions.scaffold_go import go_files
from planform.errors import UsageError

_FUNCTION = '''"""{title}: composes a ConfigMap that greets whoever the XR names."""

from planform_sdk import Ready, Request, Response, function, serve


@function(deterministic=True)
def {identifier}(req: Request, rsp: Response) -> None:
    """Everything a function does not mention is passed on: other steps' resources stay as they are."""
    who = req.xr.get("spec.name")
    if not who:
        rsp.fatal("spec.name is required")
        return
    rsp.desired.resources["greeting"] = {{
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {{"greeting": f"Hello, {{who}}"}},
    }}
    if "greeting" in req.observed.resources:
        rsp.desired.resources["greeting"].ready = Ready.TRUE


if __name__ == "__main__":
    serve({identifier})
'''

_TEST = '''"""Run with `python -m pytest`."""

from function import {identifier}
from planform_sdk import Severity
from planform_sdk.testing import assert_resource, assert_result, converge, run


def test_it_greets_whoever_the_xr_names() -> None:
    response = run({identifier}, xr={{"spec": {{"name": "Ada"}}}})
    assert_resource(response, "greeting", {{"data": {{"greeting": "Hello, Ada"}}}})


def test_a_missing_name_is_fatal() -> None:
    assert_result(run({identifier}, xr={{"spec": {{}}}}), Severity.FATAL, "spec.name is required")


def test_it_becomes_ready() -> None:
    assert converge({identifier}, xr={{"spec": {{"name": "Ada"}}}}).ready == {{"greeting"}}
'''

_XR = """apiVersion: example.org/v1
kind: Greeting
metadata:
  name: ada
  namespace: default
spec:
  name: Ada
"""

_COMPOSITION = """apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata:
  name: greeting
spec:
  compositeTypeRef:
    apiVersion: example.org/v1
    kind: Greeting
  mode: Pipeline
  pipeline:
  - step: greet
    functionRef:
      name: {name}
"""

PROJECT = """[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["planform-sdk"]

[project.optional-dependencies]
test = ["pytest"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""

_PACKAGE = """apiVersion: meta.pkg.crossplane.io/v1
kind: Function
metadata:
  name: {name}
spec:
  capabilities:
  - composition
  - deterministic
"""

_README = """# {name}

A composition function.

    python -m pytest
    planform render example/xr.yaml example/composition.yaml --function {name}=function.py
    planform function run function.py

`function.py` is the function, `tests/` its tests, `example/` something to render, `package/` its package definition.
"""


def scaffold(name: str, language: str = "python") -> dict[str, str]:
    """The files of a new function by path; raises UsageError for a name that no package could have."""
    check_function_name(name)
    identifier = re.sub(r"\W", "_", name.removeprefix("function-"))
    if identifier[0].isdigit():
        identifier = f"function_{identifier}"
    words = {"name": name, "identifier": identifier, "title": name}
    if language == "go":
        return {
            **go_files(name),
            "example/xr.yaml": _XR,
            "example/composition.yaml": _COMPOSITION.format(**words),
            "package/crossplane.yaml": _PACKAGE.format(**words),
        }
    return {
        "function.py": _FUNCTION.format(**words),
        "tests/test_function.py": _TEST.format(**words),
        "example/xr.yaml": _XR,
        "example/composition.yaml": _COMPOSITION.format(**words),
        "package/crossplane.yaml": _PACKAGE.format(**words),
        "pyproject.toml": PROJECT.format(**words),
        "README.md": _README.format(**words),
        ".gitignore": "__pycache__/\n*.xpkg\n",
    }


def check_function_name(name: str) -> None:
    """Raise UsageError for a name that no package could have."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise UsageError(
            f'"{name}" cannot be the name of a function',
            hint="use lower-case letters, digits and hyphens, such as function-greet",
        )
