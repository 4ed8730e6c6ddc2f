"""What the sandbox costs a call, beside an earlier commit: of a function that runs, and of a script started for it.

    python -m bench sandbox [--against 2ef0d5a] [--rounds 9] [--warm 200] [--cold 8]

Both sides are environments of their own, made of a checkout and of what is installed here, and processes that stay;
rounds alternate between them, so that what else the machine does meets both. Where the machine is busy, the processor's
time says more than the clock, so both are told.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.report import Report

ROOT = Path(__file__).parents[1]
BEFORE = "2ef0d5a"
"""The last commit without the spawner and the list of files that are seen."""
WARM, COLD = 1.10, 1.5
_OURS = ("planform", "_editable_impl_planform", "__editable__")


@dataclass(frozen=True)
class Side:
    """A process that makes calls with one tree."""

    process: subprocess.Popen[str]

    def told(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.wait()}")
        return line

    def measure(self, what: str, times: int) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what} {times}\n")
        self.process.stdin.flush()
        found: dict[str, float] = json.loads(self.told())
        return found


@contextmanager
def checkout(commit: str, directory: Path) -> Iterator[Path]:
    """The tree of a commit, as long as the block lasts."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--detach", str(directory), commit], check=True, capture_output=True)
    try:
        yield directory
    finally:
        subprocess.run([*git, "remove", "--force", str(directory)], check=True, capture_output=True)


def environment(tree: Path, directory: Path) -> Path:
    """An interpreter that has this tree and, beside it, all that is installed here; both sides get one alike."""
    venv.create(directory, symlinks=True)
    site = next(directory.glob("lib/python*/site-packages"))
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if each.name.startswith(_OURS):
            continue
        if each.is_dir():
            shutil.copytree(each, site / each.name, copy_function=_link, symlinks=True)
        else:
            _link(each, site / each.name)
    (site / "tree.pth").write_text(f"{tree / 'src'}\n{tree / 'sdk' / 'src'}\n")
    return directory / "bin" / "python"


def _link(source: Any, target: Any) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@contextmanager
def calling(tree: Path, python: Path) -> Iterator[Side]:
    """The program that makes the calls is this tree's; what it calls is the other's."""
    program = ROOT / "bench" / "sandbox_calls.py"
    surroundings = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(
        [str(python), str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tree,
        env=surroundings,
    )
    try:
        side = Side(process)
        assert side.told().strip() == "ready"
        yield side
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def compare(report: Report, sides: Sequence[Side], what: str, times: int, rounds: int) -> dict[str, float]:
    """Rounds alternate, and so does who is first; gives, of clock and processor, ours beside what was before."""
    found: list[list[dict[str, float]]] = [[], []]
    for number in range(rounds):
        for at in (0, 1) if number % 2 else (1, 0):
            found[at].append(sides[at].measure(what, times))
    ratios = {}
    for kind in ("wall", "cpu"):
        before, now = (median(each[kind] for each in side) * 1e3 for side in found)
        ratios[kind] = now / before
        report.note(f"{what}, {kind}: {before:.2f} ms before, {now:.2f} ms now, {now / before:.2f}x")
    return ratios


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="bench sandbox")
    parser.add_argument("--against", default=BEFORE)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--warm", type=int, default=200)
    parser.add_argument("--cold", type=int, default=8)
    options = parser.parse_args(arguments)
    report = Report(f"sandbox: what it costs a call, beside {options.against}")
    if subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{options.against}^{{commit}}"], check=False
    ).returncode:
        report.note("not measured: this checkout does not have that commit")
        return 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="planform-bench-")))
        trees = [stack.enter_context(checkout(options.against, folder / "before")), ROOT]
        pythons = [environment(tree, folder / f"environment-{at}") for at, tree in enumerate(trees)]
        sides = [stack.enter_context(calling(*each)) for each in zip(trees, pythons, strict=True)]
        warm = compare(report, sides, "warm", options.warm, options.rounds)
        cold = compare(report, sides, "cold", options.cold, options.rounds)
    for kind in ("wall", "cpu"):
        report.at_most(f"a warm call, beside how it was ({kind})", warm[kind], WARM)
        report.at_most(f"a cold start of a script, beside how it was ({kind})", cold[kind], COLD)
    return 1 if report.failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
