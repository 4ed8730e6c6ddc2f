"""`planform preview` in all its forms, over a snapshot: nothing of it needs a control plane."""

from __future__ import annotations

import asyncio
from pathlib import Path
from xml.etree import ElementTree

import orjson
import pytest
import yaml
from click.testing import CliRunner, Result

from planform.api.kinds import Object
from planform.cli.previews.command import preview
from planform.moving.archive import write_archive
from planform.moving.exporting import export_reachable
from planform.reconcile.context import ControllerContext
from tests.preview.fleets import READY, config_map, patched, previews

embedded = pytest.mark.parametrize("context", ["embedded"], indirect=True)


def asked(*words: str) -> Result:
    return CliRunner().invoke(preview, list(words))


@embedded
async def test_every_form_of_a_preview_over_a_snapshot(context: ControllerContext, unique: str, tmp_path: Path) -> None:
    async with previews(context, unique) as live:
        platform = live.platform
        await platform.compose(patched(config_map("web"), config_map("logs")), READY)
        await live.fleet(2)
        await platform.client.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        )
        contents = await export_reachable(context.client, secrets=False)
        candidate: Object = platform.composition(patched(config_map("web", {"fixed": "2"})), READY)
    snapshot, change = tmp_path / "fleet.pf", tmp_path / "change.yaml"
    write_archive(snapshot, contents, made="2026-01-01T00:00:00Z")
    change.write_text(yaml.safe_dump(candidate))
    words = ("-f", str(change), "--snapshot", str(snapshot))

    async def run(*more: str) -> Result:
        return await asyncio.to_thread(asked, *words, *more)

    text = await run()
    assert text.exit_code == 0, text.output
    assert "0 unchanged, 2 changed (2 delete something)" in text.output
    data = orjson.loads((await run("-o", "json")).stdout)
    assert data["summary"]["deletes"] == 2
    assert data["classes"][0]["risk"] == "Deletes"
    assert "<details>" in (await run("-o", "markdown")).stdout
    page = (await run("-o", "html")).stdout
    assert "<svg" in page
    assert "http" not in page
    broken = await run("-o", "junit", "--fail-on", "summary.deletes > 0")
    assert broken.exit_code == 1
    assert ElementTree.fromstring(broken.stdout.encode()).get("failures") == "2"
    assert (await run("--fail-on", "summary.failed > 0")).exit_code == 0
    wrong = await run("--fail-on", "bogus(")
    assert wrong.exit_code == 2


def test_a_preview_of_nothing_is_refused_with_a_hint() -> None:
    result = asked()
    assert result.exit_code == 2
    assert "there is nothing to preview" in result.output
