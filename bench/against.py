"""One benchmark on two commits by turns: `python -m bench NAME --against COMMIT [--within 5%] [--rounds 5] [OPTIONS]`.

The other commit is checked out into a temporary directory with a virtual environment of its own, and removed after.
Figures are the CPU seconds of a whole run with all its children, and what is compared are their medians: a machine that
is busy with something else, or throttles, meets both alike.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAILED = 1
WRONG_USAGE = 2


class CannotCompare(Exception):
    """The other commit cannot be checked out, or does not run."""


@dataclass
class Side:
    """One of the two trees, and the CPU seconds of its runs so far."""

    name: str
    tree: Path
    python: Path
    seconds: list[float] = field(default_factory=list)

    def run(self, benchmark: str, options: Sequence[str]) -> None:
        """Run it once. Raises CannotCompare if it cannot be run at all; a bar that it misses is not our subject."""
        command = [str(self.python), "-m", "bench", benchmark, *options]
        before = _children_seconds()
        done = subprocess.run(
            command, cwd=self.tree, env=_environment(self.tree), capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, FAILED) or "Traceback" in done.stderr:
            raise CannotCompare(f"{' '.join(command[1:])} of {self.name} ended with {done.returncode}:\n{done.stderr}")
        self.seconds.append(_children_seconds() - before)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def main(benchmark: str, arguments: Sequence[str]) -> int:
    options, rest = _parser().parse_known_args(arguments)
    try:
        with other_tree(options.against) as tree:
            here = Side("here", ROOT, Path(sys.executable))
            there = Side(options.against, tree, environment_of(tree))
            for number in range(options.rounds):
                for side in (there, here) if number % 2 == 0 else (here, there):  # neither is always the warmer one
                    side.run(benchmark, rest)
    except CannotCompare as error:
        print(error, file=sys.stderr)
        return WRONG_USAGE
    return tell(benchmark, there, here, options.within)


def tell(benchmark: str, there: Side, here: Side, within: float) -> int:
    """Print both, and give the exit code."""
    ratio = here.median / there.median
    print(f"\n{benchmark}, CPU seconds of {len(here.seconds)} runs each, by turns")
    print(f"  {'':<24}{'median':>10}{'least':>10}{'most':>10}")
    for side in (there, here):
        print(f"  {side.name[:22]:<24}{side.median:>10.2f}{min(side.seconds):>10.2f}{max(side.seconds):>10.2f}")
    met = ratio <= 1 + within
    print(f"  {'ok  ' if met else 'MISS'} {ratio:.3f} of {there.name} (at most {1 + within:.3f})")
    return 0 if met else FAILED


@contextmanager
def other_tree(commit: str) -> Iterator[Path]:
    """That commit, checked out beside this tree for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="planform-bench-") as scratch:
        tree = Path(scratch) / "tree"
        _run(["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(tree), commit])
        try:
            yield tree
        finally:
            shutil.rmtree(tree, ignore_errors=True)
            _run(["git", "-C", str(ROOT), "worktree", "prune"])


def environment_of(tree: Path) -> Path:
    """A virtual environment with that tree installed; gives its Python. Packages that are here already are shared."""
    home = tree.parent / "venv"
    _run([sys.executable, "-m", "venv", "--without-pip", str(home)])
    python = home / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    # Our own packages come first and from that tree; what they rest on is shared, so that only our code differs.
    paths = [str(tree / "src"), str(tree / "sdk" / "src"), *(each for each in sys.path if each.endswith("-packages"))]
    (Path(found.stdout.strip()) / "tree.pth").write_text("\n".join(paths) + "\n")
    script = home / "bin" / "planform"
    script.write_text(f"#!{python}\nfrom planform.cli import main\nmain()\n")
    script.chmod(0o755)
    return python


def _environment(tree: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**inherited, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree / "sdk" / "src"), str(tree)])}


def _children_seconds() -> float:
    """CPU of all children that have ended, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotCompare(f"{' '.join(command)}: {done.stderr.strip()}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench NAME", allow_abbrev=False)
    parser.add_argument("--against", required=True, metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--within", type=_share, default=0.05, metavar="PERCENT", help="how much more CPU is allowed")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each")
    return parser


def _share(text: str) -> float:
    return float(text.removesuffix("%")) / 100
