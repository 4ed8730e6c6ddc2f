"""A function in several versions that differ in what they desire, as packages that really run, and XRs that use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from planform.api.kinds import Object
from planform.api.names import FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.apiserver.auth.pki import Pki
from planform.assembly import Controllers
from planform.packages.blobs import BlobStore
from planform.packages.building import Source, assemble
from planform.packages.xpkg import package_of
from tests.controllers.composing import Platform
from tests.harness.contexts import all_controllers, embedded_context, eventually, until_condition
from tests.harness.packaging import meta, server_program

REPOSITORY = "registry.example.org/acme/function-try"
NAME = "function-try"
HEAD = '''"""Composes what BODY says."""

from typing import Any

from planform_sdk import Ready, Request, Response, function
from planform_sdk.__main__ import serve


@function
def compose(req: Request[Any], rsp: Response) -> None:
    xr = req.observed.composite.resource
    spec = xr["spec"]

    def config(name: str, **data: Any) -> None:
        rsp.desired.resources[name] = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
        rsp.desired.resources[name].ready = Ready.TRUE

'''
TAIL = "\n\nserve(compose)\n"


class Trial:
    """A control plane whose function-try has the versions that a test publishes."""

    def __init__(self, controllers: Controllers, data: Path) -> None:
        self.controllers = controllers
        self.client = controllers.context.client
        self.platform = Platform(self.client, "try", controllers=controllers)
        self.blobs = BlobStore(data / "packages" / "blobs")

    def publish(self, version: str, body: str) -> None:
        package = package_of([("meta", meta("Function", NAME, capabilities=["composition"]))])
        source = HEAD + "\n".join(f"    {line}" for line in body.splitlines()) + TAIL
        image = assemble(self.blobs, Source(package), server_program(version, source))
        self.blobs.remember(f"{REPOSITORY}:{version}", image.descriptor)

    async def install(self, version: str, *, labels: dict[str, str] | None = None, **spec: Any) -> str:
        """Install a version; gives the name of its revision once that is healthy or, if it is inactive, there."""
        function = {
            "apiVersion": FUNCTION.api_version,
            "kind": "Function",
            "metadata": {"name": NAME, "labels": labels or {}},
            "spec": {"package": f"{REPOSITORY}:{version}", "revisionHistoryLimit": 4, "activeRevisionLimit": 2, **spec},
        }
        applied = await self.client.apply(function, manager="user", force=True)
        found = await until_condition(
            self.client, applied, "Healthy", observedGeneration=applied["metadata"]["generation"]
        )
        return str(found["status"]["currentRevision"])

    async def revisions(self) -> list[Object]:
        found = await self.client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={NAME}")
        return sorted(found.items, key=lambda each: int(each["spec"]["revision"]))

    async def create(self, names: Sequence[str], **more: Any) -> list[Object]:
        """XRs that have been composed and are at rest."""
        made = [await self.platform.create(name, **more) for name in names]
        for xr in made:
            await self.platform.ready(xr)
        return await self.platform.at_rest(*made)

    def step(self, **more: Any) -> Object:
        return {"step": "try", "functionRef": {"name": NAME}, **more}

    async def diff(self, old: str, new: str) -> list[Object]:
        """What the control plane answers of all XRs that it can compare."""
        diffs = self.controllers.diffs

        async def known() -> list[Object] | None:
            return await diffs.xrs(NAME)

        items = await eventually(known, "XRs that use the function")
        versions = {each.id: each for each in self.controllers.functions.catalogue.versions(NAME)}
        return await diffs.compare(versions[old], versions[new], [each["uid"] for each in items])


@asynccontextmanager
async def trying(data: Path) -> AsyncIterator[Trial]:
    async with (
        embedded_context() as context,
        all_controllers(context, data=data, authority=Pki(data / "pki", clock=context.clock)) as controllers,
    ):
        trial = Trial(controllers, data)
        await trial.platform.define()
        yield trial
