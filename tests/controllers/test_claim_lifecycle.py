"""Claims on both engines: how they go, rest, restart and survive crashes; and how their controllers come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from planform.api.kinds import Object
from planform.api.names import CLAIM_FINALIZER
from planform.claims.claims import xr_name
from planform.claims.controller import ClaimControllers, XrNotDeleted, controller_name
from planform.client.informer import ObjectKey
from planform.client.protocol import Client
from planform.errors import Conflict, Forbidden
from planform.reconcile.context import ControllerContext
from tests.controllers.claiming import (
    GROUP,
    NAME,
    Crash,
    Databases,
    Intercepted,
    offered_databases,
    reference,
    revision_of,
    secret,
    versions,
    xrd,
)
from tests.harness.contexts import condition_of, eventually


@pytest.fixture
async def databases(context: ControllerContext, unique: str) -> AsyncIterator[Databases]:
    async with offered_databases(context, unique) as databases:
        yield databases


# -- going away


async def test_a_claim_takes_its_xr_with_it(databases: Databases) -> None:
    claim = await databases.synced(await databases.claim("orders"))
    xr = await databases.xr_of(claim)
    await databases.merge(xr, {"metadata": {"finalizers": ["example.org/slow"]}})
    await databases.client.delete(databases.offer.claim, "orders", namespace=databases.namespace)
    await databases.until_gone(claim)
    going = await databases.now(xr)
    assert going["metadata"]["deletionTimestamp"]
    await databases.merge(xr, {"metadata": {"finalizers": None}})
    await databases.until_gone(xr)


async def test_a_claim_with_the_foreground_policy_waits_until_its_xr_is_gone(databases: Databases) -> None:
    claim = await databases.synced(await databases.claim("orders", {"compositeDeletePolicy": "Foreground"}))
    xr = await databases.xr_of(claim)
    await databases.merge(xr, {"metadata": {"finalizers": ["example.org/slow"]}})
    await databases.client.delete(databases.offer.claim, "orders", namespace=databases.namespace)
    claim = await databases.ready(claim, "False", reason="Deleting")
    going = await databases.now(xr)
    assert going["metadata"]["deletionTimestamp"]
    assert CLAIM_FINALIZER in claim["metadata"]["finalizers"]
    await databases.merge(xr, {"metadata": {"finalizers": None}})
    await databases.until_gone(claim)
    assert await databases.find(xr) is None


async def test_a_foreground_deletion_also_waits_for_what_an_xr_that_is_going_already_owns(databases: Databases) -> None:
    claim = await databases.synced(await databases.claim("orders", {"compositeDeletePolicy": "Foreground"}))
    xr = await databases.xr_of(claim)
    owner = {**reference(xr), "uid": xr["metadata"]["uid"], "blockOwnerDeletion": True}
    metadata = {"name": "owned", "namespace": databases.namespace, "ownerReferences": [owner]}
    metadata["finalizers"] = ["example.org/slow"]
    owned = await databases.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await databases.merge(xr, {"metadata": {"finalizers": ["example.org/slow"]}})
    await databases.client.delete(databases.offer.composite, xr["metadata"]["name"])
    await databases.client.delete(databases.offer.claim, "orders", namespace=databases.namespace)
    await databases.until(xr, lambda now: "foregroundDeletion" in now["metadata"]["finalizers"], "foreground deletion")
    await databases.merge(owned, {"metadata": {"finalizers": None}})
    await databases.merge(xr, {"metadata": {"finalizers": None}})
    await databases.until_gone(claim)


async def test_a_foreground_deletion_is_asked_for_once_however_long_the_xr_is_held(databases: Databases) -> None:
    claim = await databases.synced(await databases.claim("orders", {"compositeDeletePolicy": "Foreground"}))
    xr = await databases.xr_of(claim)
    await databases.merge(xr, {"metadata": {"finalizers": ["example.org/slow"]}})
    await databases.client.delete(databases.offer.claim, "orders", namespace=databases.namespace)
    await databases.ready(claim, "False", reason="Deleting")
    # The garbage collector has done its part; it takes its finalizer off at once, since the XR owns nothing.
    going = await databases.merge(xr, {"metadata": {"finalizers": ["example.org/slow"]}})
    for _ in range(3):
        await databases.controller().reconcile(databases.key(claim))
    assert await databases.now(xr) == going
    await databases.merge(xr, {"metadata": {"finalizers": None}})
    await databases.until_gone(claim)


async def test_an_error_of_the_api_is_shown_and_tried_again(databases: Databases) -> None:
    await databases.stop()
    claim = await databases.claim("orders")
    refusing = cast(Client, Intercepted(databases.client, refuse={"apply": Forbidden("no such verb")}))
    for _ in range(2):  # the first one also wrote the claim, so its status comes with the second
        with pytest.raises((Forbidden, Conflict)):
            await databases.controller(refusing).reconcile(databases.key(claim))
    claim = await databases.now(claim)
    assert (condition_of(claim, "Synced") or {})["message"] == "no such verb"
    assert await databases.events(claim) == [("Warning", "ConfigureCompositeResource")]
    await databases.start()
    await databases.synced(claim)


async def test_a_claim_goes_without_an_xr_that_is_not_its_own(databases: Databases) -> None:
    owner = await databases.synced(await databases.claim("owner"))
    xr = await databases.xr_of(owner)
    other = await databases.claim("other", {"resourceRef": reference(xr)}, finalizers=[CLAIM_FINALIZER])
    await databases.synced(other, "False")
    await databases.client.delete(databases.offer.claim, "other", namespace=databases.namespace)
    await databases.until_gone(other)
    left = (await databases.now(xr))["metadata"]
    assert left["uid"] == xr["metadata"]["uid"]
    assert "deletionTimestamp" not in left


async def test_an_xr_that_may_not_be_deleted_is_told_of(databases: Databases) -> None:
    claim = await databases.synced(await databases.claim("orders"))
    await databases.xr_of(claim)
    await databases.stop()
    await databases.client.delete(databases.offer.claim, "orders", namespace=databases.namespace)
    protecting = cast(Client, Intercepted(databases.client, refuse={"delete": Conflict("in use by app")}))
    with pytest.raises(XrNotDeleted):
        await databases.controller(protecting).reconcile(databases.key(claim))
    claim = await databases.now(claim)
    assert "in use by app" in (condition_of(claim, "Synced") or {})["message"]
    await databases.start()
    await databases.until_gone(claim)


async def test_a_paused_claim_is_left_alone_and_so_is_its_deletion(databases: Databases) -> None:
    pause = {"crossplane.io/paused": "true"}
    claim = await databases.claim("orders", {"size": 1}, annotations=pause, finalizers=[CLAIM_FINALIZER])
    claim = await databases.synced(claim, "False", reason="ReconcilePaused")
    assert "resourceRef" not in claim["spec"]
    assert await databases.events(claim) == [("Normal", "ReconciliationPaused")]
    await databases.merge(claim, {"metadata": {"annotations": {"crossplane.io/paused": None}}})
    claim = await databases.synced(claim)
    xr = await databases.xr_of(claim)
    await databases.merge(claim, {"metadata": {"annotations": pause}})
    await databases.synced(claim, "False", reason="ReconcilePaused")
    await databases.client.delete(databases.offer.claim, "orders", namespace=databases.namespace)
    await databases.stop()
    await databases.controller().reconcile(databases.key(claim))
    assert CLAIM_FINALIZER in (await databases.now(claim))["metadata"]["finalizers"]
    assert "deletionTimestamp" not in (await databases.now(xr))["metadata"]
    await databases.merge(claim, {"metadata": {"annotations": {"crossplane.io/paused": None}}})
    await databases.start()
    await databases.until_gone(xr)


# -- at rest, restarts and crashes


async def made_ready(databases: Databases, client: Client, claim: Object) -> None:
    """Everything that happens to a claim until it is Ready with its Secret, by hand."""
    key = databases.key(claim)
    await databases.controller(client).reconcile(key)
    xr = await databases.xr_of(claim)
    chosen = {"compositionRef": {"name": "small"}, "compositionRevisionRef": {"name": "small-1"}}
    xr = await databases.compose(xr, ready=False, spec=chosen)
    await databases.controller(client).reconcile(key)
    await databases.publish(xr, {"user": "a"}, at="2026-01-01T00:00:01Z")
    await databases.controller(client).reconcile(key)


async def test_a_pass_and_a_restart_that_find_everything_in_place_write_nothing(databases: Databases) -> None:
    await databases.stop()
    claim = await databases.claim("orders", {"size": 1, "writeConnectionSecretToRef": {"name": "details"}})
    counting = Intercepted(databases.client)
    await made_ready(databases, cast(Client, counting), claim)
    assert counting.writes
    counting.writes.clear()
    await databases.controller(cast(Client, counting)).reconcile(databases.key(claim))
    assert counting.writes == []
    claim, xr = await databases.ready(claim), await databases.xr_of(claim)
    copy = await databases.now(secret(databases.namespace, "details", {}))
    counting.read.clear()
    restarted = ClaimControllers(replace(databases.context, client=cast(Client, counting)))
    await restarted.start(xrd())

    async def looked_at() -> bool:
        return {"orders", xr["metadata"]["name"], "details"} <= set(counting.read)

    await eventually(looked_at, "a pass over the claim")
    await restarted.stop(NAME)  # once that pass has ended
    assert counting.writes == []
    assert versions(claim, xr, copy) == versions(
        await databases.now(claim), await databases.now(xr), await databases.now(copy)
    )


async def test_after_a_crash_at_any_write_the_claim_converges_to_one_xr(databases: Databases) -> None:
    await databases.stop()
    claim = await databases.claim("clean", {"size": 1, "writeConnectionSecretToRef": {"name": "clean"}})
    counting = Intercepted(databases.client)
    await made_ready(databases, cast(Client, counting), claim)
    points = [(number + 1, after) for number in range(len(counting.writes)) for after in (False, True)]
    assert len(points) >= 12, counting.writes
    for number, after in points:
        name = f"crash-{number}-{'after' if after else 'before'}"
        claim = await databases.claim(name, {"size": 1, "writeConnectionSecretToRef": {"name": name}})
        crashing = Intercepted(databases.client, crash_at=number, after=after)
        with pytest.raises(Crash):
            await made_ready(databases, cast(Client, crashing), claim)
        await made_ready(databases, databases.client, claim)
        found = await databases.client.list(databases.offer.composite, labels=f"crossplane.io/claim-name={name}")
        assert [xr["metadata"]["name"] for xr in found.items] == [xr_name(claim)]
        claim = await databases.ready(claim)
        assert claim["spec"]["resourceRef"]["name"] == xr_name(claim)
        assert revision_of(claim) == "small-1"
        assert claim["status"]["connectionDetails"]["lastPublishedTime"]
        assert (await databases.now(secret(databases.namespace, name, {})))["data"]


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_after_a_crash_at_any_write_of_a_deletion_nothing_is_left(databases: Databases, policy: str) -> None:
    await databases.stop()
    for number in (1, 2):
        for after in (False, True):
            claim = await databases.claim(f"go-{number}-{after}".lower(), {"compositeDeletePolicy": policy})
            key = databases.key(claim)
            await databases.controller().reconcile(key)
            xr = await databases.xr_of(claim)
            await databases.client.delete(databases.offer.claim, key.name, namespace=key.namespace)
            crashing = cast(Client, Intercepted(databases.client, crash_at=number, after=after))
            with pytest.raises(Crash):
                for _ in range(3):  # Foreground needs a reconcile more, once the XR is gone
                    await databases.controller(crashing).reconcile(key)
                    await databases.until_gone(xr)

            async def gone(key: ObjectKey = key, claim: Object = claim) -> bool:
                await databases.controller().reconcile(key)
                return await databases.find(claim) is None

            await eventually(gone, f"{key} gone")
            assert await databases.find(xr) is None


# -- controllers come and go


async def test_a_controller_is_restarted_by_a_new_generation_of_its_xrd_only(databases: Databases) -> None:
    plane, name = databases.context.manager, controller_name(NAME)
    before = plane.sources(name)
    await databases.start()
    assert plane.sources(name) == before
    await databases.start(xrd(generation=2))
    assert plane.sources(name) != before
    await databases.stop()
    await databases.stop()
    assert name not in plane


async def test_claims_and_xrs_move_to_the_new_referenceable_version_together(databases: Databases) -> None:
    claim = await databases.synced(await databases.claim("orders", {"size": 1, "region": "eu"}))
    xr = await databases.xr_of(claim)
    await databases.start(xrd(referenceable="v2", generation=2))
    version = f"{GROUP}/v2"
    await databases.until(
        claim, lambda now: bool(now["spec"]["resourceRef"]["apiVersion"] == version), "v2 on the claim"
    )
    moved = await databases.until(
        xr, lambda now: bool(now["spec"]["claimRef"]["apiVersion"] == version), "v2 on the XR"
    )
    assert moved["metadata"]["uid"] == xr["metadata"]["uid"]
    await databases.merge(claim, {"spec": {"region": None}})
    await databases.until_xr(claim, lambda found: "region" not in found["spec"])
