"""Under a RolloutPolicy a Composition that XRs use is not deleted, nor is a revision of it that they use.

A GitOps tool that replaces a Composition deletes it and makes it again. The second one's first revision would be
released as first revisions are, and the whole fleet would move past every wave. A finalizer keeps both as long as XRs
use them and a policy holds the Composition; without a policy there is none, and deleting is what it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from planform.api.conditions import XrCondition
from planform.api.kinds import Object
from planform.api.metadata import finalizers_of, is_deleted, name_of
from planform.api.names import IN_USE_FINALIZER
from planform.client.protocol import Client
from planform.errors import NotFound
from planform.reconcile.writes import add_finalizer, merge

IN_USE: Final = "InUse"


def is_kept(obj: Mapping[str, Any]) -> bool:
    """Whether a Composition or a revision has the finalizer."""
    return IN_USE_FINALIZER in finalizers_of(obj)


def deletion_waits(policy: str) -> XrCondition:
    """What a Composition says of itself whose deletion waits."""
    text = (
        f'it is being deleted and XRs use it: RolloutPolicy "{policy}" keeps it, and its revisions, until no XR does;'
        " delete the XRs, have them use another Composition, or delete the policy"
    )
    return XrCondition("Synced", "False", IN_USE, text)


class DeletionHold:
    """Gives Compositions and revisions their finalizer, and takes it away."""

    def __init__(self, client: Client, *, manager: str) -> None:
        self._client = client
        self._manager = manager

    async def settle(self, obj: Object, *, held: bool) -> Object:
        """A Composition or revision that nobody deleted: with the finalizer if a policy holds it, else without."""
        if held:
            return await add_finalizer(self._client, obj, IN_USE_FINALIZER, manager=self._manager)
        return await self._finalize(obj) if is_kept(obj) else obj

    async def settle_revisions(
        self, revisions: Sequence[Object], *, held: bool, used: Mapping[str, int] | None
    ) -> list[Object]:
        """The revisions that are left. `used` is None as long as not all XRs are known: none is let go of then."""
        left = []
        for revision in revisions:
            with suppress(NotFound):  # it went meanwhile
                if not is_deleted(revision):
                    left.append(await self.settle(revision, held=held))
                elif is_kept(revision) and (not held or (used is not None and not used.get(name_of(revision)))):
                    await self._finalize(revision)
                else:
                    left.append(revision)
        return left

    async def finalize(self, *objects: Object) -> None:
        """Have deletions go on."""
        for each in objects:
            if is_kept(each):
                with suppress(NotFound):
                    await self._finalize(each)

    async def _finalize(self, obj: Object) -> Object:
        left = [each for each in finalizers_of(obj) if each != IN_USE_FINALIZER]
        return await merge(self._client, obj, {"metadata": {"finalizers": left}}, manager=self._manager)
