"""Keeps Blueprints that cannot run, and ActionSets that say what cannot be, out of the API; warns about what will age.

An admission plugin for both engines. It also binds the phases of Blueprints whose versionPolicy is Lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from planform.api.annotations import annotations_of
from planform.api.kinds import Object
from planform.api.names import ACTION_SET, BLUEPRINT, BLUEPRINTS_GROUP, PROFILE
from planform.apiserver.admission.chain import Admission
from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment
from planform.blueprints.errors import BlueprintInvalid
from planform.blueprints.model import LOCKS_ANNOTATION, Blueprint, encode_locks, parse_blueprint
from planform.blueprints.planning import locks_wanted
from planform.blueprints.validation import (
    Findings,
    action_set_findings,
    blueprint_findings,
    profile_findings,
    status_errors,
)
from planform.errors import Invalid
from planform.store import Key, Store

Lookup = Callable[[str, str], Object | None]
"""The Blueprint of a namespace and name, or None."""

_SUBSTANCE: Final = ("actions", "versionPolicy", "spec", "location", "credential")


def blueprints_in(store: Store) -> Lookup:
    """Blueprints as the next write will find them."""

    def look(namespace: str, name: str) -> Object | None:
        entry = store.head(Key(f"blueprints.{BLUEPRINTS_GROUP}", namespace, name))
        found: Object | None = orjson.loads(entry.value) if entry is not None else None
        return found

    return look


class BlueprintGuard:
    """`look` finds the Blueprints that ActionSets name; without it they are not looked at."""

    def __init__(
        self, catalogue: PhaseCatalogue, *, here: PhaseEnvironment | None = None, look: Lookup | None = None
    ) -> None:
        self._catalogue = catalogue
        self._here = here if here is not None else PhaseEnvironment()
        self._look = look

    def admit(self, admission: Admission, /) -> None:
        """Refuse with all that is wrong at once, as an Invalid with a cause for each field."""
        new, old = admission.new, admission.old
        if new is None or admission.kind.group != BLUEPRINTS_GROUP or admission.subresource:
            return
        self._catalogue.refresh()
        findings = Findings()
        if admission.kind.kind == ACTION_SET.kind:
            findings.errors += status_errors(new)
        changed = old is None or any(new.get(name) != old.get(name) for name in _SUBSTANCE)
        if admission.kind.kind == BLUEPRINT.kind and (changed or _locks(new) != _locks(old or {})):
            _keep_locks(new, old)
            self._bind(new)
        if changed:
            self._look_at(admission, new, findings)
        if admission.kind.kind == ACTION_SET.kind and changed and (old or {}).get("status"):
            findings.warn("an ActionSet runs once: what is changed now has no effect on it")
        for warning in findings.warnings:
            admission.request.warn(warning)
        if findings.errors:
            raise Invalid.of(admission.kind.group, admission.kind.kind, admission.name, findings.errors)

    def _look_at(self, admission: Admission, new: Object, findings: Findings) -> None:
        kind = admission.kind.kind
        if kind == BLUEPRINT.kind:
            found = blueprint_findings(new, self._catalogue, self._here)
        elif kind == ACTION_SET.kind:
            found = action_set_findings(new, self._blueprints(admission.namespace, new), self._catalogue)
        elif kind == PROFILE.kind:
            found = profile_findings(new)
        else:
            return
        findings.errors += found.errors
        findings.warnings += found.warnings

    def _blueprints(self, namespace: str, new: Mapping[str, Any]) -> dict[str, Blueprint | None]:
        """Those that an ActionSet names, as far as they can be read."""
        found: dict[str, Blueprint | None] = {}
        if self._look is None:
            return found
        for action in (new.get("spec") or {}).get("actions") or ():
            name = action.get("blueprint")
            if not name or not isinstance(name, str):
                continue
            obj = self._look(namespace, name)
            try:
                found[name] = None if obj is None else parse_blueprint(obj)
            except BlueprintInvalid:
                continue
        return found

    def _bind(self, new: Object) -> None:
        """Write down which versions the phases of a Blueprint are bound to, if it wants that."""
        try:
            blueprint = parse_blueprint(new)
        except BlueprintInvalid:
            return
        annotations = dict(annotations_of(new))
        annotations.pop(LOCKS_ANNOTATION, None)
        if blueprint.locks_versions:
            annotations[LOCKS_ANNOTATION] = encode_locks(locks_wanted(blueprint, self._catalogue))
        if annotations:
            new["metadata"]["annotations"] = annotations
        else:
            new["metadata"].pop("annotations", None)


def _locks(obj: Mapping[str, Any]) -> Any:
    return annotations_of(obj).get(LOCKS_ANNOTATION)


def _keep_locks(new: Object, old: Mapping[str, Any] | None) -> None:
    """What a Blueprint was bound to stays, whatever a client sends."""
    before = _locks(old or {})
    if before is not None:
        new["metadata"].setdefault("annotations", {})
        new["metadata"]["annotations"] = {**annotations_of(new), LOCKS_ANNOTATION: before}
