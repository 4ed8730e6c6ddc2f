"""Who uses which version of a function: Blueprints that pin it, and ActionSets whose runs are bound to it.

Kept up to date by two watches, so that discovery can tell whether a version may go. It counts; it names nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from planform.api.names import ACTION_SET, BLUEPRINT
from planform.blueprints.registry import version_text
from planform.blueprints.validation import is_over
from planform.client.informer import Change, ObjectKey
from planform.functions.semver import parse_semver
from planform.reconcile.plane import Plane

Use = tuple[str, str]
"""A function and its version."""


class FunctionUses:
    """Counts by function and version. `start` once; asking costs a look-up."""

    def __init__(self) -> None:
        self._by_blueprint: dict[ObjectKey, frozenset[Use]] = {}
        self._by_action_set: dict[ObjectKey, frozenset[Use]] = {}
        self._counts: dict[str, Counter[Use]] = {"blueprints": Counter(), "actionSets": Counter()}

    def start(self, plane: Plane) -> None:
        plane.subscribe(BLUEPRINT, self._blueprint)
        plane.subscribe(ACTION_SET, self._action_set)

    def __call__(self, function: str, version: str) -> Mapping[str, int]:
        return {name: counts[(function, version)] for name, counts in self._counts.items()}

    def _blueprint(self, change: Change) -> None:
        uses = frozenset(_pins(change.object)) if change.type != "DELETED" else frozenset()
        self._note("blueprints", self._by_blueprint, change.key, uses)

    def _action_set(self, change: Change) -> None:
        ended = change.type == "DELETED" or is_over(change.object)
        uses = frozenset() if ended else frozenset(_bound(change.object))
        self._note("actionSets", self._by_action_set, change.key, uses)

    def _note(self, name: str, known: dict[ObjectKey, frozenset[Use]], key: ObjectKey, uses: frozenset[Use]) -> None:
        counts = self._counts[name]
        counts.subtract(known.pop(key, ()))
        counts.update(uses)
        if uses:
            known[key] = uses


def _pins(blueprint: Mapping[str, Any]) -> Iterator[Use]:
    actions = blueprint.get("actions")
    for action in actions.values() if isinstance(actions, Mapping) else ():
        phases = [*(action.get("phases") or ()), *([action["deferPhase"]] if action.get("deferPhase") else ())]
        for phase in phases:
            number = parse_semver(str(phase.get("funcVersion") or ""))
            if number is not None:
                yield str(phase.get("func") or ""), version_text(number)


def _bound(action_set: Mapping[str, Any]) -> Iterator[Use]:
    for action in (action_set.get("status") or {}).get("actions") or ():
        phases = [*(action.get("phases") or ()), *([action["deferPhase"]] if action.get("deferPhase") else ())]
        for phase in phases:
            if phase.get("func") and phase.get("funcVersion"):
                yield phase["func"], phase["funcVersion"]
