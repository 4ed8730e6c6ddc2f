"""XRDs go, and with them what is theirs and nothing else, on both engines and through crashes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from planform.api.kinds import gvk_of
from planform.api.names import (
    CRD,
    DEFINED_FINALIZER,
    PAUSED_ANNOTATION,
    XRD,
)
from planform.apiserver.admission.chain import Admission
from planform.client.informer import ObjectKey
from planform.client.protocol import Client, Propagation
from planform.definitions import deletion
from planform.definitions.controller import DefinitionController
from planform.errors import Conflict
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import condition_of, embedded_context, eventually, read
from tests.harness.definitions import (
    HELD,
    Definitions,
    Recorder,
    definitions,
    reconciles,
    stranger,
    with_field,
)


@pytest.fixture
async def defs(context: ControllerContext, unique: str) -> AsyncIterator[Definitions]:
    async with definitions(context, unique) as defs:
        yield defs


# -- other people's CRDs


@pytest.mark.parametrize("plural", ["apps", "xapps"], ids=["composites", "claims"])
async def test_a_crd_of_somebody_else_is_refused_until_it_goes(defs: Definitions, plural: str) -> None:
    foreign = await defs.context.client.create(stranger(defs.group))
    condition = "Established" if plural == "apps" else "Offered"
    xrd = await defs.context.client.create(defs.xrd() if plural == "apps" else defs.claimed())
    refused = await defs.until(xrd, condition, "False", reason="ForeignDefinition")
    told = condition_of(refused, condition)
    assert told is not None and "was not made by an XRD" in told["message"]
    found = await defs.context.client.get(CRD, foreign["metadata"]["name"])
    assert found["spec"] == foreign["spec"] and not found["metadata"].get("ownerReferences")
    await defs.delete(foreign)
    await defs.until(xrd, condition, "True")


async def test_of_two_xrds_that_want_one_crd_the_second_has_it_when_the_first_is_gone(defs: Definitions) -> None:
    first = await defs.established(defs.xrd())
    second = await defs.context.client.create(defs.claimed())
    refused = await defs.until(second, "Offered", "False", reason="ForeignDefinition")
    told = condition_of(refused, "Offered")
    assert told is not None and f'controlled by CompositeResourceDefinition "apps.{defs.group}"' in told["message"]
    await defs.delete(first)
    await defs.gone(first)
    await defs.until(second, "Offered", "True")


async def test_a_crd_that_an_xrd_lost_is_adopted_again_with_its_xrs(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    xr = await defs.create(xrd, "one")
    await defs.stop()
    crd = await defs.context.client.get(CRD, xrd["metadata"]["name"])
    await defs.change(crd, {"metadata": {"ownerReferences": None}})
    await defs.change(xrd, {"metadata": {"finalizers": None}})
    await defs.delete(xrd)
    await defs.gone(xrd)
    defs.start()
    again = await defs.established(defs.xrd())
    found = await defs.context.client.get(CRD, crd["metadata"]["name"])
    assert found["metadata"]["uid"] == crd["metadata"]["uid"]
    assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [again["metadata"]["uid"]]
    assert (await defs.context.client.get(gvk_of(xr), "one", namespace="default"))["metadata"]["uid"]


async def test_a_crd_that_is_not_the_xrds_is_orphaned_and_not_deleted(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    xr = await defs.create(xrd, "one")
    await defs.stop()
    crd = await defs.context.client.get(CRD, xrd["metadata"]["name"])
    await defs.change(crd, {"metadata": {"ownerReferences": None}})
    await defs.delete(xrd)
    defs.start()
    await defs.gone(xrd)
    found = await defs.context.client.get(CRD, crd["metadata"]["name"])
    assert not found["metadata"].get("deletionTimestamp")
    found = await defs.context.client.get(gvk_of(xr), "one", namespace="default")
    assert not found["metadata"].get("deletionTimestamp")
    assert defs.composites.running == {}
    await defs.delete(crd)


# -- going


async def test_deletion_waits_for_instances(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    name = xrd["metadata"]["name"]
    free = await defs.create(xrd, "free")
    held = await defs.change(await defs.create(xrd, "held"), {"metadata": {"finalizers": [HELD]}})
    await defs.delete(xrd)
    await defs.gone(free)
    going = await defs.until(xrd, "Established", "False", reason="TerminatingCompositeResource")
    assert DEFINED_FINALIZER in going["metadata"]["finalizers"]
    assert (await defs.context.client.get(gvk_of(held), "held", namespace="default"))["metadata"]["deletionTimestamp"]
    assert not (await defs.context.client.get(CRD, name))["metadata"].get("deletionTimestamp")
    assert name in defs.composites.running, "an XR loses its finalizer only while its controller runs"
    await defs.change(held, {"metadata": {"finalizers": None}})
    await defs.gone(xrd)
    assert await read(defs.context.client, CRD, name) is None
    assert defs.composites.told[-1] == f"stop {name}"


async def test_claims_go_before_xrs(defs: Definitions) -> None:
    xrd = await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    xr = await defs.create(xrd, "one")
    claim = await defs.change(await defs.create(xrd, "one", kind="App"), {"metadata": {"finalizers": [HELD]}})
    await defs.delete(xrd)
    await defs.until(xrd, "Offered", "False", reason="TerminatingCompositeResourceClaim")
    await defs.until(xrd, "Established", "False", reason="TerminatingCompositeResource")

    async def claim_is_going() -> bool:
        found = await defs.context.client.get(gvk_of(claim), "one", namespace="default")
        return bool(found["metadata"].get("deletionTimestamp"))

    await eventually(claim_is_going, "the claim is being deleted")
    assert not (await defs.context.client.get(gvk_of(xr), "one"))["metadata"].get("deletionTimestamp")
    assert defs.composites.running and defs.claims.running
    await defs.change(claim, {"metadata": {"finalizers": None}})
    await defs.gone(xrd)
    for plural in ("xapps", "apps"):
        assert await read(defs.context.client, CRD, f"{plural}.{defs.group}") is None
    assert defs.composites.running == defs.claims.running == {}


async def test_an_xr_that_comes_during_the_deletion_goes_as_well(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    held = await defs.change(await defs.create(xrd, "held"), {"metadata": {"finalizers": [HELD]}})
    await defs.delete(xrd)
    await defs.until(xrd, "Established", "False", reason="TerminatingCompositeResource")

    async def held_is_going() -> bool:
        found = await defs.context.client.get(gvk_of(held), "held", namespace="default")
        return bool(found["metadata"].get("deletionTimestamp"))

    await eventually(held_is_going, "the first XR is being deleted")
    await defs.gone(await defs.create(xrd, "late"))
    await defs.change(held, {"metadata": {"finalizers": None}})
    await defs.gone(xrd)


async def test_a_deletion_goes_on_after_a_restart_with_the_controllers_it_needs(defs: Definitions) -> None:
    xrd = await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    name = xrd["metadata"]["name"]
    claim = await defs.change(await defs.create(xrd, "one", kind="App"), {"metadata": {"finalizers": [HELD]}})
    await defs.delete(xrd)
    await defs.until(xrd, "Offered", "False", reason="TerminatingCompositeResourceClaim")
    await defs.restart()

    async def both_run() -> bool:
        return name in defs.composites.running and name in defs.claims.running

    await eventually(both_run, "claims and XRs are reconciled")
    await defs.change(claim, {"metadata": {"finalizers": None}})
    await defs.gone(xrd)
    assert defs.composites.running == defs.claims.running == {}


async def test_instances_that_go_one_by_one_cost_no_pass_each(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    names = [f"app-{index}" for index in range(12)]
    held = [await defs.change(await defs.create(xrd, name), {"metadata": {"finalizers": [HELD]}}) for name in names]
    await defs.delete(xrd)

    async def all_are_going() -> bool:
        found = (await defs.context.client.list(gvk_of(held[0]))).items
        return all(each["metadata"].get("deletionTimestamp") for each in found)

    await eventually(all_are_going, "all XRs are being deleted")
    before = reconciles(defs.context)
    for xr in held[1:]:
        await defs.change(xr, {"metadata": {"finalizers": None}})
        await defs.gone(xr)
    assert reconciles(defs.context) - before <= 3, "a few may be on their way when the counting begins"
    await defs.change(held[0], {"metadata": {"finalizers": None}})
    await defs.gone(xrd)


@dataclass
class Guard:
    """Denies the deletion of one object, as a Usage does."""

    name: str
    denies: bool = True

    def admit(self, admission: Admission) -> None:
        if admission.operation == "DELETE" and admission.name == self.name and self.denies:
            raise Conflict("this app is in use by a test")


async def test_an_instance_that_may_not_be_deleted_is_named_and_the_others_go(
    unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "AT_ONCE", 1)  # so that the other one is of a later slice
    guard = Guard("needed")
    async with embedded_context(admission=[guard]) as context:
        defs = Definitions(context, f"{unique}.example.org")
        defs.start()
        xrd = await defs.established(defs.xrd())
        await defs.create(xrd, "needed")
        free = await defs.create(xrd, "other")
        await defs.delete(xrd)
        await defs.gone(free)
        text = "this app is in use by a test"
        going = await defs.until(xrd, "Established", "False", reason="TerminatingCompositeResource", message=text)
        assert DEFINED_FINALIZER in going["metadata"]["finalizers"]
        guard.denies = False
        await defs.gone(xrd)


async def test_foreground_deletion_ends_as_well(defs: Definitions) -> None:
    xrd = await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    xr = await defs.change(await defs.create(xrd, "one"), {"metadata": {"finalizers": [HELD]}})
    await defs.context.client.delete(XRD, xrd["metadata"]["name"], propagation=Propagation.FOREGROUND)

    async def xr_is_going() -> bool:
        found = await defs.context.client.get(gvk_of(xr), "one")
        return bool(found["metadata"].get("deletionTimestamp"))

    await eventually(xr_is_going, "the XR is being deleted")
    assert xrd["metadata"]["name"] in defs.composites.running
    await defs.change(xr, {"metadata": {"finalizers": None}})
    await defs.gone(xrd)
    assert await read(defs.context.client, CRD, xrd["metadata"]["name"]) is None


async def test_a_paused_xrd_is_not_deleted(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    other = await defs.established(defs.xrd(plural="others"))
    xr = await defs.create(xrd, "one")
    await defs.change(xrd, {"metadata": {"annotations": {PAUSED_ANNOTATION: "true"}}})
    await defs.delete(xrd)
    await defs.delete(other)
    await defs.gone(other)
    assert not (await defs.context.client.get(gvk_of(xr), "one", namespace="default"))["metadata"].get(
        "deletionTimestamp"
    )
    await defs.change(xrd, {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}})
    await defs.gone(xrd)


async def test_an_invalid_xrd_can_be_deleted(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    await defs.create(xrd, "one")
    await defs.change(xrd, {"spec": {"versions": [with_field("shape", {"type": "strin"})]}})
    await defs.until(xrd, "Established", "False", reason="InvalidDefinition")
    await defs.delete(xrd)
    await defs.gone(xrd)
    assert await read(defs.context.client, CRD, xrd["metadata"]["name"]) is None


async def test_nothing_runs_for_an_xrd_that_was_removed_by_force(defs: Definitions) -> None:
    xrd = await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    await defs.change(xrd, {"metadata": {"annotations": {PAUSED_ANNOTATION: "true"}}})
    await defs.change(xrd, {"metadata": {"finalizers": None}})
    await defs.delete(xrd)

    async def check() -> bool:
        return not defs.composites.running and not defs.claims.running

    await eventually(check, "its controllers are stopped")


# -- crashing


class Crash(Exception):
    """The process ends here."""


class CrashingClient:
    """Ends the process right after one of its writes; what the write did is done."""

    def __init__(self, client: Client, at: int | None) -> None:
        self._client = client
        self._at = at
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if name not in ("create", "update", "patch", "apply", "delete"):
            return call

        async def write(*args: Any, **more: Any) -> Any:
            answer = await call(*args, **more)
            self.writes += 1
            if self.writes == self._at:
                raise Crash
            return answer

        return write


@dataclass
class Life:
    """An XRD from its creation to its end, driven reconcile by reconcile; after a crash by a controller that knows
    nothing."""

    defs: Definitions
    client: CrashingClient
    controller: DefinitionController = field(init=False)

    def __post_init__(self) -> None:
        context = replace(self.defs.context, client=cast(Client, self.client))
        self.controller = DefinitionController(context, self.defs.composites, self.defs.claims)

    async def drive(self, key: ObjectKey, done: Callable[[], Awaitable[bool]], what: str) -> None:
        async def step() -> bool:
            try:
                await self.controller.reconcile(key)
            except Crash:
                self.defs.composites, self.defs.claims = Recorder(), Recorder()
                self.controller = DefinitionController(self.defs.context, self.defs.composites, self.defs.claims)
            except Conflict:
                pass
            return await done()

        await eventually(step, what)

    async def run(self) -> None:
        client, xrd = self.defs.context.client, self.defs.claimed()
        key = ObjectKey("", xrd["metadata"]["name"])

        async def is_served() -> bool:
            found = await client.get(XRD, key.name)
            return all(
                told is not None
                and told["status"] == "True"
                and told["observedGeneration"] == found["metadata"]["generation"]
                for told in (condition_of(found, "Established"), condition_of(found, "Offered"))
            )

        async def is_gone() -> bool:
            return await read(client, XRD, key.name) is None

        xrd = await client.create(xrd)
        await self.drive(key, is_served, "it is served")
        await self.defs.create(xrd, "xr")
        await self.defs.create(xrd, "claim", kind="App")
        await self.defs.change(xrd, {"spec": {"versions": [with_field("shape", {"type": "string"})]}})
        await self.drive(key, is_served, "the change is served")
        await self.defs.delete(xrd)
        await self.drive(key, is_gone, "it is gone")
        await self.controller.reconcile(key)
        left = [
            crd["metadata"]["name"] for crd in (await client.list(CRD)).items if crd["spec"]["group"] == self.defs.group
        ]
        assert left == []
        assert self.defs.composites.running == self.defs.claims.running == {}


async def test_a_crash_after_any_write_leaves_nothing_behind(unique: str) -> None:
    async with embedded_context() as context:
        clean = Life(Definitions(context, f"{unique}.example.org"), CrashingClient(context.client, None))
        await clean.run()
        assert clean.client.writes > 15
        for at in range(1, clean.client.writes + 1):
            crashed = Life(Definitions(context, f"{unique}-{at}.example.org"), CrashingClient(context.client, at))
            await crashed.run()
