"""XRs that compose XRs: a change of either Composition is followed down, and each XR is answered for once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from planform.api.kinds import Object
from planform.api.previews import ObjectChange
from planform.preview.sessions import Findings
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform
from tests.preview.fleets import READY, Previews, actions, config_map, patched, previews


@asynccontextmanager
async def nested(context: ControllerContext, unique: str) -> AsyncIterator[tuple[Previews, Platform, Platform]]:
    """A parent that composes an XR of another kind, which composes a ConfigMap."""
    async with previews(context, unique) as asked:
        parent = asked.platform
        child = Platform(parent.client, f"{unique}-child", controllers=parent.controllers)
        await child.define()
        await child.compose(patched(config_map("web")), READY)
        await parent.compose(patched(composed(child, "child", "1")), READY)
        await asked.fleet(2)
        yield asked, parent, child


def composed(child: Platform, resource: str, size: str) -> Object:
    base = {"apiVersion": child.kind.api_version, "kind": child.kind.kind, "spec": {"size": size}}
    return {"name": resource, "base": base, "readinessChecks": [{"type": "None"}]}


def by_kind(found: Findings) -> dict[str, set[str]]:
    """The names of XRs by kind; each has one entry."""
    assert len({(each.kind, each.name) for each in found.entries}) == len(found.entries)
    kinds: dict[str, set[str]] = {}
    for each in found.entries:
        kinds.setdefault(each.kind, set()).add(each.name)
    return kinds


def changes_of(found: Findings, platform: Platform) -> tuple[ObjectChange, ...]:
    """What happens to every XR of a kind, which is the same."""
    [its] = {each.class_ for each in found.entries if each.kind == f"App.{platform.group}"}
    return next(each.changes for each in found.classes.classes() if each.id == its)


def fields_of(changes: tuple[ObjectChange, ...], resource: str) -> set[tuple[str, object, object]]:
    [one] = [each for each in changes if each.resource == resource]
    return {(each.path, each.before, each.after) for each in one.fields}


async def test_a_change_of_the_childs_composition_is_the_childs(context: ControllerContext, unique: str) -> None:
    async with nested(context, unique) as (asked, _, child):
        found = await asked.of(child.composition(patched(config_map("web", {"fixed": "2"})), READY))
        assert set(by_kind(found)) == {f"App.{child.group}"}
        [one] = found.classes.classes()
        assert (one.xrs, one.change) == (2, 'ConfigMap "web": data.fixed  1 -> 2')


async def test_a_change_of_the_parents_composition_is_followed_into_the_child(
    context: ControllerContext, unique: str
) -> None:
    async with nested(context, unique) as (asked, parent, child):
        found = await asked.of(parent.composition(patched(composed(child, "child", "7")), READY))
        kinds = by_kind(found)
        assert {kind: len(names) for kind, names in kinds.items()} == {
            f"App.{parent.group}": 2,
            f"App.{child.group}": 2,
        }
        assert actions(changes_of(found, parent)) == {"child": "Update"}
        assert fields_of(changes_of(found, child), "web") == {("data.size", "1", "7")}


async def test_a_change_of_both_compositions_gives_each_xr_one_answer_with_both(
    context: ControllerContext, unique: str
) -> None:
    async with nested(context, unique) as (asked, parent, child):
        found = await asked.of(
            parent.composition(patched(composed(child, "child", "7")), READY),
            child.composition(patched(config_map("web", {"fixed": "2"})), READY),
        )
        assert {kind: len(names) for kind, names in by_kind(found).items()} == {
            f"App.{parent.group}": 2,
            f"App.{child.group}": 2,
        }
        assert fields_of(changes_of(found, child), "web") == {("data.size", "1", "7"), ("data.fixed", "1", "2")}


async def test_a_renamed_child_goes_with_all_that_it_composes(context: ControllerContext, unique: str) -> None:
    async with nested(context, unique) as (asked, parent, child):
        found = await asked.of(parent.composition(patched(composed(child, "renamed", "1")), READY))
        assert set(by_kind(found)) == {f"App.{parent.group}"}
        assert actions(changes_of(found, parent)) == {
            "child": "Delete",
            "child/web": "Delete",
            "renamed": "Create",
            "renamed/web": "Create",
        }
        assert found.classes.summary.deletes == 2
        assert found.classes.classes()[0].risk == "Deletes"
        both = await asked.of(
            parent.composition(patched(composed(child, "renamed", "1")), READY),
            child.composition(patched(config_map("web", {"fixed": "2"})), READY),
        )
        assert set(by_kind(both)) == {f"App.{parent.group}"}, "what goes is not changed as well"
