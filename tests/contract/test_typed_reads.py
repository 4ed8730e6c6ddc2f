"""Reading through declarations and writing the fields meant loses nothing, on either engine and in any served version.

The law: whatever somebody stored (fields that the declaration does not know, other managers' fields, null beside
absent), after a typed read and a write of one field all of it is as it was, but for that field.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from random import Random
from typing import Annotated, Any, ClassVar
from uuid import uuid4

import pytest
import pytest_asyncio
from msgspec import UNSET, UnsetType

from planform.api.crds import crd, version
from planform.api.declarations import Declared, described, schema_of
from planform.api.kinds import GVK, Object
from planform.api.metadata import metadata_of, resource_version_of
from planform.api.objects import ObjectUnreadable, Status, TypedObject
from planform.app import Settings, open_control_plane
from planform.client import typed
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client, Patch, PatchType
from planform.clock import SystemClock
from planform.definitions.own_crds import ensure_crd
from planform.errors import NotFound
from tests.contract.engines import case

pytestmark = pytest.mark.asyncio(loop_scope="session")

GROUP = "typed.example.org"
CLIENTS = [
    pytest.param("local", marks=pytest.mark.xdist_group("embedded")),
    pytest.param("embedded", marks=pytest.mark.xdist_group("embedded")),
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
]


class GadgetSpec(Declared, frozen=True, kw_only=True):
    """What it is like."""

    size: Annotated[int, described("Its size.", default=1)] | UnsetType = UNSET
    note: Annotated[str | None, described("A note, or none.", nullable=True)] | UnsetType = UNSET
    anything: Annotated[dict[str, Any], described("Whatever its user likes.")] | UnsetType = UNSET


class Gadget(TypedObject, frozen=True, kw_only=True):
    """A gadget."""

    gvk: ClassVar = GVK(GROUP, "v1", "Gadget")

    spec: GadgetSpec | UnsetType = UNSET
    status: Status | UnsetType = UNSET


class OlderGadget(Gadget, frozen=True, kw_only=True):
    """A gadget, as it was."""

    gvk: ClassVar = GVK(GROUP, "v1beta1", "Gadget")


class KnownSpec(Declared, frozen=True, kw_only=True):
    """A declaration that knows less than the schema, as that of a control plane that is older than its CRD."""

    size: int | UnsetType = UNSET


class OlderDeclaration(TypedObject, frozen=True, kw_only=True):
    """A gadget, as an older control plane knows it."""

    gvk: ClassVar = Gadget.gvk

    spec: KnownSpec | UnsetType = UNSET


class OtherIdea(TypedObject, frozen=True, kw_only=True):
    """A gadget, as it never was."""

    gvk: ClassVar = Gadget.gvk

    spec: Annotated[str, described("Not an object.")] | UnsetType = UNSET


@pytest_asyncio.fixture(scope="module", params=CLIENTS, loop_scope="session")
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of a control plane of its own, or of the real cluster."""
    if request.param == "kubernetes":
        connection = find_connection(clock=SystemClock(), path=request.getfixturevalue("kubernetes_engine").kubeconfig)
        async with KubernetesClient(connection, clock=SystemClock(), rng=Random(1)) as remote:
            yield await prepared(remote)
        return
    async with open_control_plane(Settings(data=None)) as plane:
        if request.param == "local":
            yield await prepared(plane.client)
            return
        connection = find_connection(clock=SystemClock(), path=plane.kubeconfig)
        async with KubernetesClient(connection, clock=SystemClock(), rng=Random(1)) as remote:
            yield await prepared(remote)


async def prepared(client: Client) -> Client:
    schema = schema_of(Gadget)
    made = crd(GROUP, "Gadget", [version("v1", schema, storage=True), version("v1beta1", schema)])
    await ensure_crd(client, made, clock=SystemClock())
    async with asyncio.timeout(15):
        while True:  # an established kind is served a moment later
            try:
                for kind in (Gadget, OlderGadget):
                    await client.list(kind.gvk)
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                return client


def value(rng: Random, depth: int = 3) -> Any:
    if depth and rng.random() < 0.6:
        if rng.random() < 0.5:
            return [value(rng, depth - 1) for _ in range(rng.randrange(3))]
        return {rng.choice("abcde"): value(rng, depth - 1) for _ in range(rng.randrange(3))}
    return rng.choice([None, True, False, 0, -7, 2**40, 1.5, "", "text", "ü"])


def gadget(rng: Random) -> Object:
    spec: Object = {"anything": {rng.choice("abcde"): value(rng) for _ in range(rng.randrange(4))}}
    if rng.random() < 0.7:
        spec["note"] = rng.choice([None, "", "words"])
    if rng.random() < 0.5:
        spec["size"] = rng.randrange(9)
    if rng.random() < 0.3:
        del spec["anything"]
    metadata = {"name": f"g-{uuid4().hex[:12]}", "labels": {"a": "b"}, "annotations": {"own.example.org/note": "ü"}}
    read_in = rng.choice([Gadget, OlderGadget])
    return {"apiVersion": read_in.gvk.api_version, "kind": "Gadget", "metadata": metadata, "spec": spec}


def without_size(obj: Object) -> Object:
    """All of it but the field that was meant, and what any write of it changes."""
    left = copy.deepcopy(obj)
    left["spec"].pop("size", None)
    for name in ("resourceVersion", "generation", "managedFields"):
        left["metadata"].pop(name, None)
    return left


def managed_by_others(obj: Object) -> list[Any]:
    return [each for each in metadata_of(obj)["managedFields"] if each["manager"] != "control-plane"]


@case("typed-loses-nothing")
@pytest.mark.parametrize("seed", range(12))
async def test_a_typed_read_and_a_write_of_one_field_leave_all_else_as_it_was(client: Client, seed: int) -> None:
    rng = Random(seed)
    stored = await client.create(gadget(rng), manager="somebody")
    name = stored["metadata"]["name"]
    kinds: list[type[Gadget] | type[OlderDeclaration]] = [Gadget, OlderGadget, OlderDeclaration]
    for kind in rng.sample(kinds, 3):
        before = await client.get(kind.gvk, name)
        seen = await typed.get(client, kind, name)
        assert seen.metadata.resource_version == resource_version_of(before)
        assert seen.api_version == before["apiVersion"] == kind.gvk.api_version
        assert seen.spec
        if isinstance(seen, Gadget):
            assert isinstance(seen.spec, GadgetSpec)
            assert seen.spec.note is before["spec"].get("note", UNSET) or seen.spec.note == before["spec"].get("note")
            assert (seen.spec.anything or {}) == before["spec"].get("anything", {})
        wanted = {"spec": {"size": (seen.spec.size or 0) + 1}}
        if rng.random() < 0.5:
            await client.patch(kind.gvk, name, Patch(PatchType.MERGE, wanted), manager="control-plane")
        else:
            identity = {"apiVersion": kind.gvk.api_version, "kind": "Gadget", "metadata": {"name": name}}
            await client.apply({**identity, **wanted}, manager="control-plane", force=True)
        after = await client.get(kind.gvk, name)
        assert after["spec"]["size"] == wanted["spec"]["size"]
        assert without_size(after) == without_size(before)
        # The field meant has another manager now; whatever else somebody managed is theirs still.
        theirs = managed_by_others(after)
        assert [each["manager"] for each in theirs] == [each["manager"] for each in managed_by_others(before)]


@case("typed-absent-null-empty")
async def test_absent_null_and_empty_are_three_things(client: Client) -> None:
    notes: dict[str, Any] = {"absent": {}, "null": {"note": None}, "empty": {"note": ""}}
    found = {}
    for word, spec in notes.items():
        obj = {**gadget(Random(1)), "spec": spec}
        await client.create(obj)
        seen = await typed.get(client, Gadget, obj["metadata"]["name"])
        assert seen.spec
        found[word] = seen.spec.note
    assert found == {"absent": UNSET, "null": None, "empty": ""}


@case("typed-defaults")
async def test_a_default_is_the_schemas_and_not_the_readers(client: Client) -> None:
    stored = await client.create({**gadget(Random(1)), "spec": {}})
    seen = await typed.get(client, Gadget, stored["metadata"]["name"])
    assert seen.spec
    assert seen.spec.size == 1
    assert GadgetSpec().size is UNSET


@case("typed-errors")
async def test_what_is_not_there_is_not_found_and_what_is_not_as_declared_says_where(client: Client) -> None:
    with pytest.raises(NotFound):
        await typed.get(client, Gadget, "nobody")
    assert await typed.find(client, Gadget, "nobody") is None
    stored = await client.create(gadget(Random(1)))
    name = stored["metadata"]["name"]
    with pytest.raises(ObjectUnreadable, match=f'Gadget "{name}" cannot be read: Expected `str`.*`spec`'):
        await typed.get(client, OtherIdea, name)


@case("typed-lists")
async def test_all_of_a_kind_can_be_listed(client: Client) -> None:
    label = f"l-{uuid4().hex[:8]}"
    for _ in range(3):
        obj = gadget(Random(2))
        obj["metadata"]["labels"] = {"list": label}
        await client.create(obj)
    listed = await typed.list_all(client, Gadget, labels=f"list={label}")
    assert len(listed) == 3
    assert all(each.metadata.label("list") == label for each in listed)
