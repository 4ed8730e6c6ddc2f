"""The first hour of a function author: scaffold, test, render, serve, edit, ask again. Real processes throughout."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE_SECONDS = 60
REQUEST = {"observed": {"composite": {"resource": {"spec": {"name": "Ada"}}}}}


def planform(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planform", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("author")
    done = planform("function", "init", "function-greet", cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory / "function-greet"


def test_the_scaffolds_own_tests_pass(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_a_python_file_is_rendered_without_a_container(project: Path) -> None:
    words = ("example/xr.yaml", "example/composition.yaml", "--function", "function-greet=function.py")
    done = planform("render", *words, "-o", "json", cwd=project)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["items"][1]["data"] == {"greeting": "Hello, Ada"}


def test_a_function_that_cannot_start_is_named_with_what_it_said(project: Path) -> None:
    (project / "broken.py").write_text("raise RuntimeError('no such luck')\n")
    words = ("example/xr.yaml", "example/composition.yaml", "--function", "function-greet=broken.py")
    done = planform("render", *words, cwd=project)
    (project / "broken.py").unlink()
    assert done.returncode == 1
    assert "function-greet" in done.stderr
    assert "no such luck" in done.stderr


@pytest.fixture
def serving(project: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "planform", "function", "run", "function.py", "--address", address]
    process = subprocess.Popen(command, cwd=project, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
    with socket.socket() as probe:
        host, _, port = address.partition(":")
        assert probe.connect_ex((host, int(port))) != 0, "the function has ended with the command that started it"


def test_a_served_function_starts_anew_when_its_file_changes(project: Path, serving: str) -> None:
    (project / "request.json").write_text(json.dumps(REQUEST))
    assert _greeting(project, serving, "Hello, Ada") == "Hello, Ada"
    source = (project / "function.py").read_text()
    (project / "function.py").write_text(source.replace("Hello, {who}", "Goodbye, {who}"))
    try:
        assert _greeting(project, serving, "Goodbye, Ada") == "Goodbye, Ada"
    finally:
        (project / "function.py").write_text(source)


def _greeting(project: Path, address: str, wanted: str) -> str:
    """What the function says, asked until it says what is wanted or patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    said = ""
    while said != wanted and time.monotonic() < deadline:
        done = planform("function", "test", address, "request.json", "--timeout", "5", cwd=project)
        if done.returncode == 0:
            said = json.loads(done.stdout)["desired"]["resources"]["greeting"]["resource"]["data"]["greeting"]
    return said
