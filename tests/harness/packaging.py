"""Packages that a test made and that are here already, as after a pull, and the controller that installs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import (
    COMPOSITION,
    CONFIGURATION,
    CONFIGURATION_REVISION,
    CRD,
    FUNCTION,
    FUNCTION_REVISION,
    IMAGE_CONFIG,
    LOCK,
    PACKAGE_LABEL,
    PROVIDER,
    PROVIDER_REVISION,
    RUNTIME_CONFIG,
)
from planform.apiserver.auth.pki import Pki
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client
from planform.errors import NotFound
from planform.functions.errors import FunctionUnavailable, ResolutionError
from planform.functions.resolution import Request, resolve
from planform.functions.runner import FunctionRunner
from planform.functions.values import FunctionRequest
from planform.packages.blobs import BlobStore
from planform.packages.building import Program, Source, assemble
from planform.packages.configurations import ConfigurationController
from planform.packages.contents import PackageContents
from planform.packages.deliveries import Deliveries
from planform.packages.errors import RegistryUnavailable
from planform.packages.fetching import RegistryPackages
from planform.packages.function_catalogue import LiveFunctions, runner
from planform.packages.function_controller import FunctionController, Packaging
from planform.packages.layers import File
from planform.packages.locking import LockController
from planform.packages.payloads import Payload, RuntimeKind
from planform.packages.runtimes.certificates import RevisionCertificates
from planform.packages.runtimes.host import Draining, RuntimeHost
from planform.packages.sweeping import PackageSweep
from planform.packages.xpkg import package_of
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import eventually, until_condition
from tests.harness.hosting import SERVER

REPOSITORY = "registry.example.org/acme/fn"
INPUT_GROUP = "fn.example.org"
"""Of the kinds that functions bring."""


def meta(kind: str, name: str, **spec: Any) -> Object:
    return {"apiVersion": "meta.pkg.crossplane.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def server_program(version: str, source: str = SERVER) -> Program:
    """A function in Python that says which version it is."""
    files = (File("app/main.py", source.replace("VERSION", version).encode()),)
    return Program(Payload(RuntimeKind.PROCESS, ("python", "app/main.py"), ("app",)), files)


def composition(name: str) -> Object:
    """For packages to deliver: it needs nothing that is not there."""
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": name},
        "spec": {
            "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "App"},
            "mode": "Pipeline",
            "pipeline": [{"step": "ready", "functionRef": {"name": "function-auto-ready"}}],
        },
    }


class PublishedPackages(RegistryPackages):
    """Packages that are here, of which a registry would list these tags."""

    def __init__(self, directory: Path, *arguments: Any, **options: Any) -> None:
        super().__init__(directory, *arguments, **options)
        self.published = BlobStore(directory / "blobs")
        self.tags: dict[str, list[str]] = {}

    async def versions(self, package: str, *, pull_secrets: Sequence[str] = ()) -> list[str]:
        if package not in self.tags:
            raise RegistryUnavailable(f"nobody answers for {package}")
        return self.tags[package]


@dataclass(frozen=True)
class Installation:
    """Functions as packages: what users do with them, and what becomes of it."""

    context: ControllerContext
    data: Path
    source: PublishedPackages
    host: RuntimeHost
    live: LiveFunctions
    run: FunctionRunner
    controller: FunctionController
    packaging: Packaging

    def publish(
        self,
        reference: str,
        program: Program | None,
        *,
        about: Object | None = None,
        objects: Sequence[Object] = (),
    ) -> str:
        """Have a package here, as if it had been pulled; gives its digest."""
        documents = [("meta", about or meta("Function", "fn")), *(("object", each) for each in objects)]
        blobs = self.source.published
        image = assemble(blobs, Source(package_of(documents)), program)
        blobs.remember(reference, image.descriptor)
        repository, _, tag = reference.rpartition(":")
        self.source.tags.setdefault(repository, []).append(tag)
        return image.digest

    async def install(
        self,
        version: str,
        *,
        kind: str = "Function",
        name: str = "fn",
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        return await self.context.client.apply(
            {
                "apiVersion": FUNCTION.api_version,
                "kind": kind,
                "metadata": {"name": name, "labels": labels or {}},
                "spec": {"package": version if "/" in version else f"{REPOSITORY}:{version}", **spec},
            },
            manager="user",
            force=True,
        )

    async def until(
        self, type_: str, status: str, *, name: str = "fn", kind: GroupVersionKind = FUNCTION, **more: str
    ) -> Object:
        about = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        return await until_condition(self.context.client, about, type_, status, **more)

    async def revisions(self, name: str = "fn") -> list[Object]:
        found = await self.context.client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={name}")
        return sorted(found.items, key=lambda each: int(each["spec"]["revision"]))

    async def until_states(self, wanted: dict[int, str], *, name: str = "fn") -> list[Object]:
        """Wait until there are exactly these revisions: `{1: "Inactive", 2: "Active"}`."""
        seen: dict[int, str] = {}

        async def check() -> bool:
            seen.clear()
            seen.update({each["spec"]["revision"]: each["spec"]["desiredState"] for each in await self.revisions(name)})
            return seen == wanted

        try:
            await eventually(check, f"revisions {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}: there are {seen}") from error
        return await self.revisions(name)

    async def call(self, *, name: str = "fn", **wanted: Any) -> dict[str, Any]:
        """Call the function as a step would; gives what it says of itself."""
        given = wanted.pop("given", {})
        chosen = resolve(self.live.catalogue, Request(name, **wanted)).revision
        return dict((await self.run.run(chosen, FunctionRequest(tag="t", input=given), timeout=20)).context)

    async def until_called(self, version: str, **wanted: Any) -> None:
        async def check() -> bool:
            try:
                return bool((await self.call(**wanted)).get("version") == version)
            except (ResolutionError, FunctionUnavailable):  # it is not there yet, or is being started
                return False

        await eventually(check, f"version {version} answers")


@asynccontextmanager
async def installing(context: ControllerContext, data: Path) -> AsyncIterator[Installation]:
    """The controller of Functions with all it takes to run packages, on a ControllerContext."""
    clock = context.clock
    certificates = RevisionCertificates(Pki(data / "pki", clock=clock), data / "certificates", clock=clock)
    source = PublishedPackages(data / "packages", context.client, clock=clock, rng=context.rng)
    draining = Draining(quiet=0.2, max_seconds=20)
    async with (
        RuntimeHost(data, certificates, clock=clock, draining=draining) as host,
        LiveFunctions(context, host) as live,
        runner(live, host=host) as run,
    ):
        await live.synced()
        contents = PackageContents(source, context.client, Deliveries(context.manager, clock))
        contents.dependencies = lock = LockController(context, contents)
        packaging = Packaging(contents, host, lock)
        controller = FunctionController(context, live, packaging)
        controller.start()
        ConfigurationController(context, contents, lock).start()
        lock.start()
        PackageSweep(context, source, host, data).start()
        yield Installation(context, data, source, host, live, run, controller, packaging)
        if isinstance(context.client, KubernetesClient):
            await _clean(context.client)
        for name in ("functions", "configurations", "providers", "lock", "package-files"):
            await context.manager.stop(name)


async def _clean(client: Client) -> None:
    """Leave nothing on a shared cluster, also of what only a garbage collector would take away there.

    Until the last package that depends on it is gone, the Lock's controller installs a deleted dependency again. So
    what is left is deleted again, too.
    """
    made = (
        CONFIGURATION,
        FUNCTION,
        PROVIDER,
        CONFIGURATION_REVISION,
        FUNCTION_REVISION,
        PROVIDER_REVISION,
        IMAGE_CONFIG,
        RUNTIME_CONFIG,
    )
    await client.delete_collection(COMPOSITION)
    for crd in (await client.list(CRD)).items:
        if crd["spec"]["group"] == INPUT_GROUP:
            with suppress(NotFound):  # a garbage collector may be quicker
                await client.delete(CRD, crd["metadata"]["name"])

    async def is_empty() -> bool:
        left = [kind for kind in made if (await client.list(kind)).items]
        for kind in left:
            await client.delete_collection(kind)
        locked = [each.get("packages") for each in (await client.list(LOCK)).items]
        brought = [each for each in (await client.list(CRD)).items if each["spec"]["group"] == INPUT_GROUP]
        return not any((*left, *locked, brought))

    await eventually(is_empty, "everything that was installed is gone")
