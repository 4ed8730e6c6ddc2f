"""A change of an XRD: which live XRs become invalid, lose fields or gain defaults, and who reads what goes."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from planform.api.kinds import Object
from planform.api.previews import FieldChange
from planform.reconcile.context import ControllerContext
from tests.preview.fleets import READY, Previews, config_map, patched, previews
from tests.preview.test_previews import answered, preview

PROPERTIES: Object = {"size": {"type": "string"}, "zone": {"type": "string"}}


def versions(properties: Object, **spec: Any) -> list[Object]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties, **spec}}}
    return [{"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": schema}}]


@asynccontextmanager
async def defined(context: ControllerContext, unique: str) -> AsyncIterator[Previews]:
    async with previews(context, unique, xrd={"versions": versions(PROPERTIES)}) as asked:
        await asked.platform.compose(patched(config_map("web")), READY)
        await asked.fleet(2, zone="a")
        yield asked


def changed(asked: Previews, properties: Object, **spec: Any) -> Object:
    return asked.platform.xrd(versions=versions({**copy.deepcopy(PROPERTIES), **properties}, **spec))


async def test_a_rule_that_live_xrs_break_makes_them_invalid(context: ControllerContext, unique: str) -> None:
    async with defined(context, unique) as asked:
        short = {"type": "string", "enum": ["0"]}
        found = await asked.of(changed(asked, {"size": short}))
        summary = found.classes.summary
        assert (summary.xrs, summary.invalid, summary.unchanged) == (2, 1, 1)
        [bad] = [each for each in found.entries if each.outcome == "Invalid"]
        assert bad.name.startswith("x1-")
        assert "spec.size" in bad.message
        assert "tolerated until that field is edited" in bad.message
        assert [each.risk for each in found.classes.classes()] == ["Invalid"]
        by_rule = await asked.of(
            changed(
                asked, {}, **{"x-kubernetes-validations": [{"rule": "self.zone == 'b'", "message": "zone must be b"}]}
            )
        )
        assert by_rule.classes.summary.invalid == 2
        assert "zone must be b" in by_rule.entries[0].message


async def test_a_removed_field_is_pruned_and_its_readers_are_named(context: ControllerContext, unique: str) -> None:
    async with defined(context, unique) as asked:
        platform = asked.platform
        xrd = platform.xrd(versions=versions({"zone": PROPERTIES["zone"]}))
        found = await asked.of(xrd)
        assert found.classes.summary.changed == 2
        assert {each.risk for each in found.classes.classes()} == {"Loses"}
        lost = {field for one in found.classes.classes() for change in one.changes for field in change.fields}
        assert FieldChange(path="spec.size", before="1") in lost
        reader = f'Composition "{unique}-apps" reads spec.size, which the new schema does not have'
        assert reader in found.notes
        await context.client.create(preview(unique, xrd))
        status = (await answered(context.client, unique))["status"]
        assert reader in status["findings"]
        assert (await platform.get(platform.xr("x1")))["spec"]["size"] == "1", "nothing is applied"


async def test_a_default_appears_in_every_xr_that_has_no_value(context: ControllerContext, unique: str) -> None:
    async with defined(context, unique) as asked:
        tier = {"type": "string", "default": "gold"}
        found = await asked.of(changed(asked, {"tier": tier}))
        [one] = found.classes.classes()
        assert (one.xrs, one.risk) == (2, "")
        assert [each.resource for each in one.changes] == [""]
        assert one.changes[0].fields == (FieldChange(path="spec.tier", after="gold"),)


async def test_a_version_that_is_no_longer_served_makes_its_xrs_invalid(
    context: ControllerContext, unique: str
) -> None:
    async with defined(context, unique) as asked:
        [version] = versions(PROPERTIES)
        found = await asked.of(asked.platform.xrd(versions=[{**version, "name": "v2"}]))
        assert found.classes.summary.invalid == 2
        assert "version v1 is no longer served" in found.entries[0].message
