"""Every namespace has a ServiceAccount named `default`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from planform.api.kinds import gvk
from planform.apiserver.verbs import writes
from planform.apiserver.verbs.core import Core
from planform.apiserver.verbs.metadata import is_terminating
from planform.apiserver.verbs.requests import Request
from planform.errors import AlreadyExists, Forbidden, NotFound
from planform.reconcile.controller import Controller, Result
from planform.store import Change, ChangeType, Key

_SERVICE_ACCOUNT = gvk("v1", "ServiceAccount")


class ServiceAccountController:
    """Creates what is missing; keys are names of namespaces."""

    def __init__(self, core: Core, controller: Callable[..., Controller[Any]]) -> None:
        self._core = core
        self.controller: Controller[str] = controller("service-accounts", self._reconcile)

    def begin(self) -> None:
        for key, _ in self._core.store.list("namespaces"):
            if self._core.store.get(Key("serviceaccounts", key.name, "default")) is None:
                self.controller.queue.add(key.name)

    def changed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            key = change.key
            if key.resource == "namespaces" and change.type is ChangeType.ADDED:
                self.controller.queue.add(key.name)
            elif key.resource == "serviceaccounts" and key.name == "default" and change.type is ChangeType.DELETED:
                self.controller.queue.add(key.namespace)

    async def _reconcile(self, namespace: str) -> Result:
        entry = self._core.store.get(Key("namespaces", "", namespace))
        if entry is None or is_terminating(orjson.loads(entry.value)):
            return Result()
        served = self._core.registry.find(_SERVICE_ACCOUNT)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        try:
            await writes.create(self._core, served, account, Request(), namespace=namespace)
        except (AlreadyExists, NotFound, Forbidden):
            pass
        return Result()
