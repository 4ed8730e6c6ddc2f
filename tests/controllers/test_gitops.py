"""Tools that apply what is in a repository, and compare, see no drift and know when an object is healthy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planform.api.kinds import Object, gvk_of
from planform.api.names import COMPOSITION, CRD, XRD
from planform.client.protocol import Client
from tests.controllers.test_moving import World, until_quiet
from tests.harness.contexts import all_controllers, embedded_context

UPSTREAM = {
    "CompositeResourceDefinition": set[str](),
    "Composition": set[str](),
    "App": {
        "resourceRef",
        "compositionRef",
        "compositionRevisionRef",
        "compositeDeletePolicy",
        "compositionUpdatePolicy",
    },
}
"""Fields of a spec that Crossplane fills in as well, and that rules for tools therefore know."""
DEFAULTED = {
    "CompositeResourceDefinition": {
        "scope",
        "conversion",
        "defaultCompositeDeletePolicy",
        "defaultCompositionUpdatePolicy",
    },
    "Composition": set[str](),
    "App": set[str](),
}
"""Fields that the schema fills in when an object is written, as Crossplane's does: tools that ask see them."""

ARGO_CD_WAITS_FOR = {"Ready", "Healthy", "Offered", "Established", "ValidPipeline", "RevisionHealthy"}
"""Of an object in a crossplane.io group that has a status, one of these conditions must be True, or it never ends."""


async def test_controllers_leave_what_users_wrote_and_say_which_generation_they_speak_of(unique: str) -> None:
    world = World(f"{unique}.example.org")
    async with embedded_context() as context, all_controllers(context):
        await world.build(context.client)
        await until_quiet(context, world)
        for wanted in (world.definition("XApp", "App"), world.outer(channel="three"), world.claim):
            await check_unchanged(context.client, wanted)
        told = 0
        for name, obj in (await world.objects(context.client)).items():
            if name.kind == CRD.kind:
                continue
            conditions = (obj.get("status") or {}).get("conditions") or ()
            if name.group.endswith("crossplane.io") and obj.get("status"):
                healthy = {condition["type"] for condition in conditions if condition["status"] == "True"}
                assert healthy & ARGO_CD_WAITS_FOR, name
            for condition in conditions:
                told += 1
                assert condition["observedGeneration"] == obj["metadata"]["generation"], (name, condition["type"])
        assert told > 10


async def check_unchanged(client: Client, wanted: Object) -> None:
    """What was written is there, nothing is beside it that a tool would not expect, and applying it changes nothing."""
    found = await again(client, wanted)
    assert list(changed(found["spec"], wanted["spec"])) == [], wanted["kind"]
    added = found["spec"].keys() - wanted["spec"].keys()
    assert added <= UPSTREAM[wanted["kind"]] | DEFAULTED[wanted["kind"]], wanted["kind"]
    applied = await client.apply(wanted, manager="team", force=True)
    assert applied["metadata"]["generation"] == found["metadata"]["generation"]
    if wanted["kind"] != "App":  # it was created, not applied: the first apply notes who owns its fields
        assert applied["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def again(client: Client, wanted: Object) -> Object:
    kind = {"CompositeResourceDefinition": XRD, "Composition": COMPOSITION}.get(wanted["kind"], gvk_of(wanted))
    metadata = wanted["metadata"]
    return await client.get(kind, metadata["name"], namespace=metadata.get("namespace") or "")


def changed(found: Any, wanted: Any, path: str = "spec") -> Iterator[str]:
    """Where what is stored does not say what was written."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from changed(found.get(key), value, f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(found) == len(wanted):
        for index, value in enumerate(wanted):
            yield from changed(found[index], value, f"{path}[{index}]")
    elif found != wanted:
        yield path
