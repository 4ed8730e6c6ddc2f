"""A function that `planform function init --language go` wrote builds on upstream's SDK, passes its tests, renders."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.control_plane import planform

_SECONDS = 900

pytestmark = [pytest.mark.programs, pytest.mark.timeout(_SECONDS + 60)]


def test_a_function_in_go_builds_passes_its_tests_and_renders(tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no Go on this machine")
    author = planform(tmp_path)
    author("function", "init", "function-greet", "--language", "go")
    project = tmp_path / "function-greet"
    for words in (["mod", "tidy"], ["test", "./..."], ["build", "-o", "function", "."]):
        done = subprocess.run([go, *words], cwd=project, capture_output=True, text=True, timeout=_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
    rendered = author(
        "render",
        str(project / "example" / "xr.yaml"),
        str(project / "example" / "composition.yaml"),
        "--function",
        f"function-greet={project / 'function'}",
    )
    _, greeting = list(yaml.safe_load_all(rendered.out))[-2:]
    assert greeting["data"] == {"greeting": "Hello, Ada"}
