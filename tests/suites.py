"""Which tests `make test` runs, and which are left to `make test-all`; each test belongs to one of the two.

`make test` is for everybody, on any machine: it needs Python and programs that come ready (from the package index), and
is over in a few minutes. Left to `make test-all` is

* what needs a program that has to be built or that a distribution brings: a real API server, peers in Go, runc, strace.
  That is found out: by the marker `kubernetes`, by the fixtures of a test, by the functions of tests/ that it calls;
* what takes long: it stands in tests/slow.txt.

A test of `make test` that asks for such a program after all fails, and says that it is to be marked `programs`.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from tools.testbins import NAMES, READY, Go

from tests.harness.go_modules import go_module
from tests.harness.kubernetes import real_kubernetes
from tests.harness.programs import programs

QUICK: Final = "quick"
REST: Final = "rest"
ROOT: Final = Path(__file__).parents[1]
SLOW: Final = Path(__file__).with_name("slow.txt")

_BUILDS: Final = (inspect.unwrap(go_module), inspect.unwrap(real_kubernetes), Go)
_PROGRAMS: Final = inspect.unwrap(programs)


@dataclass(frozen=True)
class Split:
    """The tests of both suites."""

    quick: tuple[pytest.Item, ...]
    rest: tuple[pytest.Item, ...]

    def of(self, suite: str) -> tuple[pytest.Item, ...]:
        return self.quick if suite == QUICK else self.rest


def split(items: Iterable[pytest.Item]) -> Split:
    """Tell the two apart."""
    slow = slow_prefixes(SLOW.read_text())
    quick, rest = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        (rest if is_slow(item.nodeid, slow) or needs_programs(item) else quick).append(item)
    return Split(tuple(quick), tuple(rest))


def slow_prefixes(text: str) -> tuple[str, ...]:
    """The beginnings of test ids in such a file, less comments."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)


def is_slow(nodeid: str, prefixes: Iterable[str]) -> bool:
    return any(nodeid == each or nodeid.startswith((f"{each}::", f"{each}/", f"{each}[")) for each in prefixes)


def needs_programs(item: pytest.Item) -> bool:
    """Whether it needs a program that does not come ready."""
    if item.get_closest_marker("kubernetes") or item.get_closest_marker("programs"):
        return True
    fixtures = set(getattr(item, "fixturenames", ()))
    if "kubernetes_engine" in fixtures:
        return True
    functions = [getattr(item, "function", None), *_fixture_functions(item, fixtures)]
    return any(builds(each) for each in functions if isinstance(each, types.FunctionType))


def _fixture_functions(item: pytest.Item, names: Iterable[str]) -> Iterator[Callable[..., Any]]:
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    for name in names:
        for definition in known.get(name) or ():
            yield inspect.unwrap(definition.func)


@cache
def builds(function: types.FunctionType) -> bool:
    """Whether a function asks for a program that has to be built, itself or by functions of tests/ that it calls."""
    return _builds(function, set())


def _builds(function: types.FunctionType, seen: set[types.FunctionType]) -> bool:
    seen.add(function)
    for code in _codes(function.__code__):
        for each in _named(code, function.__globals__):
            if each in _BUILDS or (each is _PROGRAMS and not READY.issuperset(_asked(code))):
                return True
            if isinstance(each, types.FunctionType) and _is_ours(each) and each not in seen and _builds(each, seen):
                return True
    return False


def _named(code: types.CodeType, known: dict[str, Any]) -> Iterator[Any]:
    """The functions and classes that code names, also as those of a module."""
    found = [known[name] for name in code.co_names if name in known]
    modules = [each for each in found if isinstance(each, types.ModuleType) and each.__name__.startswith("tests.")]
    found += [getattr(module, name) for module in modules for name in code.co_names if hasattr(module, name)]
    for each in found:
        if isinstance(each, types.FunctionType | type) or hasattr(each, "__wrapped__"):
            yield inspect.unwrap(each)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code, and that of the functions in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def _asked(code: types.CodeType) -> set[str]:
    """The programs that a function names; one that cannot be told counts as one to build."""
    return {each for each in code.co_consts if isinstance(each, str) and each in NAMES} or {"?"}


def _is_ours(function: types.FunctionType) -> bool:
    return function.__module__.startswith("tests.") and function.__module__ != __name__ and function is not _PROGRAMS
