"""NopResources have one controller: the built-in one, or that of a package which brings their kinds."""

from __future__ import annotations

from typing import Any

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import CLUSTER_NOP_RESOURCE, CRD, NOP_RESOURCE, PROVIDER
from planform.client.protocol import Patch, PatchType
from planform.controllers.crds import ensure_crds
from planform.controllers.nop_kinds import NopKinds
from planform.controllers.workbench import Workbench
from planform.errors import NotFound
from tests.harness.planes import embedded_bench, eventually, read, until_condition

DEFINITION = "nopresources.nop.crossplane.io"


def nop(name: str) -> Object:
    after = [{"time": "0s", "conditionType": "Ready", "conditionStatus": "True"}]
    return {
        "apiVersion": NOP_RESOURCE.api_version,
        "kind": NOP_RESOURCE.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"forProvider": {"conditionAfter": after}},
    }


async def change_definition(bench: Workbench, change: dict[str, Any]) -> Object:
    return await bench.client.patch(CRD, DEFINITION, Patch(PatchType.MERGE, change))


async def bring_kind(bench: Workbench) -> Object:
    """Have a Provider that owns the definition of NopResources; gives the Provider."""
    provider = await bench.client.create(
        {
            "apiVersion": PROVIDER.api_version,
            "kind": PROVIDER.kind,
            "metadata": {"name": "nop"},
            "spec": {"package": "registry.example.org/acme/provider-nop:v1"},
        }
    )
    about = {
        "apiVersion": PROVIDER.api_version,
        "kind": PROVIDER.kind,
        "name": "nop",
        "uid": provider["metadata"]["uid"],
        "controller": True,
    }
    await change_definition(bench, {"metadata": {"ownerReferences": [about]}})
    return provider


async def until_served(kinds: NopKinds, *wanted: GroupVersionKind) -> None:
    async def check() -> bool:
        return kinds.served == set(wanted)

    await eventually(check, f"the built-in controller serves {wanted}")


async def test_the_built_in_controller_steps_back_for_a_package_and_comes_back_when_it_is_gone() -> None:
    async with embedded_bench() as bench:
        kinds = NopKinds(bench)
        kinds.start()
        await until_condition(bench.client, await bench.client.create(nop("ours")), "Ready")
        await bring_kind(bench)
        await until_served(kinds, CLUSTER_NOP_RESOURCE)
        theirs = await bench.client.create(nop("theirs"))
        await bench.client.delete(PROVIDER, "nop")

        async def is_new() -> bool:
            found = await read(bench.client, CRD, DEFINITION)
            return found is not None and not found["metadata"].get("ownerReferences")

        await eventually(is_new, "the kind is defined again")
        await until_served(kinds, NOP_RESOURCE, CLUSTER_NOP_RESOURCE)
        assert await read(bench.client, NOP_RESOURCE, "theirs", "default") is None, "nobody kept it: there is no Lock"
        assert "status" not in theirs

        async def create() -> Object | None:
            try:
                return await bench.client.create(nop("ours-again"))
            except NotFound:
                return None

        await until_condition(bench.client, await eventually(create, "the kind is served"), "Ready")


async def test_a_definition_that_a_package_brought_is_left_as_it_is_by_the_next_start() -> None:
    async with embedded_bench() as bench:
        await bring_kind(bench)
        changed = await change_definition(bench, {"spec": {"names": {"categories": ["theirs"]}}})
        assert await ensure_crds(bench.client, clock=bench.clock) == 0
        assert (await bench.client.get(CRD, DEFINITION))["metadata"]["generation"] == changed["metadata"]["generation"]
