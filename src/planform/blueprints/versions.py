"""The versions file: in which release a version of a function appears, becomes the default, ages and goes. Pure.

    releases: ["0.1", "0.2", "0.3", "0.4"]
    functions:
      Wait:
        stable: v1.0.0
        versions:
          v0.0.0: {introducedIn: "0.1", promotedIn: "0.1", deprecatedIn: "0.2", removedIn: "0.4", replacement: v1.0.0}
          v1.0.0: {introducedIn: "0.1", promotedIn: "0.2"}
          v1.1.0: {introducedIn: "0.3", labels: {channel: beta}}

A state is never stored: it follows from these fields and the release that asks. Whoever was stable once is warned
about for two releases before it goes. An operator's overlay has the same shape without `releases`; it may move `stable`
of the functions above to any version that still runs, and describe functions that the file does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib.resources import files
from typing import Any, Final

from planform.apimachinery.yaml_loader import YamlError, load
from planform.blueprints.errors import VersionsInvalid
from planform.blueprints.registry import version_text
from planform.functions.semver import Semver, parse_semver

MIN_NOTICE: Final = 2
"""Releases between the deprecation of a version that was stable once and its removal."""

_RELEASE_FIELDS: Final = ("introducedIn", "promotedIn", "deprecatedIn", "removedIn")
_VERSION_FIELDS: Final = frozenset({*_RELEASE_FIELDS, "replacement", "note", "labels"})


class State(StrEnum):
    """What a version is in one release."""

    COMING = "coming"
    """Not introduced yet: as good as unknown."""
    PREVIEW = "preview"
    STABLE = "stable"
    DEPRECATED = "deprecated"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """One line of the file; releases are positions in its list of releases."""

    version: str
    introduced: int
    promoted: int | None = None
    deprecated: int | None = None
    """Written down, or when its successor was promoted, whichever came first."""
    removed: int | None = None
    replacement: str = ""
    note: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListedFunction:
    """All versions that a function ever had, and the mark that says which one people should take."""

    name: str
    versions: Mapping[Semver, ListedVersion]
    stable_mark: str = ""

    def stable_at(self, release: int) -> ListedVersion | None:
        """The version that runs in this release when nobody asks for one: the one promoted last."""
        promoted = [
            each
            for each in self.versions.values()
            if each.promoted is not None and each.promoted <= release and _lives(each, release)
        ]
        return max(promoted, key=lambda each: (each.promoted, parse_semver(each.version)), default=None)

    def next_stable(self, release: int) -> ListedVersion | None:
        """The version whose promotion is announced and comes first."""
        coming = [each for each in self.versions.values() if each.promoted is not None and each.promoted > release]
        return min(coming, key=lambda each: each.promoted or 0, default=None)

    def state_at(self, version: ListedVersion, release: int) -> State:
        if version.introduced > release:
            return State.COMING
        if version.removed is not None and version.removed <= release:
            return State.REMOVED
        if version.deprecated is not None and version.deprecated <= release:
            return State.DEPRECATED
        if version.promoted is not None and version.promoted <= release:
            return State.STABLE
        return State.PREVIEW


@dataclass(frozen=True)
class Versions:
    """A versions file that holds together."""

    releases: tuple[str, ...]
    functions: Mapping[str, ListedFunction]
    source: str = "versions file"

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {name: position for position, name in enumerate(self.releases)}

    def position(self, release: str) -> int:
        """Where a release stands in the order of releases; raises VersionsInvalid if it is not listed."""
        found = self._positions.get(release)
        if found is None:
            raise VersionsInvalid(
                self.source, [f'release "{release}" is not listed (there are: {", ".join(self.releases)})']
            )
        return found

    def release(self, position: int | None) -> str:
        return "" if position is None else self.releases[position]


@dataclass(frozen=True)
class Overlay:
    """What an operator says on top of the file."""

    stable: Mapping[str, Semver] = field(default_factory=dict)
    functions: Mapping[str, ListedFunction] = field(default_factory=dict)
    unknown_version: str = ""


def embedded_versions() -> Versions:
    """The file that is part of this build."""
    text = files("planform.blueprints").joinpath("versions.yaml").read_text(encoding="utf-8")
    return parse_versions(text, source="versions.yaml")


def parse_versions(text: str, *, source: str = "versions file") -> Versions:
    """Read a versions file; raises VersionsInvalid with everything that is wrong with it."""
    reading = _Reading(source)
    document = reading.document(text, allowed={"releases", "functions"})
    releases = document.get("releases")
    if not isinstance(releases, list) or not releases or not all(isinstance(each, str) and each for each in releases):
        raise VersionsInvalid(source, ["releases must be a list of names, the oldest first"])
    if len(set(releases)) != len(releases):
        raise VersionsInvalid(source, ["a release is listed twice"])
    functions = reading.functions(document, releases)
    reading.finish()
    return Versions(tuple(releases), functions, source)


def parse_overlay(text: str, versions: Versions, *, source: str = "versions overlay") -> Overlay:
    """Read an operator's overlay; raises VersionsInvalid, and then all of it counts for nothing."""
    reading = _Reading(source)
    document = reading.document(text, allowed={"functions", "unknownFuncVersion"})
    unknown = document.get("unknownFuncVersion", "")
    if unknown not in ("", "Fail", "Fallback"):
        reading.problem(f"unknownFuncVersion must be Fail or Fallback, not {unknown!r}")
    moved: dict[str, Semver] = {}
    described: dict[str, Any] = {}
    for name, entry in _map(document.get("functions")).items():
        if name in versions.functions and isinstance(entry, Mapping):
            if set(entry) != {"stable"}:
                reading.problem(f"{name}: only its stable version can be moved: the file of this build lists the rest")
                continue
            number = parse_semver(str(entry["stable"]))
            if number is None:
                reading.problem(f'{name}: stable "{entry["stable"]}" is not a version as in v1.2.0')
                continue
            moved[name] = number
        else:
            described[name] = entry
    functions = reading.functions({"functions": described}, list(versions.releases))
    reading.finish()
    return Overlay(moved, functions, str(unknown))


class _Reading:
    """One file on its way in: gathers all that is wrong before it refuses."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._problems: list[str] = []

    def problem(self, text: str) -> None:
        self._problems.append(text)

    def finish(self) -> None:
        if self._problems:
            raise VersionsInvalid(self._source, self._problems)

    def document(self, text: str, *, allowed: Collection[str]) -> Mapping[str, Any]:
        try:
            document = load(text, strict=True)
        except YamlError as error:
            raise VersionsInvalid(self._source, [str(error)]) from error
        if not isinstance(document, Mapping):
            raise VersionsInvalid(self._source, ["the file is empty" if document is None else "the file is no map"])
        self._known("the file", document, allowed)
        return document

    def functions(self, document: Mapping[str, Any], releases: list[str]) -> dict[str, ListedFunction]:
        positions = {name: position for position, name in enumerate(releases)}
        listed = document.get("functions")
        if listed is not None and not isinstance(listed, Mapping):
            self.problem("functions must be a map of names")
        found = {}
        for name, entry in _map(listed).items():
            function = self._function(str(name), entry, positions)
            if function is not None:
                found[function.name] = function
        return found

    def _function(self, name: str, entry: Any, positions: Mapping[str, int]) -> ListedFunction | None:
        if not isinstance(entry, Mapping):
            self.problem(f"{name}: must be a map with versions")
            return None
        self._known(name, entry, {"stable", "versions"})
        given = _map(entry.get("versions"))
        if not given:
            self.problem(f"{name}: has no version")
            return None
        versions: dict[Semver, ListedVersion] = {}
        for key, fields in given.items():
            number = parse_semver(str(key))
            if number is None:
                self.problem(f'{name}: "{key}" is not a version as in v1.2.0')
            elif number in versions:
                self.problem(f"{name}: {key} and {versions[number].version} are the same version")
            else:
                version = self._version(f"{name} {version_text(number)}", version_text(number), fields, positions)
                if version is not None:
                    versions[number] = version
        mark = entry.get("stable")
        marked = parse_semver(str(mark)) if mark is not None else None
        if mark is not None and marked not in versions:
            self.problem(f"{name}: stable {mark} is not one of its versions")
        versions = self._superseded(name, versions)
        for version in versions.values():
            self._check_life(name, version, versions)
        return ListedFunction(name, versions, version_text(marked) if marked is not None else "")

    def _version(self, of: str, version: str, fields: Any, positions: Mapping[str, int]) -> ListedVersion | None:
        if not isinstance(fields, Mapping):
            self.problem(f"{of}: must be a map")
            return None
        self._known(of, fields, _VERSION_FIELDS)
        at: dict[str, int | None] = {}
        for field_ in _RELEASE_FIELDS:
            release = fields.get(field_)
            at[field_] = positions.get(str(release))
            if release is not None and at[field_] is None:
                self.problem(f'{of}: {field_} "{release}" is not a listed release')
        introduced = at["introducedIn"]
        if introduced is None:
            if fields.get("introducedIn") is None:
                self.problem(f"{of}: introducedIn is missing")
            return None
        labels = _map(fields.get("labels"))
        return ListedVersion(
            version,
            introduced,
            at["promotedIn"],
            at["deprecatedIn"],
            at["removedIn"],
            str(fields.get("replacement") or ""),
            str(fields.get("note") or ""),
            {str(key): str(value) for key, value in labels.items()},
        )

    def _superseded(self, name: str, versions: Mapping[Semver, ListedVersion]) -> dict[Semver, ListedVersion]:
        """The versions, those deprecated from then on whose successor was promoted."""
        promotions: dict[int, str] = {}
        for each in versions.values():
            if each.promoted is None:
                continue
            if each.promoted in promotions:
                self.problem(f"{name}: {promotions[each.promoted]} and {each.version} become stable in one release")
            promotions[each.promoted] = each.version
        return {number: _aged(each, sorted(promotions)) for number, each in versions.items()}

    def _check_life(self, name: str, version: ListedVersion, versions: Mapping[Semver, ListedVersion]) -> None:
        of = f"{name} {version.version}"
        if version.promoted is not None and version.promoted < version.introduced:
            self.problem(f"{of}: is promoted before it is introduced")
        since = version.promoted if version.promoted is not None else version.introduced
        if version.deprecated is not None and version.deprecated < since:
            self.problem(f"{of}: is deprecated before it is introduced and promoted")
        if version.removed is not None:
            if version.deprecated is None:
                self.problem(f"{of}: is removed without ever being deprecated")
            else:
                notice = MIN_NOTICE if version.promoted is not None else 1
                if version.removed - version.deprecated < notice:
                    self.problem(f"{of}: is removed less than {notice} releases after its deprecation")
        if version.replacement:
            number = parse_semver(version.replacement)
            if number is None or number not in versions:
                self.problem(f"{of}: its replacement {version.replacement} is not one of the function's versions")

    def _known(self, of: str, given: Mapping[str, Any], allowed: Collection[str]) -> None:
        for key in sorted(str(key) for key in given if key not in allowed):
            self.problem(f'{of}: unknown field "{key}" (known: {", ".join(sorted(allowed))})')


def release_problems(
    versions: Versions,
    release: str,
    registered: Callable[[str], Collection[Semver]],
    declared_stable: Callable[[str], Semver | None],
) -> Iterator[str]:
    """Where the file, the code and the release being built disagree."""
    now = versions.position(release)
    for name, function in sorted(versions.functions.items()):
        here = set(registered(name))
        for number, version in sorted(function.versions.items()):
            lives = _lives(version, now)
            if lives and number not in here:
                yield f"{name} {version.version} is listed and not registered"
            elif not lives and number in here:
                state = function.state_at(version, now)
                yield f"{name} {version.version} is registered and {state} in release {release}"
        for number in sorted(here - set(function.versions)):
            yield f"{name} {version_text(number)} is registered and not listed"
        stable = function.stable_at(now)
        computed = stable.version if stable is not None else ""
        if function.stable_mark != computed:
            marked = function.stable_mark or "no version"
            yield f"{name}: {marked} is marked stable, and in release {release} it is {computed or 'none'}"
        elif not computed and any(_lives(each, now) for each in function.versions.values()):
            yield f"{name}: no version is stable in release {release}"
        in_code = declared_stable(name)
        if in_code is not None and version_text(in_code) != computed:
            yield f"{name}: the code says {version_text(in_code)} is stable, the file says {computed or 'none'}"


def _lives(version: ListedVersion, release: int) -> bool:
    return version.introduced <= release and (version.removed is None or release < version.removed)


def _aged(version: ListedVersion, promotions: list[int]) -> ListedVersion:
    if version.promoted is None:
        return version
    successor = next((each for each in promotions if each > version.promoted), None)
    if successor is None or (version.deprecated is not None and version.deprecated <= successor):
        return version
    return ListedVersion(
        version.version,
        version.introduced,
        version.promoted,
        successor,
        version.removed,
        version.replacement,
        version.note,
        version.labels,
    )


def _map(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}
