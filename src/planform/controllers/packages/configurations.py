"""Configurations: packages of definitions, compositions and operations. Nothing of them runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planform.api.kinds import Object
from planform.api.names import CONFIGURATION, CONFIGURATION_REVISION
from planform.client.informer import ObjectKey
from planform.controllers.packages.contents import PackageContents
from planform.controllers.packages.controller import Content, Examined, PackageController
from planform.controllers.packages.locking import LockController
from planform.controllers.workbench import Workbench
from planform.packages.revision_objects import ACTIVE
from planform.reconcile.controller import Controller

NAME: Final = "configurations"


class ConfigurationController(PackageController):
    """Keeps the revisions of every Configuration, and has the objects of the active one in the engine."""

    def __init__(self, bench: Workbench, contents: PackageContents, lock: LockController) -> None:
        super().__init__(bench, NAME, CONFIGURATION, CONFIGURATION_REVISION, contents.source)
        self._contents = contents
        self._lock = lock

    def _started(self, controller: Controller[ObjectKey]) -> None:
        self._lock.subscribe(self._look_again_on(controller))
        self._contents.deliveries.subscribe(self._look_again_on(controller))

    async def _content(self, package: Object, revisions: Mapping[str, Object]) -> Content:
        return await self._contents.content(package, revisions)

    async def _examine(self, revision: Object) -> Examined:
        if revision["spec"]["desiredState"] != ACTIVE:
            self._contents.rest(revision)
            return Examined(runtime=None)
        installed = await self._contents.install(revision, CONFIGURATION.kind)
        return Examined(installed.problem, None, installed.told)

    async def _gone(self, name: str) -> None:
        self._contents.deliveries.gone(CONFIGURATION.kind, name)
