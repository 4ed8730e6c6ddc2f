"""XRDs, Compositions and XRs in a line or two, on whichever engine a test runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.api.names import COMPOSITION_REVISION, EVENT, XRD
from planform.api.xr import RESOURCE_NAME_ANNOTATION
from planform.assembly import Controllers, Parts, open_controllers
from planform.client.protocol import Client, Patch, PatchType
from planform.reconcile.context import ControllerContext
from planform.reconcile.manager import open_manager
from planform.reconcile.sources import Watches
from planform.telemetry.metrics import MetricsRegistry
from tests.harness.contexts import all_controllers, condition_of, eventually, read, until_condition

NAMESPACE = "default"
CONFIG_MAP = gvk("v1", "ConfigMap")
NOP = gvk("nop.crossplane.io/v1alpha1", "NopResource")


class Platform:
    """One API of a test's own: `App` in a group that nobody else has."""

    def __init__(
        self, client: Client, unique: str, *, scope: str = "Namespaced", controllers: Controllers | None = None
    ) -> None:
        self.client = client
        self.controllers = controllers
        self.group = f"{unique}.example.org"
        self.scope = scope
        self.kind = gvk(f"{self.group}/v1", "App")
        self.unique = unique

    @property
    def namespace(self) -> str:
        return NAMESPACE if self.scope == "Namespaced" else ""

    def xrd(self, **spec: Any) -> Object:
        free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"type": "object", "properties": {"spec": free, "status": {"type": "object", "properties": STATUS}}}
        version = {"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": schema}}
        return {
            "apiVersion": "apiextensions.crossplane.io/" + ("v1" if self.scope == "LegacyCluster" else "v2"),
            "kind": "CompositeResourceDefinition",
            "metadata": {"name": f"apps.{self.group}"},
            "spec": {
                "group": self.group,
                "scope": self.scope,
                "names": {"kind": "App", "plural": "apps"},
                "versions": [version],
                **spec,
            },
        }

    async def define(self, **spec: Any) -> None:
        """Create the XRD and wait until its XRs are served and watched."""
        xrd = await self.client.create(self.xrd(**spec))
        await until_condition(self.client, {**xrd, "apiVersion": XRD.api_version}, "Established")

    def composition(
        self, *steps: Object, name: str = "", labels: Mapping[str, str] | None = None, **spec: Any
    ) -> Object:
        return {
            "apiVersion": "apiextensions.crossplane.io/v1",
            "kind": "Composition",
            "metadata": {"name": name or f"{self.unique}-apps", "labels": dict(labels or {})},
            "spec": {
                "compositeTypeRef": {"apiVersion": self.kind.api_version, "kind": "App"},
                "mode": "Pipeline",
                "pipeline": list(steps),
                **spec,
            },
        }

    async def compose(self, *steps: Object, **more: Any) -> Object:
        """Create or change a Composition and wait for the revision that says so; gives the revision."""
        wanted = self.composition(*steps, **more)
        await self.client.apply(wanted, manager="author", force=True)
        name = wanted["metadata"]["name"]

        async def newest() -> Object | None:
            revision = next(reversed(await self.revisions(name)), None)
            if revision is None or condition_of(revision, "ValidPipeline") is None:
                return None
            labels, spec = revision["metadata"].get("labels") or {}, wanted["spec"] | {"revisionHistoryLimit": None}
            same = all(revision["spec"].get(key) == value for key, value in spec.items())
            return revision if same and labels.items() >= wanted["metadata"]["labels"].items() else None

        return await eventually(newest, f"a revision of {name}")

    async def revisions(self, composition: str = "") -> list[Object]:
        """Of a Composition, the oldest number first."""
        name = composition or f"{self.unique}-apps"
        listed = await self.client.list(COMPOSITION_REVISION, labels=f"crossplane.io/composition-name={name}")
        return sorted(listed.items, key=lambda each: each["spec"]["revision"])

    def xr(self, name: str = "one", *, spec: Mapping[str, Any] | None = None, **composition_fields: Any) -> Object:
        metadata = {"name": f"{name}-{self.unique}"}
        if self.namespace:
            metadata["namespace"] = NAMESPACE
        content = dict(spec or {})
        if composition_fields:
            content |= {"crossplane": composition_fields} if self.scope != "LegacyCluster" else composition_fields
        return {"apiVersion": self.kind.api_version, "kind": "App", "metadata": metadata, "spec": content}

    async def create(self, name: str = "one", **more: Any) -> Object:
        return await self.client.create(self.xr(name, **more))

    async def get(self, xr: Object) -> Object:
        return await self.client.get(self.kind, xr["metadata"]["name"], namespace=self.namespace)

    async def ready(self, xr: Object) -> Object:
        return await until_condition(self.client, xr, "Ready")

    async def merge(self, xr: Object, body: Object) -> Object:
        return await self.client.patch(
            self.kind, xr["metadata"]["name"], Patch(PatchType.MERGE, body), namespace=self.namespace
        )

    async def composed(self, xr: Object, kind: GroupVersionKind = CONFIG_MAP) -> dict[str, Object]:
        """What exists of an XR's resources of a kind, by the names that the composition gives them."""
        listed = await self.client.list(kind, labels=f"crossplane.io/composite={xr['metadata']['name']}")
        return {each["metadata"]["annotations"][RESOURCE_NAME_ANNOTATION]: each for each in listed.items}

    async def gone(self, xr: Object) -> None:
        async def check() -> bool:
            return await read(self.client, self.kind, xr["metadata"]["name"], self.namespace) is None

        await eventually(check, f"XR {xr['metadata']['name']} is gone")

    async def until(self, xr: Object, check: Callable[[Object], object], what: str) -> Object:
        """Wait until the XR is such; gives it as it is then."""

        async def look() -> Object | None:
            found = await self.get(xr)
            return found if check(found) else None

        return await eventually(look, what)

    async def failed(self, xr: Object, words: str) -> Object:
        """Wait until the XR is not synced and says why in these words."""

        def told(found: Object) -> bool:
            condition = condition_of(found, "Synced") or {}
            return condition.get("status") == "False" and words in condition.get("message", "")

        return await self.until(xr, told, f"Synced=False with {words!r} of {xr['metadata']['name']}")

    async def at_rest(self, *xrs: Object) -> list[Object]:
        """Wait until the XRs are no longer written, nor their pipelines run; gives them as they are then."""

        async def state() -> list[Any]:
            runs = [await self.runs(xr) for xr in xrs] if self.controllers is not None else []
            return [[await self.get(xr) for xr in xrs], runs]

        async def quiet() -> list[Any] | None:
            before = await state()
            await asyncio.sleep(0.25)
            return before if before == await state() else None

        found: list[Object] = (await eventually(quiet, "nothing happens any more"))[0]
        return found

    async def runs(self, xr: Object) -> int:
        """How often the XR's pipeline has been run."""
        assert self.controllers is not None
        return len(await self.controllers.journal.runs(xr["metadata"]["uid"], limit=1000))

    async def edit(self, kind: GroupVersionKind, obj: Object, body: Object, manager: str = "somebody") -> Object:
        """A merge patch on any object."""
        metadata = obj["metadata"]
        return await self.client.patch(
            kind,
            metadata["name"],
            Patch(PatchType.MERGE, body),
            namespace=metadata.get("namespace", ""),
            manager=manager,
        )

    async def until_deleting(self, kind: GroupVersionKind, obj: Object) -> Object:
        """Wait until something has a deletion timestamp."""

        async def deleting() -> Object | None:
            found = await self.client.get(kind, obj["metadata"]["name"], namespace=obj["metadata"].get("namespace", ""))
            return found if found["metadata"].get("deletionTimestamp") else None

        return await eventually(deleting, f"{obj['kind']} {obj['metadata']['name']} is being deleted")

    async def until_event(self, xr: Object, reason: str, words: str = "") -> Object:
        async def told() -> Object | None:
            found = [each for each in await self.events(xr) if each["reason"] == reason and words in each["message"]]
            return found[0] if found else None

        return await eventually(told, f"event {reason} {words} of {xr['metadata']['name']}")

    async def events(self, xr: Object) -> list[Object]:
        found = await self.client.list(EVENT, namespace=self.namespace or "default")
        return [each for each in found.items if each["involvedObject"].get("uid") == xr["metadata"]["uid"]]


@asynccontextmanager
async def a_platform(
    context: ControllerContext,
    unique: str,
    *,
    scope: str = "Namespaced",
    xrd: Mapping[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Platform]:
    """A control plane on the bench's engine that serves the platform's API; `more` is for `all_controllers`."""
    async with all_controllers(context, **more) as controllers:
        platform = Platform(context.client, unique, scope=scope, controllers=controllers)
        await platform.define(**(xrd or {}))
        yield platform


@asynccontextmanager
async def a_process(context: ControllerContext, unique: str, data: Path, **more: Any) -> AsyncIterator[Platform]:
    """A control plane with a memory of its own on the bench's engine; one after another are restarts of it."""
    async with (
        Watches(context.client, clock=context.clock, rng=context.rng) as watches,
        open_manager(watches, clock=context.clock) as manager,
        open_controllers(
            Parts(
                client=context.client,
                manager=manager,
                clock=context.clock,
                rng=context.rng,
                limiter=context.limiter,
                metrics=MetricsRegistry(),
                data=data,
                **more,
            )
        ) as controllers,
    ):
        yield Platform(context.client, unique, controllers=controllers)


async def becomes(check: Callable[[], Awaitable[object]], wanted: object, what: str) -> None:
    """Wait until asking gives exactly this."""

    async def same() -> bool:
        return await check() == wanted

    await eventually(same, what)


STATUS: Object = {
    "count": {"type": "integer"},
    "words": {"type": "string"},
    "seen": {"type": "array", "items": {"type": "string"}},
}


def templates(*objects: Object, step: str = "compose", ready: bool = True) -> Object:
    """A patch-and-transform step; each object's name in the composition is its `_key`, or its index."""
    resources = []
    for index, obj in enumerate(objects):
        resource: Object = {"name": obj.pop("_key", f"r{index}"), "base": obj, "patches": obj.pop("_patches", [])}
        if ready:
            resource["readinessChecks"] = [{"type": "None"}]
        resources.append(resource)
    return {
        "step": step,
        "functionRef": {"name": "function-patch-and-transform"},
        "input": {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": resources},
    }


def config_map(key: str, *patches: Object, **data: str) -> Object:
    """A ConfigMap to compose, without a name."""
    return {"_key": key, "_patches": list(patches), "apiVersion": "v1", "kind": "ConfigMap", "data": data}


def nop(key: str, *, after: str = "0s", fields: Mapping[str, Any] | None = None) -> Object:
    """A NopResource that becomes ready after a while."""
    condition = {"time": after, "conditionType": "Ready", "conditionStatus": "True"}
    provider: Object = {"conditionAfter": [condition], "fields": dict(fields or {})}
    return {
        "_key": key,
        "apiVersion": NOP.api_version,
        "kind": NOP.kind,
        "spec": {"forProvider": provider},
    }


def annotated(**annotations: str | None) -> Object:
    """A merge patch that sets annotations, or removes those that are None."""
    return {"metadata": {"annotations": annotations}}


def from_xr(source: str, target: str) -> Object:
    return {"type": "FromCompositeFieldPath", "fromFieldPath": source, "toFieldPath": target}


def auto_ready() -> Object:
    return {"step": "ready", "functionRef": {"name": "function-auto-ready"}}


def script(text: str, *, step: str = "script") -> Object:
    """A Starlark step."""
    return {
        "step": step,
        "functionRef": {"name": "function-starlark"},
        "input": {"apiVersion": "starlark.fn.planform.dev/v1", "kind": "StarlarkScript", "script": text},
    }


def python(text: str, *, step: str = "python") -> Object:
    """A step of inline Python, which has all of the protocol."""
    return {
        "step": step,
        "functionRef": {"name": "function-python"},
        "input": {"apiVersion": "python.fn.crossplane.io/v1beta1", "kind": "Script", "script": text},
    }


def reading(wanted: Mapping[str, Any], *, step: str = "read", **more: Any) -> Object:
    """A step that requires these resources and puts into the XR's status what it gets, as `requirement/name=x`."""
    text = (
        f"WANTED = json.decode({json.dumps(json.dumps(wanted))})\n"
        "def main(req):\n"
        "    seen = []\n"
        "    for key, found in req['requiredResources'].items():\n"
        "        for each in found['items']:\n"
        "            obj = each['resource']\n"
        "            seen.append(key + '/' + obj['metadata']['name'] + '=' + str(obj.get('data', {}).get('x')))\n"
        "    desired = req['desired']\n"
        "    desired['composite']['resource'] = {'status': {'seen': sorted(seen)}}\n"
        "    return {'desired': desired, 'requirements': {'resources': WANTED}}\n"
    )
    return {**script(text, step=step), **more}


def names(objects: Iterable[Object]) -> list[str]:
    return sorted(each["metadata"]["name"] for each in objects)
