"""XRDs become served kinds and stay so, on both engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from planform.api.kinds import Object, gvk, gvk_of
from planform.api.names import (
    CLUSTER_ROLE,
    CRD,
    DEFINED_FINALIZER,
    OFFERED_FINALIZER,
    PAUSED_ANNOTATION,
    XRD,
)
from planform.apiserver.admission.chain import Admission
from planform.client.informer import ObjectKey
from planform.client.protocol import Patch, PatchType
from planform.definitions import controller as definitions_module
from planform.definitions.controller import NAME, RETRY_ANNOTATION, DefinitionController
from planform.errors import Forbidden, Invalid, NotFound
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import condition_of, embedded_context, eventually, read, until_condition
from tests.harness.definitions import (
    Definitions,
    Recorder,
    api_version,
    definitions,
    role_name,
    stranger,
    with_field,
)


@pytest.fixture
async def defs(context: ControllerContext, unique: str) -> AsyncIterator[Definitions]:
    async with definitions(context, unique) as defs:
        yield defs


# -- serving


@pytest.mark.parametrize(
    ("version", "scope", "namespaced"),
    [
        ("v2", None, True),
        ("v2", "Namespaced", True),
        ("v2", "Cluster", False),
        ("v1", None, False),
        ("v1", "LegacyCluster", False),
        ("v1", "Namespaced", True),
    ],
)
async def test_an_xrd_becomes_a_served_kind(
    defs: Definitions, version: str, scope: str | None, namespaced: bool
) -> None:
    xrd = await defs.established(defs.xrd(version, **({"scope": scope} if scope else {})))
    established = condition_of(xrd, "Established")
    assert established is not None and established["reason"] == "WatchingCompositeResource"
    kind = {"apiVersion": f"{defs.group}/v1", "kind": "App"}
    assert xrd["status"]["controllers"] == {"compositeResourceType": kind}
    assert xrd["metadata"]["finalizers"] == [DEFINED_FINALIZER]
    assert condition_of(xrd, "Offered") is None
    xr = await defs.create(xrd, "one")
    assert bool(xr["metadata"].get("namespace")) is namespaced
    legacy = scope == "LegacyCluster" or (version == "v1" and scope is None)
    assert (xr["spec"] if legacy else xr["spec"]["crossplane"])["compositionUpdatePolicy"] == "Automatic"
    assert defs.composites.running == {xrd["metadata"]["name"]: 1}
    assert defs.claims.told == []


async def test_an_xrd_with_claim_names_offers_claims(defs: Definitions) -> None:
    xrd = await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    offered = condition_of(xrd, "Offered")
    assert offered is not None and offered["reason"] == "WatchingCompositeResourceClaim"
    assert xrd["status"]["controllers"]["compositeResourceClaimType"] == {
        "apiVersion": f"{defs.group}/v1",
        "kind": "App",
    }
    assert set(xrd["metadata"]["finalizers"]) == {DEFINED_FINALIZER, OFFERED_FINALIZER}
    claim = await defs.create(xrd, "one", kind="App")
    assert claim["metadata"]["namespace"] == "default"
    assert claim["spec"]["compositeDeletePolicy"] == "Background"
    assert defs.claims.running == {xrd["metadata"]["name"]: 1}


async def test_claims_can_be_offered_later(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd("v1", "xapps"))
    assert condition_of(xrd, "Offered") is None
    await defs.change(xrd, {"spec": {"claimNames": {"plural": "apps", "kind": "App"}}})
    await defs.until(xrd, "Offered", "True")


async def test_every_served_version_is_served_and_the_referenceable_one_is_stored(defs: Definitions) -> None:
    versions = [
        api_version("v1alpha1", referenceable=False, served=False),
        api_version("v1beta1", referenceable=False, deprecated=True, deprecationWarning="use v1"),
        api_version("v1"),
    ]
    xrd = await defs.established(defs.xrd(versions=versions))
    xr = await defs.create(xrd, "one", version="v1beta1")
    found = await defs.context.client.get(gvk(f"{defs.group}/v1", "App"), "one", namespace="default")
    assert found["metadata"]["uid"] == xr["metadata"]["uid"]
    with pytest.raises(NotFound):
        await defs.context.client.kind(gvk(f"{defs.group}/v1alpha1", "App"))
    crd = await defs.context.client.get(CRD, xrd["metadata"]["name"])
    assert crd["status"]["storedVersions"] == ["v1"]


async def test_the_scale_subresource_works(defs: Definitions) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    xrd = await defs.established(defs.xrd(versions=[api_version(subresources={"scale": scale})]))
    xr = await defs.create(xrd, "one", size=2)
    found = await defs.context.client.get(gvk_of(xr), "one", namespace="default", subresource="scale")
    assert found["spec"]["replicas"] == 2
    await defs.change(xr, {"spec": {"replicas": 5}}, subresource="scale")
    assert (await defs.context.client.get(gvk_of(xr), "one", namespace="default"))["spec"]["size"] == 5


async def test_labels_and_annotations_reach_the_crds_and_leave_them_again(defs: Definitions) -> None:
    xrd = defs.claimed(metadata={"labels": {"tier": "gold"}, "annotations": {"docs": "here"}})
    xrd["metadata"]["labels"] = {"team": "a"}
    xrd = await defs.until(await defs.established(xrd), "Offered", "True")
    for name in (f"xapps.{defs.group}", f"apps.{defs.group}"):
        metadata = (await defs.context.client.get(CRD, name))["metadata"]
        assert metadata["labels"] == {"team": "a", "tier": "gold"}
        assert metadata["annotations"]["docs"] == "here"
    await defs.change(xrd, {"metadata": {"labels": {"team": None}}, "spec": {"metadata": None}})

    async def check() -> bool:
        metadata = (await defs.context.client.get(CRD, f"apps.{defs.group}"))["metadata"]
        return not metadata.get("labels") and "docs" not in (metadata.get("annotations") or {})

    await eventually(check, "labels and annotations are gone")


# -- changing


async def test_a_schema_changes_under_live_xrs(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    xr = await defs.create(xrd, "old", color="red")
    await defs.change(xrd, {"spec": {"versions": [with_field("shape", {"type": "string", "default": "round"})]}})
    xrd = await defs.until(xrd, "Established", "True")
    name = xrd["metadata"]["name"]
    assert defs.composites.told == [f"start {name} v1 generation 1", f"start {name} v1 generation 2"]

    async def check() -> Object | None:
        found = await defs.context.client.get(gvk_of(xr), "old", namespace="default")
        return found if found["spec"].get("shape") == "round" else None

    found = await eventually(check, "the new field has its default")
    assert found["spec"]["color"] == "red"
    assert (await defs.change(found, {"spec": {"shape": "square"}}))["spec"]["shape"] == "square"


async def test_a_field_that_leaves_the_schema_leaves_the_crd(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd(versions=[with_field("shape", {"type": "string"})]))
    await defs.change(xrd, {"spec": {"versions": [api_version()]}})
    await defs.until(xrd, "Established", "True")
    crd = await defs.context.client.get(CRD, xrd["metadata"]["name"])
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(spec["properties"]) == {"size", "color", "crossplane"}


async def test_another_referenceable_version_restarts_the_controllers_for_it(defs: Definitions) -> None:
    versions = [api_version("v1"), api_version("v2", referenceable=False)]
    xrd = await defs.until(await defs.established(defs.claimed(versions=versions)), "Offered", "True")
    old = await defs.create(xrd, "old")
    versions = [api_version("v1", referenceable=False), api_version("v2")]
    await defs.change(xrd, {"spec": {"versions": versions}})
    await defs.until(xrd, "Established", "True")
    xrd = await defs.until(xrd, "Offered", "True")
    types = xrd["status"]["controllers"]
    assert types["compositeResourceType"]["apiVersion"] == f"{defs.group}/v2"
    assert types["compositeResourceClaimType"]["apiVersion"] == f"{defs.group}/v2"
    name = xrd["metadata"]["name"]
    assert (
        defs.composites.told == defs.claims.told == [f"start {name} v1 generation 1", f"start {name} v2 generation 2"]
    )
    found = await defs.context.client.get(gvk(f"{defs.group}/v2", "Xapp"), "old")
    assert found["metadata"]["uid"] == old["metadata"]["uid"]
    crd = await defs.context.client.get(CRD, name)
    assert crd["status"]["storedVersions"] == ["v1", "v2"]


async def test_a_version_that_may_have_stored_objects_cannot_vanish(defs: Definitions) -> None:
    versions = [api_version("v1"), api_version("v2", referenceable=False)]
    xrd = await defs.established(defs.xrd(versions=versions))
    await defs.create(xrd, "old")
    await defs.change(xrd, {"spec": {"versions": [api_version("v2")]}})
    refused = await defs.until(xrd, "Established", "False", reason="StoredVersionRemoved")
    condition = condition_of(refused, "Established")
    assert condition is not None and "objects may be stored as v1" in condition["message"]
    assert await defs.context.client.get(gvk(f"{defs.group}/v1", "App"), "old", namespace="default")
    versions = [api_version("v1", referenceable=False, served=False), api_version("v2")]
    await defs.change(xrd, {"spec": {"versions": versions}})
    await defs.until(xrd, "Established", "True")
    assert await defs.context.client.get(gvk(f"{defs.group}/v2", "App"), "old", namespace="default")


BROKEN = [
    pytest.param({"properties": {"a": {"type": "string"}}}, id="not-structural"),
    pytest.param({"type": "string", "x-kubernetes-validations": [{"rule": "self.nope()"}]}, id="cel"),
    pytest.param({"type": "strin"}, id="type"),
    pytest.param(5, id="no-schema"),
]


@pytest.mark.parametrize("schema", BROKEN)
async def test_an_invalid_xrd_says_which_field_and_waits_for_a_change(defs: Definitions, schema: Object) -> None:
    xrd = await defs.context.client.create(defs.xrd(versions=[with_field("shape", schema)]))
    refused = await defs.until(xrd, "Established", "False", reason="InvalidDefinition")
    condition = condition_of(refused, "Established")
    assert condition is not None and "properties[spec].properties" in condition["message"]
    told = await eventually(lambda: defs.events(xrd), "an event tells of it")
    assert [(kind, reason) for kind, reason, _ in told] == [("Warning", "InvalidDefinition")]
    assert await read(defs.context.client, CRD, xrd["metadata"]["name"]) is None
    assert defs.composites.told == []
    outcomes = [line for line in defs.context.metrics.render().splitlines() if f'controller="{NAME}",outcome=' in line]
    assert not [line for line in outcomes if 'outcome="success"' not in line and 'outcome="conflict"' not in line]
    await defs.change(refused, {"spec": {"versions": [api_version()]}})
    await defs.until(xrd, "Established", "True")


async def test_a_version_without_a_schema_is_refused_by_name(defs: Definitions) -> None:
    xrd = await defs.context.client.create(defs.xrd(versions=[api_version(schema={})]))
    refused = await defs.until(xrd, "Established", "False", reason="InvalidDefinition")
    condition = condition_of(refused, "Established")
    assert condition is not None and condition["message"].endswith(
        "spec.versions[0].schema.openAPIV3Schema: version v1 has no schema"
    )
    assert not refused["metadata"].get("finalizers")


@pytest.mark.parametrize("schema", [{"type": "strin"}, 5], ids=["refused-by-the-api", "refused-by-us"])
async def test_an_invalid_change_leaves_what_is_served_as_it_was(defs: Definitions, schema: Object) -> None:
    xrd = await defs.established(defs.xrd())
    await defs.change(xrd, {"spec": {"versions": [with_field("shape", schema)]}})
    refused = await defs.until(xrd, "Established", "False", reason="InvalidDefinition")
    await defs.create(xrd, "one")
    await defs.restart()
    name = xrd["metadata"]["name"]

    async def check() -> bool:
        return name in defs.composites.running

    await eventually(check, "XRs are reconciled again after a restart")
    assert (await defs.context.client.get(XRD, name))["metadata"]["resourceVersion"] == refused["metadata"][
        "resourceVersion"
    ]


REFUSED: list[tuple[Object, str]] = [
    ({"group": "other.example.org"}, "group"),
    ({"names": {"kind": "Other"}}, "names"),
    ({"scope": "Cluster"}, "scope"),
    ({"claimNames": {"kind": "Other"}}, "claimNames"),
    ({"claimNames": None}, "claimNames"),
    ({"enforcedCompositionRef": {"name": "other"}}, "enforcedCompositionRef"),
    ({"versions": []}, "spec.versions"),
    ({"versions": [api_version(referenceable=False)]}, "exactly one version must be referenceable"),
]


async def test_immutable_and_invalid_changes_are_refused(defs: Definitions) -> None:
    xrd = await defs.context.client.create(defs.claimed(enforcedCompositionRef={"name": "mine"}))
    for change, message in REFUSED:
        with pytest.raises(Invalid, match=message):
            await defs.change(xrd, {"spec": change})


async def test_a_name_that_another_crd_has_is_told_and_had_once_it_is_free(defs: Definitions) -> None:
    other = stranger(defs.group)
    other["metadata"]["name"] = f"things.{defs.group}"
    other["spec"]["names"] = {"plural": "things", "kind": "Thing", "shortNames": ["app"]}
    other = await defs.context.client.create(other)
    await until_condition(defs.context.client, other, "Established")
    xrd = await defs.context.client.create(defs.xrd())
    refused = await defs.until(xrd, "Established", "False", reason="NamesNotAccepted")
    condition = condition_of(refused, "Established")
    assert condition is not None and '"app" is already in use' in condition["message"]
    assert defs.composites.told == []
    await defs.delete(other)
    await defs.until(xrd, "Established", "True")


# -- staying


async def test_a_restart_with_nothing_changed_writes_nothing(defs: Definitions) -> None:
    xrd = await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    key = ObjectKey("", xrd["metadata"]["name"])
    await defs.stop()  # waits for the reconcile in hand, whose last writes are the roles
    before = await defs.versions(xrd)
    assert len(before) == 7
    defs.composites, defs.claims = Recorder(), Recorder()
    controller = DefinitionController(defs.context, defs.composites, defs.claims)
    await controller.reconcile(key)
    await controller.reconcile(key)
    assert await defs.versions(xrd) == before
    name = xrd["metadata"]["name"]
    assert defs.composites.told == defs.claims.told == [f"start {name} v1 generation 1"]
    defs.start()


async def test_crds_that_vanish_or_lose_their_owner_come_back(defs: Definitions) -> None:
    xrd = await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    name = xrd["metadata"]["name"]
    crd = await defs.context.client.get(CRD, f"apps.{defs.group}")
    await defs.delete(crd)
    await defs.change(await defs.context.client.get(CRD, name), {"metadata": {"ownerReferences": None}})

    async def check() -> bool:
        again = await read(defs.context.client, CRD, crd["metadata"]["name"])
        owners = (await defs.context.client.get(CRD, name))["metadata"].get("ownerReferences")
        return again is not None and again["metadata"]["uid"] != crd["metadata"]["uid"] and bool(owners)

    await eventually(check, "both are as they were")


async def test_an_api_server_that_could_not_clean_up_a_crd_is_asked_to_try_again(
    unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kube-apiserver under load, whose storage for a new kind is not ready: it says so, and waits for minutes."""
    monkeypatch.setattr(definitions_module, "NUDGE_SECONDS", 0.05)
    held = {"metadata": {"finalizers": ["example.org/held"]}}
    async with embedded_context() as context, definitions(context, unique) as defs:
        await defs.until(await defs.established(defs.claimed()), "Offered", "True")
        crd = await context.client.get(CRD, f"apps.{defs.group}")
        await defs.change(crd, held)
        await context.client.delete(CRD, crd["metadata"]["name"])

        async def cleaned_up() -> Object | None:
            found = await read(context.client, CRD, crd["metadata"]["name"])
            done = found and (condition_of(found, "Terminating") or {}).get("reason") == "InstanceDeletionCompleted"
            return found if done else None

        stuck = await eventually(cleaned_up, "only the test holds it")
        assert RETRY_ANNOTATION not in (stuck["metadata"].get("annotations") or {})
        reason = {"type": "Terminating", "status": "True", "reason": "InstanceDeletionFailed"}
        told = {**reason, "message": "storage is (re)initializing", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        conditions = [each for each in stuck["status"]["conditions"] if each["type"] != "Terminating"]
        patch = Patch(PatchType.MERGE, {"status": {"conditions": [*conditions, told]}})
        await context.client.patch(CRD, crd["metadata"]["name"], patch, subresource="status")
        seen: set[str] = set()

        async def touched_again() -> bool:
            found = await context.client.get(CRD, crd["metadata"]["name"])
            seen.add((found["metadata"].get("annotations") or {}).get(RETRY_ANNOTATION, ""))
            return len(seen - {""}) > 1

        await eventually(touched_again, "it is touched until it goes away")
        await defs.change(await context.client.get(CRD, crd["metadata"]["name"]), {"metadata": {"finalizers": None}})

        async def is_another() -> bool:
            found = await read(context.client, CRD, crd["metadata"]["name"])
            return found is not None and found["metadata"]["uid"] != crd["metadata"]["uid"]

        await eventually(is_another, "it comes back")
        found = await context.client.get(CRD, crd["metadata"]["name"])
        assert RETRY_ANNOTATION not in (found["metadata"].get("annotations") or {})


async def test_roles_that_vanish_or_change_come_back(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    names = [role_name(xrd["metadata"]["name"], who) for who in ("crossplane", "edit", "view", "browse")]

    async def roles() -> list[Object | None]:
        return [await read(defs.context.client, CLUSTER_ROLE, name) for name in names]

    async def all_are_there() -> bool:
        return None not in await roles()

    await eventually(all_are_there, "all roles are there")
    before = [role["rules"] for role in await roles() if role]
    await defs.context.client.delete(CLUSTER_ROLE, names[2])
    await defs.change(await defs.context.client.get(CLUSTER_ROLE, names[1]), {"rules": []})

    async def all_are_as_before() -> bool:
        return [role and role["rules"] for role in await roles()] == before

    await eventually(all_are_as_before, "all roles are as they were")


async def test_roles_are_gathered_by_those_of_kubernetes(defs: Definitions) -> None:
    label = "rbac.authorization.k8s.io/aggregate-to-edit"
    gathering = await defs.context.client.create(
        {
            "apiVersion": CLUSTER_ROLE.api_version,
            "kind": CLUSTER_ROLE.kind,
            "metadata": {"name": f"editors-{defs.group}"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]},
            "rules": [],
        }
    )
    await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    rule = {"apiGroups": [defs.group], "resources": ["xapps", "apps"], "verbs": ["*"]}

    async def check() -> bool:
        role = await defs.context.client.get(CLUSTER_ROLE, gathering["metadata"]["name"])
        return rule in (role.get("rules") or [])

    await eventually(check, "editors may edit XRs and claims")
    await defs.delete(gathering)


async def test_a_paused_xrd_is_left_alone_until_it_is_not(defs: Definitions) -> None:
    paused = defs.xrd()
    paused["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
    paused = await defs.context.client.create(paused)
    other = await defs.established(defs.xrd(plural="others"))
    assert defs.composites.running == {other["metadata"]["name"]: 1}
    found = await defs.context.client.get(XRD, paused["metadata"]["name"])
    assert found["metadata"]["resourceVersion"] == paused["metadata"]["resourceVersion"]
    await defs.change(paused, {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}})
    await defs.until(paused, "Established", "True")


async def test_xrs_of_a_paused_xrd_are_reconciled_after_a_restart(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    await defs.change(xrd, {"metadata": {"annotations": {PAUSED_ANNOTATION: "true"}}})
    await defs.restart()
    name = xrd["metadata"]["name"]

    async def check() -> bool:
        return name in defs.composites.running

    await eventually(check, "its XRs are reconciled")
    await defs.change(xrd, {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}})


# -- without permission


@dataclass
class Lock:
    """Forbids writes of one kind, as RBAC does."""

    kind: str

    def admit(self, admission: Admission) -> None:
        if admission.kind.kind == self.kind and "apps." in admission.name:
            raise Forbidden(f"no {self.kind} may be written")


async def test_a_control_plane_that_may_not_write_crds_says_so(unique: str) -> None:
    async with embedded_context(admission=[Lock(CRD.kind)]) as context:
        defs = Definitions(context, f"{unique}.example.org")
        defs.start()
        xrd = await context.client.create(defs.xrd())
        message = "no CustomResourceDefinition may be written"
        await defs.until(xrd, "Established", "False", reason="Forbidden", message=message)


async def test_a_control_plane_that_may_not_write_roles_says_so_and_serves_all_the_same(unique: str) -> None:
    async with embedded_context(admission=[Lock(CLUSTER_ROLE.kind)]) as context:
        defs = Definitions(context, f"{unique}.example.org")
        defs.start()
        xrd = await defs.established(defs.xrd())
        told = ("Warning", "RolesNotGranted", "no ClusterRole may be written")

        async def check() -> bool:
            return told in await defs.events(xrd)

        await eventually(check, "an event tells of it")
