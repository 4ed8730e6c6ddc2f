"""Policies say in their status which of their expressions make no sense for the kinds that they name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from planform.api.extensions.policies import POLICY
from planform.api.kinds import Object
from planform.api.metadata import generation_of
from planform.apiserver.verbs import writes
from planform.apiserver.verbs.core import Core, key_of
from planform.apiserver.verbs.requests import Request
from planform.errors import NotFound
from planform.reconcile.controller import Controller, Result
from planform.store import Change, Key

_RESOURCE = "validatingadmissionpolicies.admissionregistration.k8s.io"
_MANAGER = "validatingadmissionpolicy-status"


class PolicyTypeChecks:
    """Keys are names of policies. Each generation is checked once, by the kinds that are served then."""

    def __init__(self, core: Core, controller: Callable[..., Controller[Any]]) -> None:
        self._core = core
        self.controller: Controller[str] = controller("policy-type-checks", self._reconcile, 1)

    def begin(self) -> None:
        for key, _ in self._core.store.list(_RESOURCE):
            self.controller.queue.add(key.name)

    def changed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.key.resource == _RESOURCE:
                self.controller.queue.add(change.key.name)

    async def _reconcile(self, name: str) -> Result:
        entry = self._core.store.get(Key(_RESOURCE, "", name))
        if entry is None:
            return Result()
        policy: Object = orjson.loads(entry.value)
        generation = generation_of(policy)
        if generation <= int((policy.get("status") or {}).get("observedGeneration") or 0):
            return Result()
        from planform.apiserver.admission.dynamic.type_checking import expression_warnings

        warnings = await asyncio.to_thread(expression_warnings, policy, self._core.registry)
        checked: Object = {"expressionWarnings": warnings} if warnings else {}
        status = {"observedGeneration": generation, "typeChecking": checked}
        served = self._core.registry.find(POLICY)
        try:
            await writes.modify(
                self._core,
                served,
                key_of(served, "", name),
                lambda current: {**current, "status": {**(current.get("status") or {}), **status}},
                Request(manager=_MANAGER),
                subresource="status",
            )
        except NotFound:
            pass
        return Result()
