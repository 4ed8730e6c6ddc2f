"""Claims on both engines. The tests play the part of the XR's own controller: they write its status and its Secret."""

from __future__ import annotations

import uuid
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import pytest

from planform.api.kinds import Object, gvk_of
from planform.api.names import CLAIM_FINALIZER, COMPOSITE_MANAGER, EVENT, EXTERNAL_NAME_ANNOTATION, SECRET
from planform.client.informer import ObjectKey
from planform.client.protocol import Client, Patch, PatchType
from planform.composition.claim_secrets import CONNECTION_SECRET_TYPE, SecretRefused
from planform.composition.claims import Offer, offer_of, xr_name
from planform.composition.definitions import claim_crd, composite_crd
from planform.controllers.claims import ClaimController, ClaimControllers, XrNotDeleted, controller_name
from planform.controllers.workbench import Workbench
from planform.errors import AlreadyExists, Conflict, Forbidden, NotFound
from tests.harness.planes import condition_of, eventually, read, until_condition

GROUP: Final = f"t{uuid.uuid4().hex[:8]}.example.org"
NAME: Final = f"xdatabases.{GROUP}"


def xrd(*, referenceable: str = "v1", generation: int = 1, **spec: Any) -> Object:
    properties = {
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"size": {"type": "integer"}, "region": {"type": "string"}},
        },
        "status": {"type": "object", "properties": {"address": {"type": "string"}, "nodes": {"type": "integer"}}},
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    versions = [
        {"name": name, "served": True, "referenceable": name == referenceable, "schema": schema}
        for name in ("v1", "v2")
    ]
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": NAME, "uid": "0a", "generation": generation},
        "spec": {
            "group": GROUP,
            "names": {"kind": "XDatabase", "plural": "xdatabases"},
            "claimNames": {"kind": "Database", "plural": "databases"},
            "versions": versions,
            **spec,
        },
    }


@dataclass
class Databases:
    """Databases are offered in one namespace; their claims are looked after."""

    bench: Workbench
    controllers: ClaimControllers
    namespace: str
    offer: Offer

    @property
    def client(self) -> Client:
        return self.bench.client

    def key(self, claim: Object) -> ObjectKey:
        return ObjectKey(self.namespace, claim["metadata"]["name"])

    def controller(self, client: Client | None = None) -> ClaimController:
        """A controller to be driven by hand."""
        bench = self.bench if client is None else replace(self.bench, client=client)
        return ClaimController(bench, self.offer, controller_name(NAME))

    async def stop(self) -> None:
        await self.controllers.stop(NAME)

    async def start(self, definition: Object | None = None) -> None:
        await self.controllers.start(definition or xrd())
        await self.bench.plane.synced(controller_name(NAME))

    async def claim(self, name: str, spec: Object | None = None, **metadata: Any) -> Object:
        kind = self.offer.claim
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec or {}}
        body["metadata"] = {"name": name, "namespace": self.namespace, **metadata}
        return await self.client.create(body)

    async def xr(self, name: str, spec: Object | None = None, **metadata: Any) -> Object:
        kind = self.offer.composite
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec or {}}
        return await self.client.create({**body, "metadata": {"name": name, **metadata}}, manager="somebody")

    async def merge(self, obj: Object, body: Object, *, subresource: str = "", manager: str = "") -> Object:
        metadata = obj["metadata"]
        return await self.client.patch(
            gvk_of(obj),
            metadata["name"],
            Patch(PatchType.MERGE, body),
            namespace=metadata.get("namespace") or "",
            subresource=subresource,
            manager=manager,
        )

    async def now(self, obj: Object) -> Object:
        found = await self.find(obj)
        assert found is not None, obj["metadata"]["name"]
        return found

    async def find(self, obj: Object) -> Object | None:
        metadata = obj["metadata"]
        return await read(self.client, gvk_of(obj), metadata["name"], metadata.get("namespace") or "")

    async def xr_of(self, claim: Object) -> Object:
        """The claim's XR, once there is one."""
        return await self.until_xr(claim, lambda xr: True)

    async def until_xr(self, claim: Object, check: Callable[[Object], bool]) -> Object:
        async def found() -> Object | None:
            xr = await read(self.client, self.offer.composite, xr_name(await self.now(claim)))
            return xr if xr is not None and check(xr) else None

        return await eventually(found, f"XR of {claim['metadata']['name']}")

    async def until(self, obj: Object, check: Callable[[Object], bool], what: str) -> Object:
        async def found() -> Object | None:
            now = await self.find(obj)
            return now if now is not None and check(now) else None

        return await eventually(found, what)

    async def until_gone(self, obj: Object) -> None:
        async def gone() -> bool:
            return await self.find(obj) is None

        await eventually(gone, f"{obj['metadata']['name']} gone")

    async def synced(self, claim: Object, status: str = "True", **more: str) -> Object:
        return await until_condition(self.client, claim, "Synced", status, **more)

    async def ready(self, claim: Object, status: str = "True", **more: str) -> Object:
        return await until_condition(self.client, claim, "Ready", status, **more)

    async def compose(self, xr: Object, *, ready: bool = True, spec: Object | None = None, **status: Any) -> Object:
        """What the XR's own controller would write."""
        if spec:
            xr = await self.merge(xr, {"spec": spec}, manager=COMPOSITE_MANAGER)
        said = ("True", "Available", "") if ready else ("False", "Creating", "Unready resources: disk")
        conditions = [condition("Synced", "True", "ReconcileSuccess"), condition("Ready", *said)]
        body = {"conditions": conditions + status.pop("conditions", []), **status}
        return await self.merge(xr, {"status": body}, subresource="status", manager=COMPOSITE_MANAGER)

    async def publish(self, xr: Object, data: dict[str, str], *, at: str, owned: bool = True) -> Object:
        """Connection details as the XR's own controller would publish them, and the XR Ready."""
        body = secret(self.namespace, f"{xr['metadata']['name']}-details", data)
        if owned:
            body["metadata"]["ownerReferences"] = [controlled_by(xr)]
        existing = await self.find(body)
        if existing is None:
            await self.client.create(body)
        else:
            await self.client.update({**existing, "data": body["data"]})
        reference = {key: body["metadata"][key] for key in ("name", "namespace")}
        details = {"lastPublishedTime": at}
        return await self.compose(xr, spec={"writeConnectionSecretToRef": reference}, connectionDetails=details)

    async def events(self, claim: Object) -> list[tuple[str, str]]:
        await self.bench.events.written()
        found = await self.client.list(EVENT, namespace=self.namespace)
        uid = claim["metadata"]["uid"]
        return [(event["type"], event["reason"]) for event in found.items if event["involvedObject"].get("uid") == uid]


def condition(type_: str, status: str, reason: str, message: str = "") -> Object:
    stamp = "2026-01-02T03:04:05Z"
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp}


def secret(namespace: str, name: str, data: dict[str, str], type_: str = CONNECTION_SECRET_TYPE) -> Object:
    encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
    metadata: Object = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_, "data": encoded}


def controlled_by(obj: Object) -> Object:
    owner = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "controller": True, "blockOwnerDeletion": True}
    return {**owner, "name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def versions(*objects: Object) -> list[str]:
    return [obj["metadata"]["resourceVersion"] for obj in objects]


@pytest.fixture
async def databases(bench: Workbench, unique: str) -> AsyncIterator[Databases]:
    client = bench.client
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    for crd in (composite_crd(xrd()), claim_crd(xrd())):
        assert crd is not None
        del crd["metadata"]["ownerReferences"]
        try:
            await client.create(crd)
        except AlreadyExists:
            pass  # an earlier test on the same cluster
        await until_condition(client, {**crd, "metadata": {"name": crd["metadata"]["name"]}}, "Established")
    databases = Databases(bench, ClaimControllers(bench), unique, offer_of(xrd()))
    await databases.start()
    yield databases
    await databases.stop()
    for kind in (databases.offer.claim, databases.offer.composite):
        for obj in (await client.list(kind)).items:
            await databases.merge(obj, {"metadata": {"finalizers": None}})
            try:
                await client.delete(kind, obj["metadata"]["name"], namespace=obj["metadata"].get("namespace") or "")
            except NotFound:
                pass


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
    await databases.merge(xr, {"metadata": {"finalizers": ["example.org/slow"]}})
    await databases.client.delete(databases.offer.composite, xr["metadata"]["name"])
    await databases.client.delete(databases.offer.claim, "orders", namespace=databases.namespace)
    await databases.until(xr, lambda now: "foregroundDeletion" in now["metadata"]["finalizers"], "foreground deletion")
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


class Crash(BaseException):
    """The process ends here."""


class Intercepted:
    """A client that counts writes, refuses some, and ends the process at one of them, before or after it happens."""

    WRITES = frozenset({"apply", "create", "delete", "patch", "update"})

    def __init__(
        self,
        client: Client,
        *,
        crash_at: int = 0,
        after: bool = False,
        refuse: dict[str, Exception] | None = None,
        before_apply: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._client = client
        self._crash_at = crash_at
        self._after = after
        self._refuse = refuse or {}
        self._before_apply = before_apply
        self.writes: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        call: Callable[..., Awaitable[Any]] = getattr(self._client, verb)
        return call if verb not in self.WRITES else lambda *args, **options: self._write(verb, call, *args, **options)

    async def _write(self, verb: str, call: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        if verb in self._refuse:
            raise self._refuse[verb]
        if verb == "apply" and self._before_apply is not None:
            await self._before_apply()
        self.writes.append(verb)
        crash = len(self.writes) == self._crash_at
        if crash and not self._after:
            raise Crash
        answer = await call(*args, **options)
        if crash:
            raise Crash
        return answer


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
    await databases.start()
    marker = await databases.synced(await databases.claim("marker"))  # worked off after what was there before
    await databases.stop()
    assert versions(claim, xr, copy) == versions(
        await databases.now(claim), await databases.now(xr), await databases.now(copy)
    )
    assert marker["metadata"]["name"] == "marker"


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
                for _ in range(3):  # Foreground needs a pass more, once the XR is gone
                    await databases.controller(crashing).reconcile(key)
                    await databases.until_gone(xr)

            async def gone(key: ObjectKey = key, claim: Object = claim) -> bool:
                await databases.controller().reconcile(key)
                return await databases.find(claim) is None

            await eventually(gone, f"{key} gone")
            assert await databases.find(xr) is None


# -- controllers come and go


async def test_a_controller_is_restarted_by_a_new_generation_of_its_xrd_only(databases: Databases) -> None:
    plane, name = databases.bench.plane, controller_name(NAME)
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


def reference(xr: Object) -> Object:
    return {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "name": xr["metadata"]["name"]}


def revision_of(obj: Object) -> str | None:
    return (obj["spec"].get("compositionRevisionRef") or {}).get("name")
