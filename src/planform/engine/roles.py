"""ClusterRoles that gather the rules of others show what they gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from planform.api.kinds import Object, gvk
from planform.api.metadata import labels_of, name_of
from planform.apimachinery.selectors import LabelSelector, SelectorError
from planform.apiserver.verbs import writes
from planform.apiserver.verbs.core import Core, key_of
from planform.apiserver.verbs.requests import Request
from planform.errors import NotFound
from planform.reconcile.controller import Controller, Result
from planform.store import Change, Key

_RESOURCE = "clusterroles.rbac.authorization.k8s.io"
_CLUSTER_ROLE = gvk("rbac.authorization.k8s.io/v1", "ClusterRole")
_MANAGER = "clusterrole-aggregation-controller"


class RoleAggregation:
    """Keys are names of ClusterRoles with an aggregationRule. Decisions do not wait for it: RBAC gathers by itself."""

    def __init__(self, core: Core, controller: Callable[..., Controller[Any]]) -> None:
        self._core = core
        self.controller: Controller[str] = controller("role-aggregation", self._reconcile, 1)

    def begin(self) -> None:
        for key, entry in self._core.store.list(_RESOURCE):
            if b'"aggregationRule"' in entry.value:
                self.controller.queue.add(key.name)

    def changed(self, changes: Sequence[Change]) -> None:
        if any(change.key.resource == _RESOURCE for change in changes):
            self.begin()

    async def _reconcile(self, name: str) -> Result:
        entry = self._core.store.get(Key(_RESOURCE, "", name))
        if entry is None:
            return Result()
        role: Object = orjson.loads(entry.value)
        rules = self._gathered(role)
        if rules == (role.get("rules") or []):
            return Result()
        served = self._core.registry.find(_CLUSTER_ROLE)
        try:
            await writes.modify(
                self._core,
                served,
                key_of(served, "", name),
                lambda current: {**current, "rules": rules},
                Request(manager=_MANAGER),
            )
        except NotFound:
            pass
        return Result()

    def _gathered(self, role: Object) -> list[Object]:
        """The rules of every role that one of the selectors matches, each once, in order of the roles' names."""
        selectors = []
        for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
            try:
                selectors.append(LabelSelector.from_object(selector))
            except SelectorError:
                continue
        rules: list[Object] = []
        for key, entry in self._core.store.list(_RESOURCE):
            other: Object = orjson.loads(entry.value)
            labels = labels_of(other)
            if key.name != name_of(role) and any(selector.matches(labels) for selector in selectors):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
        return rules
