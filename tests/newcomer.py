"""Play the newcomer: an empty home, then README, tutorials and all guides, in one control plane where they allow it.

`make newcomer` runs it twice, with planform from a wheel in an environment of its own, and from this tree. The guides
come in an order that follows from the seed, which is printed, so that one that breaks another can be found again.

A page that says `planform up` gets the control plane that runs already. One that starts it in another way (with
options, variables or a directory) gets that: where both would hold the same data, the other is stopped first, as a
reader would.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.test_tutorial import FIRST_FUNCTION, ROOT, Block, Reader, blocks, pages, registry_environment
from tests.harness.processes import Child

_UP = "planform up"
_STOP_SECONDS = 30.0
_INSTALL_SECONDS = 900.0


@dataclass
class Newcomer(Reader):
    """A reader who keeps one control plane from page to page."""

    plane: Child | None = None
    """The control plane at the usual place, however it was started."""
    plain: bool = False
    """Whether it is the one that `planform up` alone starts."""
    of_page: list[Child] = field(default_factory=list)
    """What this page started and no other page needs."""

    def begin(self, directory: Path) -> None:
        """Open the next page: a directory of its own, and a terminal that knows no variables of the last one."""
        directory.mkdir()
        self.directory, self.printed, self.terminals = directory, "", {}
        for state in ("exports", "cwd"):
            (directory.parent / state).unlink(missing_ok=True)

    def end(self) -> None:
        """Close the terminals of this page. A control plane that is as everybody's goes on."""
        for child in self.of_page:
            _stop(child)
        self.of_page.clear()
        if self.plane is not None and not self.plain:
            _stop(self.plane)
            self.plane = None

    def _start(self, block: Block, name: str) -> None:
        command = " ".join(block.text.split())
        if command == _UP and self.plain and self.plane is not None and not self.plane.has_ended():
            self.terminals[name] = self.terminals[""] = self.plane
            return
        usual = _UP in command and not any(flag in command for flag in ("--data", "--config", "--ephemeral"))
        if usual and self.plane is not None:
            _stop(self.plane)
        super()._start(block, name)
        child = self.terminals[name]
        if usual:
            self.plane, self.plain = child, command == _UP
        else:
            self.of_page.append(child)


def _stop(child: Child) -> None:
    """As Ctrl-C does."""
    if child.has_ended():
        return
    child.process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.process.wait(_STOP_SECONDS)
    child.stop()


def reading_order(seed: int) -> list[Path]:
    """README, the tutorials, then all other pages with something to run, in an order that follows from the seed."""
    found = [*pages(), FIRST_FUNCTION]
    first = [page for page in found if page.parent in (ROOT, ROOT / "docs" / "tutorial")]
    rest = sorted(set(found) - set(first))
    random.Random(seed).shuffle(rest)  # an order, no secret
    return [*sorted(first, key=lambda page: (page.parent != ROOT, page)), *rest]


@contextlib.contextmanager
def home_of(source: str) -> Iterator[tuple[Path, Path]]:
    """An empty home, and where planform's programs are."""
    with tempfile.TemporaryDirectory(prefix="planform-newcomer-") as directory:
        home = Path(directory) / "home"
        home.mkdir()
        programs = Path(sys.executable).parent if source == "tree" else install_wheels(Path(directory), home)
        yield home, programs


def install_wheels(directory: Path, home: Path) -> Path:
    """Build the wheels and install them with what they depend on, and pytest for authors, into a new environment."""
    wheels, environment = directory / "built", directory / "environment"
    env = {**os.environ, "HOME": str(home)}
    pip = [sys.executable, "-m", "pip"]
    _run([*pip, "wheel", "--quiet", "--no-deps", "-w", str(wheels), str(ROOT), str(ROOT / "sdk")], env)
    _run([sys.executable, "-m", "venv", str(environment)], env)
    built = [str(path) for path in sorted(wheels.glob("*.whl"))]
    own = str(environment / "bin" / "python")
    # What the guides tell their readers to have beside planform: a client library, and a tool for tests.
    _run(
        [own, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), *built, "pytest", "kubernetes"],
        env,
    )
    return environment / "bin"


def _run(command: list[str], env: dict[str, str]) -> None:
    subprocess.run(command, env=env, cwd=tempfile.gettempdir(), check=True, timeout=_INSTALL_SECONDS)


def play(source: str, seed: int, only: str) -> list[str]:
    """Follow the pages; gives those that did not do what they say."""
    failed = []
    with home_of(source) as (home, own), ExitStack() as stack:
        more = registry_environment(home.parent)
        # From the wheel nothing of this tree is on the path, so that what the wheel lacks is missed.
        others = [path for path in more["PATH"].split(os.pathsep) if path != str(Path(sys.executable).parent)]
        more["PATH"] = os.pathsep.join([str(own), *others])
        newcomer = Newcomer(home, stack, more)
        for number, page in enumerate(reading_order(seed)):
            name = str(page.relative_to(ROOT))
            if only not in name:
                continue
            began, problem = time.monotonic(), ""
            newcomer.begin(home / f"page-{number}")
            try:
                for block in blocks(page):
                    newcomer.follow(block)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                problem = str(error)
                failed.append(f"{name} (from the {source})")
            finally:
                newcomer.end()
            print(f"{'FAIL' if problem else 'ok  '} {time.monotonic() - began:5.1f} s  {name}", flush=True)
            if problem:
                print("    " + problem.replace("\n", "\n    "), flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--from", dest="source", choices=("wheel", "tree", "both"), default="both")
    parser.add_argument("--only", default="", metavar="TEXT", help="only pages whose path has this")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    failed = []
    for source in ("wheel", "tree") if given.source == "both" else (given.source,):
        print(f"planform from the {source}", flush=True)
        failed += play(source, given.seed, given.only)
    result = f"{len(failed)} pages failed: {', '.join(failed)}" if failed else "every page passed"
    print(f"seed {given.seed}: {result}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
