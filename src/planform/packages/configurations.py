"""Configurations: packages of definitions, compositions and operations. Nothing of them runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planform.api.extensions.packages import RevisionSpec
from planform.api.kinds import Object
from planform.api.names import CONFIGURATION, CONFIGURATION_REVISION
from planform.api.objects import spec_of
from planform.client.informer import ObjectKey
from planform.packages.contents import PackageContents
from planform.packages.controller import Content, Examined, PackageController
from planform.packages.locking import LockController
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller

NAME: Final = "configurations"


class ConfigurationController(PackageController):
    """Keeps the revisions of every Configuration, and has the objects of the active one in the engine."""

    def __init__(self, context: ControllerContext, contents: PackageContents, lock: LockController) -> None:
        super().__init__(context, NAME, CONFIGURATION, CONFIGURATION_REVISION, contents.source)
        self._contents = contents
        self._lock = lock

    def _started(self, controller: Controller[ObjectKey]) -> None:
        self._lock.subscribe(self._look_again_on(controller))
        self._contents.deliveries.subscribe(self._look_again_on(controller))

    async def _content(self, package: Object, revisions: Mapping[str, Object]) -> Content:
        return await self._contents.content(package, revisions)

    async def _examine(self, revision: Object) -> Examined:
        if not spec_of(revision, RevisionSpec).is_active:
            self._contents.rest(revision)
            return Examined(runtime=None)
        installed = await self._contents.install(revision, CONFIGURATION.kind)
        return Examined(installed.problem, None, installed.status_fields)

    async def _gone(self, name: str) -> None:
        self._contents.deliveries.gone(CONFIGURATION.kind, name)
