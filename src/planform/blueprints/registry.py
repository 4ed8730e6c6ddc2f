"""The phase functions of this process: what code declares, by name and version.

Registering is all or nothing: a set of functions of which one is refused leaves no trace. Versions are compared as
numbers, so `0.1.0`, `v0.1.0` and `v0.1.0+build` are one version and cannot be registered twice. A reader sees the
functions as they were when it looked, whoever registers meanwhile.

Plug-ins are entry points of the group `planform.phase_functions`. Each names a decorated function or class, a module
that defines some, or a sequence of these. They are imported when somebody first wants to know what there is; one that
cannot be imported, or is refused, is left out and told, since it must not stop the others.

Functions of packages that are installed into a control plane come and go while it runs; they are brought, not
registered, and give way to every registered function of the same name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Final

from planform.blueprints.contract import DECLARED, UNVERSIONED, Implementation, PhaseFunction
from planform.blueprints.errors import RegistrationRefused
from planform.functions.semver import Semver, parse_semver

PLUGINS: Final = "planform.phase_functions"

Registrable = Any
"""A PhaseFunction, a decorated callable, a plain one, a module that defines decorated ones, or an iterable of these."""

_logger = logging.getLogger(__name__)


def installed_plugins() -> Iterable[EntryPoint]:
    """The plug-ins of this Python environment."""
    return entry_points(group=PLUGINS)


class PhaseFunctionRegistry:
    """Every registered version of every function. `plugins` gives the entry points to load, once, when needed."""

    def __init__(self, plugins: Callable[[], Iterable[EntryPoint]] = installed_plugins) -> None:
        self._functions: Mapping[str, Mapping[Semver, PhaseFunction]] = {}
        self._brought: Mapping[str, Mapping[Semver, PhaseFunction]] = {}
        self._plugins: Callable[[], Iterable[EntryPoint]] | None = plugins
        self.generation = 0
        """Counts registrations, for those who keep what they derived from them."""
        self.problems: tuple[str, ...] = ()
        """Why plug-ins are missing."""

    def register(self, *functions: Registrable) -> None:
        """Add functions: declared ones, modules of them, or plain callables, which become `v0.0.0` of their own name.

        Raises RegistrationRefused, and adds nothing, if one of them is nothing, is badly declared or is there already.
        """
        self._add([each for given in functions for each in _declared(given)])

    def register_versioned(self, name: str, versions: Mapping[str, Registrable], *, stable: str) -> None:
        """Add the versions of one function, given as a map, and say which of them is stable.

        What an implementation was decorated with (its arguments, say) holds; name and version are those given here.
        """
        wanted = parse_semver(stable)
        if wanted is None:
            raise RegistrationRefused(f'function "{name}": stable version "{stable}" is not a version as in v1.2.0')
        added = []
        for version, given in versions.items():
            declared = list(_declared(given, name=name, version=version))
            if len(declared) != 1:
                raise RegistrationRefused(f'function "{name}": version {version} has {len(declared)} implementations')
            stands = parse_semver(version) == wanted
            added.append(replace(declared[0], name=name, version=version, stable=stands))
        if not any(each.stable for each in added):
            raise RegistrationRefused(f'function "{name}": stable version "{stable}" is not among its versions')
        self._add(added)

    def bring(self, functions: Iterable[PhaseFunction]) -> None:
        """Have these functions, which come and go while the process runs, in place of those that were brought before.

        A name that is registered stays what it is. Raises RegistrationRefused, and changes nothing, if one of the
        functions cannot be.
        """
        self._brought = _added({}, functions)
        self.generation += 1

    def find(self, name: str, version: str) -> PhaseFunction | None:
        """Exactly this version."""
        wanted = parse_semver(version)
        return None if wanted is None else self.functions.get(name, {}).get(wanted)

    @property
    def functions(self) -> Mapping[str, Mapping[Semver, PhaseFunction]]:
        """All of them, those of plug-ins too. The map does not change; a later look may give another one."""
        self._load_plugins()
        return {**self._brought, **self._functions} if self._brought else self._functions

    @property
    def registered(self) -> Mapping[str, Mapping[Semver, PhaseFunction]]:
        """Those that are there without asking any plug-in."""
        return self._functions

    def __iter__(self) -> Iterator[PhaseFunction]:
        for _, versions in sorted(self.functions.items()):
            for _, function in sorted(versions.items()):
                yield function

    def _add(self, functions: Iterable[PhaseFunction]) -> None:
        self._functions = _added(self._functions, functions)
        self.generation += 1

    def _load_plugins(self) -> None:
        if self._plugins is None:
            return
        plugins, self._plugins = self._plugins, None
        problems = []
        for plugin in sorted(plugins(), key=lambda each: (each.name, each.value)):
            try:
                self.register(plugin.load())
            except Exception as error:  # whatever a stranger's module does when it is imported
                problems.append(f'plug-in "{plugin.name}" ({plugin.value}): {error}')
                _logger.error("phase functions of %s are not available", problems[-1])
        self.problems = tuple(problems)


def _added(
    before: Mapping[str, Mapping[Semver, PhaseFunction]], functions: Iterable[PhaseFunction]
) -> Mapping[str, Mapping[Semver, PhaseFunction]]:
    added: dict[str, dict[Semver, PhaseFunction]] = {}
    for function in functions:
        number = _checked(function)
        known = added.setdefault(function.name, dict(before.get(function.name, {})))
        if number in known:
            raise RegistrationRefused(f"{function.title} is registered already, as {known[number].version}")
        known[number] = replace(function, version=version_text(number))
        stables = sorted(each.version for each in known.values() if each.stable)
        if len(stables) > 1:
            raise RegistrationRefused(f'function "{function.name}" has two stable versions: {", ".join(stables)}')
    return {**before, **added}


def version_text(number: Semver) -> str:
    """`v1.2.3-rc.1`, however it was written."""
    text = f"v{number.major}.{number.minor}.{number.patch}"
    parts = (str(count) if is_text == 0 else word for is_text, count, word in (part.key for part in number.pre))
    return f"{text}-{'.'.join(parts)}" if number.pre else text


def _declared(given: Registrable, *, name: str = "", version: str = UNVERSIONED) -> Iterator[PhaseFunction]:
    if given is None:
        raise RegistrationRefused(f"{name or 'a function'} {version} has no implementation")
    if isinstance(given, PhaseFunction):
        yield given
        return
    if isinstance(given, ModuleType):
        for each in vars(given).values():
            if callable(each) and _carried(each) and each.__module__ == given.__name__:
                yield from _carried(each)
        return
    if callable(given) and _carried(given):
        yield from _carried(given)
        return
    if callable(given):
        yield PhaseFunction(name=name or _own_name(given), run=given, version=version)
        return
    if isinstance(given, Iterable):
        for each in given:
            yield from _declared(each, name=name, version=version)
        return
    raise RegistrationRefused(f"{name or 'a function'}: {given!r} cannot be called")


def _carried(value: Any) -> tuple[PhaseFunction, ...]:
    """What the decorator wrote on this very callable, not on a class that it comes from."""
    found = getattr(value, "__dict__", {}).get(DECLARED, ())
    return found if isinstance(found, tuple) else ()


def _own_name(implementation: Implementation) -> str:
    name = getattr(implementation, "name", None) or getattr(implementation, "__name__", None)
    return str(name or type(implementation).__name__)


def _checked(function: PhaseFunction) -> Semver:
    """The version as a number; raises RegistrationRefused for what can never run."""
    if not function.name.strip():
        raise RegistrationRefused("a function needs a name")
    if not callable(function.run):
        raise RegistrationRefused(f"{function.title} has no implementation")
    number = parse_semver(function.version)
    if number is None:
        raise RegistrationRefused(f'function "{function.name}": "{function.version}" is not a version as in v1.2.0')
    if not function.engines:
        raise RegistrationRefused(f"{function.title} runs on no engine")
    return number
