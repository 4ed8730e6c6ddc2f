"""The tests that a save concerns, run in a process of their own: a test that hangs or eats the CPU holds up nobody."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from planform.apimachinery import yaml_loader

_SECONDS: Final = 120.0
_COMMAND: Final = (sys.executable, "-m", "planform", "test", "--output", "json")


@dataclass(frozen=True)
class TestResult:
    """How one case went."""

    file: Path
    name: str
    passed: bool
    problems: tuple[str, ...] = ()

    __test__ = False  # for pytest, which collects by this name


def concerned(tests: Iterable[Path], changed: frozenset[Path]) -> list[Path]:
    """Those that changed, or that name a file which did, or a function whose source did."""
    return [test for test in tests if test in changed or any(_reaches(path, changed) for path in _named(test))]


def _reaches(path: Path, changed: frozenset[Path]) -> bool:
    # A function's source is all that stands beside its file.
    home = path if path.is_dir() else path.parent if path.suffix == ".py" else None
    return path in changed or (home is not None and any(home in each.parents for each in changed))


def _named(test: Path) -> Iterator[Path]:
    """The files that a test names."""
    try:
        documents = yaml_loader.load_all(test.read_bytes())
    except (OSError, ValueError):
        return
    for text in _texts(documents):
        if len(text) < 256 and "\n" not in text:
            path = (test.parent / text.partition(":")[0]).resolve()
            if path.exists():
                yield path


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


async def run_tests(files: Sequence[Path]) -> list[TestResult]:
    """Run whole files; what cannot be run is a result that failed."""
    if not files:
        return []
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, *map(str, files), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return [TestResult(files[0], "(all)", passed=False, problems=(f"took longer than {_SECONDS:g} s",))]
    except asyncio.CancelledError:  # a newer save, or the end
        process.kill()
        await process.wait()
        raise
    try:
        found = orjson.loads(out)
    except ValueError:
        return [TestResult(files[0], "(all)", passed=False, problems=tuple(err.decode(errors="replace").splitlines()))]
    return [
        TestResult(Path(each["file"]), each["name"], each["result"] == "passed", tuple(each["problems"]))
        for each in found
    ]
