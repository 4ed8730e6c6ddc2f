"""Deletes what packages left on the disk: what came from registries, and what was unpacked of it.

Needed is what a revision is made of, whether it is active or not; what still runs, though its revision is gone; and
what the name of an installed package is known to mean, as its revision may be about to be made. Everything else goes,
whatever crash, edit or uninstallation left it behind, and so do the certificates and logs of revisions that are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, Protocol

from planform.api.annotations import annotations_of
from planform.api.extensions.packages import PackageSpec
from planform.api.metadata import name_of
from planform.api.objects import spec_of
from planform.client.informer import InformerEvent, ObjectKey
from planform.packages.fetching import PackageSource
from planform.packages.locking import KINDS
from planform.packages.revision_objects import DIGEST_ANNOTATION
from planform.packages.runtimes.host import RuntimeStatus
from planform.packages.runtimes.listeners import OnChange
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.sources import Source

NAME: Final = "package-files"
_KEY: Final = ObjectKey("", NAME)


class Running(Protocol):
    """Whoever runs revisions on this machine, and tells when one has come to its end."""

    def runtime_status(self, revision: str) -> RuntimeStatus | None: ...

    def forget(self, revision: str) -> None: ...

    def subscribe(self, callback: OnChange) -> object: ...


class PackageSweep:
    """Looks at what is there when the control plane starts, when a revision is deleted, and when one has ended.

    `data` is the control plane's directory, in which the host keeps something of each revision.
    """

    def __init__(self, context: ControllerContext, source: PackageSource, host: Running, data: Path) -> None:
        self._context = context
        self._client = context.client
        self._source = source
        self._host = host
        self._kept = [data / each for each in ("certificates", "runtimes")]
        self._digests: dict[str, str] = {}  # of each revision that is there or still runs

    def start(self) -> None:
        def if_deleted(change: InformerEvent) -> Sequence[ObjectKey]:
            return (_KEY,) if change.type == "DELETED" else ()

        def if_ended(revision: str) -> None:
            if self._host.runtime_status(revision) is None:
                controller.queue.add(_KEY)

        controller = self._context.controller(NAME, self.reconcile)
        if self._context.manager.start(controller, [Source(kind, if_deleted) for kind in KINDS]):
            self._host.subscribe(if_ended)
            controller.queue.add(_KEY)

    async def reconcile(self, key: ObjectKey) -> Result:
        running = {
            name: digest for name, digest in self._digests.items() if self._host.runtime_status(name) is not None
        }
        present = {}
        for kind in KINDS:
            for revision in (await self._client.list(kind)).items:
                present[name_of(revision)] = annotations_of(revision).get(DIGEST_ANNOTATION, "")
        self._digests = {**running, **present}
        self._forget_all_but(present)
        meant = set()
        for kind in KINDS.values():
            for package in (await self._client.list(kind)).items:
                meant.add(await self._source.meaning(spec_of(package, PackageSpec).package))
        needed = {*self._digests.values(), *meant} - {""}
        return Result(requeue_after=await self._source.keep(needed))

    def _forget_all_but(self, present: Collection[str]) -> None:
        """Whatever the host keeps of other revisions goes; it knows best how. What it runs, it forgets by itself."""
        kept = {each.name for place in self._kept if place.is_dir() for each in place.iterdir()}
        for revision in sorted(kept - set(present)):
            if self._host.runtime_status(revision) is None:
                self._host.forget(revision)
