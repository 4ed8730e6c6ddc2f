"""Who may decide about Rollouts, and who may take a revision that is not released.

An admission plugin, for the embedded chain and for the webhook. It stamps RolloutActions with whoever makes them, asks
for a verb of their own for each action, and lets nobody else than the control plane make Rollouts. A plugin does not
wait, so the webhook asks the API server the `questions` first and gives the plugin their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import orjson

from planform.api.kinds import Object
from planform.api.names import COMPOSITION_REVISION, ROLLOUT, ROLLOUT_ACTION, ROLLOUT_GROUP
from planform.api.rollouts import OWN_ACTIONS
from planform.apiserver.admission.authorship import Allows
from planform.apiserver.admission.chain import Admission
from planform.apiserver.auth.rbac import forbidden
from planform.apiserver.verbs.requests import CONTROL_PLANE
from planform.client.rights import Access
from planform.clock import Clock, micro_timestamp
from planform.compositions.selection import release_of
from planform.store import Key, Store

ADOPT: Final = Access("adopt", ROLLOUT_GROUP, "rollouts")
"""What it takes to refer to a revision that is not released."""
RESTORE: Final = Access("restore", ROLLOUT_GROUP, "rollouts")
"""What it takes to bring Rollouts and RolloutActions along as they were, as a backup does."""
_VERBS: Final = {"PromoteFull": "promote"}
_STAMPED: Final = ("by", "groups", "at")

Look = Callable[[str], Object | None]
"""The CompositionRevision of this name, or None."""


def revisions_in(store: Store) -> Look:
    """CompositionRevisions as the next write will find them."""

    def look(name: str) -> Object | None:
        entry = store.head(Key(f"compositionrevisions.{COMPOSITION_REVISION.group}", "", name))
        found: Object | None = orjson.loads(entry.value) if entry is not None else None
        return found

    return look


class RolloutGuard:
    """`controllers` are the names that the control plane itself has."""

    def __init__(
        self, allows: Allows, look: Look, clock: Clock, controllers: Collection[str] = (CONTROL_PLANE.name,)
    ) -> None:
        self._allows = allows
        self._look = look
        self._clock = clock
        self._controllers = frozenset(controllers)

    def admit(self, admission: Admission, /) -> None:
        """Raises Forbidden."""
        new, user = admission.new, admission.request.user
        if new is None or admission.subresource:
            return
        kind = admission.kind
        if kind.group == ROLLOUT_GROUP:
            if admission.operation == "CREATE" and kind.kind == ROLLOUT_ACTION.kind:
                self._admit_action(admission, new)
            elif admission.operation == "CREATE" and kind.kind == ROLLOUT.kind:
                self._need(admission, RESTORE, "only the control plane makes Rollouts")
            return
        name = adopted(admission)
        if not name or user.name in self._controllers:
            return
        revision = self._look(name)
        if revision is not None and (release := release_of(revision)) is not None and release.withholds:
            why = f'composition revision "{name}" is not released ({release.reason}), and referring to it'
            self._need(admission, ADOPT, why)

    def _admit_action(self, admission: Admission, new: Object) -> None:
        user, spec = admission.request.user, dict(new.get("spec") or {})
        if user.name not in self._controllers:
            brought = bool(spec.get("by") and spec.get("at")) and self._allows(user, RESTORE)
            if not brought:
                if spec.get("action") in OWN_ACTIONS:
                    self._need(admission, RESTORE, f"only the control plane decides {spec['action']}")
                self._need(admission, needed(new), f"the action {spec.get('action')}")
                spec = {key: value for key, value in spec.items() if key not in _STAMPED}
                spec |= {"by": user.name, "groups": sorted(user.groups)}
        spec.setdefault("at", micro_timestamp(self._clock.now()))
        new["spec"] = spec

    def _need(self, admission: Admission, access: Access, why: str) -> None:
        user = admission.request.user
        if user.name not in self._controllers and not self._allows(user, access):
            text = f'{why} needs a right that user "{user.name}" does not have: {access.verb} {access.resource}'
            raise forbidden(admission.kind.group, admission.kind.plural, admission.name, text)


def needed(action: Mapping[str, Any]) -> Access:
    """The right that a RolloutAction takes."""
    spec = action.get("spec") or {}
    name = str(spec.get("action") or "")
    return Access(_VERBS.get(name, name.lower()), ROLLOUT_GROUP, "rollouts", "", str(spec.get("rollout") or ""))


def questions(admission: Admission, controllers: Collection[str]) -> Iterator[Access]:
    """What the plugin may ask about this write's author."""
    if admission.new is None or admission.request.user.name in controllers:
        return
    if admission.kind.group == ROLLOUT_GROUP:
        yield RESTORE
        if admission.kind.kind == ROLLOUT_ACTION.kind:
            yield needed(admission.new)
    elif adopted(admission):
        yield ADOPT


def adopted(admission: Admission) -> str:
    """The revision that an XR or a claim comes to refer to by this write; empty if that does not change."""
    name = _reference(admission.new)
    return name if name and name != _reference(admission.old) else ""


def _reference(obj: Mapping[str, Any] | None) -> str:
    spec = (obj or {}).get("spec")
    if not isinstance(spec, Mapping):
        return ""
    crossplane = spec.get("crossplane")
    fields = crossplane if isinstance(crossplane, Mapping) else spec
    found = fields.get("compositionRevisionRef")
    return str(found.get("name") or "") if isinstance(found, Mapping) else ""
