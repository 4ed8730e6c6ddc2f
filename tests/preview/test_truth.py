"""What a preview says is what happens: generated changes are previewed, then applied for real, and compared."""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import msgspec
import pytest

from planform.api.kinds import Object
from planform.api.previews import ChangeClass
from planform.preview.field_diffs import content_of, field_changes
from planform.preview.sessions import Findings
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import NOP, Platform
from tests.harness.contexts import eventually
from tests.preview.fleets import READY, Previews, config_map, patched, previews, templated

Place = tuple[str, str]
"""An XR's name, and a resource's name in the composition."""
XRS = int(os.environ.get("PREVIEW_TRUTH_XRS", "12"))
CHANGES = int(os.environ.get("PREVIEW_TRUTH_CHANGES", "5"))

SERVED = """
{{- range $i, $name := list %(names)s }}
---
apiVersion: nop.crossplane.io/v1alpha1
kind: NopResource
metadata:
  annotations: {gotemplating.fn.crossplane.io/composition-resource-name: "{{ $name }}"}
spec:
  forProvider:
    conditionAfter: [{conditionType: Ready, conditionStatus: "True", time: 0s}]
    fields: {size: "{{ $.observed.composite.resource.spec.size }}", note: %(note)s}
{{- end }}
"""


def generated(random: Random) -> list[Object]:
    """The steps of a Composition: what they compose, and with which values, is the generator's."""
    maps = [
        config_map(name, {f"k{number}": str(random.randrange(4)) for number in range(random.randrange(3))})
        for name in sorted(random.sample(["a", "b", "c", "d"], random.randrange(1, 4)))
    ]
    for each in maps:
        if random.random() < 0.3:
            each["base"]["metadata"] = {"labels": {"tier": random.choice("xy")}}
    status = {"type": "ToCompositeFieldPath", "fromFieldPath": "data.size", "toFieldPath": "status.words"}
    if random.random() < 0.4:
        maps[0]["patches"].append(status)
    names = " ".join(f'"{each}"' for each in sorted(random.sample(["n1", "n2"], random.randrange(1, 3))))
    note = random.choice(["one", "two"])
    return [patched(*maps), templated(SERVED % {"names": names, "note": note}, step="serve"), READY]


async def snapshot(platform: Platform, xrs: list[Object]) -> dict[Place, Object]:
    """Everything that the XRs compose, by XR and name in the composition, and the XRs themselves."""
    found: dict[Place, Object] = {}
    for xr in xrs:
        name = xr["metadata"]["name"]
        for kind in (None, NOP):
            composed = await (platform.composed(xr) if kind is None else platform.composed(xr, kind))
            found |= {(name, key): obj for key, obj in composed.items() if not obj["metadata"].get("deletionTimestamp")}
    return found


async def settled(platform: Platform, xrs: list[Object], revision: str) -> None:
    """Wait until all XRs run this revision and are ready."""

    async def there() -> bool:
        found = await asyncio.gather(*(platform.get(xr) for xr in xrs))
        refs = {each["spec"]["crossplane"].get("compositionRevisionRef", {}).get("name") for each in found}
        ready = all(
            any(
                each["type"] == "Ready" and each["status"] == "True"
                for each in xr.get("status", {}).get("conditions", ())
            )
            for xr in found
        )
        return refs == {revision} and ready

    await eventually(there, f"all XRs run {revision}", seconds=20)
    await platform.at_rest(*xrs)


Fields = dict[str, Any]
"""The values of fields afterwards, by path; None for one that is gone."""
Effects = tuple[dict[Place, Fields], dict[Place, Fields], set[Place]]


def predicted(found: Findings, xrs: list[Object]) -> Effects:
    """By resource the fields that change and what they become, resources that come with their content, and those that
    go."""
    uids = {xr["metadata"]["name"]: own_of(xr) for xr in xrs}
    classes: dict[str, ChangeClass] = {each.id: each for each in found.classes.classes()}
    updates: dict[Place, Fields] = {}
    creates: dict[Place, Fields] = {}
    deletes: set[Place] = set()
    for entry in found.entries:
        for change in classes[entry.class_].changes if entry.class_ else ():
            if not change.resource:
                continue
            place = (entry.name, change.resource)
            if change.action == "Update":
                updates[place] = {each.path: own(each.after, uids[entry.name]) for each in change.fields}
            if change.action in ("Create", "Recreate"):
                content = {each.path: own(each.after, uids[entry.name]) for each in change.fields}
                creates[place] = {key: value for key, value in content.items() if key in SHOWN}
            if change.action in ("Delete", "Recreate"):
                deletes.add(place)
    return updates, creates, deletes


SHOWN = ("data", "spec")
"""What a new resource is compared by: its name and status are only known then."""


def own_of(xr: Object) -> dict[str, str]:
    return {
        "{name}": xr["metadata"]["name"],
        "{namespace}": xr["metadata"]["namespace"],
        "{uid}": xr["metadata"]["uid"],
    }


def own(value: Any, names: dict[str, str]) -> Any:
    """A value with what is the XR's own in the place of placeholders."""
    if value is msgspec.UNSET:
        return None
    if isinstance(value, dict):
        return {key: own(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [own(each, names) for each in value]
    for placeholder, name in names.items():
        value = value.replace(placeholder, name) if isinstance(value, str) else value
    return value


def happened(before: dict[Place, Object], after: dict[Place, Object]) -> Effects:
    updates: dict[Place, Fields] = {}
    for place in before.keys() & after.keys():
        changes = field_changes(content_of(before[place]), content_of(after[place]))
        fields = {each.path: None if each.after is msgspec.UNSET else each.after for each in changes}
        if fields:
            updates[place] = fields
    creates = {
        place: {key: after[place][key] for key in SHOWN if after[place].get(key)}
        for place in after.keys() - before.keys()
    }
    return updates, creates, before.keys() - after.keys()


@pytest.mark.parametrize("seed", range(CHANGES))
async def test_truth_of_a_generated_change(context: ControllerContext, unique: str, seed: int) -> None:
    random = Random(seed)
    async with previews(context, unique) as asked:
        platform = asked.platform
        first = await platform.compose(*generated(random))
        xrs = await asked.fleet(XRS)
        await settled(platform, xrs, first["metadata"]["name"])
        await one_change(asked, platform, xrs, generated(random))


async def one_change(asked: Previews, platform: Platform, xrs: list[Object], steps: list[Object]) -> None:
    before = await snapshot(platform, xrs)
    found = await asked.of(platform.composition(*steps))
    assert await snapshot(platform, xrs) == before, "a preview writes nothing"
    summary = found.classes.summary
    assert summary.xrs == len(xrs)
    assert summary.xrs == summary.unchanged + summary.changed, found.entries
    revision = await platform.compose(*steps)
    await settled(platform, xrs, revision["metadata"]["name"])

    async def same() -> bool:
        return happened(before, await snapshot(platform, xrs)) == predicted(found, xrs)

    try:
        await eventually(same, "what was previewed happens", seconds=10)
    finally:
        assert happened(before, await snapshot(platform, xrs)) == predicted(found, xrs)
    unknown = sum(len(each.unstable) + len(each.waits) for each in found.entries)
    fields = sum(len(paths) for paths in predicted(found, xrs)[0].values()) + len(xrs)
    assert unknown <= fields * 0.02


async def test_truth_of_values_and_not_only_of_paths(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        [xr] = await asked.fleet(1)
        steps: tuple[Any, ...] = (patched(config_map("web", {"fixed": "7", "other": "8"})), READY)
        found = await asked.of(platform.composition(*steps))
        revision = await platform.compose(*steps)
        await settled(platform, [xr], revision["metadata"]["name"])
        live = (await platform.composed(xr))["web"]
        for each in found.classes.classes()[0].changes[0].fields:
            assert live["data"][each.path.removeprefix("data.")] == each.after
