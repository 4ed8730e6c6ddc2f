"""The tree that `planform trace` draws, read from either engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import COMPOSITION, COMPOSITION_NAME_LABEL, COMPOSITION_REVISION, CRD
from planform.api.xr import RESOURCE_NAME_ANNOTATION
from planform.cli.objects.drawing import as_text, as_value
from planform.client.protocol import Client
from planform.client.resource_tree import Looking, Node, Target, changing_trees
from planform.errors import ApiError, NotFound, ServiceUnavailable
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import eventually, until_condition

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")


class World:
    """A group of kinds of its own, and objects in it."""

    def __init__(self, client: Client, unique: str) -> None:
        self.client = client
        self.unique = unique
        self.group = f"{unique}.example.org"
        self.made: list[Object] = []

    def gvk(self, kind: str) -> GroupVersionKind:
        return GroupVersionKind(self.group, "v1", kind)

    async def serve(self, kind: str, *, namespaced: bool) -> None:
        plural = f"{kind.lower()}s"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        crd: Object = {
            "apiVersion": CRD.api_version,
            "kind": CRD.kind,
            "metadata": {"name": f"{plural}.{self.group}"},
            "spec": {
                "group": self.group,
                "scope": "Namespaced" if namespaced else "Cluster",
                "names": {"plural": plural, "kind": kind},
                "versions": [version],
            },
        }
        self.made.append(await self.client.create(crd))
        await until_condition(self.client, crd, "Established")
        await eventually(lambda: self._discovered(self.gvk(kind)), f"{kind} is discovered")  # a little later

    async def _discovered(self, gvk: GroupVersionKind) -> bool:
        try:
            await self.client.kind(gvk)
        except NotFound:
            return False
        return True

    async def create(self, kind: GroupVersionKind, name: str, namespace: str = "", **fields: Any) -> Object:
        metadata = {"name": f"{self.unique}-{name}", **fields.pop("metadata", {})}
        if namespace:
            metadata["namespace"] = namespace
        obj = await self.client.create(
            {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
        )
        self.made.append(obj)
        return obj

    def ref(self, kind: GroupVersionKind, name: str, **more: str) -> dict[str, str]:
        return {"apiVersion": kind.api_version, "kind": kind.kind, "name": f"{self.unique}-{name}", **more}

    async def tree(self, obj: Object, **options: Any) -> Node:
        return await Looking(self.client, **options).tree(target(obj))

    async def remove(self) -> None:
        for obj in reversed(self.made):
            try:
                await self.client.delete(
                    gvk_of(obj), obj["metadata"]["name"], namespace=obj["metadata"].get("namespace", "")
                )
            except NotFound:
                continue


def target(obj: Object) -> Target:
    return Target(gvk_of(obj), obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


@pytest.fixture
async def world(context: ControllerContext, unique: str) -> AsyncIterator[World]:
    world = World(context.client, unique)
    await asyncio.gather(
        world.serve("App", namespaced=True), world.serve("XNet", namespaced=False), world.serve("Net", namespaced=True)
    )
    yield world
    await world.remove()


def condition(type_: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "message": message}


READY = {"conditions": [condition("Synced", "True", "ReconcileSuccess"), condition("Ready", "True", "Available")]}


async def test_the_tree_of_an_xr_shows_composed_resources_nested_xrs_and_what_is_missing(world: World) -> None:
    app, config = world.gvk("App"), CONFIG_MAP
    unready = {"conditions": [condition("Synced", "True", "ReconcileSuccess"), condition("Ready", "False", "Creating")]}
    await world.create(config, "a", "default", metadata={"annotations": {RESOURCE_NAME_ANNOTATION: "settings"}})
    await world.create(config, "deep", "default")
    nested = {"crossplane": {"resourceRefs": [world.ref(config, "deep")]}}
    await world.create(app, "nested", "default", spec=nested, status=unready)
    refs = [world.ref(config, "missing"), world.ref(app, "nested"), world.ref(config, "a")]
    root = await world.create(
        app,
        "top",
        "default",
        spec={"crossplane": {"resourceRefs": refs, "compositionRevisionRef": {"name": "apps-abc"}}},
        status=READY,
    )
    tree = await world.tree(root)
    u = world.unique
    lines = [line.split(maxsplit=99) for line in as_text([tree]).splitlines()]
    assert lines[0] == ["NAME", "SYNCED", "READY", "STATUS"]
    assert lines[1] == [f"App/{u}-top", "(default)", "True", "True", "Available"]
    assert lines[2] == ["├─", f"App/{u}-nested", "(default)", "True", "False", "Creating"]
    assert lines[3] == ["│", "└─", f"ConfigMap/{u}-deep", "(default)", "-", "-", "-"]
    assert lines[4] == ["├─", f"ConfigMap/{u}-a", "(default)", "-", "-", "-"]
    assert lines[5][:6] == ["└─", f"ConfigMap/{u}-missing", "(default)", "-", "-", "Error:"]
    assert "not found" in as_text([tree])
    wide = as_text([tree], wide=True)
    assert "settings" in wide
    assert "apps-abc" in wide


async def test_the_tree_of_a_claim_leads_over_its_cluster_scoped_xr_to_namespaced_resources(world: World) -> None:
    config, claim, xr = CONFIG_MAP, world.gvk("Net"), world.gvk("XNet")
    await world.create(config, "a", "default")
    secret = {"writeConnectionSecretToRef": {"name": f"{world.unique}-conn", "namespace": "default"}}
    await world.create(xr, "x", spec={"resourceRefs": [world.ref(config, "a", namespace="default")], **secret})
    root = await world.create(
        claim,
        "mine",
        "default",
        spec={"resourceRef": world.ref(xr, "x"), "writeConnectionSecretToRef": {"name": f"{world.unique}-mine"}},
    )
    secret_kind = GroupVersionKind("", "v1", "Secret")
    await world.create(secret_kind, "conn", "default", stringData={"password": "hunter2"})
    tree = await world.tree(root)
    assert [str(node.target) for node in tree.walk()] == [
        f"Net/{world.unique}-mine (default)",
        f"XNet/{world.unique}-x",
        f"ConfigMap/{world.unique}-a (default)",
    ]
    with_secrets = await world.tree(root, secrets=True)
    shown = {str(node.target): node for node in with_secrets.walk()}
    found = shown[f"Secret/{world.unique}-conn (default)"]
    assert found.object is not None
    assert "data" not in found.object
    assert shown[f"Secret/{world.unique}-mine (default)"].state.startswith("Error: ")


async def test_xrs_that_refer_to_each_other_end_where_the_circle_closes(world: World) -> None:
    app = world.gvk("App")
    await world.create(app, "b", "default", spec={"crossplane": {"resourceRefs": [world.ref(app, "a")]}})
    root = await world.create(app, "a", "default", spec={"crossplane": {"resourceRefs": [world.ref(app, "b")]}})
    tree = await world.tree(root)
    assert len(list(tree.walk())) == 3
    assert "refers to itself" in tree.children[0].children[0].state


async def test_a_child_of_an_unknown_kind_and_one_being_deleted_say_so(world: World) -> None:
    app = world.gvk("App")
    child = await world.create(app, "going", "default", metadata={"finalizers": ["example.org/wait"]})
    await world.client.delete(app, child["metadata"]["name"], namespace="default")
    unknown = world.ref(GroupVersionKind("nobody.example.org", "v1", "Thing"), "x")
    root = await world.create(
        app, "top", "default", spec={"crossplane": {"resourceRefs": [world.ref(app, "going"), unknown]}}
    )
    try:
        tree = await world.tree(root)
    finally:
        going = await world.client.get(app, child["metadata"]["name"], namespace="default")
        going["metadata"]["finalizers"] = []
        await world.client.update(going)
    states = {node.target.gvk.kind: node.state for node in tree.children}
    assert states["App"] == "Deleting"
    assert states["Thing"].startswith("Error: no ")
    assert '"Thing"' in states["Thing"]
    problems = {child["object"]["kind"]: child.get("error", {}).get("reason") for child in as_value(tree)["children"]}
    assert problems == {"App": None, "Thing": "NotFound"}


async def test_a_composition_shows_the_revisions_it_owns_and_no_others(world: World) -> None:
    spec: Object = {
        "compositeTypeRef": {"apiVersion": f"{world.group}/v1", "kind": "App"},
        "mode": "Pipeline",
        "pipeline": [{"step": "a", "functionRef": {"name": "f"}}],
    }
    root = await world.create(COMPOSITION, "comp", spec=spec)
    name, uid = root["metadata"]["name"], root["metadata"]["uid"]
    owner = {"apiVersion": COMPOSITION.api_version, "kind": COMPOSITION.kind, "name": name, "uid": uid}
    labels = {COMPOSITION_NAME_LABEL: name}
    revision: dict[str, Any] = {"spec": {**spec, "revision": 1}, "metadata": {"labels": labels}}
    await world.create(COMPOSITION_REVISION, "other", **revision)
    owned = {**revision, "metadata": {"labels": labels, "ownerReferences": [owner]}}
    await world.create(COMPOSITION_REVISION, "one", **owned)
    tree = await world.tree(root)
    assert [child.target.name for child in tree.children] == [f"{world.unique}-one"]


async def test_what_does_not_exist_has_no_tree(world: World) -> None:
    with pytest.raises(NotFound):
        await Looking(world.client).tree(Target(world.gvk("App"), "default", "nobody"))
    with pytest.raises(NotFound):
        await anext(changing_trees(Looking(world.client), Target(world.gvk("App"), "default", "nobody")))


async def test_a_watched_tree_is_drawn_again_on_changes_anywhere_in_it_and_ends_with_its_root(world: World) -> None:
    app = world.gvk("App")
    refs = {"crossplane": {"resourceRefs": [world.ref(CONFIG_MAP, "late")]}}
    root = await world.create(app, "top", "default", spec=refs)
    async with asyncio.timeout(20), aclosing(changing_trees(Looking(world.client), target(root))) as trees:
        first = await anext(trees)
        assert first.children[0].state.startswith("Error: ")
        await world.create(CONFIG_MAP, "late", "default")
        while (tree := await anext(trees)).children[0].error is not None:
            continue
        fresh = await world.client.get(app, root["metadata"]["name"], namespace="default")
        await world.client.update({**fresh, "status": READY})
        while (tree := await anext(trees)).ready != "True":
            continue
        assert tree.state == "Available"
        await world.client.delete(app, root["metadata"]["name"], namespace="default")
        with pytest.raises(StopAsyncIteration):
            while True:
                await anext(trees)


class Flaky:
    """The world's client, whose server is away for a while."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(self, *args: Any, **options: Any) -> Object:
        if self.is_away:
            raise ServiceUnavailable("connection refused")
        return await self._client.get(*args, **options)


async def test_a_watched_tree_outlives_a_server_that_goes_away_and_says_so_once(world: World) -> None:
    root = await world.create(CONFIG_MAP, "top", "default")
    client, told = Flaky(world.client), list[str]()

    def lost(error: ApiError | None) -> None:
        told.append("back" if error is None else error.message)
        if error is not None:
            asyncio.get_running_loop().call_later(1.5, setattr, client, "is_away", False)

    looking: Any = Looking(client)
    async with asyncio.timeout(20), aclosing(changing_trees(looking, target(root), lost)) as trees:
        await anext(trees)
        following = asyncio.ensure_future(anext(trees))
        await asyncio.sleep(0.2)
        client.is_away = True
        await world.client.update({**root, "data": {"x": "1"}})
        tree = await following
        assert tree.object is not None
        assert tree.object["data"] == {"x": "1"}
    assert told == ["connection refused", "back"]
