"""What packages need of each other, and which version to install. Pure decisions.

Packages are told apart by source: the name without tag and digest. Several entries may have one source, as several
revisions of a function may be active; a need is then met if any of them meets it. Whatever is wrong with one package is
said of it and of those that need it: everything else is resolved as if it were not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planform.errors import PlanformError
from planform.functions.semver import Semver, parse_semver
from planform.packages.references import DIGEST

if TYPE_CHECKING:
    from planform.packages.xpkg import Dependency

_SHOWN: Final = 3


class NoVersionFits(PlanformError):
    """No version of a package meets what all others ask of it; the message names each of them."""

    reason = "DependencyResolutionFailed"


@dataclass(frozen=True, slots=True)
class Entry:
    """An active revision: what it is a version of, and what it needs."""

    name: str
    kind: str
    api_version: str
    source: str
    version: str
    dependencies: tuple[Dependency, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """What one package asks of another."""

    by: str
    constraint: str

    def __str__(self) -> str:
        return f"{self.by} needs {self.constraint}"


@dataclass(frozen=True, slots=True)
class Need:
    """A package that others need and that is not there, or not in a version that fits."""

    source: str
    kind: str
    api_version: str
    asks: tuple[Ask, ...]
    installed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DependencyStatus:
    """How it is with the dependencies of one revision, all that these need in turn included."""

    found: int
    installed: int
    invalid: int
    problem: str = ""


def meets(version: str, constraint: str) -> bool:
    """Whether a version, which is a tag or a digest, is what a constraint asks for."""
    if DIGEST.match(constraint):
        return version == constraint
    if parse_semver(version) is None:
        return False
    from planform.gotemplate.errors import CallFailed
    from planform.gotemplate.sprig.semver import semver_compare

    try:
        return semver_compare(constraint, version)
    except CallFailed:
        return False


def needs(entries: Sequence[Entry]) -> list[Need]:
    """Everything that is needed and not there in a version that fits, by source. A package on a cycle is not needed
    by it: that is said of it instead."""
    installed = _versions(entries)
    asked: dict[str, list[tuple[Entry, Dependency]]] = {}
    for entry in entries:
        for dependency in entry.dependencies:
            asked.setdefault(dependency.package, []).append((entry, dependency))
    found = []
    for source, asks in sorted(asked.items()):
        there = installed.get(source, ())
        if there and all(any(meets(version, each.constraint) for version in there) for _, each in asks):
            continue
        first = asks[0][1]
        found.append(
            Need(
                source,
                first.kind,
                first.api_version,
                tuple(sorted({Ask(entry.source, each.constraint) for entry, each in asks}, key=str)),
                tuple(there),
            )
        )
    return found


def choose_version(need: Need, tags: Iterable[str]) -> str:
    """The version to install: a tag, or a digest if one is asked for. Raises NoVersionFits.

    Of what is not installed yet, the highest that fits all; else the lowest that is not below what is installed, and
    only if there is none, the highest below. Tags that are not complete versions are no versions.
    """
    constraints = [each.constraint for each in need.asks]
    digests = {each for each in constraints if DIGEST.match(each)}
    if len(digests) == 1 and len(digests) == len(set(constraints)):
        return digests.pop()
    if digests:
        raise NoVersionFits(f"{need.source}: a digest cannot be told to fit: {_describe(need)}")
    known = sorted((version, tag) for tag in tags if (version := parse_semver(tag)) is not None)
    fitting = [(version, tag) for version, tag in known if all(meets(tag, each) for each in constraints)]
    if not fitting:
        newest = ", ".join(tag for _, tag in known[: -_SHOWN - 1 : -1]) or "none"
        raise NoVersionFits(
            f"{need.source} has no version that fits: {_describe(need)}; the newest there are: {newest}"
        )
    present = [version for each in need.installed if (version := parse_semver(each)) is not None]
    if not present:
        return fitting[-1][1]
    lowest: Semver = max(present)
    upwards = [tag for version, tag in fitting if version >= lowest]
    return upwards[0] if upwards else fitting[-1][1]


def is_below(version: str, other: str) -> bool:
    """Whether a version is lower than another; of what are no versions, such as digests, none is."""
    first, second = parse_semver(version), parse_semver(other)
    return first is not None and second is not None and first < second


def cycle_of(source: str, entries: Sequence[Entry]) -> tuple[str, ...]:
    """The shortest way from a package over what it needs back to itself; empty if there is none."""
    edges = _edges(entries)
    ways: list[tuple[str, ...]] = [(source,)]
    seen: set[str] = set()
    while ways:
        longer = []
        for way in ways:
            for target in sorted(edges.get(way[-1], ())):
                if target == source:
                    return (*way, source)
                if target not in seen:
                    seen.add(target)
                    longer.append((*way, target))
        ways = longer
    return ()


def dependency_status_of(entry: Entry, entries: Sequence[Entry]) -> DependencyStatus:
    """How it is with what a revision needs."""
    installed = _versions(entries)
    reached = _reached(entry, entries)
    missing = sorted(source for source in reached if source not in installed)
    wrong = [
        f"{each.package} is {', '.join(installed[each.package])} and must be {each.constraint}"
        for each in entry.dependencies
        if each.package in installed and not any(meets(version, each.constraint) for version in installed[each.package])
    ]
    problems = []
    if cycle := cycle_of(entry.source, entries):
        problems.append(f"it needs itself: {' -> '.join(cycle)}")
    if missing:
        problems.append(f"missing dependencies: {_some(missing)}")
    if wrong:
        problems.append(f"incompatible dependencies: {_some(wrong)}")
    return DependencyStatus(len(reached), len(reached) - len(missing), len(wrong), "; ".join(problems))


def _reached(entry: Entry, entries: Sequence[Entry]) -> set[str]:
    """Everything that a revision needs, directly or not; itself is not among it."""
    edges = _edges(entries)
    reached = {each.package for each in entry.dependencies}
    todo = list(reached)
    while todo:
        for target in edges.get(todo.pop(), ()):
            if target not in reached:
                reached.add(target)
                todo.append(target)
    return reached - {entry.source}


def _versions(entries: Iterable[Entry]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry.version not in found.setdefault(entry.source, []):
            found[entry.source].append(entry.version)
    return {source: tuple(sorted(versions)) for source, versions in found.items()}


def _edges(entries: Iterable[Entry]) -> Mapping[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for entry in entries:
        edges.setdefault(entry.source, set()).update(each.package for each in entry.dependencies)
    return edges


def _describe(need: Need) -> str:
    return "; ".join(map(str, need.asks))


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_SHOWN])
    return f"{shown} and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else shown
