"""A control plane with XRs of one kind, and previews of changes to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from planform.api.kinds import Object
from planform.api.previews import ObjectChange, PreviewSpec
from planform.preview.candidate_functions import InstalledFunctions
from planform.preview.sessions import Findings, open_previewer, run_preview
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform, a_platform


def patched(*resources: Object) -> Object:
    """A step of patch-and-transform."""
    return {
        "step": "compose",
        "functionRef": {"name": "function-patch-and-transform"},
        "input": {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": list(resources)},
    }


READY: Object = {"step": "ready", "functionRef": {"name": "function-auto-ready"}}


def config_map(name: str, data: Object | None = None, *, patch: str = "spec.size") -> Object:
    """A composed ConfigMap, one of whose values comes from the XR."""
    base = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"fixed": "1", **(data or {})}}
    patches = [{"type": "FromCompositeFieldPath", "fromFieldPath": patch, "toFieldPath": "data.size"}] if patch else []
    return {"name": name, "base": base, "patches": patches, "readinessChecks": [{"type": "None"}]}


def templated(text: str, *, step: str = "compose") -> Object:
    """A step of go-templating."""
    return {
        "step": step,
        "functionRef": {"name": "function-go-templating"},
        "input": {
            "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
            "kind": "GoTemplate",
            "source": "Inline",
            "inline": {"template": text},
        },
    }


class Previews:
    """Asks one control plane what changes would do."""

    def __init__(self, platform: Platform, context: ControllerContext) -> None:
        self.platform = platform
        self.context = context
        self.client = context.client

    async def of(self, *manifests: Object, scope: Any = None, **change: Any) -> Findings:
        """Preview these manifests, or what `change` says."""
        wanted = {**({"manifests": list(manifests)} if manifests else {}), **change}
        spec = msgspec.convert({"change": wanted, "scope": scope or {}}, PreviewSpec)
        controllers = self.platform.controllers
        assert controllers is not None
        functions = InstalledFunctions(
            self.client, lambda: controllers.functions.catalogue, controllers.temporary_activation
        )
        async with open_previewer(
            spec,
            client=self.client,
            functions=functions,
            pipelines=controllers.pipelines,
            features=self.context.features,
        ) as previewer:
            return await run_preview(previewer, spec.scope)

    async def fleet(self, count: int, **spec: Any) -> list[Object]:
        """So many XRs, ready."""
        made = [await self.platform.create(f"x{number}", spec={"size": str(number), **spec}) for number in range(count)]
        return list(await asyncio.gather(*(self.platform.ready(xr) for xr in made)))


@asynccontextmanager
async def previews(context: ControllerContext, unique: str, **more: Any) -> AsyncIterator[Previews]:
    async with a_platform(context, unique, **more) as platform:
        yield Previews(platform, context)


def actions(changes: tuple[ObjectChange, ...]) -> dict[str, str]:
    return {change.resource: change.action for change in changes}
