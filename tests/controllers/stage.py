"""A control plane with every controller, on which manifests of designs and examples are put as they are written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from planform.api.kinds import Object, gvk, gvk_of
from planform.api.names import COMPOSITION_REVISION, CRD, FUNCTION_REVISION, XRD
from planform.api.xr import RESOURCE_NAME_ANNOTATION
from planform.apimachinery import yaml_loader
from planform.client.protocol import Client, Patch, PatchType
from planform.errors import AlreadyExists, NotFound
from planform.journal.journal import Journal
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import all_controllers, condition_of, eventually, read, until_condition

ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Stage:
    """What a platform team and its users do, in a word each."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self.client = client
        self.journal = journal
        self._brought: list[Object] = []

    # -- kinds

    async def define(self, api_version: str, kind: str, *, claim: str = "", scope: str = "LegacyCluster") -> None:
        """An XRD whose XRs may say anything, of the generation that its scope belongs to."""
        group, _, version = api_version.partition("/")
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANYTHING}}}
        spec: Object = {
            "group": group,
            "scope": scope,
            "names": _names(kind),
            "versions": [{"name": version, "served": True, "referenceable": True, "schema": schema}],
        }
        if claim:
            spec["claimNames"] = _names(claim)
        await self.apply(
            {
                "apiVersion": "apiextensions.crossplane.io/" + ("v1" if scope == "LegacyCluster" else "v2"),
                "kind": XRD.kind,
                "metadata": {"name": f"{_names(kind)['plural']}.{group}"},
                "spec": spec,
            }
        )

    async def serve(self, api_version: str, kind: str, *, scope: str = "Cluster") -> None:
        """A CRD, as a provider or a function brings it along; its objects may say anything."""
        group, _, version = api_version.partition("/")
        schema = {"openAPIV3Schema": ANYTHING}
        await self.apply(
            {
                "apiVersion": CRD.api_version,
                "kind": CRD.kind,
                "metadata": {"name": f"{_names(kind)['plural']}.{group}"},
                "spec": {
                    "group": group,
                    "scope": scope,
                    "names": _names(kind),
                    "versions": [
                        {
                            "name": version,
                            "served": True,
                            "storage": True,
                            "schema": schema,
                            "subresources": {"status": {}},
                        }
                    ],
                },
            }
        )

    async def apply(self, obj: Object) -> Object:
        """As `planform apply` does it; definitions are waited for."""
        applied = await self.client.apply(obj, manager="author", force=True)
        if obj["kind"] == CRD.kind:
            self._brought.append(obj)
            await until_condition(self.client, obj, "Established")
        if obj["kind"] == XRD.kind:
            await until_condition(self.client, {**obj, "apiVersion": XRD.api_version}, "Established")
            if "claimNames" in obj["spec"]:
                await until_condition(self.client, {**obj, "apiVersion": XRD.api_version}, "Offered")
        return applied

    async def namespace(self, name: str) -> None:
        with suppress(AlreadyExists):
            await self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    # -- objects

    async def get(self, obj: Object) -> Object:
        metadata = obj["metadata"]
        return await self.client.get(gvk_of(obj), metadata["name"], namespace=metadata.get("namespace") or "")

    async def merge(self, obj: Object, body: Object, *, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        change, namespace = Patch(PatchType.MERGE, body), metadata.get("namespace") or ""
        return await self.client.patch(
            gvk_of(obj), metadata["name"], change, namespace=namespace, subresource=subresource
        )

    async def until(self, obj: Object, check: Callable[[Object], object], what: str) -> Object:
        """Wait until the object is so; gives it as it is then."""
        metadata = obj["metadata"]

        async def look() -> Object | None:
            found = await read(self.client, gvk_of(obj), metadata["name"], metadata.get("namespace") or "")
            return found if found is not None and check(found) else None

        return await eventually(look, f"{obj['kind']} {metadata['name']}: {what}")

    async def ready(self, obj: Object) -> Object:
        return await until_condition(self.client, obj, "Ready")

    async def failure(self, xr: Object) -> Object:
        """What an XR says that is wrong with a step, once that is what is wrong with it."""

        def problems(each: Object) -> list[Object]:
            found = ((each.get("status") or {}).get("planform") or {}).get("problems") or ()
            return [problem for problem in found if "step" in problem]

        [problem] = problems(await self.until(xr, problems, "has a step that fails"))
        return problem

    async def revisions(self, composition: str) -> list[Object]:
        """Of a Composition, the oldest number first."""
        listed = await self.client.list(COMPOSITION_REVISION, labels=f"crossplane.io/composition-name={composition}")
        return sorted(listed.items, key=lambda each: int(each["spec"]["revision"]))

    async def revision(self, composition: str, number: int) -> Object:
        """The revision of this number, once its pipeline was looked at."""

        async def look() -> Object | None:
            found = [each for each in await self.revisions(composition) if each["spec"]["revision"] == number]
            return found[0] if found and condition_of(found[0], "ValidPipeline") else None

        return await eventually(look, f"revision {number} of {composition}")

    # -- composed resources

    async def composed(self, xr: Object, api_version: str, kind: str, count: int = 1) -> dict[str, Object]:
        """An XR's resources of a kind by their names in the composition, once there are so many."""
        uid = xr["metadata"]["uid"]  # of a namesake that was deleted, resources may be left

        async def look() -> dict[str, Object] | None:
            listed = await self.client.list(gvk(api_version, kind))
            ours = [each for each in listed.items if any(owner["uid"] == uid for owner in owners(each))]
            found = {each["metadata"]["annotations"][RESOURCE_NAME_ANNOTATION]: each for each in ours}
            return found if len(found) == count else None

        return await eventually(look, f"{count} {kind} of {xr['metadata']['name']}")

    async def provide(self, *resources: Object) -> None:
        """Do what a provider does: say that they are ready."""
        for each in resources:
            condition = {"type": "Ready", "status": "True", "reason": "Available"}
            condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            await self.merge(each, {"status": {"conditions": [condition]}}, subresource="status")

    async def functions(self, xr: Object) -> dict[str, str]:
        """The function revision that each step of an XR's last run was answered by."""
        await self.journal.flush()
        [newest] = await self.journal.runs(xr["metadata"]["uid"], limit=1)
        run = await self.journal.run(newest.id)
        assert run is not None
        return {step.step: step.revision for step in run.steps}

    async def close(self) -> None:
        """Take away what only a garbage collector would: the next test uses the same names, and a cluster is shared."""
        for kind in (COMPOSITION_REVISION, FUNCTION_REVISION):
            await self.client.delete_collection(kind)
        for crd in self._brought:
            with suppress(NotFound):
                await self.client.delete(CRD, crd["metadata"]["name"])

        async def gone() -> bool:
            found = [await read(self.client, CRD, crd["metadata"]["name"]) for crd in self._brought]
            return not any(found)

        await eventually(gone, "the definitions of composed kinds are gone", seconds=60)


@asynccontextmanager
async def open_stage(context: ControllerContext, **more: Any) -> AsyncIterator[Stage]:
    async with all_controllers(context, **more) as controllers:
        stage = Stage(context.client, controllers.journal)
        yield stage
    await stage.close()


def owners(obj: Object) -> list[Object]:
    found: list[Object] = obj["metadata"].get("ownerReferences") or []
    return found


def printed(name: str) -> Object:
    """A manifest of `designs/`, as it is."""
    return mended(name, {})


def mended(name: str, mends: Mapping[str, str]) -> Object:
    """A manifest of `designs/` with some of its text replaced; each text must be there once."""
    text = (Path(__file__).parent / "designs" / f"{name}.yaml").read_text()
    for wrong, right in mends.items():
        assert text.count(wrong) == 1, wrong
        text = text.replace(wrong, right)
    found: Object = yaml_loader.load(text)
    return found


def an_xr(api_version: str, kind: str, spec: Object, **metadata: Any) -> Object:
    """An XR."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "my-xr", **metadata}, "spec": spec}


def _names(kind: str) -> Object:
    return {"kind": kind, "plural": f"{kind.lower()}s"}
