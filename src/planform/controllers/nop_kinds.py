"""Whose NopResources are: ours, unless a Provider was installed that brings their kinds.

Two controllers on one resource would undo each other's work. So the built-in one steps back for a package that owns
a definition of theirs, and comes back, with the definitions if need be, once the package is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from planform.api.extensions.nop import cluster_nop_resource, nop_resource
from planform.api.kinds import Object
from planform.api.names import CRD
from planform.client.informer import Change, ObjectKey
from planform.controllers.crds import ensure_crd, is_owned
from planform.controllers.nop import NAME as BUILT_IN
from planform.controllers.nop import NopController
from planform.controllers.workbench import Workbench
from planform.errors import NotFound
from planform.reconcile.controller import Result
from planform.reconcile.sources import Source

NAME: Final = "nop-kinds"
_SOON: Final = 0.2
_KEY: Final = ObjectKey("", "nop.crossplane.io")


class NopKinds:
    """Runs the built-in controller of NopResources while they are nobody else's."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._controller = NopController(bench)
        self._wanted = {crd["metadata"]["name"]: crd for crd in (nop_resource(), cluster_nop_resource())}
        self._stepped_back = False

    def start(self) -> None:
        """Run on the bench's plane; starting twice is starting once."""
        controller = self._bench.controller(NAME, self.reconcile)
        self._bench.plane.start(controller, [Source(CRD, self._to_kinds)])

    async def reconcile(self, _: ObjectKey) -> Result:
        found = [await self._find(name) for name in self._wanted]
        if any(crd is not None and is_owned(crd) for crd in found):
            self._stepped_back = True
            await self._bench.plane.stop(BUILT_IN)
            return Result()
        if self._stepped_back:
            if any(crd is not None and crd["metadata"].get("deletionTimestamp") for crd in found):
                return Result(requeue_after=_SOON)
            for crd in self._wanted.values():
                await ensure_crd(self._bench.client, crd, clock=self._bench.clock)
            self._stepped_back = False
        self._controller.start()
        return Result()

    async def _find(self, name: str) -> Object | None:
        try:
            return await self._bench.client.get(CRD, name)
        except NotFound:
            return None

    def _to_kinds(self, change: Change) -> Iterable[ObjectKey]:
        return [_KEY] if change.key.name in self._wanted else []
