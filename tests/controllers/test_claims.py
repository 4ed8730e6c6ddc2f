"""Claims on both engines: how they bind, what goes to the XR and what comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from planform.api.names import CLAIM_FINALIZER, CONNECTION_SECRET_TYPE, EXTERNAL_NAME_ANNOTATION, SECRET
from planform.claims.claims import offer_of, xr_name
from planform.claims.secrets import SecretRefused
from planform.client.protocol import Client
from planform.errors import Conflict
from planform.reconcile.context import ControllerContext
from tests.controllers.claiming import (
    Databases,
    Intercepted,
    condition,
    controlled_by,
    offered_databases,
    reference,
    revision_of,
    secret,
    versions,
    xrd,
)
from tests.harness.contexts import condition_of, until_condition


@pytest.fixture
async def databases(context: ControllerContext, unique: str) -> AsyncIterator[Databases]:
    async with offered_databases(context, unique) as databases:
        yield databases


# -- making and binding


async def test_a_claim_makes_an_xr_and_points_at_it(databases: Databases) -> None:
    labels = {"team": "red", "app.kubernetes.io/name": "shop"}
    claim = await databases.claim("orders", {"size": 3, "compositeDeletePolicy": "Foreground"}, labels=labels)
    claim = await databases.synced(claim)
    xr = await databases.xr_of(claim)
    name = xr["metadata"]["name"]
    assert name.startswith("orders-") and len(name) == len("orders-") + 12
    assert claim["spec"]["resourceRef"] == {
        "apiVersion": databases.offer.composite.api_version,
        "kind": "XDatabase",
        "name": name,
    }
    assert claim["metadata"]["finalizers"] == [CLAIM_FINALIZER]
    assert xr["metadata"]["labels"] == {
        "team": "red",
        "crossplane.io/claim-name": "orders",
        "crossplane.io/claim-namespace": databases.namespace,
    }
    assert xr["spec"] == {
        "size": 3,
        "compositionUpdatePolicy": "Automatic",
        "claimRef": {
            "apiVersion": claim["apiVersion"],
            "kind": "Database",
            "namespace": databases.namespace,
            "name": "orders",
        },
    }
    waiting = condition_of(claim, "Ready")
    assert waiting is not None and (waiting["status"], waiting["reason"]) == ("False", "Waiting")
    assert ("Normal", "BindCompositeResource") in await databases.events(claim)


async def test_an_existing_free_xr_is_bound_and_keeps_its_own_fields_and_external_name(databases: Databases) -> None:
    named = f"static-{databases.namespace}"
    xr = await databases.xr(named, {"size": 1, "region": "eu"}, annotations={EXTERNAL_NAME_ANNOTATION: "db-7"})
    claim = await databases.claim(
        "orders",
        {"size": 2, "resourceRef": reference(xr)},
        annotations={EXTERNAL_NAME_ANNOTATION: "mine", "note": "x"},
    )
    claim = await databases.synced(claim)
    bound = await databases.now(xr)
    assert bound["metadata"]["uid"] == xr["metadata"]["uid"]
    assert bound["spec"]["claimRef"]["name"] == "orders"
    assert (bound["spec"]["size"], bound["spec"]["region"]) == (2, "eu")
    assert bound["metadata"]["annotations"] == {EXTERNAL_NAME_ANNOTATION: "db-7", "note": "x"}
    assert claim["metadata"]["annotations"][EXTERNAL_NAME_ANNOTATION] == "db-7"


async def test_an_xr_that_is_bound_elsewhere_is_refused_until_it_becomes_free(databases: Databases) -> None:
    owner = await databases.synced(await databases.claim("owner"))
    xr = await databases.xr_of(owner)
    other = await databases.claim("other", {"resourceRef": reference(xr)})
    other = await databases.synced(other, "False", reason="ReconcileError")
    told = condition_of(other, "Synced")
    assert told is not None and f"bound to another claim: Database {databases.namespace}/owner" in told["message"]
    assert await databases.events(other) == [("Warning", "BindCompositeResource")]
    assert (await databases.now(xr))["spec"]["claimRef"]["name"] == "owner"
    # The owner goes, and its XR with it; the other claim hears of that and makes the XR anew.
    await databases.client.delete(databases.offer.claim, "owner", namespace=databases.namespace)
    other = await databases.synced(other)
    again = await databases.xr_of(other)
    assert again["metadata"]["name"] == xr["metadata"]["name"]
    assert again["metadata"]["uid"] != xr["metadata"]["uid"]


async def test_a_refused_claim_is_not_requeued_and_not_written_again(databases: Databases) -> None:
    xr = await databases.xr_of(await databases.synced(await databases.claim("owner")))
    await databases.stop()
    other = await databases.claim("other", {"resourceRef": reference(xr)})
    first = await databases.controller().reconcile(databases.key(other))
    refused = await databases.now(other)
    again = await databases.controller().reconcile(databases.key(other))
    assert (first.requeue_after, again.requeue_after) == (None, None)
    assert versions(refused) == versions(await databases.now(other))
    assert await databases.events(other) == [("Warning", "BindCompositeResource")]


async def test_of_two_claims_that_find_an_xr_free_the_first_gets_and_keeps_it(databases: Databases) -> None:
    await databases.stop()
    xr = await databases.xr(f"static-{databases.namespace}")
    first, second = [await databases.claim(name, {"resourceRef": reference(xr)}) for name in ("first", "second")]

    async def first_binds() -> None:
        await databases.controller().reconcile(databases.key(first))

    overtaken = cast(Client, Intercepted(databases.client, before_apply=first_binds))
    with pytest.raises(Conflict):
        await databases.controller(overtaken).reconcile(databases.key(second))
    assert (await databases.now(xr))["spec"]["claimRef"]["name"] == "first"
    await databases.controller().reconcile(databases.key(second))
    assert (await databases.now(xr))["spec"]["claimRef"]["name"] == "first"
    assert "bound to another claim" in (condition_of(await databases.now(second), "Synced") or {})["message"]


async def test_an_xr_by_the_name_a_claim_would_choose_is_not_taken_silently(databases: Databases) -> None:
    await databases.stop()
    claim = await databases.claim("orders", {"size": 2})
    squatter = await databases.xr(xr_name(claim), {"size": 1})
    await databases.controller().reconcile(databases.key(claim))
    told = condition_of(await databases.now(claim), "Synced")
    assert told is not None and "was not made for this claim" in told["message"]
    assert versions(squatter) == versions(await databases.now(squatter))


async def test_an_xr_deleted_out_of_band_is_made_again_under_its_name(databases: Databases) -> None:
    claim = await databases.synced(await databases.claim("orders", {"size": 2}))
    xr = await databases.compose(await databases.xr_of(claim), address="10.0.0.1")
    await databases.ready(claim)
    await databases.client.delete(databases.offer.composite, xr["metadata"]["name"])
    uid = xr["metadata"]["uid"]
    again = await databases.until_xr(claim, lambda found: bool(found["metadata"]["uid"] != uid))
    assert (again["metadata"]["name"], again["spec"]["size"]) == (xr["metadata"]["name"], 2)
    waiting = await databases.ready(claim, "False", reason="Waiting")
    assert "address" not in waiting["status"]


# -- the two specs


async def test_what_changes_on_the_claim_changes_on_the_xr_and_what_leaves_it_goes(databases: Databases) -> None:
    claim = await databases.claim("orders", {"size": 1, "region": "eu"}, labels={"team": "red"}, annotations={"n": "1"})
    claim = await databases.synced(claim)
    await databases.xr_of(claim)
    await databases.merge(
        claim, {"metadata": {"labels": {"team": None}, "annotations": {"n": "2"}}, "spec": {"size": 2, "region": None}}
    )
    xr = await databases.until_xr(claim, lambda found: bool(found["spec"].get("size") == 2))
    assert "region" not in xr["spec"]
    assert "team" not in xr["metadata"]["labels"]
    assert xr["metadata"]["annotations"] == {"n": "2"}


async def test_what_leaves_the_claim_goes_also_if_the_xr_was_bound_without_apply(databases: Databases) -> None:
    await databases.stop()
    bound_to = {"apiVersion": databases.offer.claim.api_version, "kind": "Database"}
    bound_to |= {"namespace": databases.namespace, "name": "orders"}
    refs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "kept"}]
    before = await databases.xr(
        f"restored-{databases.namespace}", {"size": 1, "region": "eu", "claimRef": bound_to, "resourceRefs": refs}
    )
    claim = await databases.claim("orders", {"size": 1, "region": "eu", "resourceRef": reference(before)})
    await databases.start()
    claim = await databases.synced(claim)
    await databases.merge(claim, {"spec": {"region": None, "size": 2}})
    xr = await databases.until_xr(claim, lambda found: bool(found["spec"].get("size") == 2))
    assert "region" not in xr["spec"]
    assert xr["spec"]["resourceRefs"] == refs


async def test_resource_refs_in_a_claim_never_reach_the_xr(databases: Databases) -> None:
    injected = [{"apiVersion": "v1", "kind": "Secret", "name": "of-somebody-else", "namespace": "kube-system"}]
    claim = await databases.claim("orders", {"resourceRefs": injected, "claimRef": {"name": "x"}, "other": 1})
    assert (await databases.now(claim))["spec"]["resourceRefs"] == injected
    xr = await databases.xr_of(await databases.synced(claim))
    assert xr["spec"]["other"] == 1
    assert "resourceRefs" not in xr["spec"]
    assert xr["spec"]["claimRef"]["name"] == "orders"


async def test_the_selected_composition_and_automatic_revision_come_back_to_the_claim(databases: Databases) -> None:
    claim = await databases.synced(
        await databases.claim("orders", {"compositionSelector": {"matchLabels": {"a": "b"}}})
    )
    xr = await databases.xr_of(claim)
    assert xr["spec"]["compositionSelector"] == {"matchLabels": {"a": "b"}}
    for revision in ("small-1", "small-2"):
        chosen = {"compositionRef": {"name": "small"}, "compositionRevisionRef": {"name": revision}}
        await databases.compose(await databases.now(xr), spec=chosen)
        found = await databases.until(claim, lambda now: revision_of(now) == revision, f"{revision} on the claim")  # noqa: B023
        assert found["spec"]["compositionRef"] == {"name": "small"}
    assert revision_of(await databases.now(xr)) == "small-2"


async def test_a_manual_revision_goes_from_the_claim_to_the_xr_and_not_back(databases: Databases) -> None:
    pinned = {"compositionUpdatePolicy": "Manual", "compositionRevisionRef": {"name": "small-1"}}
    claim = await databases.synced(await databases.claim("orders", pinned))
    xr = await databases.xr_of(claim)
    assert (revision_of(xr), xr["spec"]["compositionUpdatePolicy"]) == ("small-1", "Manual")
    await databases.merge(claim, {"spec": {"compositionRevisionRef": {"name": "small-3"}}})
    await databases.until_xr(claim, lambda found: revision_of(found) == "small-3")
    await databases.merge(xr, {"spec": {"compositionRevisionRef": {"name": "small-9"}}}, manager="somebody")
    await databases.until_xr(claim, lambda found: revision_of(found) == "small-3")
    assert revision_of(await databases.now(claim)) == "small-3"


async def test_the_enforced_composition_overrides_the_claims(databases: Databases) -> None:
    await databases.start(enforcing := xrd(enforcedCompositionRef={"name": "strict"}, generation=2))
    databases.offer = offer_of(enforcing)
    claim = await databases.synced(await databases.claim("orders", {"compositionRef": {"name": "loose"}}))
    xr = await databases.xr_of(claim)
    assert "compositionRef" not in xr["spec"]
    await databases.compose(xr, spec={"compositionRef": {"name": "strict"}})
    await databases.until(claim, lambda now: now["spec"]["compositionRef"] == {"name": "strict"}, "strict on the claim")
    await databases.merge(claim, {"spec": {"compositionRef": {"name": "loose"}, "size": 4}})
    xr = await databases.until_xr(claim, lambda found: bool(found["spec"].get("size") == 4))
    assert xr["spec"]["compositionRef"] == {"name": "strict"}
    await databases.until(claim, lambda now: now["spec"]["compositionRef"] == {"name": "strict"}, "strict once more")


async def test_a_label_removed_from_the_claims_selector_neither_reselects_nor_reappears(databases: Databases) -> None:
    selector = {"matchLabels": {"tier": "gold", "cloud": "x"}}
    claim = await databases.synced(await databases.claim("orders", {"compositionSelector": selector}))
    await databases.compose(await databases.xr_of(claim), spec={"compositionRef": {"name": "golden"}})
    await databases.until(claim, lambda now: "compositionRef" in now["spec"], "composition on the claim")
    await databases.merge(claim, {"spec": {"compositionSelector": {"matchLabels": {"cloud": None}}}})
    left = {"matchLabels": {"tier": "gold"}}
    xr = await databases.until_xr(claim, lambda found: bool(found["spec"]["compositionSelector"] == left))
    assert xr["spec"]["compositionRef"] == {"name": "golden"}
    assert (await databases.now(claim))["spec"]["compositionSelector"] == left


async def test_a_revision_selector_comes_from_the_xr_only_if_the_claim_did_not_put_it_there(
    databases: Databases,
) -> None:
    mine, default = {"matchLabels": {"channel": "dev"}}, {"matchLabels": {"channel": "prod"}}
    claim = await databases.synced(await databases.claim("orders", {"compositionRevisionSelector": mine}))
    await databases.until_xr(claim, lambda found: found["spec"].get("compositionRevisionSelector") == mine)
    await databases.merge(claim, {"spec": {"compositionRevisionSelector": None}})
    xr = await databases.until_xr(claim, lambda found: "compositionRevisionSelector" not in found["spec"])
    await databases.compose(xr, spec={"compositionRevisionSelector": default})
    await databases.until(
        claim, lambda now: now["spec"].get("compositionRevisionSelector") == default, "default on the claim"
    )


async def test_a_new_revision_selector_on_a_manual_claim_takes_back_its_old_pin(databases: Databases) -> None:
    manual = {"compositionUpdatePolicy": "Manual", "compositionRevisionSelector": {"matchLabels": {"channel": "a"}}}
    claim = await databases.claim("orders", {**manual, "compositionRevisionRef": {"name": "small-1"}})
    xr = await databases.until_xr(await databases.synced(claim), lambda found: revision_of(found) == "small-1")
    await databases.merge(claim, {"spec": {"compositionRevisionSelector": {"matchLabels": {"channel": "b"}}}})
    xr = await databases.until_xr(claim, lambda found: revision_of(found) is None)
    assert xr["spec"]["compositionRevisionSelector"] == {"matchLabels": {"channel": "b"}}
    await databases.compose(xr, spec={"compositionRevisionRef": {"name": "small-2"}})
    await databases.ready(claim)
    assert revision_of(await databases.now(claim)) is None
    assert revision_of(await databases.now(xr)) == "small-2"


# -- status


async def test_the_xrs_status_replaces_the_claims_but_for_machinery(databases: Databases) -> None:
    claim = await databases.synced(await databases.claim("orders"))
    xr = await databases.compose(await databases.xr_of(claim), ready=False, address="10.0.0.1", nodes=3)
    claim = await databases.until(claim, lambda now: now["status"].get("nodes") == 3, "status on the claim")
    waiting = condition_of(claim, "Ready")
    assert waiting is not None
    assert waiting["message"].endswith("is not ready: Unready resources: disk")
    await databases.compose(xr, nodes=None)
    claim = await databases.ready(claim, reason="Available")
    assert claim["status"]["address"] == "10.0.0.1"
    assert claim["status"].keys() == {"address", "conditions"}


async def test_a_claim_gets_only_the_custom_conditions_meant_for_claims(databases: Databases) -> None:
    claim = await databases.synced(await databases.claim("orders"))
    custom = [condition("DatabaseReady", "True", "Up", "all well"), condition("Internal", "True", "Up")]
    xr = await databases.xr_of(claim)
    await databases.compose(xr, ready=False, conditions=custom, claimConditionTypes=["DatabaseReady", "Ready"])
    claim = await until_condition(databases.client, claim, "DatabaseReady", reason="Up", message="all well")
    assert condition_of(claim, "Internal") is None
    assert (condition_of(claim, "DatabaseReady") or {})["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    assert (condition_of(claim, "Ready") or {})["reason"] == "Waiting"


# -- connection details


async def test_connection_details_are_there_when_the_claim_is_ready_and_follow_the_xrs(databases: Databases) -> None:
    claim = await databases.claim("orders", {"writeConnectionSecretToRef": {"name": "details"}})
    xr = await databases.xr_of(await databases.synced(claim))
    assert "writeConnectionSecretToRef" not in xr["spec"]
    xr = await databases.publish(xr, {"user": "a", "password": "b"}, at="2026-01-01T00:00:01Z")
    claim = await databases.ready(claim)
    copy = await databases.now(secret(databases.namespace, "details", {}))
    assert copy["data"] == secret("", "", {"user": "a", "password": "b"})["data"]
    assert copy["type"] == CONNECTION_SECRET_TYPE
    assert copy["metadata"]["ownerReferences"] == [controlled_by(claim)]
    assert claim["status"]["connectionDetails"]["lastPublishedTime"]
    await databases.publish(xr, {"user": "c"}, at="2026-01-01T00:00:02Z")
    wanted = secret("", "", {"user": "c"})["data"]
    await databases.until(copy, lambda now: bool(now["data"] == wanted), "new details in the claim's Secret")


async def test_a_claim_that_wants_no_connection_details_gets_none(databases: Databases) -> None:
    claim = await databases.synced(await databases.claim("orders"))
    await databases.publish(await databases.xr_of(claim), {"user": "a"}, at="2026-01-01T00:00:01Z")
    claim = await databases.ready(claim)
    assert "connectionDetails" not in claim["status"]


async def test_a_claim_is_ready_without_details_if_its_xr_has_none_and_not_if_they_are_lost(
    databases: Databases,
) -> None:
    claim = await databases.claim("orders", {"writeConnectionSecretToRef": {"name": "details"}})
    xr = await databases.xr_of(await databases.synced(claim))
    place = {"writeConnectionSecretToRef": {"name": "none", "namespace": databases.namespace}}
    await databases.compose(xr, spec=place)
    await databases.ready(claim)
    assert await databases.find(secret(databases.namespace, "details", {})) is None
    await databases.compose(xr, connectionDetails={"lastPublishedTime": "2026-01-01T00:00:01Z"})
    claim = await databases.synced(claim, "False", reason="ReconcileError")
    assert "does not exist" in (condition_of(claim, "Synced") or {})["message"]


async def test_a_secret_that_the_xr_does_not_control_is_not_copied(databases: Databases) -> None:
    claim = await databases.claim("orders", {"writeConnectionSecretToRef": {"name": "details"}})
    xr = await databases.xr_of(await databases.synced(claim))
    await databases.publish(xr, {"password": "of somebody else"}, at="2026-01-01T00:00:01Z", owned=False)
    claim = await databases.synced(claim, "False", reason="ReconcileError")
    assert "is not controlled by XDatabase" in (condition_of(claim, "Synced") or {})["message"]
    assert (condition_of(claim, "Ready") or {})["reason"] == "Waiting"
    assert await databases.find(secret(databases.namespace, "details", {})) is None
    assert ("Warning", "PropagateConnectionSecret") in await databases.events(claim)


@pytest.mark.parametrize(
    ("type_", "owned", "refused"),
    [
        pytest.param("Opaque", False, "not for connection details", id="somebody's own Secret"),
        pytest.param(CONNECTION_SECRET_TYPE, True, "is controlled by ConfigMap", id="another controller's"),
    ],
)
async def test_a_foreign_secret_is_not_overwritten_and_the_claim_recovers_without_it(
    databases: Databases, type_: str, owned: bool, refused: str
) -> None:
    body = secret(databases.namespace, "details", {"mine": "1"}, type_)
    if owned:
        metadata = {"name": "holder", "namespace": databases.namespace}
        holder = await databases.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        body["metadata"]["ownerReferences"] = [controlled_by(holder)]
    foreign = await databases.client.create(body)
    claim = await databases.claim("orders", {"writeConnectionSecretToRef": {"name": "details"}})
    xr = await databases.xr_of(await databases.synced(claim))
    await databases.publish(xr, {"user": "a"}, at="2026-01-01T00:00:01Z")
    claim = await databases.synced(claim, "False", reason="ReconcileError")
    assert refused in (condition_of(claim, "Synced") or {})["message"]
    assert versions(await databases.now(foreign)) == versions(foreign)
    await databases.stop()
    with pytest.raises(SecretRefused):
        await databases.controller().reconcile(databases.key(claim))
    await databases.client.delete(SECRET, "details", namespace=databases.namespace)
    await databases.controller().reconcile(databases.key(claim))
    assert (condition_of(await databases.now(claim), "Ready") or {})["status"] == "True"
    assert (await databases.now(foreign))["data"] == secret("", "", {"user": "a"})["data"]


async def test_a_connection_secret_that_nobody_controls_is_adopted(databases: Databases) -> None:
    await databases.client.create(secret(databases.namespace, "details", {"old": "1"}))
    claim = await databases.claim("orders", {"writeConnectionSecretToRef": {"name": "details"}})
    xr = await databases.xr_of(await databases.synced(claim))
    await databases.publish(xr, {"user": "a"}, at="2026-01-01T00:00:01Z")
    claim = await databases.ready(claim)
    adopted = await databases.now(secret(databases.namespace, "details", {}))
    assert adopted["data"] == secret("", "", {"user": "a"})["data"]
    assert adopted["metadata"]["ownerReferences"] == [controlled_by(claim)]
