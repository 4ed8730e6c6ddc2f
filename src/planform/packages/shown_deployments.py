"""Providers that run on this machine, shown as the Deployments that they have in a cluster.

Nothing is run because of these: a provider's program is the control plane's own child. Who looks for the Deployment of
a provider, as scripts and dashboards do, finds there what is wanted of it and what runs. It goes with the revision.
"""

from __future__ import annotations

from planform.api.kinds import Object
from planform.api.metadata import generation_of, name_of, uid_of
from planform.api.names import SYSTEM_NAMESPACE
from planform.errors import BadRequest, Forbidden, Invalid, NotFound
from planform.packages.contents import PackageContents
from planform.packages.runtimes.deployments import (
    DEPLOYMENT,
    REVISION_LABEL,
    covers,
    deployment_of,
    identified,
    stamped,
)
from planform.reconcile.context import ControllerContext
from planform.reconcile.writes import merge


class ShownDeployments:
    """Keeps the Deployment of each revision of a provider that is active on this machine."""

    def __init__(self, context: ControllerContext, contents: PackageContents, manager: str) -> None:
        self._context = context
        self._client = context.client
        self._contents = contents
        self._manager = manager

    async def show(self, revision: Object, *, replicas: int, available: int) -> None:
        """Have one that says how many are wanted, and how many run. What the API refuses of a configuration that works
        on this machine is not shown. Raises NotRunnable, as running it does."""
        deployed = await self._contents.deployed(revision, provider=True)
        wanted = stamped(deployment_of(deployed, SYSTEM_NAMESPACE, replicas=replicas))
        present = await self._found(revision)
        shown = present.pop(name_of(wanted), None)
        await self._delete(*present.values())
        try:
            if not covers(shown, wanted):
                shown = await self._client.apply(identified(wanted, shown), manager=self._manager, force=True)
            assert shown is not None  # nothing covers what is wanted but what is there
            await self._set_status(shown, replicas, available)
        except (BadRequest, Forbidden, Invalid):
            pass

    async def hide(self, revision: Object) -> None:
        """Nothing of it runs, or shall."""
        await self._delete(*(await self._found(revision)).values())

    async def _found(self, revision: Object) -> dict[str, Object]:
        labels = f"{REVISION_LABEL}={name_of(revision)}"
        found = await self._client.list(DEPLOYMENT, namespace=SYSTEM_NAMESPACE, labels=labels)
        return {name_of(each): each for each in found.items}

    async def _delete(self, *deployments: Object) -> None:
        for each in deployments:
            try:
                await self._client.delete(DEPLOYMENT, name_of(each), namespace=SYSTEM_NAMESPACE, uid=uid_of(each))
            except NotFound:
                pass  # it went with its revision

    async def _set_status(self, shown: Object, replicas: int, available: int) -> None:
        counts = {
            "observedGeneration": generation_of(shown),
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": available,
            "availableReplicas": available,
            "unavailableReplicas": replicas - available,
        }
        if covers(shown.get("status") or {}, counts):
            return
        now, is_available = self._context.timestamp(), available >= replicas
        condition = {
            "type": "Available",
            "status": "True" if is_available else "False",
            "reason": "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
            "lastUpdateTime": now,
            "lastTransitionTime": now,
        }
        status = {**counts, "conditions": [condition]}
        await merge(self._client, shown, {"status": status}, manager=self._manager, subresource="status")
