"""Whose NopResources are: ours, unless a Provider was installed that brings their kinds.

Two controllers on one resource would undo each other's work. So the built-in one steps back from each kind whose
definition a package owns, and comes back, with the definition if need be, once the package is gone.

A package may define the kind as ours is, or with another scope:

    as ours is      the definition is handed over and back with all its objects. While a package has it, the Lock owns
                    it too, so that it does not go with the package
    another scope   ours makes way if there are no objects of it, for those would have no place in the other; theirs
                    goes with the package, as the definitions of all packages do. Before its objects are counted the
                    kind takes no new ones, so that none is lost which somebody creates at that moment
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from planform.api.extensions.nop import cluster_nop_resource, nop_resource
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import is_deleted, labels_of, name_of, namespace_of, uid_of
from planform.api.names import CRD, LOCK, NOP_GROUP
from planform.api.owners import owner_reference, owners_of
from planform.client.informer import InformerEvent, ObjectKey, list_pages
from planform.client.protocol import Client
from planform.client.waits import time_limit
from planform.definitions.own_crds import LABELS, ensure_crd, is_owned
from planform.engine.nop import MANAGED_FINALIZER, MANAGER, NopController
from planform.engine.nop import NAME as BUILT_IN
from planform.errors import Invalid, NotFound
from planform.features import FeatureGates
from planform.packages.errors import PackageError
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source
from planform.reconcile.writes import merge, remove_finalizer

NAME: Final = "nop-kinds"
GATE: Final = "BuiltInNopResources"
_SOON: Final = 0.2
_GLANCE: Final = 0.02
_PATIENCE: Final = 30.0
_MAX_NAMED: Final = 3
_KEY: Final = ObjectKey("", "nop.crossplane.io")
_KEEPER: Final = "lock"
_RULES: Final = "x-kubernetes-validations"
_CLOSED: Final = "a package takes over this kind at this moment; try again in a few seconds"


class KindInUse(PackageError):
    """A package brings a built-in kind with another scope, and there are objects of the built-in one."""

    reason = "KindInUse"

    def __init__(self, kind: str, scope: str, objects: Sequence[str]) -> None:
        named = ", ".join(objects[:_MAX_NAMED])
        more = f" and {len(objects) - _MAX_NAMED} more" if len(objects) > _MAX_NAMED else ""
        super().__init__(
            f"{kind} is {scope} in this package, and the built-in {kind} is not: its objects cannot become the"
            f" package's. Delete them first: {named}{more}"
        )


async def groups_left_out(client: Client, features: FeatureGates) -> Collection[str]:
    """The groups of our kinds that a start does not see to: it does not wait for a package's definitions to go."""
    if not features.enabled(GATE):
        return (NOP_GROUP,)
    for crd in (nop_resource(), cluster_nop_resource()):
        try:
            found = await client.get(CRD, name_of(crd))
        except NotFound:
            continue
        if is_deleted(found):
            return (NOP_GROUP,)
    return ()


class NopKinds:
    """Runs the built-in controller of NopResources while they are nobody else's."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._client = context.client
        self._wanted = {name_of(crd): crd for crd in (nop_resource(), cluster_nop_resource())}
        self._making_way: set[str] = set()  # definitions of ours that a package takes the place of at this moment
        self._served: frozenset[GroupVersionKind] = frozenset()
        self._controller: Controller[ObjectKey] | None = None

    def start(self) -> None:
        """Run on the context's manager, unless the gate is off; starting twice is starting once."""
        if not self._context.features.enabled(GATE):
            return
        self._controller = self._context.controller(NAME, self.reconcile)
        self._context.manager.start(self._controller, [Source(CRD, self._to_kinds), Source(LOCK, lambda _: [_KEY])])
        self._controller.queue.add(_KEY)  # there may be no definition to hear of

    @property
    def served(self) -> frozenset[GroupVersionKind]:
        """The kinds that are ours."""
        return self._served

    async def reconcile(self, _: ObjectKey) -> Result:
        ours, again = set(), False
        for name, wanted in self._wanted.items():
            found = await self._find(name)
            if found is not None and is_deleted(found):
                await self._release(found)
                again = True
            elif found is not None and _is_a_packages(found):
                await self._keep(found, wanted)
            elif name not in self._making_way:
                if found is not None and is_owned(found):
                    found = await merge(self._client, found, {"metadata": {"ownerReferences": None}}, manager=MANAGER)
                await ensure_crd(self._client, wanted, clock=self._context.clock)
                ours.add(_kind_of(wanted))
        await self._serve(frozenset(ours))
        return Result(requeue_after=_SOON if again else None)

    async def _serve(self, kinds: frozenset[GroupVersionKind]) -> None:
        if kinds != self._served:
            await self._context.manager.stop(BUILT_IN)
            self._served = kinds
        if kinds:
            NopController(self._context, sorted(kinds)).start()

    async def _release(self, crd: Object) -> None:
        """Release the objects of a definition that goes: who held them is gone, and they would hold it up for ever."""
        try:
            async for page in list_pages(self._client, _kind_of(crd)):
                for obj in page.items:
                    if is_deleted(obj):
                        await remove_finalizer(self._client, obj, MANAGED_FINALIZER, manager=MANAGER)
        except NotFound:
            pass  # it is no longer served, so there are none

    async def _keep(self, found: Object, wanted: Object) -> None:
        """Have a definition that is as ours outlive its package, with its objects."""
        owners = owners_of(found)
        if found["spec"]["scope"] != wanted["spec"]["scope"] or any(each["kind"] == LOCK.kind for each in owners):
            return
        try:
            lock = await self._client.get(LOCK, _KEEPER)
        except NotFound:
            return  # nothing was installed by us
        await merge(
            self._client, found, {"metadata": {"ownerReferences": [*owners, owner_reference(lock)]}}, manager=MANAGER
        )

    # -- a package with another scope

    @asynccontextmanager
    async def giving_way(self, objects: Iterable[Object]) -> AsyncIterator[None]:
        """Have definitions of ours out of the way of a package's, while the block brings these. Raises KindInUse."""
        theirs = {name_of(each): each for each in objects if gvk_of(each) == CRD}
        names = theirs.keys() & self._wanted.keys()
        try:
            for name in sorted(names):
                await self._make_way(theirs[name])
            yield
        finally:
            self._making_way -= names
            if names and self._controller is not None:
                self._controller.queue.add(_KEY)

    async def _make_way(self, theirs: Object) -> None:
        name = name_of(theirs)
        found = await self._find(name)
        if found is None or found["spec"]["scope"] == theirs["spec"]["scope"]:
            return
        if _is_a_packages(found) or not labels_of(found).items() >= LABELS.items():
            return  # somebody else's, which is for the API to refuse
        await self._refuse_if_used(found, theirs)
        self._making_way.add(name)
        await self._serve(self._served - {_kind_of(found)})
        found = await self._close(found)
        try:
            await self._refuse_if_used(found, theirs)
        except KindInUse:
            await ensure_crd(self._client, self._wanted[name], clock=self._context.clock)
            raise
        metadata = found["metadata"]
        try:
            await self._client.delete(CRD, name, uid=metadata["uid"])  # its status may have changed since
        except NotFound:
            return
        async with time_limit(self._context.clock, _PATIENCE):
            while (found := await self._find(name)) is not None and uid_of(found) == metadata["uid"]:
                await self._context.clock.sleep(_GLANCE)

    async def _close(self, crd: Object) -> Object:
        """Have a kind of ours refuse every new object; gives the definition. `ensure_crd` takes that back.

        An API server takes some time to follow a definition, so it is asked until it refuses.
        """
        refusal = {"rule": "false", "message": _CLOSED}
        versions = [
            {**each, "schema": {"openAPIV3Schema": {**each["schema"]["openAPIV3Schema"], _RULES: [refusal]}}}
            for each in crd["spec"]["versions"]
        ]
        closed = await self._client.update({**crd, "spec": {**crd["spec"], "versions": versions}}, manager=MANAGER)
        kind = _kind_of(crd)
        metadata = {"name": "is-it-closed"} | ({"namespace": "default"} if crd["spec"]["scope"] == "Namespaced" else {})
        trial: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        async with time_limit(self._context.clock, _PATIENCE):
            while True:
                try:
                    await self._client.create({**trial, "spec": {"forProvider": {}}}, manager=MANAGER, dry_run=True)
                except Invalid:
                    return closed
                await self._context.clock.sleep(_GLANCE)

    async def _refuse_if_used(self, ours: Object, theirs: Object) -> None:
        if objects := await self._objects(ours):
            raise KindInUse(ours["spec"]["names"]["kind"], theirs["spec"]["scope"], objects)

    async def _objects(self, crd: Object) -> list[str]:
        found = []
        async for page in list_pages(self._client, _kind_of(crd)):
            for obj in page.items:
                found.append("/".join(filter(None, (namespace_of(obj), name_of(obj)))))
        return found

    async def _find(self, name: str) -> Object | None:
        try:
            return await self._client.get(CRD, name)
        except NotFound:
            return None

    def _to_kinds(self, change: InformerEvent) -> Iterable[ObjectKey]:
        return [_KEY] if change.key.name in self._wanted else []


def _is_a_packages(crd: Mapping[str, object]) -> bool:
    """Whether somebody owns a definition beside the Lock, which only keeps it."""
    metadata = crd["metadata"]
    assert isinstance(metadata, dict)
    return any(each["kind"] != LOCK.kind for each in metadata.get("ownerReferences") or ())


def _kind_of(crd: Object) -> GroupVersionKind:
    version = next(each["name"] for each in crd["spec"]["versions"] if each["storage"])
    return GroupVersionKind(NOP_GROUP, version, crd["spec"]["names"]["kind"])
