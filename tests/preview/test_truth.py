"""What a preview says is what happens: generated changes are previewed, then applied for real, and compared."""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.preview.sessions import Findings
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import NOP, Platform
from tests.harness.contexts import eventually
from tests.preview.fleets import READY, Previews, config_map, patched, previews, templated
from tests.preview.truth import Effects, Place, happened, predicted

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


@pytest.mark.parametrize("seed", range(CHANGES))
async def test_truth_of_a_generated_change(context: ControllerContext, unique: str, seed: int) -> None:
    random = Random(seed)
    async with previews(context, unique) as asked:
        platform = asked.platform
        first = await platform.compose(*generated(random))
        xrs = await asked.fleet(XRS)
        await settled(platform, xrs, first["metadata"]["name"])
        await one_change(asked, platform, xrs, generated(random))


def _said(found: Findings, xrs: list[Object]) -> Effects:
    return predicted(found.classes.classes(), found.entries, xrs)


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
        return happened(before, await snapshot(platform, xrs)) == _said(found, xrs)

    try:
        await eventually(same, "what was previewed happens", seconds=10)
    finally:
        assert happened(before, await snapshot(platform, xrs)) == _said(found, xrs)
    unknown = sum(len(each.unstable) + len(each.waits) for each in found.entries)
    fields = sum(len(paths) for paths in _said(found, xrs)[0].values()) + len(xrs)
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
