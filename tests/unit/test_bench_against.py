"""`python -m bench NAME --against COMMIT` tells how much more CPU the same benchmark takes than at another commit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SPIN = """
def main(arguments):
    from planform import WHICH
    sum(range(int(arguments[0]) * FACTOR))
    with open("ran", "a") as file:
        file.write(WHICH)
    print(WHICH)
    return 0
"""


def git(repository: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(repository), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write(repository: Path, which: str, factor: int) -> None:
    (repository / "src" / "planform" / "__init__.py").write_text(f'WHICH = "{which}"\n')
    (repository / "bench" / "spin.py").write_text(SPIN.replace("FACTOR", str(factor)))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A tree with our way to run benchmarks, one benchmark, and a commit in which that takes a twentieth."""
    made = tmp_path / "repository"
    (made / "src" / "planform").mkdir(parents=True)
    (made / "sdk" / "src").mkdir(parents=True)
    (made / "bench").mkdir()
    for name in ("__init__.py", "__main__.py", "against.py", "report.py", "report_page.py", "suite.py"):
        shutil.copyfile(BENCH / name, made / "bench" / name)
    write(made, "before", 1)
    git(made, "init", "--quiet")
    git(made, "add", "-A")
    git(made, "commit", "--quiet", "-m", "before")
    return made


def compare(repository: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "spin", "--against", "HEAD", "--rounds", "2", *options]
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(repository)}
    return subprocess.run(command, cwd=repository, env=env, capture_output=True, text=True, timeout=240, check=False)


def test_more_cpu_than_allowed_fails_and_both_are_told(repository: Path) -> None:
    write(repository, "after", 20)
    done = compare(repository, "1000000")
    assert done.returncode == 1, done.stderr
    assert "HEAD" in done.stdout and "here" in done.stdout and "MISS" in done.stdout
    assert (repository / "ran").read_text() == "afterafter", "each side runs in its own tree, with its own code"


def test_within_what_is_allowed_it_succeeds_and_leaves_nothing(repository: Path) -> None:
    done = compare(repository, "--within", "10000%", "1000000")
    assert done.returncode == 0, done.stderr
    assert "ok" in done.stdout
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_commit_that_is_not_there_is_told(repository: Path) -> None:
    done = compare(repository, "--against", "nowhere", "1000000")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
