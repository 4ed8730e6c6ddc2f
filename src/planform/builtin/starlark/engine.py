"""The one place that knows the Starlark library: compiles scripts, runs them within limits, and reads its errors.

The library is `starlark-pyo3`. It has no bound on memory, so this belongs in a worker process that has one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import starlark

PACKAGE: Final = "starlark-pyo3"
FILE: Final = "script.star"
INSTRUCTIONS_PER_CHECK: Final = 1000
"""How many instructions the library runs before it asks whether to go on."""
CALL_DEPTH: Final = 200
_CACHED_SCRIPTS: Final = 128
_STACK_SHOWN: Final = 5

_PRELUDE: Final = '''
def get(value, path, default = None):
    """The value at a dotted path, or the default if there is nothing on the way or the value is None."""
    for name in path.split("."):
        if type(value) == "dict" and name in value:
            value = value[name]
        elif type(value) == "list" and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return default
    return default if value == None else value

def get_condition(resource, kind):
    """A condition of an object, or of an object in its wrapper; one that it does not have is Unknown."""
    for condition in get(resource.get("resource", resource), "status.conditions", []):
        if condition.get("type") == kind:
            return condition
    return {"type": kind, "status": "Unknown"}

def print(*values):
    """Accepted, and without effect: a script has nowhere to write to."""
'''

_WHERE: Final = re.compile(r"^ *--> (.+?):(\d+):(\d+)$", re.MULTILINE)
_FRAME: Final = re.compile(r"^  \* (.+?):(\d+), in (.+)$", re.MULTILINE)


class ScriptError(Exception):
    """A script that does not parse, fails, or takes too long; the text says where."""


class MissingEngine(ScriptError):
    """The library is not installed."""

    def __init__(self) -> None:
        super().__init__(
            f"Starlark scripts need the Python package {PACKAGE}: install planform with its extra `starlark`"
        )


class Budget:
    """What one call may use: `steps` instructions, and time. `spent` says what was used up."""

    def __init__(self, *, steps: int, seconds: float) -> None:
        self._steps, self._seconds = steps, seconds
        self._checks = steps // INSTRUCTIONS_PER_CHECK
        self._deadline = time.monotonic() + seconds
        self.spent = ""

    def is_used_up(self) -> bool:
        self._checks -= 1
        if self._checks < 0:
            self.spent = f"the script takes more than {self._steps:,} steps"
        elif time.monotonic() > self._deadline:
            self.spent = f"the script takes longer than {self._seconds:g} s"
        return bool(self.spent)


def check_engine() -> None:
    """Raise MissingEngine if scripts cannot be run here."""
    if find_spec("starlark") is None:
        raise MissingEngine


def call_main(script: str, modules: Mapping[str, str], argument: Any, budget: Budget) -> Any:
    """What `main` of a script gives for the argument, which it may change. Raises ScriptError."""
    engine = _engine()
    options = engine.EvalOptions(check_cancelled=budget.is_used_up, max_callstack_size=CALL_DEPTH)
    try:
        frozen = _Loader(engine, modules, options).script(script)
        return frozen.call_with(options, "main", argument).value
    except engine.StarlarkError as error:
        raise ScriptError(_message_of(str(error), budget)) from None


class _Loader:
    """Modules for `load`, each made once in a call."""

    def __init__(self, engine: ModuleType, sources: Mapping[str, str], options: starlark.EvalOptions) -> None:
        self._engine = engine
        self._sources = sources
        self._options = options
        self._made: dict[str, starlark.FrozenModule | None] = {}

    def script(self, text: str) -> starlark.FrozenModule:
        return self._make(FILE, text)

    def _load(self, name: str) -> starlark.FrozenModule:
        if name not in self._sources:
            known = ", ".join(sorted(self._sources)) or "none"
            raise self._engine.StarlarkError(f'there is no module "{name}" (modules: {known})')
        if name not in self._made:
            self._made[name] = None
            self._made[name] = self._make(name, self._sources[name])
        made = self._made[name]
        if made is None:
            raise self._engine.StarlarkError(f'module "{name}" loads itself')
        return made

    def _make(self, name: str, text: str) -> starlark.FrozenModule:
        module = self._engine.Module()
        globals_ = _globals()
        self._engine.eval(module, _parsed("prelude", _PRELUDE), globals_)
        loader = self._engine.FileLoader(self._load)
        self._engine.eval_with(self._options, module, _parsed(name, text), globals_, file_loader=loader)
        frozen: starlark.FrozenModule = module.freeze()
        return frozen


def _engine() -> ModuleType:
    check_engine()
    import starlark

    return starlark


@lru_cache(maxsize=1)
def _globals() -> starlark.Globals:
    from starlark import Globals, LibraryExtension

    wanted = [LibraryExtension.Json, LibraryExtension.StructType, LibraryExtension.Map, LibraryExtension.Filter]
    return Globals.extended_by(wanted)


@lru_cache(maxsize=_CACHED_SCRIPTS)
def _parsed(name: str, text: str) -> starlark.AstModule:
    import starlark

    dialect = starlark.Dialect.standard()
    dialect.enable_f_strings = True
    dialect.enable_keyword_only_arguments = True
    return starlark.parse(name, text, dialect)


def _message_of(text: str, budget: Budget) -> str:
    """The library's report in one line: the place, what went wrong there, and who called."""
    if budget.spent:
        return f"{_place(text)}{budget.spent}"
    if text == "Module has no symbol `main`":
        return f"{FILE}: there is no function main(req)"
    problem = next((line for line in text.splitlines() if line.startswith("error: ")), text.splitlines()[0])
    problem = problem.removeprefix("error: ").removeprefix("StarlarkError: ")
    if problem.startswith("fail: "):
        return problem.removeprefix("fail: ")
    frames = [f"{name} ({file}:{line})" for file, line, name in _FRAME.findall(text)]
    calls = f"; called from {', '.join(reversed(frames[-_STACK_SHOWN:]))}" if frames else ""
    return f"{_place(text)}{problem}{calls}"


def _place(text: str) -> str:
    found = _WHERE.search(text)
    return f"{found[1]}:{found[2]}:{found[3]}: " if found else ""
