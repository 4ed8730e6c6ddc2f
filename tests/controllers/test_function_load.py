"""Functions come, change, go back and leave while fifty XRs are reconciled without a pause, and no call fails.

Calls are counted where they are made, each attempt of its own, and where they are answered, by the function itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from planform.api.kinds import Object
from planform.api.names import FUNCTION
from planform.api.xr import RESOURCE_NAME_ANNOTATION
from planform.apiserver.auth.pki import Pki
from planform.client.informer import InformerEvent
from planform.packages.blobs import BlobStore
from planform.packages.building import Source, assemble
from planform.packages.runtimes.logs import last_lines
from planform.packages.xpkg import package_of
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import CONFIG_MAP, Platform
from tests.harness.contexts import all_controllers, condition_of, embedded_context, eventually, until_condition
from tests.harness.packaging import meta, server_program

pytestmark = pytest.mark.timeout(300)

XRS = 50
REPOSITORY = "registry.example.org/acme"
SOURCE = '''"""Composes one ConfigMap, and says in its log of each call that it came and that it was answered.

Some take long.
"""

import asyncio
from typing import Any

from planform_sdk import Ready, Request, Response, function
from planform_sdk.__main__ import serve


@function
async def count(req: Request[Any], rsp: Response) -> None:
    print("call came", flush=True)
    number = int(req.observed.composite.resource["spec"]["number"])
    await asyncio.sleep(0.5 if number % 8 == 0 else 0)
    rsp.desired.resources["NAME"] = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"version": "VERSION", "number": str(number)}
    }
    rsp.desired.resources["NAME"].ready = Ready.TRUE
    print("call answered", flush=True)


serve(count)
'''


class Load:
    """Fifty XRs that are changed again and again, and everything that goes wrong meanwhile."""

    def __init__(self, context: ControllerContext, platform: Platform, data: Path) -> None:
        self.context = context
        self.client = context.client
        self.platform = platform
        self.data = data
        self.failures: list[str] = []
        self.number = 0
        self._blobs = BlobStore(data / "packages" / "blobs")

    def publish(self, function: str, *versions: str) -> None:
        """Have these versions of a package here, as after a pull."""
        package = package_of([("meta", meta("Function", function, capabilities=["composition"]))])
        for version in versions:
            program = server_program(version, SOURCE.replace("NAME", function))
            image = assemble(self._blobs, Source(package), program)
            self._blobs.remember(f"{REPOSITORY}/{function}:{version}", image.descriptor)

    async def install(self, function: str, version: str, *, active: int = 1) -> Object:
        """Install, upgrade or go back, or allow for another number of active revisions; wait until that is done."""
        wanted = {
            "apiVersion": FUNCTION.api_version,
            "kind": "Function",
            "metadata": {"name": function},
            "spec": {
                "package": f"{REPOSITORY}/{function}:{version}",
                "revisionHistoryLimit": 4,
                "activeRevisionLimit": active,
            },
        }
        applied = await self.client.apply(wanted, manager="user", force=True)
        return await until_condition(
            self.client, applied, "Healthy", observedGeneration=applied["metadata"]["generation"]
        )

    def xr(self, index: int) -> Object:
        return self.platform.xr(f"xr{index}", spec={"number": self.number})

    async def touch_all(self) -> None:
        self.number += 1
        for index in range(XRS):
            await self.client.apply(self.xr(index), manager="user", force=True)

    async def until_composed(self, resource: str, version: str) -> None:
        """Wait until every XR has been composed by this version, from what its user wrote after this call."""
        wanted = self.number + 1

        async def check() -> bool:
            found = (await self.client.list(CONFIG_MAP)).items
            composed = [
                each
                for each in found
                if (each["metadata"].get("annotations") or {}).get(RESOURCE_NAME_ANNOTATION) == resource
            ]
            done = [each for each in composed if each["data"]["version"] == version]
            return len(done) == XRS and all(int(each["data"]["number"]) >= wanted for each in done)

        await eventually(check, f"all XRs are composed by {version} of {resource}")

    @asynccontextmanager
    async def reconciling(self) -> AsyncIterator[None]:
        """Change all XRs over and over, and note each one that says it is not synced, until the block ends."""
        over = asyncio.Event()

        def watch(change: InformerEvent) -> None:
            condition = condition_of(change.object, "Synced")
            if condition is not None and condition["status"] != "True":
                self.failures.append(f"{change.key.name}: {condition.get('message')}")

        async def keep_on() -> None:
            while not over.is_set():
                await self.touch_all()
                await asyncio.sleep(0)

        subscription = self.context.manager.subscribe(self.platform.kind, watch)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keep_on())
            yield
            over.set()
        subscription.close()

    def made(self) -> Counter[str]:
        """Calls that were begun, each attempt counted, by the function's revision."""
        return self._counted("function_run_function_request_total", "function_revision")

    def ended(self) -> Counter[str]:
        """Calls that have ended, each attempt counted, by gRPC code."""
        return self._counted("function_run_function_response_total", "grpc_code")

    async def until_all_answered(self) -> None:
        """Wait until every call that was begun came to a function, was answered, and the answer was read."""

        async def check() -> bool:
            made, served = self.made().total(), self.served()
            return self.ended() == {"OK": made} and served == {"call came": made, "call answered": made}

        try:
            await eventually(check, "as many calls are answered as made")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.made()}, {self.served()}, {self.ended()}") from error

    def _counted(self, metric: str, label: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for line in self.context.metrics.render().splitlines():
            if line.startswith(f"{metric}{{"):
                found[line.partition(f'{label}="')[2].partition('"')[0]] += int(float(line.rpartition(" ")[2]))
        return found

    def served(self) -> Counter[str]:
        """What the functions themselves have counted."""
        lines = (line for log in (self.data / "logs").glob("*.log") for line in last_lines(log, 0))
        return Counter(line.partition(" ")[2] for line in lines if line.endswith((" call came", " call answered")))


@pytest.fixture
async def load(tmp_path: Path) -> AsyncIterator[Load]:
    data = tmp_path / "data"
    data.mkdir()
    async with embedded_context() as context:
        authority = Pki(data / "pki", clock=context.clock)
        async with all_controllers(context, data=data, authority=authority):
            platform = Platform(context.client, "load")
            await platform.define()
            yield Load(context, platform, data)


async def test_no_call_fails_while_functions_are_installed_upgraded_rolled_back_and_limited(
    load: Load, record_property: Callable[[str, object], None]
) -> None:
    load.publish("function-a", "v1", "v2", "v3")
    load.publish("function-b", "v1", "v2")
    steps: list[Object] = [{"step": name, "functionRef": {"name": f"function-{name}"}} for name in ("a", "b")]
    await load.install("function-a", "v1")
    await load.platform.compose(steps[0])
    await load.touch_all()
    async with load.reconciling():
        await load.until_composed("function-a", "v1")
        # Upgrades with one and with two active revisions, back with the older one still there, a lower limit, and back
        # to a revision that has been stopped.
        for version, active in (("v2", 1), ("v3", 2), ("v2", 2), ("v2", 1), ("v1", 1)):
            await load.install("function-a", version, active=active)
            await load.until_composed("function-a", version)
        await load.install("function-b", "v1")
        await load.platform.compose(*steps)
        await load.until_composed("function-b", "v1")
        await load.install("function-b", "v2")
        await load.until_composed("function-b", "v2")
    assert load.failures == []
    assert set(load.ended()) == {"OK"}
    await load.until_all_answered()
    record_property("function calls under load", f"{load.made().total()}, none of them failed")
