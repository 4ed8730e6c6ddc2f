"""Objects that were stored under the CRDs of an earlier planform outlive the upgrade to this one.

The CRDs and one full object of each kind were frozen in tests/fixtures; neither follows what this planform knows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from planform.api.extensions import crds
from planform.api.kinds import Object, gvk_of
from planform.api.names import CRD
from planform.client.protocol import Client
from planform.definitions.own_crds import VERSION_ANNOTATION, ensure_crds
from planform.errors import Conflict
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import eventually

FROZEN = Path(__file__).parents[1] / "fixtures" / "crds-frozen"
DEFINITIONS: list[Object] = [
    yaml.safe_load(path.read_text()) for path in sorted(FROZEN.glob("*.yaml")) if path.name != "objects.yaml"
]
OBJECTS: list[Object] = yaml.safe_load((FROZEN / "objects.yaml").read_text())
EARLIER = "0.0.1"


@pytest.mark.parametrize("frozen", [pytest.param(each, id=each["metadata"]["name"]) for each in DEFINITIONS])
def test_no_version_scope_or_name_of_an_earlier_crd_is_lost(frozen: Object) -> None:
    [current] = [each for each in crds() if each["metadata"]["name"] == frozen["metadata"]["name"]]
    before, after = frozen["spec"], current["spec"]
    assert after["scope"] == before["scope"]
    assert after["names"]["kind"] == before["names"]["kind"]
    served = {version["name"] for version in after["versions"] if version["served"]}
    assert {version["name"] for version in before["versions"] if version["served"]} <= served


async def test_every_object_of_an_earlier_planform_is_there_after_the_upgrade(
    context: ControllerContext, unique: str
) -> None:
    client = context.client
    for frozen in DEFINITIONS:
        await put_back(client, frozen)
    stored = []
    try:
        for example in OBJECTS:
            obj = yaml.safe_load(yaml.safe_dump(example).replace("NAME", unique))
            stored.append(await created(client, obj))
        assert await ensure_crds(client, clock=context.clock) >= len(DEFINITIONS)
        for before in stored:
            assert says(await again(client, before)) == says(before)
        for frozen in DEFINITIONS:
            found = await client.get(CRD, frozen["metadata"]["name"])
            kept = {version["name"] for version in found["spec"]["versions"]}
            assert set(found["status"]["storedVersions"]) <= kept
            assert found["metadata"]["annotations"][VERSION_ANNOTATION] != EARLIER
        assert await ensure_crds(client, clock=context.clock) == 0, "and a second time there is nothing to do"
    finally:
        for obj in stored:
            await client.delete(gvk_of(obj), obj["metadata"]["name"], namespace=obj["metadata"].get("namespace") or "")


async def put_back(client: Client, frozen: Object) -> None:
    """Make a CRD what it was."""
    while True:
        found = await client.get(CRD, frozen["metadata"]["name"])
        found["spec"] = frozen["spec"]
        found["metadata"]["annotations"][VERSION_ANNOTATION] = EARLIER
        try:
            await client.update(found)
            return
        except Conflict:  # the server's own controllers write to its status
            continue


async def created(client: Client, obj: Object) -> Object:
    """A server takes a moment to serve a schema that was just changed."""

    async def create() -> Object | None:
        made = await client.create(obj)
        asked, given = fields(obj.get("spec")), fields(made.get("spec"))
        if asked <= given:
            return made
        await client.delete(gvk_of(made), made["metadata"]["name"], namespace=made["metadata"].get("namespace") or "")
        return None

    return await eventually(create, f"{obj['kind']} is stored with all its fields")


async def again(client: Client, obj: Object) -> Object:
    metadata = obj["metadata"]
    return await client.get(gvk_of(obj), metadata["name"], namespace=metadata.get("namespace") or "")


def fields(value: Any) -> set[str]:
    return set(value) if isinstance(value, dict) else set()


def says(obj: Object) -> Object:
    """What a user reads: everything but who wrote it when."""
    kept = ("name", "namespace", "uid", "labels", "annotations", "creationTimestamp")
    metadata = {name: obj["metadata"].get(name) for name in kept}
    return {**obj, "metadata": metadata}
