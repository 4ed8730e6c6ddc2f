"""Which function revisions are used, by live XRs and by phases.

An XR follows a revision of its Composition, whose steps choose function revisions. Counting what they choose now needs
no run of any pipeline, so it is right from the moment all XRs are known, and for XRs that fail as well.

A phase is bound to a version of its function by its Blueprint, or by the ActionSet that runs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from planform.api.metadata import labels_of, name_of
from planform.api.names import COMPOSITION_NAME_LABEL, COMPOSITION_REVISION
from planform.blueprints.packaged_phases import CAPABILITY
from planform.blueprints.uses import FOLLOWS
from planform.client.informer import InformerEvent
from planform.compositions.pinned_functions import PinnedFunctions
from planform.compositions.revisions import composition_label
from planform.compositions.usage_index import UsageIndex
from planform.functions.errors import ResolutionError
from planform.functions.resolution import Catalogue, Request, resolve
from planform.packages.function_catalogue import LiveFunctions
from planform.pipeline.modes import InvalidComposition, pipeline_of
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Subscription
from planform.telemetry.metrics import MetricsRegistry


@dataclass(frozen=True, slots=True)
class _Step:
    """What one step asks for."""

    function: str
    pin: str
    selector: tuple[tuple[str, str], ...]


class PhaseUses(Protocol):
    """Whoever knows how many Blueprints and ActionSets are bound to a version of a function."""

    def __call__(self, function: str, version: str) -> Mapping[str, int]: ...

    def subscribe(self, callback: Callable[[str], None]) -> None: ...


class FunctionUsers:
    """Counts on demand; tells of functions whose counts may be others."""

    def __init__(
        self,
        manager: Manager,
        usage_index: UsageIndex,
        live: LiveFunctions,
        phases: PhaseUses | None = None,
        *,
        pins: PinnedFunctions | None = None,
        metrics: MetricsRegistry | None = None,
        selectors_enabled: bool = True,
    ) -> None:
        self._manager = manager
        self._usage_index = usage_index
        self._live = live
        self._phases = phases
        self._pins = pins
        self._selectors_enabled = selectors_enabled
        self._steps: dict[str, tuple[str, tuple[_Step, ...]]] = {}  # of each composition revision: its label, its steps
        self._names: dict[str, set[str]] = {}  # by label: the Compositions that XRs name
        self._subscribers: list[Callable[[str], None]] = []
        self._subscription: Subscription | None = None
        metrics = metrics or MetricsRegistry()
        self._gauge = metrics.gauge(
            "planform_function_revision_users",
            "XRs with a step that chooses a function revision.",
            ["function", "revision"],
        )
        self._shown: set[tuple[str, str]] = set()
        metrics.before_render(self._refresh)

    def start(self) -> None:
        if self._subscription is None:
            self._subscription = self._manager.subscribe(COMPOSITION_REVISION, self._revision_changed)
            self._usage_index.subscribe(self._composition_moved, self._notify_all)
            if self._phases is not None:
                self._phases.subscribe(self._phases_moved)
            if self._pins is not None:
                self._pins.subscribe(lambda function: self._notify({function}))

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Tell `callback` each function whose users may be others now."""
        self._subscribers.append(callback)

    def complete(self) -> bool:
        """Whether all XRs are known, so that a revision nobody is known to use is unused."""
        return self._usage_index.complete()

    def users(self, function: str) -> Mapping[str, int]:
        """How many XRs use each revision of a function; those used by none are left out.

        In use is what a step of theirs would get, by whatever rule, also while it is inactive and they get nothing.
        """
        found: Counter[str] = Counter()
        for name, _, count in self._uses(function):
            found[name] += count
        return found

    def users_by_composition(self, function: str) -> Mapping[str, frozenset[str]]:
        """The Compositions whose XRs use each revision of a function."""
        found: dict[str, set[str]] = {}
        for name, composition, _ in self._uses(function):
            found.setdefault(name, set()).add(composition)
        return {name: frozenset(compositions) for name, compositions in found.items()}

    def _uses(self, function: str) -> Iterator[tuple[str, str, int]]:
        """Each revision that XRs of a Composition use, the Composition, and how many they are."""
        chosen: dict[_Step, str] = {}
        for label, compositions in self._names.items():
            for composition in compositions:
                for revision, count in self._usage_index.users(composition).items():
                    steps = {step for step in self._steps_of(revision, label) if step.function == function}
                    names = {self._choice(step, chosen) for step in steps}
                    yield from ((name, composition, count) for name in names - {""})

    def phases(self, function: str) -> Mapping[str, int]:
        """How many Blueprints and ActionSets run each revision of a function that phases call, bound to it or not."""
        versions = [each for each in self._live.catalogue.versions(function) if each.can(CAPABILITY)]
        if self._phases is None or not versions:
            return {}
        from planform.blueprints.packaged_calls import by_tag, followed

        found = Counter({each.id: sum(self._phases(function, tag).values()) for tag, each in by_tag(versions).items()})
        found[followed(versions).id] += sum(self._phases(function, FOLLOWS).values())
        return found

    def pinned(self, function: str) -> Mapping[str, frozenset[str]]:
        """The revisions of a function that have to go on serving, each with the Compositions that pin it."""
        return self._pins.pinned(function) if self._pins is not None else {}

    def compositions(self, function: str) -> frozenset[str]:
        """The composition revisions that have a step of the function, whichever revision of it the step chooses."""
        return frozenset(
            name for name, (_, steps) in self._steps.items() if any(step.function == function for step in steps)
        )

    def _refresh(self) -> None:
        """Bring the gauge up to date; only somebody who reads metrics pays for it."""
        functions = {step.function for _, steps in self._steps.values() for step in steps}
        found = {(name, each): count for name in functions for each, count in self.users(name).items()}
        for gone in self._shown - found.keys():
            self._gauge.remove(*gone)
        for labels, count in found.items():
            self._gauge.labels(*labels).set(count)
        self._shown = set(found)

    def _steps_of(self, revision: str, label: str) -> tuple[_Step, ...]:
        known = self._steps.get(revision)
        return known[1] if known is not None and known[0] == label else ()

    def _choice(self, step: _Step, chosen: dict[_Step, str]) -> str:
        if step not in chosen:
            request = Request(
                step.function,
                ref=step.pin,
                selector=dict(step.selector) or None,
                selectors_enabled=self._selectors_enabled,
            )
            chosen[step] = self._resolved(request) or step.pin
        return chosen[step]

    def _resolved(self, request: Request) -> str:
        """The revision that a step gets; if none can be called, the one that it would get if all could."""
        catalogue = self._live.catalogue
        try:
            return resolve(catalogue, request).revision.name
        except ResolutionError:
            pass
        versions = catalogue.versions(request.function)
        callable_ = Catalogue(replace(each, active=True, reachable=True, ready=True) for each in versions)
        try:
            return resolve(callable_, request).revision.name
        except ResolutionError:
            return ""

    def _revision_changed(self, change: InformerEvent) -> None:
        name, before = name_of(change.object), self._steps.pop(name_of(change.object), None)
        steps: tuple[_Step, ...] = ()
        if change.type != "DELETED":
            label = str(labels_of(change.object).get(COMPOSITION_NAME_LABEL) or "")
            steps = _steps(change.object)
            self._steps[name] = label, steps
        if before is None or before[1] != steps:
            self._notify({step.function for step in (*steps, *(before[1] if before is not None else ()))})

    def _composition_moved(self, composition: str) -> None:
        label = composition_label(composition)
        self._names.setdefault(label, set()).add(composition)
        self._notify({step.function for of, steps in self._steps.values() if of == label for step in steps})

    def _phases_moved(self, function: str) -> None:
        if function in self._live.catalogue.functions:  # others came with planform
            self._notify({function})

    def _notify_all(self) -> None:
        self._notify({step.function for _, steps in self._steps.values() for step in steps})

    def _notify(self, functions: set[str]) -> None:
        for function in sorted(functions):
            for callback in self._subscribers:
                callback(function)


def _steps(revision: Mapping[str, Any]) -> tuple[_Step, ...]:
    found = []
    try:
        pipeline = pipeline_of(revision["spec"])
    except InvalidComposition:
        return ()
    for step in pipeline:
        selector = (step.get("functionRevisionSelector") or {}).get("matchLabels") or {}
        found.append(
            _Step(
                str((step.get("functionRef") or {}).get("name") or ""),
                str((step.get("functionRevisionRef") or {}).get("name") or ""),
                tuple(sorted(selector.items())),
            )
        )
    return tuple(found)
