"""The embedded engine put together: a registry that follows the store, and the Core that the verbs take."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from planform.api.kinds import Object
from planform.apiserver.admission.chain import AdmissionPlugin
from planform.apiserver.crds import definitions
from planform.apiserver.crds.builtin_kinds import builtin_served_kinds
from planform.apiserver.crds.registry import KindRegistry
from planform.apiserver.random_bytes import PooledSystemRandom
from planform.apiserver.verbs.core import ConversionWebhooks, Core
from planform.clock import Clock
from planform.store import Change, ChangeType, Store

log = logging.getLogger(__name__)


def open_engine(
    store: Store,
    clock: Clock,
    *,
    rng: random.Random | None = None,
    admission: Sequence[AdmissionPlugin] = (),
    webhooks: ConversionWebhooks | None = None,
) -> Core:
    """Serve the built-in kinds and every established CRD of the store, now and from now on."""
    registry = KindRegistry()
    registry.add(builtin_served_kinds(clock.now))
    follower = _CrdFollower(registry)
    for _, entry in store.list(definitions.RESOURCE):
        follower.take(orjson.loads(entry.value), entry.rv)
    store.subscribe(follower.changed)
    return Core(store, registry, clock, rng or PooledSystemRandom(), admission, webhooks)


class _Taken(NamedTuple):
    """All of a CRD that decides how it is served, and since when it has this spec."""

    spec: Object
    names: Object | None
    terminating: bool
    since: int


class _CrdFollower:
    """Keeps the registry equal to the established CRDs of the committed store."""

    def __init__(self, registry: KindRegistry) -> None:
        self._registry = registry
        self._taken: dict[str, _Taken] = {}

    def changed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.key.resource != definitions.RESOURCE:
                continue
            if change.type is ChangeType.DELETED:
                self._forget(change.key.name)
            else:
                self.take(orjson.loads(change.value), change.rv)

    def take(self, crd: Object, rv: int) -> None:
        name = crd["metadata"]["name"]
        if not definitions.is_established(crd):
            self._forget(name)
            return
        before = self._taken.get(name)
        # Only a change of spec can make stored objects look old; a status write must not.
        since = before.since if before is not None and before.spec == crd["spec"] else rv
        taken = _Taken(crd["spec"], crd["status"].get("acceptedNames"), "deletionTimestamp" in crd["metadata"], since)
        if taken == before:
            return
        try:
            kinds = definitions.served_kinds(crd, since)
        except (KeyError, TypeError, StopIteration):
            log.exception("cannot serve a CRD", extra={"crd": name})
            return
        self._taken[name] = taken
        self._registry.replace(crd["spec"]["group"], crd["spec"]["names"]["plural"], kinds)

    def _forget(self, name: str) -> None:
        if self._taken.pop(name, None) is not None:
            plural, _, group = name.partition(".")
            self._registry.remove(group, plural)
