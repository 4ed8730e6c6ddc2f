"""Which Python `make install` takes, among some that tell how fast they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "fastest_python.py"


def choose(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOOL], env={**os.environ, "PATH": str(path)}, capture_output=True, text=True, timeout=60
    )


def python(path: Path, name: str, seconds: float | None) -> str:
    """A program that answers the probe with this time, or that is too old to."""
    program = path / name
    answer = "exit 1" if seconds is None else f'echo "{seconds} 3.12.1 $0"'
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("usual", "other", "takes_other"),
    [
        pytest.param(0.10, 0.05, True, id="twice as fast is worth another Python"),
        pytest.param(0.10, 0.09, False, id="a little faster is not"),
        pytest.param(0.05, 0.10, False, id="slower is not"),
        pytest.param(None, 0.10, True, id="too old is none at all"),
        pytest.param(0.10, None, False, id="another that is too old does not count"),
    ],
)
def test_the_usual_python_is_taken_unless_another_is_much_faster(
    tmp_path: Path, usual: float | None, other: float | None, takes_other: bool
) -> None:
    paths = python(tmp_path, "python3", usual), python(tmp_path, "python3.13", other)
    chosen = choose(tmp_path)
    assert chosen.returncode == 0, chosen.stderr
    assert chosen.stdout.strip() == paths[takes_other]
    assert ("times as fast" in chosen.stderr) == (takes_other and usual is not None)


def test_without_a_python_that_will_do_it_says_what_is_missing(tmp_path: Path) -> None:
    python(tmp_path, "python3", None)
    chosen = choose(tmp_path)
    assert chosen.returncode == 1
    assert "needs Python 3.11 or newer" in chosen.stderr
    assert "hint:" in chosen.stderr


def test_the_probe_runs_on_this_python(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    assert choose(tmp_path).stdout.strip() == str(Path(sys.executable).resolve())
