"""NopResources have one controller: the built-in one, or that of a package which brings their kinds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from planform.api.extensions.nop import nop_resource
from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import CLUSTER_NOP_RESOURCE, CRD, NOP_RESOURCE, PROVIDER
from planform.apiserver.local import LocalClient
from planform.client.protocol import ObjectList, Patch, PatchType
from planform.definitions.own_crds import ensure_crds
from planform.engine.nop_kinds import KindInUse, NopKinds
from planform.errors import Invalid, NotFound
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import embedded_context, eventually, read, until_condition

DEFINITION = "nopresources.nop.crossplane.io"


def nop(name: str) -> Object:
    after = [{"time": "0s", "conditionType": "Ready", "conditionStatus": "True"}]
    return {
        "apiVersion": NOP_RESOURCE.api_version,
        "kind": NOP_RESOURCE.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"forProvider": {"conditionAfter": after}},
    }


async def change_definition(context: ControllerContext, change: dict[str, Any]) -> Object:
    return await context.client.patch(CRD, DEFINITION, Patch(PatchType.MERGE, change))


async def bring_kind(context: ControllerContext) -> Object:
    """Have a Provider that owns the definition of NopResources; gives the Provider."""
    provider = await context.client.create(
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
    await change_definition(context, {"metadata": {"ownerReferences": [about]}})
    return provider


async def until_served(kinds: NopKinds, *wanted: GroupVersionKind) -> None:
    async def check() -> bool:
        return kinds.served == set(wanted)

    await eventually(check, f"the built-in controller serves {wanted}")


async def test_the_built_in_controller_steps_back_for_a_package_and_comes_back_when_it_is_gone() -> None:
    async with embedded_context() as context:
        kinds = NopKinds(context)
        kinds.start()
        await until_condition(context.client, await context.client.create(nop("ours")), "Ready")
        await bring_kind(context)
        await until_served(kinds, CLUSTER_NOP_RESOURCE)
        theirs = await context.client.create(nop("theirs"))
        await context.client.delete(PROVIDER, "nop")

        async def is_new() -> bool:
            found = await read(context.client, CRD, DEFINITION)
            return found is not None and not found["metadata"].get("ownerReferences")

        await eventually(is_new, "the kind is defined again")
        await until_served(kinds, NOP_RESOURCE, CLUSTER_NOP_RESOURCE)
        assert await read(context.client, NOP_RESOURCE, "theirs", "default") is None, "nobody kept it: there is no Lock"
        assert "status" not in theirs

        async def create() -> Object | None:
            try:
                return await context.client.create(nop("ours-again"))
            except NotFound:
                return None

        await until_condition(context.client, await eventually(create, "the kind is served"), "Ready")


class Meanwhile(LocalClient):
    """A client that does something else before each list of NopResources, and before their definition is deleted."""

    first: Callable[[], Awaitable[None]] | None = None

    async def list(self, gvk: GroupVersionKind, **more: Any) -> ObjectList:
        found = await super().list(gvk, **more)
        if gvk == NOP_RESOURCE and self.first is not None:
            await self.first()
        return found

    async def delete(self, gvk: GroupVersionKind, name: str, **more: Any) -> Object | None:
        if (gvk, name) == (CRD, DEFINITION) and self.first is not None:
            await self.first()
        return await super().delete(gvk, name, **more)


def cluster_scoped() -> Object:
    definition = nop_resource()
    return {**definition, "spec": {**definition["spec"], "scope": "Cluster"}}


async def hand_over(context: ControllerContext, users: Callable[[], Awaitable[None]]) -> None:
    """Have the kind make way for a package's while users do something at each moment in between."""
    assert isinstance(context.client, LocalClient)
    client = Meanwhile(context.client._core)
    kinds = NopKinds(replace(context, client=client))
    kinds.start()
    await until_served(kinds, NOP_RESOURCE, CLUSTER_NOP_RESOURCE)
    client.first = users
    try:
        async with kinds.giving_way([cluster_scoped()]):
            assert await read(context.client, CRD, DEFINITION) is None
    finally:
        client.first = None


async def test_an_object_that_is_created_while_the_kind_makes_way_is_kept_or_refused() -> None:
    async with embedded_context() as context:
        created: list[str] = []
        refused: list[str] = []

        async def users() -> None:
            try:
                name = f"late-{len(created) + len(refused)}"
                await context.client.create(nop(name))
                created.append(name)
            except Invalid as error:
                refused.append(error.message)

        with pytest.raises(KindInUse, match="default/late-0"):  # created after the first look, and seen by the second
            await hand_over(context, users)
        assert created == ["late-0"] and len(refused) == 1
        assert await read(context.client, NOP_RESOURCE, "late-0", "default") is not None

        async def open_again() -> bool:
            try:
                await context.client.create(nop("after"), dry_run=True)
            except Invalid:
                return False
            return True

        await eventually(open_again, "the kind takes objects again")


async def test_once_the_kind_is_counted_as_empty_nothing_can_be_created_until_it_is_gone() -> None:
    async with embedded_context() as context:
        answers: list[str] = []

        async def users() -> None:
            if answers or not await _is_closed(context):
                return  # until then, what they create holds up the package
            with pytest.raises(Invalid, match="takes over this kind"):
                await context.client.create(nop("late"))
            answers.append("refused")

        await hand_over(context, users)
        assert answers == ["refused"]


async def _is_closed(context: ControllerContext) -> bool:
    found = await context.client.get(CRD, DEFINITION)
    return "x-kubernetes-validations" in found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


async def test_a_definition_that_a_package_brought_is_left_as_it_is_by_the_next_start() -> None:
    async with embedded_context() as context:
        await bring_kind(context)
        changed = await change_definition(context, {"spec": {"names": {"categories": ["theirs"]}}})
        assert await ensure_crds(context.client, clock=context.clock) == 0
        assert (await context.client.get(CRD, DEFINITION))["metadata"]["generation"] == changed["metadata"][
            "generation"
        ]
