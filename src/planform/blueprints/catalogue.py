"""Which version of a function a phase runs: what is registered, seen through the versions file at one release.

The decision itself is `functions.resolution.resolve`, the same that composition steps and operations use. Here the
versions get their states, and what the user should hear about the choice gets a code.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from planform import __version__
from planform.blueprints.contract import PhaseFunction
from planform.blueprints.errors import VersionsInvalid
from planform.blueprints.registry import PhaseFunctionRegistry, version_text
from planform.blueprints.versions import (
    ListedFunction,
    ListedVersion,
    Overlay,
    State,
    Versions,
    embedded_versions,
    parse_overlay,
    release_problems,
)
from planform.functions.errors import FunctionNotFound, ResolutionError, VersionNotFound, VersionRemoved
from planform.functions.resolution import Catalogue, Default, Lifecycle, Request, Rule, Version, resolve
from planform.functions.semver import Semver, parse_semver

CAPABILITY: Final = "phase"
LIST_COMMAND: Final = "planform phase-functions list"
_REMEMBERED: Final = 10_000

_LIFECYCLES: Final = {
    State.PREVIEW: Lifecycle.PREVIEW,
    State.STABLE: Lifecycle.CURRENT,
    State.DEPRECATED: Lifecycle.DEPRECATED,
    State.REMOVED: Lifecycle.REMOVED,
}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a phase says about its function: `pin` is its funcVersion, `hint` its ActionSet's preferredVersion.

    `lock` is the version a run, or a Blueprint whose versionPolicy is Lock, is bound to.
    """

    function: str
    pin: str = ""
    hint: str = ""
    lock: str = ""


@dataclass(frozen=True, slots=True)
class FunctionWarning:
    """Something that users of a version should know before it bites."""

    code: str
    function: str
    version: str
    message: str
    deprecated_in: str = ""
    removed_in: str = ""
    replacement: str = ""

    @property
    def is_news_only(self) -> bool:
        """Whether it says nothing that anybody has to act on."""
        return self.code == "VersionPreview"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The version that runs, which rule chose it, and why in words."""

    function: PhaseFunction
    rule: Rule
    requested: str
    reason: str
    warnings: tuple[FunctionWarning, ...] = ()

    @property
    def version(self) -> str:
        return self.function.version


@dataclass(frozen=True, slots=True)
class Described:
    """One version as users are told about it, also when it is gone."""

    version: str
    state: str
    since: str = ""
    deprecated_in: str = ""
    removed_in: str = ""
    replacement: str = ""
    note: str = ""
    stable: bool = False
    labels: Mapping[str, str] | None = None
    function: PhaseFunction | None = None


class PhaseCatalogue:
    """The functions of one process at one release. Cheap to ask; follows the registry and the overlay."""

    def __init__(
        self,
        registry: PhaseFunctionRegistry,
        *,
        versions: Versions | None = None,
        release: str = "",
        unknown_version: str = "Fail",
    ) -> None:
        """Raises VersionsInvalid if the file contradicts itself, the release or what is registered."""
        self.registry = registry
        self.versions = versions if versions is not None else embedded_versions()
        self.release = release or ".".join(__version__.split(".")[:2])
        self._position = self.versions.position(self.release)
        self._unknown_version = unknown_version
        self._overlay = Overlay()
        self._file: Path | None = None
        self._stamp: tuple[int, int] | None = None
        self.overlay_problem = ""
        """Why the operator's file is not used as it is now."""
        self._built_at = -1
        self._catalogue = Catalogue()
        self._chosen: dict[Ask, Chosen] = {}
        self.changes = 0
        """Counts the times that something here became different, for whoever serves it."""
        problems = list(release_problems(self.versions, self.release, self._registered_numbers, self._declared_stable))
        if problems:
            raise VersionsInvalid(self.versions.source, problems)

    def load_overlay(self, text: str, *, source: str = "versions overlay") -> None:
        """Put an operator's overlay in the place of the one before; raises VersionsInvalid and keeps that one."""
        overlay = parse_overlay(text, self.versions, source=source)
        problems = []
        for name, number in sorted(overlay.stable.items()):
            listed = self.versions.functions[name].versions.get(number)
            state = None if listed is None else self.versions.functions[name].state_at(listed, self._position)
            if state in (None, State.COMING, State.REMOVED):
                problems.append(f"{name}: {version_text(number)} cannot be stable, it is {state or 'unknown'}")
        described = Versions(self.versions.releases, overlay.functions, source)
        problems += release_problems(described, self.release, self._numbers, lambda _: None)
        if problems:
            raise VersionsInvalid(source, problems)
        self._overlay = overlay
        self._built_at = -1

    def follow(self, file: Path) -> None:
        """Take the overlay from a file, now and, once it has changed, at each `refresh`."""
        self._file = file
        self.refresh()

    def refresh(self) -> None:
        """Look whether the overlay's file has changed. A broken one is told, once, and the overlay before it stays."""
        if self._file is None:
            return
        try:
            found = self._file.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self.load_overlay(self._file.read_text(encoding="utf-8"), source=str(self._file))
        except (OSError, UnicodeDecodeError, VersionsInvalid) as error:
            if str(error) != self.overlay_problem:
                self.overlay_problem = str(error)
                _logger.error("the overlay of function versions is not used: %s", error)
        else:
            self.overlay_problem = ""

    def resolve(self, ask: Ask) -> Chosen:
        """Choose the version that runs. Raises a ResolutionError that lists the candidates and why not each."""
        self._build()
        known = self._chosen.get(ask)
        if known is not None:
            return known
        try:
            chosen = self._resolve(ask)
        except ResolutionError as error:
            error.detail, error.hint = self._in_words(ask, error), f"to see all: {LIST_COMMAND}"
            raise
        if len(self._chosen) >= _REMEMBERED:
            self._chosen.clear()
        self._chosen[ask] = chosen
        return chosen

    @property
    def functions(self) -> tuple[str, ...]:
        self._build()
        return self._catalogue.functions

    def is_versioned(self, name: str) -> bool:
        """Whether somebody says more about the function than that it exists."""
        return self._listed(name) is not None or len(self.registry.functions.get(name, {})) > 1

    def describe(self, name: str) -> tuple[Described, ...]:
        """Every version that the function ever had, the newest first; empty for an unknown function."""
        self._build()
        return tuple(self._described(version) for version in self._catalogue.versions(name))

    def coming_stable(self, name: str) -> PhaseFunction | None:
        """The version that will become the default in a later release, if it is here already."""
        listed = self._listed(name)
        coming = listed.next_stable(self._position) if listed is not None else None
        return None if coming is None or name in self._overlay.stable else self.registry.find(name, coming.version)

    def _resolve(self, ask: Ask) -> Chosen:
        request = Request(
            ask.function,
            capability=CAPABILITY,
            pin=ask.pin,
            hint=ask.hint,
            lock=ask.lock,
            default=Default.UNVERSIONED,
        )
        unknown_pin = False
        try:
            found = resolve(self._catalogue, request)
        except VersionNotFound:
            allowed = (self._overlay.unknown_version or self._unknown_version) == "Fallback"
            if not (allowed and ask.pin and not ask.lock and self._catalogue.versions(ask.function)):
                raise
            unknown_pin = True
            found = resolve(self._catalogue, replace(request, pin=""))
        function = self.registry.find(ask.function, found.version.id)
        if function is None:
            raise VersionNotFound(f"{found.version.id} is not registered", function=ask.function)
        warnings = [
            *self._about_request(ask, function, found.rule, unknown_pin),
            *self._about_version(function, found.rule),
        ]
        requested = ask.pin or ask.hint
        return Chosen(function, found.rule, requested, _why(found.rule, ask, function), tuple(warnings))

    def _in_words(self, ask: Ask, error: ResolutionError) -> str:
        """What a refusal says to those who write Blueprints; they know versions, and neither steps nor revisions."""
        if isinstance(error, FunctionNotFound):
            near = get_close_matches(ask.function, self._catalogue.functions, n=1)
            return f'{error.detail} (did you mean "{near[0]}"?)' if near else error.detail
        if isinstance(error, VersionNotFound) and ask.pin and not ask.lock and parse_semver(ask.pin) is not None:
            versions = self._catalogue.versions(ask.function)
            living = ", ".join(each.id for each in versions if each.lifecycle != Lifecycle.REMOVED)
            return f"has no version {ask.pin} (it has: {living or 'none any more'})"
        if isinstance(error, VersionRemoved):
            gone = ((version, why.removeprefix("removed, ")) for version, why in error.rejected if "removed" in why)
            return "; ".join(f"{version} was {why}" for version, why in gone) or error.detail
        return error.detail

    def _about_request(
        self, ask: Ask, function: PhaseFunction, rule: Rule, unknown_pin: bool
    ) -> Iterator[FunctionWarning]:
        def warning(code: str, text: str) -> FunctionWarning:
            return FunctionWarning(code, function.name, function.version, f"{function.name}: {text}")

        runs = f"{function.version} runs by rule {rule}"
        if unknown_pin:
            yield warning("PinNotAvailable", f'version "{ask.pin}" does not exist, {runs}')
        if not ask.hint or ask.pin:
            return
        if ask.lock:
            hinted = parse_semver(ask.hint, short=True)
            if hinted != parse_semver(ask.lock):
                yield warning("HintIgnored", f'preferred version "{ask.hint}" is ignored, {runs}')
        elif rule is not Rule.HINT:
            yield warning("HintNotAvailable", f'preferred version "{ask.hint}" is not available, {runs}')
        elif parse_semver(ask.hint) is None:
            yield warning("HintShort", f'preferred version "{ask.hint}" is short for {function.version}')

    def _about_version(self, function: PhaseFunction, rule: Rule) -> Iterator[FunctionWarning]:
        listed, version = self._listed_version(function)
        if listed is None or version is None:
            return
        stable = self._overlay.stable.get(listed.name) == parse_semver(version.version)
        if listed.state_at(version, self._position) is State.DEPRECATED:
            yield self._deprecation(function, version)  # it goes when the file says so, whatever an overlay made of it
        elif self._state_of(listed, version, stable=stable) is State.PREVIEW:
            text = f"{function.title}: is a preview and may change"
            yield FunctionWarning("VersionPreview", function.name, function.version, text)
        coming = listed.next_stable(self._position)
        follows = rule in (Rule.STABLE, Rule.UNVERSIONED) and function.name not in self._overlay.stable
        if coming is not None and follows:
            release = self.versions.release(coming.promoted)
            text = (
                f"{function.name}: {coming.version} becomes stable in {release};"
                f" set funcVersion to stay on {function.version}"
            )
            yield FunctionWarning("StableWillChange", function.name, function.version, text, replacement=coming.version)

    def _deprecation(self, function: PhaseFunction, version: ListedVersion) -> FunctionWarning:
        since, until = self.versions.release(version.deprecated), self.versions.release(version.removed)
        text = f"{function.title}: deprecated since {since}"
        text += f", stops working in {until}" if until else ""
        text += f", move to {version.replacement}" if version.replacement else ""
        return FunctionWarning(
            "VersionDeprecated", function.name, function.version, text, since, until, version.replacement
        )

    def _build(self) -> None:
        """Make the catalogue anew if functions were registered, or the overlay changed, since it was made."""
        functions = self.registry.functions
        if self._built_at == self.registry.generation:
            return
        self._built_at = self.registry.generation
        names = {*functions, *self.versions.functions, *self._overlay.functions}
        self._catalogue = Catalogue(version for name in sorted(names) for version in self._versions_of(name))
        self._chosen = {}
        self.changes += 1

    def _versions_of(self, name: str) -> Iterator[Version]:
        listed = self._listed(name)
        registered = self.registry.functions.get(name, {})
        if listed is None:
            for function in registered.values():
                yield Version(
                    name,
                    function.version,
                    semver=function.version,
                    stable=function.stable,
                    labels=function.labels,
                    capabilities=frozenset({CAPABILITY}),
                )
            return
        stable = self._stable_of(listed)
        for number, version in listed.versions.items():
            state = listed.state_at(version, self._position)
            if state is State.COMING:
                continue
            function_ = registered.get(number)
            yield Version(
                name,
                version.version,
                semver=version.version,
                labels={**(function_.labels if function_ is not None else {}), **version.labels},
                stable=number == stable,
                lifecycle=_LIFECYCLES[state],
                note=self._note(version),
                capabilities=frozenset({CAPABILITY}),
            )
        for number in sorted(registered.keys() - listed.versions.keys()):
            _logger.error("%s %s is not used: the versions file does not list it", name, version_text(number))

    def _stable_of(self, listed: ListedFunction) -> Semver | None:
        moved = self._overlay.stable.get(listed.name)
        stable = listed.stable_at(self._position)
        return moved if moved is not None else (parse_semver(stable.version) if stable is not None else None)

    def _note(self, version: ListedVersion) -> str:
        parts = [
            f"removed in {self.versions.release(version.removed)}" if version.removed is not None else "",
            f"replaced by {version.replacement}" if version.replacement else "",
            version.note,
        ]
        return ", ".join(filter(None, parts))

    def _described(self, version: Version) -> Described:
        listed = self._listed(version.function)
        number = parse_semver(version.id)
        line = listed.versions.get(number) if listed is not None and number is not None else None
        function = self.registry.find(version.function, version.id)
        if listed is None or line is None:
            state_ = State.STABLE if version.stable else "unversioned"
            return Described(version.id, state_, stable=version.stable, labels=version.labels, function=function)
        state = self._state_of(listed, line, stable=version.stable)
        since = {
            State.STABLE: line.promoted,
            State.DEPRECATED: line.deprecated,
            State.REMOVED: line.removed,
        }.get(state, line.introduced)
        return Described(
            version.id,
            state,
            self.versions.release(since),
            self.versions.release(line.deprecated),
            self.versions.release(line.removed),
            line.replacement,
            line.note,
            version.stable,
            version.labels,
            None if state is State.REMOVED else function,
        )

    def _state_of(self, listed: ListedFunction, line: ListedVersion, *, stable: bool) -> State:
        """What people are told that a version is: the one that runs by default is stable, also by an overlay's word."""
        state = listed.state_at(line, self._position)
        if listed.name not in self._overlay.stable:
            return state
        if stable:
            return State.STABLE
        return State.PREVIEW if state is State.STABLE else state

    def _listed(self, name: str) -> ListedFunction | None:
        return self.versions.functions.get(name) or self._overlay.functions.get(name)

    def _listed_version(self, function: PhaseFunction) -> tuple[ListedFunction | None, ListedVersion | None]:
        listed = self._listed(function.name)
        number = parse_semver(function.version)
        return listed, listed.versions.get(number) if listed is not None and number is not None else None

    def _registered_numbers(self, name: str) -> set[Semver]:
        return set(self.registry.registered.get(name, {}))

    def _numbers(self, name: str) -> set[Semver]:
        return set(self.registry.functions.get(name, {}))

    def _declared_stable(self, name: str) -> Semver | None:
        found = self.registry.registered.get(name, {})
        return next((number for number, function in found.items() if function.stable), None)


def _why(rule: Rule, ask: Ask, function: PhaseFunction) -> str:
    match rule:
        case Rule.PIN:
            return f"the phase asks for {ask.pin}"
        case Rule.HINT:
            return f"the ActionSet prefers {ask.hint}"
        case Rule.LOCK:
            return f"bound to {ask.lock} before"
        case Rule.STABLE:
            return f"{function.version} is stable"
        case _:
            return "no version of the function is stable, and none was asked for"
