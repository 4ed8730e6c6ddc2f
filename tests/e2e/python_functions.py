"""Real function packages: Python projects that `planform function build` makes a package of, and pushes.

The only thing that an author has and tests do not is an index with our SDK: a wheel made of the source here stands for
it, and what the SDK itself needs this interpreter has.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tests.e2e.control_plane import planform

_SDK = Path(__file__).parents[2] / "sdk" / "src"
_SOURCE = '''"""Composes a ConfigMap that says which version of the function made it."""

from typing import Any

from planform_sdk import Ready, Request, Response, function


@function
def compose(req: Request[Any], rsp: Response) -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"version": "VERSION"}}
    rsp.desired.resources["made"] = {**made, "metadata": {"namespace": "default"}}
    rsp.desired.resources["made"].ready = Ready.TRUE
'''
_PROJECT = """[project]
name = "function-in-python"
version = "0.1.0"
dependencies = ["planform-sdk"]
"""


def sdk_wheel(directory: Path) -> None:
    """A wheel of our SDK without its dependencies, which this interpreter has."""
    directory.mkdir(parents=True, exist_ok=True)
    info = "planform_sdk-0.1.0.dist-info"
    with zipfile.ZipFile(directory / "planform_sdk-0.1.0-py3-none-any.whl", "w") as archive:
        for path in sorted((_SDK / "planform_sdk").rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(_SDK))
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: planform-sdk\nVersion: 0.1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def build_and_push(directory: Path, reference: str) -> str:
    """Build a function that says its version, the tag, and push it under that name; gives its digest."""
    name, _, version = reference.rpartition("/")[2].partition(":")
    project = directory / version
    (project / "package").mkdir(parents=True)
    meta = {"apiVersion": "meta.pkg.crossplane.io/v1", "kind": "Function", "metadata": {"name": name}}
    meta["spec"] = {"capabilities": ["composition"]}
    (project / "package" / "crossplane.yaml").write_text(json.dumps(meta))
    (project / "function.py").write_text(_SOURCE.replace("VERSION", version))
    (project / "pyproject.toml").write_text(_PROJECT)
    wheels = directory / "wheels"
    if not wheels.exists():
        sdk_wheel(wheels)
    author = planform(directory)
    built = str(directory / f"{version}.xpkg")
    author("function", "build", str(project), "--find-links", str(wheels), "--no-index", "--package-file", built)
    pushed = author("function", "push", reference, "-f", built, "-o", "json").json()
    return str(pushed["digest"])
