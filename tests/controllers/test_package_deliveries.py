"""What packages brought, and others delete or change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import COMPOSITION, CONFIGURATION, CONFIGURATION_REVISION, CRD, PACKAGE_LABEL, PAUSED_ANNOTATION
from planform.client.protocol import Patch, PatchType
from planform.errors import NotFound
from planform.packages.deliveries import Address, Deliveries
from planform.reconcile.context import ControllerContext
from tests.controllers.test_packages import input_crd
from tests.harness.contexts import condition_of, eventually, read
from tests.harness.packaging import REPOSITORY, Installation, composition, installing, meta, server_program

HOME = "registry.example.org/acme"


@pytest.fixture
async def installation(context: ControllerContext, tmp_path: Path) -> AsyncIterator[Installation]:
    async with installing(context, tmp_path / "data") as installation:
        yield installation


async def install(installation: Installation, name: str, **spec: Any) -> Object:
    """A Configuration that brings a Composition of its own name; gives that."""
    brought = composition(name)
    brought["metadata"]["labels"] = {"team": "red"}
    installation.publish(f"{HOME}/{name}:v1", None, about=meta("Configuration", name), objects=[brought])
    await installation.install(f"{HOME}/{name}:v1", kind="Configuration", name=name, **spec)
    await installation.until("Healthy", "True", name=name, kind=CONFIGURATION)
    return await installation.context.client.get(COMPOSITION, name)


async def until_back(installation: Installation, before: Object) -> Object:
    """Wait until an object that was deleted has a successor."""
    metadata = before["metadata"]

    async def check() -> Object | None:
        found = await read(installation.context.client, COMPOSITION, metadata["name"])
        return found if found is not None and found["metadata"]["uid"] != metadata["uid"] else None

    return await eventually(check, f"{metadata['name']} is there again")


async def until_looked_at_again(installation: Installation, name: str, type_: str) -> None:
    """Edit a Configuration, and wait until what is said of it is about the edit."""
    client = installation.context.client
    edited = await client.patch(CONFIGURATION, name, Patch(PatchType.MERGE, {"spec": {"revisionHistoryLimit": 7}}))

    async def check() -> bool:
        condition = condition_of(await client.get(CONFIGURATION, name), type_) or {}
        return bool(condition.get("observedGeneration") == edited["metadata"]["generation"])

    await eventually(check, f"{name} was looked at again")


async def test_a_deleted_object_of_a_package_is_there_again_at_once(installation: Installation) -> None:
    before = await install(installation, "app")
    for _ in range(2):
        await installation.context.client.delete(COMPOSITION, "app")
        before = await until_back(installation, before)
    assert before["metadata"]["labels"]["team"] == "red"
    assert [each["kind"] for each in before["metadata"]["ownerReferences"]] == [
        "ConfigurationRevision",
        "Configuration",
    ]


async def test_a_deleted_kind_of_a_function_is_there_again_at_once(installation: Installation) -> None:
    client = installation.context.client
    installation.publish(f"{REPOSITORY}:v1", server_program("v1"), objects=[input_crd()])
    await installation.install("v1")
    await installation.until("Healthy", "True")
    before = await client.get(CRD, "settings.fn.example.org")
    await client.delete(CRD, "settings.fn.example.org")

    async def back() -> bool:
        found = await read(client, CRD, "settings.fn.example.org")
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    await eventually(back, "the kind is there again")


@pytest.mark.parametrize(
    ("change", "is_put_right"),
    [
        pytest.param(
            {"spec": {"pipeline": [{"step": "mine", "functionRef": {"name": "function-auto-ready"}}]}},
            lambda found: found["spec"]["pipeline"][0]["step"] == "ready",
            id="content",
        ),
        pytest.param(
            {"metadata": {"labels": {"team": None}}},
            lambda found: (found["metadata"].get("labels") or {}).get("team") == "red",
            id="label",
        ),
        pytest.param(
            {"metadata": {"ownerReferences": None}},
            lambda found: len(found["metadata"].get("ownerReferences") or ()) == 2,
            id="owners",
        ),
    ],
)
async def test_what_others_change_of_it_is_put_right_and_what_they_add_stays(
    installation: Installation, change: Object, is_put_right: Callable[[Object], bool]
) -> None:
    await install(installation, "app")
    client, mine = installation.context.client, {"metadata": {"annotations": {"example.org/mine": "yes"}}}
    await client.patch(COMPOSITION, "app", Patch(PatchType.MERGE, mine))
    changed = await client.patch(COMPOSITION, "app", Patch(PatchType.MERGE, change))
    assert not is_put_right(changed)

    async def put_right() -> Object | None:
        found = await client.get(COMPOSITION, "app")
        return found if is_put_right(found) else None

    found = await eventually(put_right, "it is as the package brought it")
    assert found["metadata"]["annotations"]["example.org/mine"] == "yes"
    assert found["metadata"]["uid"] == changed["metadata"]["uid"]


async def test_what_went_with_an_uninstalled_package_does_not_come_back(installation: Installation) -> None:
    client = installation.context.client
    await install(installation, "app")
    other = await install(installation, "other")
    await client.delete(CONFIGURATION, "app")

    async def gone() -> bool:
        if await read(client, CONFIGURATION, "app") is not None:
            return False
        if await read(client, COMPOSITION, "app") is not None:
            with suppress(NotFound):  # the collector of a real cluster may be quicker
                await client.delete(COMPOSITION, "app")
        return await read(client, COMPOSITION, "app") is None

    await eventually(gone, "the package and what it brought are gone")
    await client.delete(COMPOSITION, "other")  # of which is heard later
    await until_back(installation, other)
    assert await read(client, COMPOSITION, "app") is None


async def test_what_an_inactive_revision_brought_stays_away_until_it_is_active_again(
    installation: Installation,
) -> None:
    client = installation.context.client
    installation.publish(f"{HOME}/app:v1", None, about=meta("Configuration", "app"), objects=[composition("app")])
    await installation.install(f"{HOME}/app:v1", kind="Configuration", name="app", revisionActivationPolicy="Manual")
    await installation.until("Installed", "False", name="app", kind=CONFIGURATION)
    [revision] = (await client.list(CONFIGURATION_REVISION, labels=f"{PACKAGE_LABEL}=app")).items

    async def set_state(state: str, installed: str) -> None:
        change = Patch(PatchType.MERGE, {"spec": {"desiredState": state}})
        await client.patch(CONFIGURATION_REVISION, revision["metadata"]["name"], change)
        await installation.until("Installed", installed, name="app", kind=CONFIGURATION)

    await set_state("Active", "True")
    brought = await client.get(COMPOSITION, "app")
    await set_state("Inactive", "False")
    await client.delete(COMPOSITION, "app")
    await until_looked_at_again(installation, "app", "Installed")
    assert await read(client, COMPOSITION, "app") is None
    await set_state("Active", "True")
    await until_back(installation, brought)


async def test_what_is_deleted_of_a_paused_package_comes_back_when_it_goes_on(installation: Installation) -> None:
    client, before = installation.context.client, await install(installation, "app")
    paused = {"metadata": {"annotations": {PAUSED_ANNOTATION: "true"}}}
    await client.patch(CONFIGURATION, "app", Patch(PatchType.MERGE, paused))
    await installation.until("Synced", "False", name="app", kind=CONFIGURATION)
    await client.delete(COMPOSITION, "app")
    await until_looked_at_again(installation, "app", "Synced")
    assert await read(client, COMPOSITION, "app") is None
    resumed = {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}}
    await client.patch(CONFIGURATION, "app", Patch(PatchType.MERGE, resumed))
    await until_back(installation, before)


async def test_what_is_heard_of_an_object_on_its_way_is_told_from_an_echo(
    context: ControllerContext, unique: str
) -> None:
    """An echo asks for nothing; a deletion that is heard of before its creation was answered does."""
    deliveries, heard = Deliveries(context.manager, context.clock), list[tuple[str, str]]()
    deliveries.subscribe(lambda kind, name: heard.append((kind, name)))
    await deliveries.watch([COMPOSITION])
    owner = {"apiVersion": "example.org/v1", "kind": "Owner", "name": "owner", "uid": unique}
    revision = {"kind": "ConfigurationRevision", "metadata": {"uid": unique, "labels": {PACKAGE_LABEL: "app"}}}
    kept, lost = composition(f"{unique}-kept"), composition(f"{unique}-lost")
    for wanted in (kept, lost):
        wanted["metadata"] |= {"labels": {}, "annotations": {}, "ownerReferences": [owner]}
        with deliveries.bringing(Address(COMPOSITION, wanted["metadata"]["name"])):
            stored = await context.client.create(wanted)
            if wanted is lost:
                await context.client.delete(COMPOSITION, lost["metadata"]["name"])
            deliveries.brought(revision, wanted, stored)

    async def told() -> bool:
        return bool(heard)

    await eventually(told, "the deletion")
    assert heard == [("Configuration", "app")]
    assert deliveries.undone(unique) == {Address(COMPOSITION, f"{unique}-lost")}
    await context.client.delete(COMPOSITION, kept["metadata"]["name"])
