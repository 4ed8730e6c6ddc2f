"""Which kinds live in namespaces, as the engine says."""

from __future__ import annotations

from planform.api.kinds import Object, gvk, gvk_of
from planform.api.metadata import namespace_of
from planform.client.protocol import Client
from planform.errors import NotFound
from planform.functions.values import State
from planform.pipeline.pipeline import PipelineOutcome


class Scopes:
    """Asks anew each time: kinds come and go."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def is_namespaced(self, api_version: str, kind: str) -> bool:
        try:
            return (await self._client.kind(gvk(api_version, kind))).namespaced
        except NotFound:
            return True

    async def of_desired(self, desired: State) -> dict[tuple[str, str], bool]:
        """Which of the desired kinds are namespaced; one that is not served is found out when it is applied."""
        found: dict[tuple[str, str], bool] = {}
        for kind in dict.fromkeys(gvk_of(each.resource) for each in desired.resources.values()):
            try:
                found[kind.api_version, kind.kind] = (await self._client.kind(kind)).namespaced
            except NotFound:
                continue
        return found

    async def watched(self, xr: Object, outcome: PipelineOutcome) -> list[Object]:
        """References to what functions want watched; a namespaced XR's functions mean objects beside it."""
        home, found = namespace_of(xr), []
        for each in outcome.watched:
            reference = {"apiVersion": each.api_version, "kind": each.kind, "name": each.name}
            if home and await self.is_namespaced(each.api_version, each.kind):
                reference["namespace"] = home
            found.append(reference)
        return found
