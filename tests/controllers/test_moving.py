"""A control plane moves from one engine to the other and back, and its controllers find everything as they left it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, CRD, SECRET, XRD
from planform.app import open_at_rest
from planform.assembly import Parts, open_controllers
from planform.client.protocol import Client, Patch, PatchType
from planform.clock import SystemClock
from planform.compositions.controller import COUNTS_EVERY
from planform.errors import NotFound
from planform.moving.archive import read_archive, write_archive
from planform.moving.contents import Contents, Identity, identity_of
from planform.moving.exporting import export_everything, export_reachable
from planform.moving.importing import AlreadyThere, Imported, import_contents
from planform.reconcile.context import ControllerContext
from tests.controllers.stage import ANYTHING
from tests.faults.test_at_rest import total
from tests.harness.contexts import (
    NAMESPACE,
    all_controllers,
    embedded_context,
    eventually,
    kubernetes_context,
    read,
    until_condition,
)
from tests.harness.kubernetes import RealKubernetes

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
PASSWORD = "cGFzc3dvcmQtb2YtYWxs"  # base64, as Secrets carry it
PASSPHRASE = b"correct horse"


class World:
    """A platform in an API group of its own: claims of XRs of XRs, revisions, and connection Secrets."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.claim_kind = GroupVersionKind(group, "v1", "App")
        self.xr_kind = GroupVersionKind(group, "v1", "XApp")
        self.inner_kind = GroupVersionKind(group, "v1", "XDatabase")
        self.namespace = group.partition(".")[0]

    def definition(self, kind: str, claim: str = "") -> Object:
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}}
        version = {"name": "v1", "served": True, "referenceable": True, "schema": schema}
        spec: Object = {"group": self.group, "names": names(kind), "versions": [version]}
        if claim:
            spec |= {"claimNames": names(claim), "connectionSecretKeys": ["password"]}
        return {
            "apiVersion": "apiextensions.crossplane.io/v1",
            "kind": XRD.kind,
            "metadata": {"name": f"{names(kind)['plural']}.{self.group}"},
            "spec": spec,
        }

    def composition(self, kind: str, resources: Sequence[Object], **labels: str) -> Object:
        return {
            "apiVersion": COMPOSITION.api_version,
            "kind": COMPOSITION.kind,
            "metadata": {"name": f"{kind.lower()}-{self.namespace}", "labels": labels},
            "spec": {
                "compositeTypeRef": {"apiVersion": f"{self.group}/v1", "kind": kind},
                "mode": "Resources",
                "writeConnectionSecretsToNamespace": self.namespace,
                "resources": list(resources),
            },
        }

    def outer(self, **labels: str) -> Object:
        inner = {
            "name": "database",
            "base": {"apiVersion": f"{self.group}/v1", "kind": "XDatabase", "spec": {"size": 1}},
        }
        return self.composition("XApp", [part("shelf", self.namespace), inner], **labels)

    @property
    def claim(self) -> Object:
        return {
            "apiVersion": self.claim_kind.api_version,
            "kind": self.claim_kind.kind,
            "metadata": {"name": "mine", "namespace": self.namespace, "annotations": {"team": "web"}},
            "spec": {"size": 3, "writeConnectionSecretToRef": {"name": "mine-login"}},
        }

    async def build(self, client: Client) -> None:
        """Everything is ready, and the Composition has had three versions."""
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        for definition in (self.definition("XDatabase"), self.definition("XApp", "App")):
            await client.apply(definition, manager="team")
            await until_condition(client, {**definition, "apiVersion": XRD.api_version}, "Established")
        await client.apply(self.composition("XDatabase", [part("disk", self.namespace)]), manager="team")
        for channel in ("one", "two", "three"):
            await client.apply(self.outer(channel=channel), manager="team", force=True)
            await self._until_revisions(client, channel)
        await until_condition(client, {**self.definition("XApp"), "apiVersion": XRD.api_version}, "Offered")
        await client.create(self.claim, manager="team")
        await until_condition(client, self.claim, "Ready")

        async def published() -> Object | None:
            return await read(client, SECRET, "mine-login", self.namespace)

        secret = await eventually(published, "the claim's Secret is there")
        assert secret["data"] == {"password": PASSWORD}

    async def _until_revisions(self, client: Client, channel: str) -> None:
        async def made() -> bool:
            labels = f"channel={channel},crossplane.io/composition-name={self.outer()['metadata']['name']}"
            return bool((await client.list(COMPOSITION_REVISION, labels=labels)).items)

        await eventually(made, f"there is a revision of channel {channel}")

    async def objects(self, client: Client) -> dict[Identity, Object]:
        """All that the world consists of, as it is stored."""
        found: list[Object] = []
        for kind in (self.claim_kind, self.xr_kind, self.inner_kind):
            found += (await client.list(kind)).items
        for kind in (SECRET, CONFIG_MAP):
            found += (await client.list(kind, namespace=self.namespace)).items
        found = [obj for obj in found if obj["metadata"]["name"] != "kube-root-ca.crt"]
        for kind in (XRD, CRD, COMPOSITION, COMPOSITION_REVISION):
            found += [obj for obj in (await client.list(kind)).items if self.group in str(obj)]
        return {identity_of(obj): obj for obj in found}


def part(name: str, namespace: str) -> Object:
    """Something that is composed, and is ready once it is there."""
    return {
        "name": name,
        "base": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace}, "data": {"is": name}},
        "readinessChecks": [{"type": "None"}],
        "connectionDetails": [{"name": "password", "type": "FromValue", "value": "password-of-all"}],
    }


def names(kind: str) -> dict[str, str]:
    return {"kind": kind, "plural": f"{kind.lower()}s"}


def without_server_metadata(obj: Object) -> Any:
    """What an object says: neither who wrote it and when, nor which uids there are."""
    metadata = {
        key: value
        for key, value in obj["metadata"].items()
        if key in ("name", "namespace", "labels", "annotations", "finalizers")
    }
    metadata["owners"] = [(each["kind"], each["name"]) for each in obj["metadata"].get("ownerReferences") or ()]
    kept = {key: value for key, value in obj.items() if key not in ("metadata", "status")}
    status = None if obj["kind"] == CRD.kind else without_generations(obj.get("status"))
    return {**kept, "metadata": metadata, "status": status}


def without_generations(value: Any) -> Any:
    if isinstance(value, dict):
        counted = ("observedGeneration", "generation")
        return {key: without_generations(item) for key, item in value.items() if key not in counted}
    return [without_generations(item) for item in value] if isinstance(value, list) else value


async def check_rest(context: ControllerContext, world: World, moved: Imported, before: dict[Identity, Object]) -> None:
    """Controllers come, look at everything, and write nothing of it."""
    there = await world.objects(context.client)
    assert {name: without_server_metadata(obj) for name, obj in there.items()} == {
        name: without_server_metadata(obj) for name, obj in before.items()
    }
    assert {obj["metadata"]["uid"] for obj in there.values()} <= set(moved.uids.values()), "no other objects"
    parts = Parts(
        client=context.client,
        manager=context.manager,
        clock=context.clock,
        rng=context.rng,
        limiter=context.limiter,
        metrics=context.metrics,
    )
    async with open_controllers(parts):
        await until_quiet(context, world)
        after = await world.objects(context.client)
        assert after.keys() == there.keys(), "nothing was made anew and nothing taken away"
        rewritten = {
            str(name): list(differences(there[name], obj))
            for name, obj in after.items()
            if obj["metadata"]["resourceVersion"] != there[name]["metadata"]["resourceVersion"]
        }
        assert not rewritten, "rewritten:\n" + "\n".join(f"{name} {what}" for name, what in rewritten.items())


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two values differ, in words."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif one != other:
        yield f"{path}: {one} -> {other}"


async def until_quiet(context: ControllerContext, world: World) -> None:
    """All XRs were looked at, and then nothing happened for a while."""

    async def check() -> bool:
        if total(context.metrics, "planform_reconcile_total", f'controller="composite/xapps.{world.group}"') < 1:
            return False
        before = total(context.metrics, "planform_reconcile_total")
        await asyncio.sleep(1.5 * COUNTS_EVERY)
        return total(context.metrics, "planform_reconcile_total") == before

    await eventually(check, "the controllers have nothing left to do")


async def take_away(client: Client, world: World) -> None:
    """Leave a shared cluster as it was found, at once: its collector looks for new kinds every half minute only."""
    for name, obj in (await world.objects(client)).items():
        if obj["metadata"].get("finalizers") and name.kind != CRD.kind:
            patch = Patch(PatchType.MERGE, {"metadata": {"finalizers": None}})
            await client.patch(gvk_of(obj), name.name, patch, namespace=name.namespace)
    for name, obj in (await world.objects(client)).items():
        with suppress(NotFound):
            await client.delete(gvk_of(obj), name.name, namespace=name.namespace)
    await client.delete(NAMESPACE, world.namespace)


async def exported(directory: Path) -> Contents:
    async with open_at_rest(directory) as plane:
        return await export_everything(plane.client, plane.kinds())


@pytest.mark.kubernetes
@pytest.mark.xdist_group("kubernetes")
async def test_a_control_plane_moves_to_a_cluster_and_back_and_nobody_notices(
    kubernetes_engine: RealKubernetes, tmp_path: Path, unique: str
) -> None:
    world = World(f"{unique}.example.org")
    home, other, archive = tmp_path / "home", tmp_path / "other", tmp_path / "there.tar.gz"
    async with embedded_context(home / "store") as context, all_controllers(context):
        await world.build(context.client)
        await until_quiet(context, world)
        before = await world.objects(context.client)
    write_archive(archive, await exported(home), made="now", passphrase=PASSPHRASE)

    contents = read_archive(archive, passphrase=PASSPHRASE)
    async with kubernetes_context(kubernetes_engine) as context:
        planned = await import_contents(context.client, contents, clock=SystemClock(), dry_run=True)
        assert {step.outcome for step in planned.steps if world.group in str(step.identity)} == {"created"}
        assert await read(context.client, XRD, f"xapps.{world.group}") is None, "a dry run is dry"
        moved = await import_contents(context.client, contents, clock=SystemClock())
        again = await import_contents(context.client, contents, clock=SystemClock())
        assert {step.outcome for step in again.steps} == {"unchanged"}
        back = await export_reachable(context.client)
        await check_rest(context, world, moved, before)
    async with kubernetes_context(kubernetes_engine) as context:
        await take_away(context.client, world)

    ours = tuple(obj for obj in back.objects if world.namespace in str(identity_of(obj)) or world.group in str(obj))
    write_archive(tmp_path / "back", Contents("kubernetes", ours), made="now")
    async with open_at_rest(other) as plane:
        returned = await import_contents(plane.client, read_archive(tmp_path / "back"), clock=SystemClock())
    async with embedded_context(other / "store") as context:
        await check_rest(context, world, returned, before)


async def test_an_interrupted_import_is_completed_by_doing_it_again(
    tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(f"{unique}.example.org")
    async with embedded_context(tmp_path / "home" / "store") as context, all_controllers(context):
        await world.build(context.client)
        await until_quiet(context, world)
        before = await world.objects(context.client)
    contents = await exported(tmp_path / "home")

    async with open_at_rest(tmp_path / "other") as plane:
        interrupted = Interrupted(plane.client, after=len(contents.objects) // 2)
        with pytest.raises(asyncio.CancelledError):
            await import_contents(interrupted, contents, clock=SystemClock())
        moved = await import_contents(plane.client, contents, clock=SystemClock())
        assert {step.outcome for step in moved.steps} >= {"created", "unchanged"}
        assert "changed" not in {step.outcome for step in moved.steps}
    async with embedded_context(tmp_path / "other" / "store") as context:
        await check_rest(context, world, moved, before)


class Interrupted:
    """A client that somebody stops after so many writes of status."""

    def __init__(self, client: Client, *, after: int) -> None:
        self._client = client
        self._left = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def patch(self, *arguments: Any, **more: Any) -> Object:
        self._left -= 1
        if self._left < 0:
            raise asyncio.CancelledError
        return await self._client.patch(*arguments, **more)


async def test_objects_that_say_something_else_are_not_written_over_unless_told(tmp_path: Path, unique: str) -> None:
    async with open_at_rest(tmp_path / "home") as plane:
        for name, value in (("same", "1"), ("other", "1")):
            await plane.client.create(config_map(name, value))
        contents = await export_everything(plane.client, plane.kinds())
    async with open_at_rest(tmp_path / "away") as plane:
        await plane.client.create(config_map("other", "2"))
        with pytest.raises(AlreadyThere, match="ConfigMap default/other differs in data"):
            await import_contents(plane.client, contents, clock=SystemClock())
        with pytest.raises(NotFound):
            await plane.client.get(gvk_of(config_map("same", "")), "same", namespace="default")
        done = await import_contents(plane.client, contents, clock=SystemClock(), overwrite=True)
        outcomes = {step.identity.name: step.outcome for step in done.steps if step.identity.kind == "ConfigMap"}
        assert outcomes == {"same": "created", "other": "changed"}
        found = await plane.client.get(gvk_of(config_map("other", "")), "other", namespace="default")
        assert found["data"] == {"value": "1"}


def config_map(name: str, value: str) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}
