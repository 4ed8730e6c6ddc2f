"""Preview objects: a control plane answers them, keeps its answers small, and forgets them in time."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from planform.api.kinds import Object
from planform.api.names import PREVIEW, PREVIEW_LABEL, PREVIEW_REPORT
from planform.api.previews import ChangeClass, FieldChange, ObjectChange, XrEntry
from planform.client.protocol import Client
from planform.preview import controller
from planform.preview.classes import Classes, XrResult
from planform.preview.reports import merged, read_report, report_objects
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import condition_of, eventually, read
from tests.preview.fleets import READY, config_map, patched, previews


def preview(name: str, *manifests: Object, **spec: Any) -> Object:
    change = {"manifests": list(manifests)} if manifests else {}
    return {
        "apiVersion": PREVIEW.api_version,
        "kind": PREVIEW.kind,
        "metadata": {"name": name},
        "spec": {"change": change, **spec},
    }


def state(obj: Object, condition: str) -> str:
    return str((condition_of(obj, condition) or {}).get("status"))


async def answered(client: Client, name: str) -> Object:
    """The Preview once it is complete, or has failed."""

    async def over() -> Object | None:
        found = await client.get(PREVIEW, name)
        return found if found.get("status", {}).get("phase") in ("Complete", "Failed") else None

    return await eventually(over, f"preview {name} is over", seconds=30)


async def test_a_preview_says_what_a_composition_would_change(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web"), config_map("logs")), READY)
        xrs = await asked.fleet(3)
        before = [await platform.composed(xr) for xr in xrs]
        candidate = platform.composition(patched(config_map("web", {"fixed": "2"})), READY)
        await context.client.create(preview(unique, candidate))
        found = await answered(context.client, unique)
        status = found["status"]
        assert status["phase"] == "Complete", status
        assert status["verdict"] == "0 unchanged, 3 changed (3 delete something)"
        assert status["summary"] | {"changed": 3, "deletes": 3, "xrs": 3} == status["summary"]
        [one] = status["classes"]
        assert (one["xrs"], one["risk"], one["change"]) == (3, "Deletes", 'ConfigMap "logs" deleted; and 1 more object')
        assert state(found, "Complete") == "True"
        assert state(found, "Acceptable") == "False"
        assert state(found, "Fresh") == "True"
        assert status["inputs"]["candidate"].startswith("sha256:")
        reports = (await context.client.list(PREVIEW_REPORT, labels=f"{PREVIEW_LABEL}={unique}")).items
        assert len(reports) == status["reports"] == 1
        entries = read_report(reports[0]).xrs
        assert {each.name for each in entries} == {xr["metadata"]["name"] for xr in xrs}
        assert entries[0].expectation["resources"]["logs"] == {"action": "Delete"}
        assert [await platform.composed(xr) for xr in xrs] == before


async def test_a_preview_of_what_is_there_changes_nothing(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        await asked.fleet(2)
        await context.client.create(preview(unique, platform.composition(patched(config_map("web")), READY)))
        found = await answered(context.client, unique)
        assert found["status"]["verdict"] == "2 unchanged, 0 changed"
        assert state(found, "Acceptable") == "True"


async def test_a_preview_goes_stale_and_stays_readable(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        await asked.fleet(1)
        await context.client.create(
            preview(unique, platform.composition(patched(config_map("web", {"a": "1"})), READY))
        )
        await answered(context.client, unique)
        await platform.compose(patched(config_map("web", {"b": "2"})), READY)

        async def stale() -> bool:
            found = await context.client.get(PREVIEW, unique)
            return bool(state(found, "Fresh") == "False" and found["status"]["classes"])

        await eventually(stale, "the preview is stale")


async def test_a_preview_that_is_deleted_while_it_runs_ends_and_leaves_no_reports(
    context: ControllerContext, unique: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controller, "_PROGRESS_SECONDS", 0.0)
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        await asked.fleet(12)
        held = asyncio.Event()
        told = controller.PreviewController.note_progress

        async def note(self: Any, preview: Object, findings: Any) -> None:
            """Progress is told once, and then again when the Preview is gone."""
            if findings.done > 1:
                await held.wait()
            await told(self, preview, findings)

        monkeypatch.setattr(controller.PreviewController, "note_progress", note)
        candidate = platform.composition(patched(config_map("web", {"a": "1"})), READY)
        await context.client.create(preview(unique, candidate))

        async def progress() -> bool:
            status = (await context.client.get(PREVIEW, unique)).get("status") or {}
            return bool(status.get("progress", {}).get("done"))

        await eventually(progress, "progress is told")
        await context.client.delete(PREVIEW, unique)
        held.set()

        async def ended() -> bool:
            return not any(task.get_name().startswith("preview ") for task in asyncio.all_tasks())

        await eventually(ended, "nothing runs any more")
        assert not (await context.client.list(PREVIEW_REPORT, labels=f"{PREVIEW_LABEL}={unique}")).items
        assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_a_preview_of_something_unknown_fails_and_says_so(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique):
        asked = preview(unique)
        asked["spec"]["change"] = {"revision": {"composition": "no-such", "name": "no-such-1"}}
        await context.client.create(asked)
        found = await answered(context.client, unique)
        assert found["status"]["phase"] == "Failed"
        assert 'composition "no-such" has no revision' in found["status"]["message"]


async def test_a_preview_is_gone_after_its_ttl_with_its_reports(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        await context.client.create(preview(unique, platform.composition(patched(config_map("x")), READY), ttl="2s"))

        async def gone() -> bool:
            return await read(context.client, PREVIEW, unique) is None

        await eventually(gone, "the preview is gone")


def test_reports_are_cut_by_size_and_merge_to_the_same_answer() -> None:
    classes = Classes()
    entries: list[XrEntry] = []
    for number in range(3000):
        field = FieldChange(path=f"data.key{number % 40}", before="x" * 300, after=f"{number % 40}" * 200)
        change = ObjectChange(kind="ConfigMap", action="Update", resource="web", fields=(field,))
        name, namespace = f"xr-{number}", f"team-{number % 70}"
        result = XrResult(
            kind="App.example.org",
            namespace=namespace,
            name=name,
            uid=f"u{number}",
            outcome="Changed",
            changes=(change,),
            input="sha256:" + "0" * 64,
            own={name: "{name}", namespace: "{namespace}"},
        )
        entries.append(classes.add(result))
    made = report_objects({"metadata": {"name": "big", "uid": "u"}}, classes, entries)
    assert len(made) > 2
    assert max(len(orjson.dumps(each)) for each in made) < 256 * 1024
    whole = merged(read_report(each) for each in made)
    assert whole.summary == classes.summary
    assert {(each.id, each.xrs) for each in whole.classes()} == {(each.id, each.xrs) for each in classes.classes()}
    assert len(whole.classes()) == 40
    assert sum(len(read_report(each).xrs) for each in made) == 3000


def test_the_same_change_under_another_name_is_one_class() -> None:
    classes = Classes()
    for name in ("pay", "mail"):
        field = FieldChange(path="spec.host", before=f"{name}.example.org", after=f"{name}.example.com")
        change = ObjectChange(kind="Ingress", action="Update", resource="in", fields=(field,))
        classes.add(
            XrResult(
                kind="App.example.org",
                namespace="a",
                name=name,
                outcome="Changed",
                changes=(change,),
                own={name: "{name}", "a": "{namespace}"},
            )
        )
    [one] = classes.classes()
    assert isinstance(one, ChangeClass)
    assert (one.xrs, one.examples) == (2, ("a/pay", "a/mail"))
    assert one.changes[0].fields[0].before == "{name}.example.org"
