"""Which function revisions are used, by live XRs and by phases.

An XR follows a revision of its Composition, whose steps choose function revisions. Counting what they choose now needs
no run of any pipeline, so it is right from the moment all XRs are known, and for XRs that fail as well.

A phase is bound to a version of its function by its Blueprint, or by the ActionSet that runs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from planform.api.names import COMPOSITION_NAME_LABEL, COMPOSITION_REVISION
from planform.client.informer import Change
from planform.composition.modes import InvalidComposition, pipeline_of
from planform.composition.revisions import composition_label
from planform.controllers.function_catalogue import LiveFunctions
from planform.controllers.packaged_phases import CAPABILITY
from planform.controllers.population import Population
from planform.functions.errors import ResolutionError
from planform.functions.resolution import Request, resolve
from planform.reconcile.plane import Plane
from planform.reconcile.sources import Subscription
from planform.telemetry.metrics import Registry


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
        plane: Plane,
        population: Population,
        live: LiveFunctions,
        phases: PhaseUses | None = None,
        *,
        metrics: Registry | None = None,
        selectors_enabled: bool = True,
    ) -> None:
        self._plane = plane
        self._population = population
        self._live = live
        self._phases = phases
        self._selectors_enabled = selectors_enabled
        self._steps: dict[str, tuple[str, tuple[_Step, ...]]] = {}  # of each composition revision: its label, its steps
        self._names: dict[str, set[str]] = {}  # by label: the Compositions that XRs name
        self._subscribers: list[Callable[[str], None]] = []
        self._subscription: Subscription | None = None
        metrics = metrics or Registry()
        self._gauge = metrics.gauge(
            "planform_function_revision_users",
            "XRs with a step that chooses a function revision.",
            ["function", "revision"],
        )
        self._shown: set[tuple[str, str]] = set()
        metrics.before_render(self._refresh)

    def start(self) -> None:
        if self._subscription is None:
            self._subscription = self._plane.subscribe(COMPOSITION_REVISION, self._revision_changed)
            self._population.subscribe(self._composition_moved, self._tell_all)
            if self._phases is not None:
                self._phases.subscribe(self._phases_moved)

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Tell `callback` each function whose users may be others now."""
        self._subscribers.append(callback)

    def complete(self) -> bool:
        """Whether all XRs are known, so that a revision nobody is known to use is unused."""
        return self._population.complete()

    def users(self, function: str) -> Mapping[str, int]:
        """How many XRs use each revision of a function; those used by none are left out."""
        found: Counter[str] = Counter()
        chosen: dict[_Step, str] = {}
        for label, compositions in self._names.items():
            for composition in compositions:
                for revision, count in self._population.users(composition).items():
                    steps = {step for step in self._steps_of(revision, label) if step.function == function}
                    names = {self._choice(step, chosen) for step in steps}
                    for name in names - {""}:
                        found[name] += count
        return found

    def phases(self, function: str) -> Mapping[str, int]:
        """How many Blueprints and ActionSets are bound to each revision of a function that phases call."""
        versions = [each for each in self._live.catalogue.versions(function) if each.can(CAPABILITY)]
        if self._phases is None or not versions:
            return {}
        from planform.controllers.packaged_calls import by_tag

        return {each.id: sum(self._phases(function, tag).values()) for tag, each in by_tag(versions).items()}

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
            try:
                request = Request(
                    step.function,
                    ref=step.pin,
                    selector=dict(step.selector) or None,
                    selectors_enabled=self._selectors_enabled,
                )
                chosen[step] = resolve(self._live.catalogue, request).revision.name
            except ResolutionError:
                chosen[step] = step.pin  # what is pinned is needed, even while it cannot be called
        return chosen[step]

    def _revision_changed(self, change: Change) -> None:
        metadata = change.object["metadata"]
        name, before = metadata["name"], self._steps.pop(metadata["name"], None)
        steps: tuple[_Step, ...] = ()
        if change.type != "DELETED":
            label = str((metadata.get("labels") or {}).get(COMPOSITION_NAME_LABEL) or "")
            steps = _steps(change.object)
            self._steps[name] = label, steps
        if before is None or before[1] != steps:
            self._tell({step.function for step in (*steps, *(before[1] if before is not None else ()))})

    def _composition_moved(self, composition: str) -> None:
        label = composition_label(composition)
        self._names.setdefault(label, set()).add(composition)
        self._tell({step.function for of, steps in self._steps.values() if of == label for step in steps})

    def _phases_moved(self, function: str) -> None:
        if function in self._live.catalogue.functions:  # others came with planform
            self._tell({function})

    def _tell_all(self) -> None:
        self._tell({step.function for _, steps in self._steps.values() for step in steps})

    def _tell(self, functions: set[str]) -> None:
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
