"""The design of controlled rollout, end to end: two revisions of a real function package serve different XRs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import EVENT, FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.apiserver.auth.pki import Pki
from planform.app import Settings, open_control_plane
from planform.client.informer import InformerEvent
from planform.packages.blobs import BlobStore
from planform.packages.building import Source, assemble
from planform.packages.xpkg import package_of
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import CONFIG_MAP, Platform
from tests.controllers.conftest import LONG_ON_KUBERNETES
from tests.harness.contexts import all_controllers, condition_of, eventually, until_condition
from tests.harness.packaging import meta, server_program

pytestmark = pytest.mark.timeout(180)

REPOSITORY = "registry.example.org/acme/function-greet"
FUNCTION_NAME = "function-greet"
SOURCE = '''"""Greets whoever the XR names, and says in which version."""

from typing import Any

from planform_sdk import Ready, Request, Response, function
from planform_sdk.__main__ import serve


@function
def greet(req: Request[Any], rsp: Response) -> None:
    rsp.desired.resources["greeting"] = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"version": "VERSION"}}
    rsp.desired.resources["greeting"].ready = Ready.TRUE


serve(greet)
'''


class Rollout:
    """A control plane with the function, and an API that uses it."""

    def __init__(self, context: ControllerContext, data: Path, unique: str = "rollout") -> None:
        self.context = context
        self.client = context.client
        self.platform = Platform(context.client, unique)
        self.blobs = BlobStore(data / "packages" / "blobs")

    def publish(self, version: str, source: str = SOURCE) -> None:
        package = package_of([("meta", meta("Function", FUNCTION_NAME, capabilities=["composition"]))])
        image = assemble(self.blobs, Source(package), server_program(version, source))
        self.blobs.remember(f"{REPOSITORY}:{version}", image.descriptor)

    async def install(self, version: str, channel: str, **spec: Any) -> Object:
        """The Function as the design prints it."""
        limits = {"revisionHistoryLimit": 4, "activeRevisionLimit": 2, **spec}
        function = {
            "apiVersion": FUNCTION.api_version,
            "kind": "Function",
            "metadata": {"name": FUNCTION_NAME, "labels": {"release-channel": channel}},
            "spec": {"package": f"{REPOSITORY}:{version}", **limits},
        }
        applied = await self.client.apply(function, manager="user", force=True)
        generation = applied["metadata"]["generation"]
        return await until_condition(self.client, applied, "Healthy", observedGeneration=generation)

    def step(self, channel: str = "") -> Object:
        step: Object = {"step": "greet", "functionRef": {"name": FUNCTION_NAME}}
        if channel:
            step["functionRevisionSelector"] = {"matchLabels": {"release-channel": channel}}
        return step

    async def versions(self, xrs: list[Object]) -> list[str]:
        """Which version of the function each XR was composed by."""
        return [
            next((str(each["data"]["version"]) for each in (await self.platform.composed(xr, CONFIG_MAP)).values()), "")
            for xr in xrs
        ]

    async def until_versions(self, xrs: list[Object], wanted: list[str]) -> None:
        async def check() -> bool:
            return await self.versions(xrs) == wanted

        await eventually(check, f"versions {wanted}")

    async def revisions(self) -> list[Object]:
        found = await self.client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={FUNCTION_NAME}")
        return sorted(found.items, key=lambda each: int(each["spec"]["revision"]))


@pytest.fixture
async def rollout(context: ControllerContext, unique: str, tmp_path: Path) -> AsyncIterator[Rollout]:
    data = tmp_path / "data"
    data.mkdir()
    authority = Pki(data / "pki", clock=context.clock)
    async with all_controllers(context, data=data, authority=authority):
        rollout = Rollout(context, data, unique)
        await rollout.platform.define()
        yield rollout


async def test_xrs_on_alpha_get_the_new_revision_and_the_others_keep_the_old_one(rollout: Rollout) -> None:
    platform = rollout.platform
    for version in ("v0.8.1", "v0.8.2"):
        rollout.publish(version)
    await rollout.install("v0.8.1", "stable")
    await platform.compose(rollout.step("stable"), labels={"release-channel": "stable"})
    policy: dict[str, Any] = {"compositionUpdatePolicy": "Manual"}
    stable = await platform.create("stable", **policy)
    alpha = await platform.create("alpha", **policy)
    await rollout.until_versions([stable, alpha], ["v0.8.1", "v0.8.1"])

    await rollout.install("v0.8.2", "alpha")
    await platform.compose(rollout.step("alpha"), labels={"release-channel": "alpha"})
    assert await rollout.versions([stable, alpha]) == ["v0.8.1", "v0.8.1"]

    chosen = {"compositionRevisionSelector": {"matchLabels": {"release-channel": "alpha"}}}
    await rollout.client.apply(platform.xr("alpha", **policy, **chosen), manager="user", force=True)
    await rollout.until_versions([stable, alpha], ["v0.8.1", "v0.8.2"])

    async def counted() -> bool:
        users = [each["status"].get("users") for each in await rollout.revisions()]
        return users == [1, 1]

    await eventually(counted, "each revision has one user")
    function = await rollout.client.get(FUNCTION, FUNCTION_NAME)
    assert [each["revision"] for each in function["status"]["activeRevisions"]] == [2, 1]
    endpoints = {each["endpoint"] for each in function["status"]["activeRevisions"]}
    assert len(endpoints) == 2
    assert function["status"]["endpoint"] in endpoints


@LONG_ON_KUBERNETES
async def test_two_steps_of_one_pipeline_run_two_revisions_of_one_function(rollout: Rollout) -> None:
    platform = rollout.platform
    source = SOURCE.replace('"greeting"', '"from-VERSION"')
    for version, channel in (("v1", "stable"), ("v2", "alpha")):
        rollout.publish(version, source)
        await rollout.install(version, channel)
    stable = {**rollout.step("stable"), "step": "first"}
    await platform.compose(stable, {**rollout.step("alpha"), "step": "second"})
    xr = await platform.create("both")

    async def made() -> bool:
        return {each["data"]["version"] for each in (await platform.composed(xr, CONFIG_MAP)).values()} == {"v1", "v2"}

    await eventually(made, "a resource of each revision")
    await platform.ready(xr)


async def test_no_xr_fails_while_the_function_is_upgraded_rolled_back_and_limited(rollout: Rollout) -> None:
    platform, client = rollout.platform, rollout.client
    for version in ("v1", "v2", "v3"):
        rollout.publish(version)
    await rollout.install("v1", "stable", activeRevisionLimit=1)
    await platform.compose(rollout.step())
    xrs = [await platform.create(f"xr{number}") for number in range(10)]
    await rollout.until_versions(xrs, ["v1"] * len(xrs))
    for xr in xrs:
        await platform.ready(xr)
    failures: list[str] = []

    def watch(change: InformerEvent) -> None:
        condition = condition_of(change.object, "Synced")
        if condition is not None and condition["status"] == "False":
            failures.append(str(condition.get("message")))

    subscription = rollout.context.manager.subscribe(platform.kind, watch)
    over = asyncio.Event()

    async def keep_reconciling() -> None:
        number = 0
        while not over.is_set():
            for xr in xrs:
                number += 1
                wanted = platform.xr(
                    xr["metadata"]["name"].removesuffix(f"-{platform.unique}"), spec={"number": number}
                )
                await client.apply(wanted, manager="user", force=True)
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_reconciling())
        for version, limit in (("v2", 1), ("v3", 2), ("v2", 2), ("v2", 1), ("v1", 1)):
            await rollout.install(version, "stable", activeRevisionLimit=limit)
            await rollout.until_versions(xrs, [version] * len(xrs))
        over.set()
    subscription.close()
    assert failures == []


@LONG_ON_KUBERNETES
async def test_a_revision_that_is_used_is_named_before_it_is_deactivated_and_can_be_retained(rollout: Rollout) -> None:
    platform = rollout.platform
    for version in ("v1", "v2", "v3"):
        rollout.publish(version)
    await rollout.install("v1", "stable", activeRevisionLimit=1)
    await platform.compose(rollout.step("stable"))
    xr = await platform.create("one")
    await rollout.until_versions([xr], ["v1"])
    function = await rollout.install("v2", "alpha", activeRevisionLimit=1)

    async def states(*wanted: str) -> bool:
        return [each["spec"]["desiredState"] for each in await rollout.revisions()] == list(wanted)

    await eventually(lambda: states("Active", "Active"), "the used revision is retained")
    exceeded = await until_condition(rollout.client, function, "ActiveRevisionLimitExceeded", reason="RevisionsInUse")
    told = str((condition_of(exceeded, "ActiveRevisionLimitExceeded") or {})["message"])
    [used, _] = [each["metadata"]["name"] for each in await rollout.revisions()]
    assert f'activeRevisionLimit is 1, and revisions that are used stay active: revision "{used}" by XRs of' in told
    assert "inUsePolicy" not in exceeded["spec"], "a default that may change is not written into objects"
    await platform.compose(rollout.step("alpha"))
    await rollout.until_versions([xr], ["v2"])
    await eventually(lambda: states("Inactive", "Active"), "the unused revision is deactivated")
    await until_condition(rollout.client, function, "ActiveRevisionLimitExceeded", "False")
    await rollout.install("v3", "beta", activeRevisionLimit=1, revisionHistoryLimit=1, inUsePolicy="Deactivate")
    await eventually(lambda: states("Inactive", "Active"), "with this policy the limit counts, and v1 is collected")
    failed = await until_condition(rollout.client, xr, "Synced", "False")
    condition = condition_of(failed, "Synced")
    assert condition is not None
    assert "inactive" in condition["message"]
    advice = f'set activeRevisionLimit: 2 and revisionHistoryLimit: 2 in the spec of Function "{FUNCTION_NAME}"'
    assert advice in condition["message"]
    [needed, _] = await rollout.revisions()
    assert needed["status"]["users"] == 1, "chosen by label, and in use though it is inactive"

    async def warned() -> bool:
        events = (await rollout.client.list(EVENT)).items
        return any(each.get("reason") == "RevisionInUse" and "1 XRs or phases use it" in str(each) for each in events)

    await eventually(warned, "the warning")
    await rollout.install("v3", "beta", activeRevisionLimit=1, revisionHistoryLimit=1, inUsePolicy="Retain")
    await eventually(lambda: states("Active", "Active"), "the needed revision is brought back")
    await until_condition(rollout.client, xr, "Synced")


async def test_after_a_restart_functions_serve_before_xrs_are_reconciled(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    endpoints = []
    for start in (1, 2):
        async with open_control_plane(settings) as plane:
            rollout = Rollout(plane.controllers.context, tmp_path / "data")
            failures: list[str] = []

            def watch(change: InformerEvent, failures: list[str] = failures) -> None:
                condition = condition_of(change.object, "Synced")
                if condition is not None and condition["status"] == "False":
                    failures.append(str(condition.get("message")))

            if start == 1:
                rollout.publish("v1")
                await rollout.install("v1", "stable")
                await rollout.platform.define()
                await rollout.platform.compose(rollout.step())
                await rollout.platform.create("one")
            subscription = plane.manager.subscribe(rollout.platform.kind, watch)
            xr = rollout.platform.xr("one", spec={"start": start})
            await rollout.client.apply(xr, manager="user", force=True)
            found = await rollout.platform.ready(xr)
            assert found["spec"]["start"] == start
            subscription.close()
            assert failures == []
            [revision] = await rollout.revisions()
            endpoints.append(revision["status"]["endpoint"])
    assert len(set(endpoints)) == 2
