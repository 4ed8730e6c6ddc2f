"""The life of one XR with five resources, and everything that must hold of it whatever happened in between.

The user creates it, changes it so that two resources change and one is replaced by another, and deletes it. The same
as an XR of a namespace, and as a claim whose XR publishes connection details. Each act may be repeated: a user who got
no answer tries again.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import orjson

from planform.api.kinds import Object, gvk
from planform.api.names import COMPOSITION, SECRET, XRD
from planform.api.xr import COMPOSITE_LABEL, RESOURCE_NAME_ANNOTATION, composition_fields
from planform.apimachinery.names import child_name
from planform.app import ControlPlane
from planform.client.protocol import Patch, PatchType
from planform.journal.journal import WAIT_SECONDS
from planform.store import Change, Key
from tests.controllers.composing import auto_ready
from tests.harness.contexts import condition_of, read, until_condition

PHASES: Final = ("create", "update", "delete")
GROUP: Final = "crash.example.org"
NAME: Final = "one"
REGIONS: Final = {"create": "eu", "update": "us"}
SECONDS: Final = 30.0
PASSWORD: Final = b"correct horse"

_TEMPLATE: Final = """
{{- $region := .observed.composite.resource.spec.region }}
{{- define "metadata" }}
metadata:
  namespace: default
  annotations: { {{ setResourceNameAnnotation . }} }
{{- end }}
{{- range $name, $value := dict "settings" $region (print "cache-" $region) $region "limits" "5" }}
---
apiVersion: v1
kind: ConfigMap
{{- template "metadata" $name }}
data: { value: {{ quote $value }} }
{{- end }}
{{- range $name, $value := dict "database" "eternal" "server" $region }}
---
apiVersion: nop.crossplane.io/v1alpha1
kind: NopResource
{{- template "metadata" $name }}
spec:
  forProvider:
    conditionAfter: [{ time: 0s, conditionType: Ready, conditionStatus: "True" }]
    fields: { value: {{ $value }} }
{{- end }}
---
apiVersion: meta.gotemplating.fn.crossplane.io/v1alpha1
kind: CompositeConnectionDetails
data: { password: {{ b64enc "correct horse" }} }
"""


def resources(region: str) -> dict[str, str]:
    """What there is to compose in a region: of each resource the one value that tells it is as wanted."""
    return {"settings": region, f"cache-{region}": region, "limits": "5", "database": "eternal", "server": region}


class Cycle:
    """One XR's life on a running control plane. `claimed` is the variant with a claim."""

    delete_policy = "Foreground"
    """The claim's: whether it goes after its XR, or before."""

    def __init__(self, plane: ControlPlane, *, claimed: bool) -> None:
        self.plane = plane
        self.client = plane.client
        self.store = plane.core.store
        self.claimed = claimed
        self.composite = gvk(f"{GROUP}/v1", "XApp")
        self.own = gvk(f"{GROUP}/v1", "App") if claimed else self.composite
        """The kind of what the user has: the claim, or the XR."""

    # -- the platform

    async def define(self) -> None:
        """The XRD and its Composition, once for all cycles."""
        await self.client.create(self.xrd())
        xrd = await self.client.get(XRD, f"xapps.{GROUP}")
        await until_condition(self.client, xrd, "Offered" if self.claimed else "Established")
        await until_condition(self.client, await self.client.create(self.composition()), "Synced")

    def xrd(self) -> Object:
        free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": free}}}
        version = {"name": "v1", "served": True, "referenceable": True, "schema": schema}
        spec: Object = {"group": GROUP, "names": {"kind": "XApp", "plural": "xapps"}, "versions": [version]}
        if self.claimed:
            spec |= {"scope": "LegacyCluster", "claimNames": {"kind": "App", "plural": "apps"}}
        return {
            "apiVersion": f"{XRD.group}/{'v1' if self.claimed else 'v2'}",
            "kind": XRD.kind,
            "metadata": {"name": f"xapps.{GROUP}"},
            "spec": spec,
        }

    def composition(self) -> Object:
        pipeline_input = {
            "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
            "kind": "GoTemplate",
            "source": "Inline",
            "inline": {"template": _TEMPLATE},
        }
        compose = {"step": "compose", "functionRef": {"name": "function-go-templating"}, "input": pipeline_input}
        composition: Object = {
            "apiVersion": COMPOSITION.api_version,
            "kind": COMPOSITION.kind,
            "metadata": {"name": "apps"},
            "spec": {
                "compositeTypeRef": {"apiVersion": self.composite.api_version, "kind": "XApp"},
                "mode": "Pipeline",
                "pipeline": [compose, auto_ready()],
            },
        }
        if self.claimed:
            composition["spec"]["writeConnectionSecretsToNamespace"] = "default"
        return composition

    # -- what the user does

    async def act(self, phase: str) -> None:
        """What begins a phase; it may have been done before."""
        found = await self.find()
        if phase == "create" and found is None:
            spec: Object = {"region": REGIONS[phase]}
            if self.claimed:
                spec |= {"writeConnectionSecretToRef": {"name": "details"}, "compositeDeletePolicy": self.delete_policy}
            metadata = {"name": NAME, "namespace": "default"}
            await self.client.create(
                {"apiVersion": self.own.api_version, "kind": self.own.kind, "metadata": metadata, "spec": spec}
            )
        elif phase == "update":
            assert found is not None, "what the user created is lost"
            if found["spec"]["region"] != REGIONS[phase]:
                patch = Patch(PatchType.MERGE, {"spec": {"region": REGIONS[phase]}})
                await self.client.patch(self.own, NAME, patch, namespace="default")
        elif phase == "delete" and found is not None:
            await self.client.delete(self.own, NAME, namespace="default")

    async def find(self) -> Object | None:
        return await read(self.client, self.own, NAME, "default")

    # -- what must come of it

    async def settle(self, phase: str) -> None:
        """Wait until all that must hold at the end of a phase does, and goes on to hold when nothing moves any more."""
        deadline = self.plane.core.clock.monotonic() + SECONDS
        while True:
            try:
                await self.check(phase)
                break
            except AssertionError:
                if self.plane.core.clock.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.02)
        await self.rest()
        await self.check(phase)
        if phase == "delete":
            journal, kind = self.plane.controllers.journal, f"XApp.{GROUP}"
            assert (await journal.last_runs(kind), await journal.latest(kind)) == ({}, []), "it is still remembered"

    async def rest(self) -> None:
        """Wait until nothing is written for a moment, neither to the store nor to the journal."""
        await self.plane.controllers.events.written()
        before = -1
        while before != self.store.revision:
            before = self.store.revision
            await asyncio.sleep(WAIT_SECONDS + 0.1)  # longer than the journal waits for more runs

    async def check(self, phase: str) -> None:
        """Nothing twice, nothing lost, nothing that belongs to nobody."""
        objects = self._objects()
        _check_owners(objects.values())
        composed = [each for each in objects.values() if _is_composed(each)]
        xrs = [each for each in objects.values() if each["kind"] == "XApp"]
        if phase == "delete":
            left = [*xrs, *composed, *[each for each in objects.values() if each["kind"] == "App"]]
            assert not left, [(each["kind"], each["metadata"]) for each in left]
        else:
            assert len(xrs) == 1
            xr = xrs[0]
            self._check_composed(xr, composed, resources(REGIONS[phase]))
            for each in (xr, await self.find() or {}):
                for type_ in ("Ready", "Synced"):
                    condition = condition_of(each, type_)
                    assert condition is not None and condition["status"] == "True", each
            if self.claimed:
                details = await read(self.client, SECRET, "details", "default")
                assert details and base64.b64decode(details["data"]["password"]) == PASSWORD
        counting = [each for each in objects.values() if each["kind"] in ("Composition", "CompositionRevision")]
        assert [(each.get("status") or {}).get("composites") for each in counting] == [len(xrs)] * 2

    def _check_composed(self, xr: Object, composed: Sequence[Object], wanted: Mapping[str, str]) -> None:
        by_name = {each["metadata"]["annotations"][RESOURCE_NAME_ANNOTATION]: each for each in composed}
        assert len(composed) == 5, [each["metadata"] for each in composed]
        assert {name: _value(each) for name, each in by_name.items()} == wanted
        prefix, uid = (xr["metadata"].get("labels") or {}).get(COMPOSITE_LABEL), xr["metadata"]["uid"]
        for name, each in by_name.items():
            assert each["metadata"]["name"] == child_name(f"{prefix}-", uid, name)
            assert [owner["uid"] for owner in each["metadata"]["ownerReferences"]] == [uid]
        references = composition_fields(xr, "legacy" if self.claimed else "modern")["resourceRefs"]
        assert sorted((each["kind"], each["name"]) for each in references) == sorted(
            (each["kind"], each["metadata"]["name"]) for each in composed
        )

    async def check_history(self, since: int) -> None:
        """Over a whole cycle, from before it began: each object was made once and deleted once, and all is as before.

        The store's own log tells, which the crash is part of.
        """
        before = {key for each in self.store.resources() for key, _ in await self.store.list_at(each, None, since)}
        assert self._objects().keys() == {key for key in before if key.resource != "events"}
        made: Counter[str] = Counter()
        deleted: Counter[str] = Counter()
        for change in await self._changes(since):
            if change.key.resource != "events":
                made[_label(change)] += change.type == "ADDED"
                deleted[_label(change)] += change.type == "DELETED"
        wanted = {name for region in REGIONS.values() for name in resources(region)} | {f"xapps.{GROUP}"}
        if self.claimed:
            wanted |= {f"apps.{GROUP}"}
        secrets = {name for name in made if name.startswith("secrets")}
        assert len(secrets) == (2 if self.claimed else 0)
        assert {name: made[name] for name in made if made[name]} == dict.fromkeys(wanted | secrets, 1)
        assert +deleted == +made

    def _objects(self) -> dict[Key, Object]:
        """Everything in the store but events, which outlive what they are about."""
        names = [each for each in self.store.resources() if each != "events"]
        return {key: orjson.loads(entry.value) for each in names for key, entry in self.store.list(each)}

    async def _changes(self, since: int) -> list[Change]:
        changes: list[Change] = []
        position = since
        while position < self.store.revision:
            changes += await self.store.recall(position, 512)
            position = changes[-1].rv
        return changes


def _is_composed(obj: Mapping[str, Any]) -> bool:
    """Whether it carries any mark of having been composed, whether or not an XR knows of it."""
    metadata = obj["metadata"]
    if RESOURCE_NAME_ANNOTATION in (metadata.get("annotations") or {}):
        return True
    return COMPOSITE_LABEL in (metadata.get("labels") or {}) and obj["kind"] not in ("XApp", "Secret")


def _check_owners(objects: Collection[Object]) -> None:
    """No object outlives its owner."""
    live = {each["metadata"]["uid"] for each in objects}
    for each in objects:
        owners = {owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()}
        assert owners <= live, f"{each['kind']} {each['metadata']['name']} is an orphan"


def _value(composed: Mapping[str, Any]) -> str:
    """The value of a composed resource that tells what it was made from."""
    if composed["kind"] == "ConfigMap":
        return str(composed["data"]["value"])
    return str(composed["spec"]["forProvider"]["fields"]["value"])


def _label(change: Change) -> str:
    obj = orjson.loads(change.value)
    name = (obj["metadata"].get("annotations") or {}).get(RESOURCE_NAME_ANNOTATION)
    if name:
        return str(name)
    return f"secrets {change.key.name}" if change.key.resource == "secrets" else change.key.resource
