"""Which revision of a function runs: one pure decision for composition steps, blueprint phases and operations.

Whoever calls brings a catalogue (every version there is, wherever it comes from) and a request (what one step, phase
or operation says). The answer depends on nothing else, and says which rule made it and why the others were not taken.

In order: a lock leaves one candidate. A name (`ref`), else labels (`selector`), and a `pin` are hard: they never fall
back. Of what is left, removed and inactive versions drop out. Then a `hint` decides if it can, then the version marked
stable, then the default: the highest-numbered ready one, else the highest-numbered active one (`LATEST`), or v0.0.0 for
code that nobody versioned (`UNVERSIONED`). The capability is looked at last, so that a new revision which has lost it
fails loudly instead of yielding to an older one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from planform.functions.errors import (
    FunctionNotFound,
    MissingCapability,
    ResolutionError,
    VersionInactive,
    VersionNotFound,
    VersionNotReady,
    VersionRemoved,
)
from planform.functions.runner import MAX_ANSWER_SIZE, FunctionRevision
from planform.functions.semver import UNVERSIONED, Semver, parse_semver

STABLE_LABEL: Final = "planform.dev/stable"
LEGACY_CAPABILITIES: Final = frozenset({"composition"})
"""What a package that declares no capability counts as."""
_PREFIX: Final = "function-"
"""What most functions are called before their name begins."""


class Lifecycle(StrEnum):
    """How far a version is in its life; packages know only `CURRENT`, versions files the rest."""

    CURRENT = "current"
    PREVIEW = "preview"
    DEPRECATED = "deprecated"
    REMOVED = "removed"


class Default(StrEnum):
    """What is taken when nothing asks for a version and none is marked stable."""

    LATEST = "Latest"
    UNVERSIONED = "Unversioned"


class Rule(StrEnum):
    """What decided."""

    LOCK = "Lock"
    REF = "Ref"
    SELECTOR = "Selector"
    PIN = "Pin"
    HINT = "Hint"
    STABLE = "Stable"
    LATEST = "Latest"
    UNVERSIONED = "Unversioned"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a function. `id` is unique within the function: a revision's name, or a semver."""

    function: str
    id: str
    digest: str = ""
    semver: str = ""
    number: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    active: bool = True
    ready: bool = True
    reachable: bool = True
    """Whether it is known where it serves; an active revision may have no endpoint yet."""
    stable: bool = False
    lifecycle: Lifecycle = Lifecycle.CURRENT
    note: str = ""
    """What to tell users of a deprecated or removed version: since when, and what replaces it."""
    capabilities: frozenset[str] | None = None
    deterministic: bool = False
    quick: bool = False
    created: str = ""
    max_answer_size: int = MAX_ANSWER_SIZE
    activation: str = field(default="", compare=False)
    """How users would have an inactive one serve."""
    revision: FunctionRevision = field(init=False, repr=False, compare=False)
    """As everything downstream knows it. Made once: every reconcile of a fleet asks for it again and again."""

    def __post_init__(self) -> None:
        revision = FunctionRevision(
            self.function, self.id, self.digest or self.id, self.deterministic, self.quick, self.max_answer_size
        )
        object.__setattr__(self, "revision", revision)

    @property
    def is_stable(self) -> bool:
        return self.stable or self.labels.get(STABLE_LABEL) == "true"

    def can(self, capability: str) -> bool:
        """Spelling does not matter: case and punctuation are dropped. Without any, the legacy ones are meant."""
        have = self.capabilities or LEGACY_CAPABILITIES
        return not capability or _bare(capability) in {_bare(each) for each in have}


class Catalogue:
    """Every version of every function, in one order whatever the order they came in."""

    def __init__(self, versions: Iterable[Version] = ()) -> None:
        grouped: dict[str, list[Version]] = {}
        for version in versions:
            grouped.setdefault(version.function, []).append(version)
        self._versions = {name: tuple(sorted(grouped[name], key=_rank, reverse=True)) for name in sorted(grouped)}

    @property
    def functions(self) -> tuple[str, ...]:
        return tuple(self._versions)

    def versions(self, function: str) -> tuple[Version, ...]:
        """The newest first."""
        return self._versions.get(function, ())


@dataclass(frozen=True, slots=True)
class Request:
    """What a step, phase or operation says about the version it wants."""

    function: str
    capability: str = ""
    ref: str = ""
    selector: Mapping[str, str] | None = None
    pin: str = ""
    hint: str = ""
    lock: str = ""
    default: Default = Default.LATEST
    selectors_enabled: bool = True
    """Off, as a feature gate may set it, `ref` and `selector` are ignored with a warning."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate and why it was not taken."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """The version that runs, the rule that chose it, and what the user should hear about it."""

    version: Version
    rule: Rule
    warnings: tuple[str, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    @property
    def revision(self) -> FunctionRevision:
        return self.version.revision


def resolve(catalogue: Catalogue, request: Request) -> Resolution:
    """Choose the version that runs. Raises a ResolutionError that lists every candidate and why it was rejected."""
    return _Resolving(catalogue, request).decide()


class _Resolving:
    """One resolution on its way: the candidates left, those rejected, the warnings so far."""

    def __init__(self, catalogue: Catalogue, request: Request) -> None:
        self._catalogue = catalogue
        self._request = request
        self._left: list[Version] = list(catalogue.versions(request.function))
        self._unusable: list[Version] = []
        self._rejected: list[Rejected] = []
        self._warnings: list[str] = []
        self._ref = request.ref
        self._selector = request.selector
        if not request.selectors_enabled and (self._ref or self._selector is not None):
            self._ref, self._selector = "", None
            self._warn("the feature gate FunctionRevisionSelectors is off: the choice of a revision is ignored")

    def decide(self) -> Resolution:
        if not self._left:
            raise self._unknown_function()
        rule = self._constrain()
        self._drop_unusable()
        rule, version = self._pick(rule)
        if not version.can(self._request.capability):
            have = ", ".join(sorted(version.capabilities or LEGACY_CAPABILITIES))
            raise MissingCapability(
                f'revision "{version.id}" has no capability "{self._request.capability}" (it has: {have})',
                function=self._request.function,
                hint="use a revision whose package declares it",
            )
        if version.lifecycle is Lifecycle.DEPRECATED:
            self._warn(f'version "{version.id}" is deprecated' + (f": {version.note}" if version.note else ""))
        elif version.lifecycle is Lifecycle.PREVIEW:
            self._warn(f'version "{version.id}" is a preview')
        for other in self._left:
            if other is not version:
                self._rejected.append(Rejected(other.id, f'"{version.id}" comes first by rule {rule}'))
        return Resolution(version, rule, tuple(self._warnings), tuple(self._rejected))

    def _constrain(self) -> Rule | None:
        """Apply lock, ref or selector, and pin; give the one that decides if they leave a single candidate."""
        request, rule = self._request, None
        if request.lock:
            self._keep(lambda each: each.id == request.lock, f'this run is locked to "{request.lock}"')
            rule = Rule.LOCK
        elif self._ref:
            self._keep(lambda each: each.id == self._ref, f'not the revision "{self._ref}"')
            rule = Rule.REF
            if self._selector is not None:
                self._warn("functionRevisionRef is used and functionRevisionSelector ignored: only one of them counts")
        elif self._selector is not None:
            wanted = self._selector
            self._keep(
                lambda each: all(each.labels.get(key) == value for key, value in wanted.items()),
                f"does not have the labels {_labels(wanted)}",
            )
            rule = Rule.SELECTOR
        if request.pin and not request.lock:
            pin = parse_semver(request.pin)
            if pin is None:
                raise VersionNotFound(
                    f'"{request.pin}" is not a version with three parts', function=request.function, hint="as in v1.2.0"
                )
            self._keep(lambda each: _semver(each) == pin, f"is not {request.pin}")
            rule = rule or Rule.PIN
        return rule

    def _keep(self, holds: _Test, otherwise: str) -> None:
        kept = [each for each in self._left if holds(each)]
        self._rejected += [Rejected(each.id, otherwise) for each in self._left if each not in kept]
        self._left = kept
        if not kept:
            raise self._error(VersionNotFound, f"no revision is what this step asks for: {self._wanted()}")

    def _drop_unusable(self) -> None:
        reasons: list[type[ResolutionError]] = []
        usable = []
        for each in self._left:
            if each.lifecycle is Lifecycle.REMOVED:
                reasons.append(VersionRemoved)
                why = "removed" + (f", {each.note}" if each.note else "")
            elif not each.active:
                reasons.append(VersionInactive)
                why = "inactive"
            elif not each.reachable:
                reasons.append(VersionNotReady)
                why = "active, has no endpoint yet"
            else:
                usable.append(each)
                continue
            self._rejected.append(Rejected(each.id, why))
        self._unusable = [each for each in self._left if each not in usable]
        self._left = usable
        if usable:
            return
        # The nearest to being usable gives the error its name: what only has to start is worth another try.
        for kind, text, hint in (
            (VersionNotReady, "the active revision has no endpoint yet", "wait for its runtime to start"),
            (VersionInactive, "no active revision", f"activate one: planform function activate {self._name}"),
            (VersionRemoved, "the version was removed", "use its replacement"),
        ):
            if kind in reasons:
                if kind is VersionInactive:
                    hint = next((each.activation for each in self._unusable if each.activation), hint)
                raise self._error(kind, text + self._for_wanted(), hint)

    def _pick(self, rule: Rule | None) -> tuple[Rule, Version]:
        request = self._request
        if rule in (Rule.LOCK, Rule.REF):
            return rule, self._left[0]
        if request.hint and not request.pin and (hinted := self._hinted()) is not None:
            return Rule.HINT, hinted
        if rule is None and (stable := self._stable()) is not None:
            return Rule.STABLE, stable
        if request.default is Default.UNVERSIONED and rule is None:
            base = next((each for each in self._left if _semver(each) == UNVERSIONED), None)
            if base is None:
                raise self._error(VersionNotFound, "no version is stable and there is no v0.0.0", "name a version")
            return Rule.UNVERSIONED, base
        latest = next((each for each in self._left if each.ready), self._left[0])
        if not latest.ready:
            self._warn(f'revision "{latest.id}" is not ready, and no other is')
        return rule or Rule.LATEST, latest

    def _hinted(self) -> Version | None:
        hint = parse_semver(self._request.hint, short=True)
        if hint is None:
            self._warn(f'the preferred version "{self._request.hint}" is not a version')
            return None
        if parse_semver(self._request.hint) is None:
            self._warn(f'the preferred version "{self._request.hint}" is short for {_text(hint)}')
        for each in self._unusable:
            if _semver(each) == hint and each.lifecycle is Lifecycle.REMOVED:
                raise self._error(VersionRemoved, f'the preferred version "{each.id}" was removed', each.note or None)
        found = next((each for each in self._left if _semver(each) == hint), None)
        if found is None:
            self._warn(f'the preferred version "{self._request.hint}" is not available')
        return found

    def _stable(self) -> Version | None:
        marked = [each for each in (*self._left, *self._unusable) if each.is_stable]
        if not marked:
            return None
        usable = [each for each in self._left if each.is_stable]
        if not usable:
            kind = VersionNotReady if any(each.active for each in marked) else VersionInactive
            raise self._error(
                kind, f'"{marked[0].id}" is marked stable and does not serve', "start it or move the mark"
            )
        if len(usable) > 1:
            self._warn(f"several revisions are marked stable: {', '.join(each.id for each in usable)}")
        if not usable[0].ready:
            raise self._error(
                VersionNotReady, f'"{usable[0].id}" is marked stable and not ready', "wait, or move the mark"
            )
        return usable[0]

    def _unknown_function(self) -> FunctionNotFound:
        name, known = self._name, self._catalogue.functions
        own = {each.removeprefix(_PREFIX): each for each in known}  # or all would be near to each other
        near = get_close_matches(name.removeprefix(_PREFIX), own, n=1)
        hint = f'did you mean "{own[near[0]]}"? ' if near else ""
        return FunctionNotFound(
            "no such function is installed", function=name, hint=f"{hint}To see all: planform function list"
        )

    def _error(self, kind: type[ResolutionError], text: str, hint: str | None = None) -> ResolutionError:
        rejected = [(each.id, each.why) for each in self._rejected]
        return kind(text, function=self._name, rejected=rejected, hint=hint or "to see all: planform function list")

    def _wanted(self) -> str:
        request = self._request
        parts = [
            f'locked to "{request.lock}"' if request.lock else "",
            f'name "{self._ref}"' if self._ref else "",
            f"labels {_labels(self._selector)}" if self._selector is not None and not self._ref else "",
            f"version {request.pin}" if request.pin else "",
        ]
        return ", ".join(filter(None, parts))

    def _for_wanted(self) -> str:
        wanted = self._wanted()
        return f" ({wanted})" if wanted else ""

    @property
    def _name(self) -> str:
        return self._request.function

    def _warn(self, text: str) -> None:
        self._warnings.append(text)


_Test = Callable[[Version], bool]


def _rank(version: Version) -> tuple[int, tuple[int, Semver], str, str]:
    """The order of versions: by number, then version, then age, then name, so that no two are equal."""
    semver = _semver(version)
    return version.number, (0, UNVERSIONED) if semver is None else (1, semver), version.created, version.id


def _semver(version: Version) -> Semver | None:
    return parse_semver(version.semver or version.id)


def _text(version: Semver) -> str:
    return f"v{version.major}.{version.minor}.{version.patch}"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "(none)"


def _bare(capability: str) -> str:
    return "".join(char for char in capability if char.isalnum()).lower()
