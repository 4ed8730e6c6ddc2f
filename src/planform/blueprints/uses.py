"""Who uses which version of a function: Blueprints that are bound to it, and ActionSets whose runs are.

Kept up to date by two watches, so that discovery can tell whether a version may go, and no package's revision goes that
is used. It counts; it names nobody. As long as there is nothing to count, nothing of blueprints is loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from planform.api.names import ACTION_SET, BLUEPRINT
from planform.client.informer import InformerEvent, ObjectKey
from planform.functions.semver import parse_semver
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Subscription

Use = tuple[str, str]
"""A function and its version."""
FOLLOWS: Final = ""
"""The version of phases that name none, and are not kept on one."""


class FunctionUses:
    """Counts by function and version. Starting it twice is harmless; asking costs a look-up."""

    def __init__(self) -> None:
        self._by_blueprint: dict[ObjectKey, frozenset[Use]] = {}
        self._by_action_set: dict[ObjectKey, frozenset[Use]] = {}
        self._counts: dict[str, Counter[Use]] = {"blueprints": Counter(), "actionSets": Counter()}
        self._watches: tuple[Subscription, ...] = ()
        self._subscribers: list[Callable[[str], None]] = []

    def start(self, manager: Manager) -> None:
        if not self._watches:
            self._watches = (
                manager.subscribe(BLUEPRINT, self._blueprint),
                manager.subscribe(ACTION_SET, self._action_set),
            )

    async def synced(self) -> None:
        """Wait until all that there was at the start is counted."""
        for watch in self._watches:
            await watch.synced()

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Tell `callback` each function whose counts are others now."""
        self._subscribers.append(callback)

    def __call__(self, function: str, version: str) -> Mapping[str, int]:
        return {name: counts[(function, version)] for name, counts in self._counts.items()}

    def _blueprint(self, change: InformerEvent) -> None:
        gone = change.type == "DELETED"
        uses: frozenset[Use] = frozenset() if gone else frozenset((*_pins(change.object), *_locks(change.object)))
        self._note("blueprints", self._by_blueprint, change.key, uses)

    def _action_set(self, change: InformerEvent) -> None:
        from planform.blueprints.validation import is_over

        ended = change.type == "DELETED" or is_over(change.object)
        uses = frozenset() if ended else frozenset(_bound(change.object))
        self._note("actionSets", self._by_action_set, change.key, uses)

    def _note(self, name: str, known: dict[ObjectKey, frozenset[Use]], key: ObjectKey, uses: frozenset[Use]) -> None:
        counts, before = self._counts[name], known.pop(key, frozenset())
        counts.subtract(before)
        counts.update(uses)
        if uses:
            known[key] = uses
        for function in sorted({function for function, _ in before ^ uses}):
            for callback in self._subscribers:
                callback(function)


def _pins(blueprint: Mapping[str, Any]) -> Iterator[Use]:
    from planform.blueprints.registry import version_text

    actions = blueprint.get("actions")
    for action in actions.values() if isinstance(actions, Mapping) else ():
        phases = [*(action.get("phases") or ()), *([action["deferPhase"]] if action.get("deferPhase") else ())]
        for phase in phases:
            function, number = str(phase.get("func") or ""), parse_semver(str(phase.get("funcVersion") or ""))
            if number is not None:
                yield function, version_text(number)
            elif function and not phase.get("funcVersion") and blueprint.get("versionPolicy") != "Lock":
                yield function, FOLLOWS


def _locks(blueprint: Mapping[str, Any]) -> Iterator[Use]:
    """What a Blueprint whose policy is Lock keeps its other phases on."""
    if blueprint.get("versionPolicy") != "Lock":
        return
    from planform.blueprints.errors import BlueprintInvalid
    from planform.blueprints.model import parse_blueprint
    from planform.blueprints.planning import bound_version

    try:
        parsed = parse_blueprint(blueprint)
    except BlueprintInvalid:
        return  # nobody can run it
    for action in parsed.actions.values():
        for phase in action.all_phases:
            if not phase.pin and (version := bound_version(parsed, action, phase)):
                yield phase.function, version


def _bound(action_set: Mapping[str, Any]) -> Iterator[Use]:
    for action in (action_set.get("status") or {}).get("actions") or ():
        phases = [*(action.get("phases") or ()), *([action["deferPhase"]] if action.get("deferPhase") else ())]
        for phase in phases:
            if phase.get("func") and phase.get("funcVersion"):
                yield phase["func"], phase["funcVersion"]
