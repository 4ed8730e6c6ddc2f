"""Applies that are worked out from schemas give what the API server would store."""

from __future__ import annotations

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.errors import Invalid, NotFound
from planform.preview.dry_runs import DryRuns
from planform.preview.field_diffs import content_of
from planform.preview.schema_applies import SchemaApplies
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import eventually

PORTS: Object = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "port": {"type": "integer", "maximum": 99},
            "protocol": {"type": "string", "default": "TCP"},
        },
    },
}


def crd(group: str) -> Object:
    spec = {
        "type": "object",
        "properties": {"mode": {"type": "string", "default": "auto"}, "note": {"type": "string"}, "ports": PORTS},
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gears.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gears", "kind": "Gear"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def gear(group: str, **spec: object) -> Object:
    metadata = {"name": "g", "namespace": "default"}
    return {"apiVersion": f"{group}/v1", "kind": "Gear", "metadata": metadata, "spec": spec}


async def test_an_apply_by_schema_is_what_a_dry_run_answers(context: ControllerContext, unique: str) -> None:
    client, group = context.client, f"{unique}.example.org"
    await client.create(crd(group))
    gears = GroupVersionKind(group, "v1", "Gear")

    async def served() -> bool:
        try:
            await client.list(gears)
            await client.kind(gears)
        except NotFound:
            return False
        return True

    await eventually(served, "the kind is served")
    before = gear(group, note="one", ports=[{"name": "web", "port": 80}, {"name": "ops", "port": 81}])
    asked, schemas = DryRuns(client, ask_first=True), SchemaApplies(client)
    first = await schemas.apply(before, None, manager="m")
    assert first is not None
    assert content_of(first)["spec"] == (await asked.apply(before, manager="m"))["spec"]
    there = await client.apply(before, manager="m", force=True)
    after = gear(group, ports=[{"name": "web", "port": 82}])
    second = await schemas.apply(after, there, manager="m")
    assert second is not None
    assert second["spec"] == (await asked.apply(after, manager="m"))["spec"]
    assert second["spec"] == {"mode": "auto", "ports": [{"name": "web", "port": 82, "protocol": "TCP"}]}
    with pytest.raises(Invalid, match="should be less than or equal to 99"):
        await schemas.apply(gear(group, ports=[{"name": "web", "port": 100}]), there, manager="m")
