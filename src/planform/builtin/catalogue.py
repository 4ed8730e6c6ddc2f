"""Which names mean a built-in function: its own, the designs', and the upstream packages that behave alike.

A manifest that names a published package therefore runs offline. Mirrors of those packages count as well, whatever
registry they are in; packages of other organisations do not, even if they are called the same.

A built-in has a version of its own: raise it with every change of what it answers, which a test notices by recorded
answers (`tests/unit/test_builtin_versions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from planform.functions.runner import BuiltinFunction, WaitingFunction

Builtin = BuiltinFunction | WaitingFunction


@dataclass(frozen=True, slots=True)
class BuiltinName:
    """One built-in: its name, the other names it answers to, and what it is for."""

    name: str
    purpose: str
    aliases: tuple[str, ...] = ()
    deterministic: bool = True
    quick: bool = True
    """Whether it answers in this process, without waiting for another."""
    version: str = "v1.0.0"
    """Its own, which changes when what it answers does."""
    like: str = ""
    """The version of the published function that it is held against, and behaves like."""
    published: bool = True
    """Whether it stands for published packages of its name; else they are something else."""

    @property
    def module(self) -> str:
        """A built-in lives in the folder of its name and calls itself `function` there."""
        return f"planform.builtin.{self.name.replace('-', '_')}"


_NAMES: Final = (
    BuiltinName(
        "patch-and-transform",
        "composes resources from templates, patches and transforms",
        version="v1.0.1",
        like="v0.5.0",
    ),
    BuiltinName("auto-ready", "finds out which composed resources are ready", like="v0.7.0"),
    BuiltinName("environment-configs", "merges EnvironmentConfigs into the environment of a pipeline"),
    BuiltinName("extra-resources", "puts other resources into the context of a pipeline"),
    BuiltinName("sequencer", "creates resources one after the other, and deletes them in reverse"),
    BuiltinName(
        "go-templating",
        "composes resources from Go templates",
        ("go-templates",),
        deterministic=False,
        quick=False,
        version="v1.0.1",
        like="v0.12.3",
    ),
    BuiltinName("kcl", "composes resources with a KCL program", deterministic=False, quick=False, version="v1.1.0"),
    BuiltinName("starlark", "composes resources with a Starlark script", quick=False, published=False),
    BuiltinName("cel-filter", "leaves resources out where a CEL expression says so", like="v0.2.0"),
    BuiltinName("cel-validation", "fails a pipeline where a CEL expression does not hold"),
    BuiltinName("tag-manager", "adds tags, labels and annotations to composed resources"),
    BuiltinName("status-transformer", "sets conditions and tells events by what other conditions say"),
    BuiltinName("python", "composes resources with a Python script, in a sandbox", deterministic=False, quick=False),
)
_BY_NAME: Final = {spelling: entry for entry in _NAMES for spelling in (entry.name, *entry.aliases)}
_PUBLISHERS: Final = frozenset({"crossplane-contrib", "crossplane", "upbound", "negz"})
_PREFIX: Final = "function-"


def find_builtin(reference: str) -> Builtin | None:
    """The built-in that a function's name or a package reference means, with or without tag and digest; else None."""
    entry = find_builtin_name(reference)
    return _load(entry) if entry is not None else None


def find_builtin_name(reference: str) -> BuiltinName | None:
    """What is known of it without loading it; None also for one that this build does not carry."""
    repository = reference.partition("@")[0]
    *path, last = repository.split("/")
    if path and path[-1] not in _PUBLISHERS:
        return None
    entry = _BY_NAME.get(last.partition(":")[0].removeprefix(_PREFIX))
    if entry is None or (path and not entry.published):
        return None
    return entry if _is_carried(entry) else None


def list_builtins() -> Iterable[BuiltinName]:
    """Those that this build carries, by name."""
    return sorted((entry for entry in _NAMES if _is_carried(entry)), key=lambda entry: entry.name)


@cache
def _is_carried(entry: BuiltinName) -> bool:
    return find_spec(entry.module) is not None


@cache
def _load(entry: BuiltinName) -> Builtin | None:
    if find_spec(entry.module) is None:
        return None
    function: Builtin = import_module(entry.module).function
    return function
