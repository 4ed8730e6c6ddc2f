"""XRs whose controllers run in several processes: what each of them has to know of the XRs that others reconcile.

One process leads: it serves XRDs, numbers revisions and all else that is not an XR. Every process runs the controllers
of XRs for the shards it holds. So the others follow which XRDs are served, and all keep count of every XR, since the
leader may only conclude that a revision is unused if it knows of those that it does not reconcile itself.
"""

from __future__ import annotations

from typing import Final

from planform.api.kinds import Object
from planform.api.metadata import is_deleted
from planform.api.names import XRD
from planform.api.xr import composition_fields
from planform.client.informer import InformerEvent, ObjectKey
from planform.compositions.usage_index import UsageIndex, XrKey
from planform.definitions.controller import InstanceControllers
from planform.errors import NotFound
from planform.pipeline.revision_selectors import RevisionSelector
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.shards import Shards
from planform.reconcile.sources import Source, Subscription, to_self
from planform.xrs.index import Definition

PREFIX: Final = "composite/"
"""What the names of the controllers of XRs begin with."""
NAME: Final = "served-definitions"


class SharedComposites:
    """Controllers of XRs that also keep count of the XRs which belong to other processes."""

    def __init__(
        self, composites: InstanceControllers, context: ControllerContext, usage_index: UsageIndex, shards: Shards
    ) -> None:
        self._composites = composites
        self._manager = context.manager
        self._usage_index = usage_index
        self._shards = shards
        self._counting: dict[str, Subscription] = {}
        shards.on_begin(self._look_again)

    async def start(self, xrd: Object) -> None:
        await self._composites.start(xrd)
        definition = Definition.of(xrd)
        before = self._counting.get(definition.name)
        if before is not None and before.scope.gvk == definition.kind:
            return
        if before is not None:
            before.close()
        self._counting[definition.name] = self._manager.subscribe(
            definition.kind, lambda change: self._heard(definition, change)
        )

    async def stop(self, xrd_name: str) -> None:
        await self._composites.stop(xrd_name)
        subscription = self._counting.pop(xrd_name, None)
        if subscription is not None:
            subscription.close()

    def _heard(self, definition: Definition, change: InformerEvent) -> None:
        """Count an XR as it says of itself, unless its own reconcile here does."""
        if self._shards.owns(f"{PREFIX}{definition.name}", change.key):
            return
        xr = XrKey(definition.group_kind, *change.key)
        if change.type == "DELETED":
            self._usage_index.forget(xr)
            return
        fields = composition_fields(change.object, definition.style)
        composition = (fields.get("compositionRef") or {}).get("name")
        if composition:
            revision = (fields.get("compositionRevisionRef") or {}).get("name") or ""
            selector = RevisionSelector.of(fields.get("compositionRevisionSelector"))
            self._usage_index.set(xr, composition, revision, selector)

    def _look_again(self) -> None:
        for name in self._manager.names:
            if self._shards.shares(name):
                self._manager.revisit(name)


class ServedDefinitions:
    """Runs the controllers of XRs for every XRD that the leader serves, in a process that does not lead."""

    def __init__(self, context: ControllerContext, composites: InstanceControllers) -> None:
        self._context = context
        self._composites = composites

    def start(self) -> None:
        self._context.manager.start(self._context.controller(NAME, self.reconcile), [Source(XRD, to_self)])

    async def stop(self) -> None:
        """This process leads now, and decides itself."""
        await self._context.manager.stop(NAME)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Follow what the XRD says of itself. One that is being deleted keeps its controller while it has XRs."""
        try:
            xrd = await self._context.client.get(XRD, key.name)
        except NotFound:
            await self._composites.stop(key.name)
            return Result()
        if not is_deleted(xrd) and _is_served(xrd):
            await self._composites.start(xrd)
        return Result()


def _is_served(xrd: Object) -> bool:
    """Whether the leader has said so of the XRD as it is now."""
    for condition in (xrd.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Established":
            generation = condition.get("observedGeneration")
            return condition["status"] == "True" and generation in (None, xrd["metadata"].get("generation"))
    return False
