"""XRDs become served kinds and go again, on both engines. What runs for their objects is the test's own recorder."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from planform.api.kinds import GroupVersionKind, Object, gvk, gvk_of
from planform.api.names import (
    CLUSTER_ROLE,
    CRD,
    DEFINED_FINALIZER,
    EVENT,
    EXTENSIONS_GROUP,
    OFFERED_FINALIZER,
    PAUSED_ANNOTATION,
    XRD,
)
from planform.apiserver.admission import Admission
from planform.client.informer import ObjectKey
from planform.client.protocol import Client, Patch, PatchType, Propagation
from planform.composition.definitions import xr_kind
from planform.controllers.definitions import NAME, DefinitionController
from planform.controllers.workbench import Workbench
from planform.errors import Conflict, Invalid, NotFound
from tests.harness.planes import condition_of, embedded_bench, eventually, read, until_condition

HELD = "example.org/held"
"""A finalizer that stands for what the controller of an object still has to do."""


@dataclass
class Recorder:
    """Runs nothing and remembers for which XRDs, in which generation, something would run."""

    running: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    async def start(self, xrd: Object) -> None:
        name, generation = xrd["metadata"]["name"], xrd["metadata"]["generation"]
        if self.running.get(name) != generation:
            self.told.append(f"start {name} {xr_kind(xrd).version} generation {generation}")
            self.running[name] = generation

    async def stop(self, xrd_name: str) -> None:
        if self.running.pop(xrd_name, None) is not None:
            self.told.append(f"stop {xrd_name}")


@dataclass
class Definitions:
    """A definition controller on a bench, and short words for what tests do to it."""

    bench: Workbench
    group: str
    composites: Recorder = field(default_factory=Recorder)
    claims: Recorder = field(default_factory=Recorder)

    def start(self) -> DefinitionController:
        controller = DefinitionController(self.bench, self.composites, self.claims)
        controller.start()
        return controller

    async def restart(self) -> DefinitionController:
        """As after a restart of the process: nothing is remembered, nothing runs."""
        await self.stop()
        self.composites, self.claims = Recorder(), Recorder()
        return self.start()

    async def stop(self) -> None:
        await self.bench.plane.stop(NAME)

    def xrd(self, version: str = "v2", plural: str = "apps", **spec: Any) -> Object:
        kind = plural.removesuffix("s").title()
        spec = {"names": {"plural": plural, "kind": kind}, "versions": [api_version()], **spec}
        return {
            "apiVersion": f"{EXTENSIONS_GROUP}/{version}",
            "kind": XRD.kind,
            "metadata": {"name": f"{plural}.{self.group}"},
            "spec": {"group": self.group, **spec},
        }

    def claimed(self, **spec: Any) -> Object:
        return self.xrd("v1", "xapps", claimNames={"plural": "apps", "kind": "App"}, **spec)

    async def established(self, xrd: Object) -> Object:
        """Create an XRD and wait until it is served; gives it as it is then, read as v2."""
        return await self.until(await self.bench.client.create(xrd), "Established", "True")

    async def until(self, xrd: Object, type_: str, status: str, **more: str) -> Object:
        """Wait for a condition that is about the XRD's latest generation."""
        obj = {**xrd, "apiVersion": XRD.api_version}

        async def check() -> Object | None:
            found = await until_condition(self.bench.client, obj, type_, status, **more)
            condition = condition_of(found, type_) or {}
            return found if condition["observedGeneration"] == found["metadata"]["generation"] else None

        return await eventually(check, f"{type_}={status} of the latest generation")

    async def create(self, xrd: Object, name: str, *, version: str = "v1", kind: str = "", **spec: Any) -> Object:
        """An instance, in the namespace `default` if it needs one."""
        api = GroupVersionKind(self.group, version, kind or xrd["spec"]["names"]["kind"])
        served = await eventually(lambda: self._served(api), f"{api} is served")
        metadata = {"name": name} | ({"namespace": "default"} if served.namespaced else {})
        obj = {"apiVersion": api.api_version, "kind": api.kind, "metadata": metadata}
        return await self.bench.client.create({**obj, "spec": {"size": 3, **spec}})

    async def _served(self, api: GroupVersionKind) -> Any:
        try:
            return await self.bench.client.kind(api)
        except NotFound:
            return None

    async def change(self, obj: Object, body: Object, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        return await self.bench.client.patch(
            gvk_of(obj),
            metadata["name"],
            Patch(PatchType.MERGE, body),
            namespace=metadata.get("namespace") or "",
            subresource=subresource,
        )

    async def gone(self, obj: Object) -> None:
        metadata = obj["metadata"]

        async def check() -> bool:
            found = await read(self.bench.client, gvk_of(obj), metadata["name"], metadata.get("namespace") or "")
            return found is None

        await eventually(check, f"{obj['kind']} {metadata['name']} is gone")

    async def delete(self, obj: Object) -> None:
        metadata = obj["metadata"]
        await self.bench.client.delete(gvk_of(obj), metadata["name"], namespace=metadata.get("namespace") or "")

    async def versions(self, xrd: Object) -> dict[str, str]:
        """The resource versions of everything that a pass may write."""
        name = xrd["metadata"]["name"]
        names = [(XRD, name), (CRD, name), (CRD, f"apps.{self.group}")]
        names += [(CLUSTER_ROLE, role_name(name, who)) for who in ("crossplane", "edit", "view", "browse")]
        found = [await read(self.bench.client, kind, each) for kind, each in names]
        return {f"{obj['kind']} {obj['metadata']['name']}": obj["metadata"]["resourceVersion"] for obj in found if obj}

    async def events(self, xrd: Object) -> list[tuple[str, str, str]]:
        await self.bench.events.written()
        events = (await self.bench.client.list(EVENT, namespace="default")).items
        uid = xrd["metadata"]["uid"]
        return [
            (each["type"], each["reason"], each["message"]) for each in events if each["involvedObject"]["uid"] == uid
        ]


def api_version(name: str = "v1", *, referenceable: bool = True, **more: Any) -> Object:
    spec = {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string"}}}
    status = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}
    return {"name": name, "served": True, "referenceable": referenceable, "schema": schema, **more}


def with_field(name: str, schema: Object, **more: Any) -> Object:
    version = api_version(**more)
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][name] = schema
    return version


def passes(bench: Workbench) -> int:
    """Reconciles of XRDs that have ended."""
    found = re.findall(rf'planform_reconcile_total{{controller="{NAME}",[^}}]*}} (\d+)', bench.metrics.render())
    return sum(map(int, found))


def role_name(xrd: str, who: str) -> str:
    return f"crossplane:composite:{xrd}:aggregate-to-{who}"


@pytest.fixture
async def defs(bench: Workbench, unique: str) -> AsyncIterator[Definitions]:
    """A controller that runs; the XRDs that a test leaves are deleted, since other tests would find them."""
    defs = Definitions(bench, f"{unique}.example.org")
    defs.start()
    yield defs
    for xrd in (await bench.client.list(XRD)).items:
        if xrd["spec"]["group"] == defs.group:
            await defs.delete(xrd)
            await defs.gone(xrd)
    await defs.stop()


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
    found = await defs.bench.client.get(gvk(f"{defs.group}/v1", "App"), "one", namespace="default")
    assert found["metadata"]["uid"] == xr["metadata"]["uid"]
    with pytest.raises(NotFound):
        await defs.bench.client.kind(gvk(f"{defs.group}/v1alpha1", "App"))
    crd = await defs.bench.client.get(CRD, xrd["metadata"]["name"])
    assert crd["status"]["storedVersions"] == ["v1"]


async def test_the_scale_subresource_works(defs: Definitions) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    xrd = await defs.established(defs.xrd(versions=[api_version(subresources={"scale": scale})]))
    xr = await defs.create(xrd, "one", size=2)
    found = await defs.bench.client.get(gvk_of(xr), "one", namespace="default", subresource="scale")
    assert found["spec"]["replicas"] == 2
    await defs.change(xr, {"spec": {"replicas": 5}}, subresource="scale")
    assert (await defs.bench.client.get(gvk_of(xr), "one", namespace="default"))["spec"]["size"] == 5


async def test_labels_and_annotations_reach_the_crds_and_leave_them_again(defs: Definitions) -> None:
    xrd = defs.claimed(metadata={"labels": {"tier": "gold"}, "annotations": {"docs": "here"}})
    xrd["metadata"]["labels"] = {"team": "a"}
    xrd = await defs.until(await defs.established(xrd), "Offered", "True")
    for name in (f"xapps.{defs.group}", f"apps.{defs.group}"):
        metadata = (await defs.bench.client.get(CRD, name))["metadata"]
        assert metadata["labels"] == {"team": "a", "tier": "gold"}
        assert metadata["annotations"]["docs"] == "here"
    await defs.change(xrd, {"metadata": {"labels": {"team": None}}, "spec": {"metadata": None}})

    async def check() -> bool:
        metadata = (await defs.bench.client.get(CRD, f"apps.{defs.group}"))["metadata"]
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
        found = await defs.bench.client.get(gvk_of(xr), "old", namespace="default")
        return found if found["spec"].get("shape") == "round" else None

    found = await eventually(check, "the new field has its default")
    assert found["spec"]["color"] == "red"
    assert (await defs.change(found, {"spec": {"shape": "square"}}))["spec"]["shape"] == "square"


async def test_a_field_that_leaves_the_schema_leaves_the_crd(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd(versions=[with_field("shape", {"type": "string"})]))
    await defs.change(xrd, {"spec": {"versions": [api_version()]}})
    await defs.until(xrd, "Established", "True")
    crd = await defs.bench.client.get(CRD, xrd["metadata"]["name"])
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
    found = await defs.bench.client.get(gvk(f"{defs.group}/v2", "Xapp"), "old")
    assert found["metadata"]["uid"] == old["metadata"]["uid"]
    crd = await defs.bench.client.get(CRD, name)
    assert crd["status"]["storedVersions"] == ["v1", "v2"]


async def test_a_version_that_may_have_stored_objects_cannot_vanish(defs: Definitions) -> None:
    versions = [api_version("v1"), api_version("v2", referenceable=False)]
    xrd = await defs.established(defs.xrd(versions=versions))
    await defs.create(xrd, "old")
    await defs.change(xrd, {"spec": {"versions": [api_version("v2")]}})
    refused = await defs.until(xrd, "Established", "False", reason="StoredVersionRemoved")
    condition = condition_of(refused, "Established")
    assert condition is not None and "objects may be stored as v1" in condition["message"]
    assert await defs.bench.client.get(gvk(f"{defs.group}/v1", "App"), "old", namespace="default")
    versions = [api_version("v1", referenceable=False, served=False), api_version("v2")]
    await defs.change(xrd, {"spec": {"versions": versions}})
    await defs.until(xrd, "Established", "True")
    assert await defs.bench.client.get(gvk(f"{defs.group}/v2", "App"), "old", namespace="default")


BROKEN = [
    pytest.param({"properties": {"a": {"type": "string"}}}, id="not-structural"),
    pytest.param({"type": "string", "x-kubernetes-validations": [{"rule": "self.nope()"}]}, id="cel"),
    pytest.param({"type": "strin"}, id="type"),
    pytest.param(5, id="no-schema"),
]


@pytest.mark.parametrize("schema", BROKEN)
async def test_an_invalid_xrd_says_which_field_and_waits_for_a_change(defs: Definitions, schema: Object) -> None:
    xrd = await defs.bench.client.create(defs.xrd(versions=[with_field("shape", schema)]))
    refused = await defs.until(xrd, "Established", "False", reason="InvalidDefinition")
    condition = condition_of(refused, "Established")
    assert condition is not None and "properties[spec].properties" in condition["message"]
    told = await eventually(lambda: defs.events(xrd), "an event tells of it")
    assert [(kind, reason) for kind, reason, _ in told] == [("Warning", "InvalidDefinition")]
    assert await read(defs.bench.client, CRD, xrd["metadata"]["name"]) is None
    assert defs.composites.told == []
    outcomes = [line for line in defs.bench.metrics.render().splitlines() if f'controller="{NAME}",outcome=' in line]
    assert not [line for line in outcomes if 'outcome="success"' not in line and 'outcome="conflict"' not in line]
    await defs.change(refused, {"spec": {"versions": [api_version()]}})
    await defs.until(xrd, "Established", "True")


async def test_a_version_without_a_schema_is_refused_by_name(defs: Definitions) -> None:
    xrd = await defs.bench.client.create(defs.xrd(versions=[api_version(schema={})]))
    refused = await defs.until(xrd, "Established", "False", reason="InvalidDefinition")
    condition = condition_of(refused, "Established")
    assert condition is not None and condition["message"].endswith(
        "spec.versions[0].schema.openAPIV3Schema: version v1 has no schema"
    )
    assert not refused["metadata"].get("finalizers")


async def test_an_invalid_change_leaves_what_is_served_as_it_was(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    await defs.change(xrd, {"spec": {"versions": [with_field("shape", {"type": "strin"})]}})
    refused = await defs.until(xrd, "Established", "False", reason="InvalidDefinition")
    await defs.create(xrd, "one")
    await defs.restart()
    name = xrd["metadata"]["name"]

    async def check() -> bool:
        return name in defs.composites.running

    await eventually(check, "XRs are reconciled again after a restart")
    assert (await defs.bench.client.get(XRD, name))["metadata"]["resourceVersion"] == refused["metadata"][
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
    xrd = await defs.bench.client.create(defs.claimed(enforcedCompositionRef={"name": "mine"}))
    for change, message in REFUSED:
        with pytest.raises(Invalid, match=message):
            await defs.change(xrd, {"spec": change})


async def test_a_name_that_another_crd_has_is_told_and_had_once_it_is_free(defs: Definitions) -> None:
    other = stranger(defs.group)
    other["metadata"]["name"] = f"things.{defs.group}"
    other["spec"]["names"] = {"plural": "things", "kind": "Thing", "shortNames": ["app"]}
    other = await defs.bench.client.create(other)
    await until_condition(defs.bench.client, other, "Established")
    xrd = await defs.bench.client.create(defs.xrd())
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
    await defs.stop()
    before = await defs.versions(xrd)
    assert len(before) == 7
    defs.composites, defs.claims = Recorder(), Recorder()
    controller = DefinitionController(defs.bench, defs.composites, defs.claims)
    await controller.reconcile(key)
    await controller.reconcile(key)
    assert await defs.versions(xrd) == before
    name = xrd["metadata"]["name"]
    assert defs.composites.told == defs.claims.told == [f"start {name} v1 generation 1"]
    defs.start()


async def test_crds_and_roles_that_vanish_or_change_come_back(defs: Definitions) -> None:
    xrd = await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    name = xrd["metadata"]["name"]
    crd = await defs.bench.client.get(CRD, f"apps.{defs.group}")
    await defs.delete(crd)
    role = await defs.bench.client.get(CLUSTER_ROLE, role_name(name, "view"))
    await defs.delete(role)
    edit = await defs.bench.client.get(CLUSTER_ROLE, role_name(name, "edit"))
    await defs.change(edit, {"rules": []})
    composite = await defs.bench.client.get(CRD, name)
    await defs.change(composite, {"metadata": {"ownerReferences": None}})

    async def check() -> bool:
        new_crd = await read(defs.bench.client, CRD, crd["metadata"]["name"])
        new_role = await read(defs.bench.client, CLUSTER_ROLE, role["metadata"]["name"])
        rules = (await defs.bench.client.get(CLUSTER_ROLE, edit["metadata"]["name"])).get("rules")
        owners = (await defs.bench.client.get(CRD, name))["metadata"].get("ownerReferences")
        fresh = new_crd is not None and new_crd["metadata"]["uid"] != crd["metadata"]["uid"]
        return fresh and new_role is not None and rules == edit["rules"] and bool(owners)

    await eventually(check, "everything is as it was")


async def test_roles_are_gathered_by_those_of_kubernetes(defs: Definitions) -> None:
    label = "rbac.authorization.k8s.io/aggregate-to-edit"
    gathering = await defs.bench.client.create(
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
        role = await defs.bench.client.get(CLUSTER_ROLE, gathering["metadata"]["name"])
        return rule in (role.get("rules") or [])

    await eventually(check, "editors may edit XRs and claims")
    await defs.delete(gathering)


async def test_a_paused_xrd_is_left_alone_until_it_is_not(defs: Definitions) -> None:
    paused = defs.xrd()
    paused["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
    paused = await defs.bench.client.create(paused)
    other = await defs.established(defs.xrd(plural="others"))
    assert defs.composites.running == {other["metadata"]["name"]: 1}
    found = await defs.bench.client.get(XRD, paused["metadata"]["name"])
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


# -- other people's CRDs


def stranger(group: str, *owners: Object) -> Object:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"apps.{group}", "ownerReferences": list(owners)},
        "spec": {
            "group": group,
            "names": {"plural": "apps", "kind": "App"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


@pytest.mark.parametrize("plural", ["apps", "xapps"], ids=["composites", "claims"])
async def test_a_crd_of_somebody_else_is_refused_until_it_goes(defs: Definitions, plural: str) -> None:
    foreign = await defs.bench.client.create(stranger(defs.group))
    condition = "Established" if plural == "apps" else "Offered"
    xrd = await defs.bench.client.create(defs.xrd() if plural == "apps" else defs.claimed())
    refused = await defs.until(xrd, condition, "False", reason="ForeignDefinition")
    told = condition_of(refused, condition)
    assert told is not None and "was not made by an XRD" in told["message"]
    found = await defs.bench.client.get(CRD, foreign["metadata"]["name"])
    assert found["spec"] == foreign["spec"] and not found["metadata"].get("ownerReferences")
    await defs.delete(foreign)
    await defs.until(xrd, condition, "True")


async def test_a_crd_that_an_xrd_lost_is_adopted_again_with_its_xrs(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    xr = await defs.create(xrd, "one")
    await defs.stop()
    crd = await defs.bench.client.get(CRD, xrd["metadata"]["name"])
    await defs.change(crd, {"metadata": {"ownerReferences": None}})
    await defs.change(xrd, {"metadata": {"finalizers": None}})
    await defs.delete(xrd)
    await defs.gone(xrd)
    defs.start()
    again = await defs.established(defs.xrd())
    found = await defs.bench.client.get(CRD, crd["metadata"]["name"])
    assert found["metadata"]["uid"] == crd["metadata"]["uid"]
    assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [again["metadata"]["uid"]]
    assert (await defs.bench.client.get(gvk_of(xr), "one", namespace="default"))["metadata"]["uid"]


async def test_a_crd_that_is_not_the_xrds_is_orphaned_and_not_deleted(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    xr = await defs.create(xrd, "one")
    await defs.stop()
    crd = await defs.bench.client.get(CRD, xrd["metadata"]["name"])
    await defs.change(crd, {"metadata": {"ownerReferences": None}})
    await defs.delete(xrd)
    defs.start()
    await defs.gone(xrd)
    found = await defs.bench.client.get(CRD, crd["metadata"]["name"])
    assert not found["metadata"].get("deletionTimestamp")
    found = await defs.bench.client.get(gvk_of(xr), "one", namespace="default")
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
    assert (await defs.bench.client.get(gvk_of(held), "held", namespace="default"))["metadata"]["deletionTimestamp"]
    assert not (await defs.bench.client.get(CRD, name))["metadata"].get("deletionTimestamp")
    assert name in defs.composites.running, "an XR loses its finalizer only while its controller runs"
    await defs.change(held, {"metadata": {"finalizers": None}})
    await defs.gone(xrd)
    assert await read(defs.bench.client, CRD, name) is None
    assert defs.composites.told[-1] == f"stop {name}"


async def test_claims_go_before_xrs(defs: Definitions) -> None:
    xrd = await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    xr = await defs.create(xrd, "one")
    claim = await defs.change(await defs.create(xrd, "one", kind="App"), {"metadata": {"finalizers": [HELD]}})
    await defs.delete(xrd)
    await defs.until(xrd, "Offered", "False", reason="TerminatingCompositeResourceClaim")
    await defs.until(xrd, "Established", "False", reason="TerminatingCompositeResource")

    async def claim_is_going() -> bool:
        found = await defs.bench.client.get(gvk_of(claim), "one", namespace="default")
        return bool(found["metadata"].get("deletionTimestamp"))

    await eventually(claim_is_going, "the claim is being deleted")
    assert not (await defs.bench.client.get(gvk_of(xr), "one"))["metadata"].get("deletionTimestamp")
    assert defs.composites.running and defs.claims.running
    await defs.change(claim, {"metadata": {"finalizers": None}})
    await defs.gone(xrd)
    for plural in ("xapps", "apps"):
        assert await read(defs.bench.client, CRD, f"{plural}.{defs.group}") is None
    assert defs.composites.running == defs.claims.running == {}


async def test_an_xr_that_comes_during_the_deletion_goes_as_well(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    held = await defs.change(await defs.create(xrd, "held"), {"metadata": {"finalizers": [HELD]}})
    await defs.delete(xrd)
    await defs.until(xrd, "Established", "False", reason="TerminatingCompositeResource")

    async def held_is_going() -> bool:
        found = await defs.bench.client.get(gvk_of(held), "held", namespace="default")
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
        found = (await defs.bench.client.list(gvk_of(held[0]))).items
        return all(each["metadata"].get("deletionTimestamp") for each in found)

    await eventually(all_are_going, "all XRs are being deleted")
    before = passes(defs.bench)
    for xr in held[1:]:
        await defs.change(xr, {"metadata": {"finalizers": None}})
        await defs.gone(xr)
    assert passes(defs.bench) - before <= 1, "one may be on its way when the counting begins"
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


async def test_an_instance_that_may_not_be_deleted_is_named_and_the_others_go(unique: str) -> None:
    guard = Guard("needed")
    async with embedded_bench(admission=[guard]) as bench:
        defs = Definitions(bench, f"{unique}.example.org")
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
    await defs.bench.client.delete(XRD, xrd["metadata"]["name"], propagation=Propagation.FOREGROUND)

    async def xr_is_going() -> bool:
        found = await defs.bench.client.get(gvk_of(xr), "one")
        return bool(found["metadata"].get("deletionTimestamp"))

    await eventually(xr_is_going, "the XR is being deleted")
    assert xrd["metadata"]["name"] in defs.composites.running
    await defs.change(xr, {"metadata": {"finalizers": None}})
    await defs.gone(xrd)
    assert await read(defs.bench.client, CRD, xrd["metadata"]["name"]) is None


async def test_a_paused_xrd_is_not_deleted(defs: Definitions) -> None:
    xrd = await defs.established(defs.xrd())
    other = await defs.established(defs.xrd(plural="others"))
    xr = await defs.create(xrd, "one")
    await defs.change(xrd, {"metadata": {"annotations": {PAUSED_ANNOTATION: "true"}}})
    await defs.delete(xrd)
    await defs.delete(other)
    await defs.gone(other)
    assert not (await defs.bench.client.get(gvk_of(xr), "one", namespace="default"))["metadata"].get(
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
    assert await read(defs.bench.client, CRD, xrd["metadata"]["name"]) is None


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
    """An XRD from its creation to its end, driven pass by pass; after a crash by a controller that knows nothing."""

    defs: Definitions
    client: CrashingClient
    controller: DefinitionController = field(init=False)

    def __post_init__(self) -> None:
        bench = replace(self.defs.bench, client=cast(Client, self.client))
        self.controller = DefinitionController(bench, self.defs.composites, self.defs.claims)

    async def drive(self, key: ObjectKey, done: Callable[[], Awaitable[bool]], what: str) -> None:
        async def step() -> bool:
            try:
                await self.controller.reconcile(key)
            except Crash:
                self.defs.composites, self.defs.claims = Recorder(), Recorder()
                self.controller = DefinitionController(self.defs.bench, self.defs.composites, self.defs.claims)
            except Conflict:
                pass
            return await done()

        await eventually(step, what)

    async def run(self) -> None:
        client, xrd = self.defs.bench.client, self.defs.claimed()
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
    async with embedded_bench() as bench:
        clean = Life(Definitions(bench, f"{unique}.example.org"), CrashingClient(bench.client, None))
        await clean.run()
        assert clean.client.writes > 15
        for at in range(1, clean.client.writes + 1):
            crashed = Life(Definitions(bench, f"{unique}-{at}.example.org"), CrashingClient(bench.client, at))
            await crashed.run()
