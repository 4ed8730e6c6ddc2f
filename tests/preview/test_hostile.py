"""Secrets reach no report, and functions that misbehave end the preview of what needs them, and nothing else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from planform.api.kinds import Object
from planform.api.names import PREVIEW, PREVIEW_LABEL, PREVIEW_REPORT
from planform.functions.errors import FunctionTimedOut
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.preview import patience
from planform.preview.patience import MAX_FAILURES, NoLongerCalled, PatientRunner
from planform.reconcile.context import ControllerContext
from tests.controllers.test_xr_requirements import asking, install
from tests.harness.contexts import condition_of, eventually
from tests.harness.function_server import FunctionServer, function_server
from tests.preview.fleets import READY, Previews, config_map, patched, previews, templated
from tests.preview.test_previews import answered, preview

CANARY = "canary-5f1d0c7e"
EMBEDDED = pytest.mark.parametrize("context", ["embedded"], indirect=True)


@EMBEDDED
async def test_secrets_are_in_no_byte_of_any_report(context: ControllerContext, unique: str) -> None:
    def secret(value: str) -> Object:
        base = {"apiVersion": "v1", "kind": "Secret", "stringData": {"password": value}}
        return {"name": "secret", "base": base, "readinessChecks": [{"type": "None"}]}

    wrapped = """
apiVersion: v1
kind: ConfigMap
metadata:
  annotations: {gotemplating.fn.crossplane.io/composition-resource-name: shown}
data: {copied: "%s"}
"""
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(secret(f"{CANARY}-old")), templated(wrapped % "-", step="more"), READY)
        await asked.fleet(1)
        candidate = platform.composition(
            patched(secret(f"{CANARY}-new")), templated(wrapped % f"{CANARY}-new", step="more"), READY
        )
        await context.client.create(preview(unique, candidate))
        found = await answered(context.client, unique)
        assert found["status"]["summary"]["changed"] == 1
        reports = (await context.client.list(PREVIEW_REPORT, labels=f"{PREVIEW_LABEL}={unique}")).items
        written = orjson.dumps([found["status"], reports])
        for spelling in (CANARY.encode(), base64.b64encode(CANARY.encode())[:-4]):
            assert spelling not in written
        assert (await context.client.get(PREVIEW, unique))["status"]["phase"] == "Complete"


class Hanging:
    """A function that never answers in time."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        self.calls += 1
        await asyncio.sleep(0)
        raise FunctionTimedOut(f"no answer within {timeout:g} s", revision=revision)


async def test_a_hostile_function_is_called_a_few_times_and_then_no_more() -> None:
    function = Hanging()
    runner = PatientRunner(function, call_seconds=0.01)
    revision = FunctionRevision("f", "f-1", "digest")
    request = FunctionRequest()
    for _ in range(MAX_FAILURES):
        with pytest.raises(FunctionTimedOut, match=r"0\.01 s"):
            await runner.run(revision, request, timeout=60)
    with pytest.raises(NoLongerCalled, match="is not called again"):
        await runner.run(revision, request, timeout=60)
    assert function.calls == MAX_FAILURES


@EMBEDDED
async def test_a_hostile_template_that_loops_fails_its_xrs_and_nothing_else(
    context: ControllerContext, unique: str
) -> None:
    loop = "{{ range $i := until 100000 }}{{ range $j := until 100000 }}{{ $i }}{{ end }}{{ end }}"
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched({"name": "a", "base": {"apiVersion": "v1", "kind": "ConfigMap"}}), READY)
        xr = await platform.create(spec={"size": "1"})
        await platform.until(xr, lambda each: each["spec"].get("crossplane", {}).get("resourceRefs"), "is composed")
        before = await platform.get(xr)
        found = await asyncio.wait_for(asked.of(platform.composition(templated(loop), READY)), 60)
        assert found.classes.summary.failed == 1
        assert (await platform.get(xr))["metadata"]["generation"] == before["metadata"]["generation"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunctionServer]:
    with function_server(tmp_path_factory.mktemp("fn"), "fn") as server:
        yield server


async def behaving(asked: Previews, server: FunctionServer, count: int) -> tuple[str, list[Object]]:
    """A fleet whose function behaves, and the name of that function."""
    name = f"function-{asked.platform.unique}"
    await install(asked.platform, name, "v1.0.0", server.target)
    await asked.platform.compose(patched(config_map("web")), mode_of(name, "echo"), READY)
    return name, await asked.fleet(count)


def mode_of(function: str, mode: str, **more: Any) -> Object:
    return {"step": "odd", "functionRef": {"name": function}, "input": asking(mode, **more)}


async def until_edited(asked: Previews, xr: Object, size: str) -> None:
    """An edit of an XR is carried out."""
    await asked.platform.merge(xr, {"spec": {"size": size}})

    async def written() -> bool:
        return bool((await asked.platform.composed(xr))["web"]["data"]["size"] == size)

    await eventually(written, "the edit is carried out", seconds=5)


@EMBEDDED
async def test_a_hostile_function_that_hangs_ends_the_preview_by_name_and_disturbs_nobody(
    context: ControllerContext, unique: str, server: FunctionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "CALL_SECONDS", 1.0)
    async with previews(context, unique) as asked:
        platform = asked.platform
        function, xrs = await behaving(asked, server, 12)
        candidate = platform.composition(patched(config_map("web")), mode_of(function, "hang"), READY)
        await context.client.create(preview(unique, candidate))
        await eventually(lambda: under_way(context, unique), "the preview is under way")
        await until_edited(asked, xrs[0], "edited")
        found = await answered(context.client, unique)
        summary = found["status"]["summary"]
        assert summary["failed"] + summary["notPreviewed"] == 12, summary
        assert summary["notPreviewed"] > 0, "once it is known to hang, nobody waits for it again"
        [report] = (await context.client.list(PREVIEW_REPORT, labels=f"{PREVIEW_LABEL}={unique}")).items
        for entry in report["spec"]["xrs"]:
            assert 'step "odd"' in entry["message"], entry
            assert function in entry["message"], entry
        assert condition_of(found, "Complete")["status"] == "False"  # type: ignore[index]


async def under_way(context: ControllerContext, name: str) -> bool:
    return bool((await context.client.get(PREVIEW, name)).get("status", {}).get("phase") == "Running")


@EMBEDDED
async def test_a_hostile_function_that_answers_too_much_is_named_and_disturbs_nobody(
    context: ControllerContext, unique: str, server: FunctionServer
) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        function, xrs = await behaving(asked, server, 4)
        babbling = mode_of(function, "babble", size=5 << 20)
        found = await asked.of(platform.composition(patched(config_map("web")), babbling, READY))
        summary = found.classes.summary
        assert summary.failed + summary.not_previewed == 4
        for entry in found.entries:
            assert 'step "odd"' in entry.message
            assert "MiB" in entry.message
        await until_edited(asked, xrs[1], "edited")
