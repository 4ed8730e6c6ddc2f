"""The README, the tutorial and the how-to guides do what they say: their marked blocks run, in order, as a user would.

A fenced block's info string says what happens to it:

    ```sh run              run it; it must exit with 0
    ```sh run exits=3      run it; it must exit with 3
    ```sh background       one command that stays, as in a second terminal; `background=NAME` if there are several
    ```text output         what the block before printed, or what the background command before has printed by now
    ```text output=NAME    what the background command of that name has printed by now
    ```python file=a.py    a file that the reader is told to save

Lines of an output block must appear in that order; `…` in a line stands for anything. Each page starts with an empty
home and an empty directory. Exported variables and the working directory last from block to block; a second terminal
begins in that directory, and knows none of the variables. Control planes
listen on any free port, since another test may be listening on the usual one.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.python_functions import sdk_wheel
from tests.harness.processes import Child, free_ports, running
from tests.harness.programs import programs

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
_MARKS = {"run", "background", "output", "exits", "file"}
_FENCE = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block, and the line it begins at."""

    page: str
    line: int
    words: tuple[str, ...]
    options: dict[str, str]
    text: str

    @property
    def is_used(self) -> bool:
        return bool({"run", "background", "output"}.intersection(self.words)) or bool(
            {"background", "output", "file"}.intersection(self.options)
        )

    def __str__(self) -> str:
        return f"{self.page}, line {self.line}:\n{self.text}"


def blocks(path: Path) -> list[Block]:
    """The blocks of a page that are marked to be used."""
    text, found = path.read_text(), []
    for match in _FENCE.finditer(text):
        words = match["info"].split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        line = text.count("\n", 0, match.start()) + 1
        strange = {word.split("=")[0] for word in words[1:]} - _MARKS
        if words[0] in ("sh", "text") and strange:
            raise ValueError(f"{path.relative_to(ROOT)}, line {line}: no such mark: {', '.join(sorted(strange))}")
        found.append(Block(str(path.relative_to(ROOT)), line, tuple(words), options, match["text"]))
    return [block for block in found if block.is_used]


FIRST_FUNCTION = ROOT / "docs" / "tutorial" / "first-function.md"
"""Followed by a test of its own, which also looks at how long it takes."""


def pages() -> Iterator[Path]:
    """Every page that has something to run."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if path != FIRST_FUNCTION and blocks(path):
            yield path


@dataclass
class Reader:
    """Somebody who follows a page at a terminal."""

    directory: Path
    stack: ExitStack
    more: dict[str, str] = field(default_factory=dict)
    """What else is in their environment."""
    printed: str = ""
    terminals: dict[str, Child] = field(default_factory=dict)

    def follow(self, block: Block) -> None:
        options, words = block.options, block.words
        if "file" in options:
            (self.directory / options["file"]).write_text(block.text)
        elif "run" in words:
            self._run(block)
        elif "background" in words or "background" in options:
            self._start(block, options.get("background", ""))
        else:
            self._compare(block, options.get("output"))

    def _run(self, block: Block) -> None:
        script = f"""
            cd {self._kept("cwd", str(self.directory))}; set -eu -o pipefail
            {self._kept_exports()}
            trap 'code=$?; export -p > {self._state("exports")}; pwd > {self._state("cwd")}; exit $code' EXIT
        """
        done = subprocess.run(
            ["bash", "-c", f"{script}\n{block.text}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            env=self._env(),
        )
        self.printed = done.stdout
        self.terminals.pop("", None)
        expected = int(block.options.get("exits", "0"))
        assert done.returncode == expected, f"{block}\nexit code {done.returncode}\n{done.stdout}"

    def _start(self, block: Block, name: str) -> None:
        # Another terminal: what was exported in the first is not known here. `env` takes variables before the command.
        script = f"cd {self._kept('cwd', str(self.directory))}; exec env {block.text}"
        env = [f"{key}={value}" for key, value in self._env().items()]
        log = self.directory.parent / f"{name or 'terminal'}-{block.line}.log"
        command = ["/usr/bin/env", "-i", *env, "bash", "-c", script]
        child = self.stack.enter_context(running(command, log, name=name or "terminal"))
        self.terminals[name] = self.terminals[""] = child

    def _compare(self, block: Block, name: str | None) -> None:
        child = self.terminals.get(name or "")
        if child is None:
            _check(block, self.printed)
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not child.has_ended() and _missing(block, child.output()):
            time.sleep(0.02)
        _check(block, child.output())

    def _env(self) -> dict[str, str]:
        own, kubectl = Path(sys.executable).parent, programs("kubectl")
        return {
            "HOME": str(self.directory.parent),
            "PATH": os.pathsep.join([str(own), str(kubectl), os.environ.get("PATH", os.defpath)]),
            "LANG": "C.UTF-8",
            "PLANFORM_LISTEN": "127.0.0.1:0",
            "PYTHONUNBUFFERED": "1",
        } | self.more

    def _state(self, name: str) -> str:
        return shlex.quote(str(self.directory.parent / name))

    def _kept(self, name: str, otherwise: str) -> str:
        path = self.directory.parent / name
        return shlex.quote(path.read_text().strip() if path.exists() else otherwise)

    def _kept_exports(self) -> str:
        return f"source {self._state('exports')}" if (self.directory.parent / "exports").exists() else ":"


def package_environment(directory: Path) -> dict[str, str]:
    """For a page that builds a function: a wheel of our SDK in place of an index that has it."""
    wheels = directory / "wheels"
    wheels.mkdir()
    sdk_wheel(wheels)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


def registry_environment(directory: Path) -> dict[str, str]:
    """For a page that starts a registry, on any free port, and builds a function."""
    [port] = free_ports(1)
    tools = [Path(sys.executable).parent, programs("kubectl"), programs("docker-registry")]
    return {
        "PATH": os.pathsep.join([*map(str, tools), os.environ.get("PATH", os.defpath)]),
        "REGISTRY": f"127.0.0.1:{port}",
        "REGISTRY_HTTP_ADDR": f"127.0.0.1:{port}",
    } | package_environment(directory)


def _missing(block: Block, printed: str) -> str:
    """The first expected line that does not come after those before it; empty if all are there."""
    lines = iter(printed.splitlines())
    for expected in filter(None, map(str.strip, block.text.splitlines())):
        pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))
        if not any(re.fullmatch(pattern, " ".join(line.split())) for line in lines):
            return expected
    return ""


def _check(block: Block, printed: str) -> None:
    missing = _missing(block, printed)
    assert not missing, f"{block}\nthe line {missing!r} is not in what was printed:\n{printed}"


@pytest.mark.parametrize("page", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in pages()])
def test_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    with ExitStack() as stack:
        needs_registry = "docker-registry serve" in page.read_text()
        reader = Reader(directory, stack, registry_environment(tmp_path) if needs_registry else {})
        for block in blocks(page):
            reader.follow(block)
