"""XRDs in tests: a definition controller on a bench, a recorder in place of what runs for their objects, and XRDs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import CLUSTER_ROLE, CRD, EVENT, EXTENSIONS_GROUP, XRD
from planform.client.protocol import Patch, PatchType
from planform.definitions.controller import NAME, DefinitionController
from planform.definitions.crds import xr_kind
from planform.errors import NotFound
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import condition_of, eventually, read, until_condition

HELD = "example.org/held"
"""A finalizer that stands for what the controller of an object still has to do."""


@dataclass
class Recorder:
    """Runs nothing and remembers for which XRDs, in which generation, something would run."""

    running: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    async def start(self, xrd: Object) -> None:
        name, generation = xrd["metadata"]["name"], xrd["metadata"]["generation"]
        if self.running.get(name) != generation:
            self.told.append(f"start {name} {xr_kind(xrd).version} generation {generation}")
            self.running[name] = generation

    async def stop(self, xrd_name: str) -> None:
        if self.running.pop(xrd_name, None) is not None:
            self.told.append(f"stop {xrd_name}")


@dataclass
class Definitions:
    """A definition controller on a bench, and short words for what tests do to it."""

    context: ControllerContext
    group: str
    composites: Recorder = field(default_factory=Recorder)
    claims: Recorder = field(default_factory=Recorder)

    def start(self) -> DefinitionController:
        controller = DefinitionController(self.context, self.composites, self.claims)
        controller.start()
        return controller

    async def restart(self) -> DefinitionController:
        """As after a restart of the process: nothing is remembered, nothing runs."""
        await self.stop()
        self.composites, self.claims = Recorder(), Recorder()
        return self.start()

    async def stop(self) -> None:
        await self.context.manager.stop(NAME)

    def xrd(self, version: str = "v2", plural: str = "apps", **spec: Any) -> Object:
        kind = plural.removesuffix("s").title()
        spec = {"names": {"plural": plural, "kind": kind}, "versions": [api_version()], **spec}
        return {
            "apiVersion": f"{EXTENSIONS_GROUP}/{version}",
            "kind": XRD.kind,
            "metadata": {"name": f"{plural}.{self.group}"},
            "spec": {"group": self.group, **spec},
        }

    def claimed(self, **spec: Any) -> Object:
        return self.xrd("v1", "xapps", claimNames={"plural": "apps", "kind": "App"}, **spec)

    async def established(self, xrd: Object) -> Object:
        """Create an XRD and wait until it is served; gives it as it is then, read as v2."""
        return await self.until(await self.context.client.create(xrd), "Established", "True")

    async def until(self, xrd: Object, type_: str, status: str, **more: str) -> Object:
        """Wait for a condition that is about the XRD's latest generation."""
        obj = {**xrd, "apiVersion": XRD.api_version}

        async def check() -> Object | None:
            found = await until_condition(self.context.client, obj, type_, status, **more)
            condition = condition_of(found, type_) or {}
            return found if condition["observedGeneration"] == found["metadata"]["generation"] else None

        return await eventually(check, f"{type_}={status} of the latest generation")

    async def create(self, xrd: Object, name: str, *, version: str = "v1", kind: str = "", **spec: Any) -> Object:
        """An instance, in the namespace `default` if it needs one."""
        api = GroupVersionKind(self.group, version, kind or xrd["spec"]["names"]["kind"])
        served = await eventually(lambda: self._served(api), f"{api} is served")
        metadata = {"name": name} | ({"namespace": "default"} if served.namespaced else {})
        obj = {"apiVersion": api.api_version, "kind": api.kind, "metadata": metadata}
        return await self.context.client.create({**obj, "spec": {"size": 3, **spec}})

    async def _served(self, api: GroupVersionKind) -> Any:
        try:
            return await self.context.client.kind(api)
        except NotFound:
            return None

    async def change(self, obj: Object, body: Object, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        return await self.context.client.patch(
            gvk_of(obj),
            metadata["name"],
            Patch(PatchType.MERGE, body),
            namespace=metadata.get("namespace") or "",
            subresource=subresource,
        )

    async def gone(self, obj: Object) -> None:
        metadata = obj["metadata"]

        async def check() -> bool:
            found = await read(self.context.client, gvk_of(obj), metadata["name"], metadata.get("namespace") or "")
            return found is None

        await eventually(check, f"{obj['kind']} {metadata['name']} is gone")

    async def delete(self, obj: Object) -> None:
        metadata = obj["metadata"]
        await self.context.client.delete(gvk_of(obj), metadata["name"], namespace=metadata.get("namespace") or "")

    async def versions(self, xrd: Object) -> dict[str, str]:
        """The resource versions of everything that a reconcile may write."""
        name = xrd["metadata"]["name"]
        names = [(XRD, name), (CRD, name), (CRD, f"apps.{self.group}")]
        names += [(CLUSTER_ROLE, role_name(name, who)) for who in ("crossplane", "edit", "view", "browse")]
        found = [await read(self.context.client, kind, each) for kind, each in names]
        return {f"{obj['kind']} {obj['metadata']['name']}": obj["metadata"]["resourceVersion"] for obj in found if obj}

    async def events(self, xrd: Object) -> list[tuple[str, str, str]]:
        await self.context.events.written()
        events = (await self.context.client.list(EVENT, namespace="default")).items
        uid = xrd["metadata"]["uid"]
        return [
            (each["type"], each["reason"], each["message"])
            for each in events
            if each["involvedObject"].get("uid") == uid
        ]


def api_version(name: str = "v1", *, referenceable: bool = True, **more: Any) -> Object:
    spec = {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string"}}}
    status = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}
    return {"name": name, "served": True, "referenceable": referenceable, "schema": schema, **more}


def with_field(name: str, schema: Object, **more: Any) -> Object:
    version = api_version(**more)
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][name] = schema
    return version


def reconciles(context: ControllerContext) -> int:
    """Reconciles of XRDs that have ended."""
    found = re.findall(rf'planform_reconcile_total{{controller="{NAME}",[^}}]*}} (\d+)', context.metrics.render())
    return sum(map(int, found))


def role_name(xrd: str, who: str) -> str:
    return f"crossplane:composite:{xrd}:aggregate-to-{who}"


def stranger(group: str, *owners: Object) -> Object:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"apps.{group}", "ownerReferences": list(owners)},
        "spec": {
            "group": group,
            "names": {"plural": "apps", "kind": "App"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


@asynccontextmanager
async def definitions(context: ControllerContext, unique: str) -> AsyncIterator[Definitions]:
    """A controller that runs; the XRDs that a test leaves are deleted, since other tests would find them."""
    defs = Definitions(context, f"{unique}.example.org")
    defs.start()
    yield defs
    for xrd in (await context.client.list(XRD)).items:
        if xrd["spec"]["group"] == defs.group:
            await defs.delete(xrd)
            await defs.gone(xrd)
    await defs.stop()
