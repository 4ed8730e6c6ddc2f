"""What another release of planform would change: its built-in functions are run beside what an earlier one has made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from planform.api.previews import PreviewSpec, Summary, release_verdict
from planform.app import Settings, open_control_plane
from planform.cli.main import root
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.preview.candidate_functions import InstalledFunctions
from planform.preview.sessions import Findings, open_previewer, run_preview
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform
from tests.harness.contexts import until_condition
from tests.preview.fleets import READY, Previews, config_map, patched, previews, templated

MAP = """
apiVersion: v1
kind: ConfigMap
metadata:
  annotations:
    gotemplating.fn.crossplane.io/composition-resource-name: settings
    gotemplating.fn.crossplane.io/ready: "True"
data: {size: "{{ .observed.composite.resource.spec.size }}"}
"""


class LaterRelease:
    """Runs functions as a release whose patch-and-transform sets, or leaves out, a value."""

    def __init__(self, runner: FunctionRunner, data: Mapping[str, str | None]) -> None:
        self._runner = runner
        self._data = data

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        answer = await self._runner.run(revision, request, timeout=timeout)
        if "patch-and-transform" in revision.digest:
            for each in answer.desired.resources.values():
                data = {**each.resource["data"], **self._data}
                each.resource["data"] = {key: value for key, value in data.items() if value is not None}
        return answer


async def released(live: Previews, **data: str | None) -> Findings:
    """What the next release would change."""
    controllers = live.platform.controllers
    assert controllers is not None
    spec = msgspec.convert({"change": {"release": {}}}, PreviewSpec)
    functions = InstalledFunctions(
        live.client, lambda: controllers.functions.catalogue, controllers.temporary_activation
    )
    runner = LaterRelease(controllers.pipelines.runner, data) if data else controllers.pipelines.runner
    async with open_previewer(
        spec,
        client=live.client,
        functions=functions,
        pipelines=replace(controllers.pipelines, runner=runner, cache=None),
        features=live.context.features,
    ) as previewer:
        return await run_preview(previewer, spec.scope)


async def test_a_release_that_answers_alike_changes_nothing(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as live:
        await live.platform.compose(patched(config_map("web"), config_map("logs")), templated(MAP, step="more"), READY)
        await live.fleet(4)
        found = await released(live)
        assert release_verdict(found.classes.summary) == "0 of 4 would change"


@pytest.mark.parametrize("context", ["embedded"], indirect=True)
async def test_what_a_release_sets_or_no_longer_sets_is_a_change(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as live:
        await live.platform.compose(patched(config_map("web")), READY)
        await live.fleet(2)
        await live.platform.compose(templated(MAP), READY, name=f"other-{unique}")
        other = await live.platform.create("other", spec={"size": "7"}, compositionRef={"name": f"other-{unique}"})
        await live.platform.ready(other)
        added = await released(live, new="1")
        assert (added.classes.summary.changed, added.classes.summary.unchanged) == (2, 1)
        [added_class] = added.classes.classes()
        assert added_class.change == 'ConfigMap "web": data.new  (none) -> 1'
        gone = await released(live, fixed=None)
        [gone_class] = gone.classes.classes()
        assert gone_class.change == 'ConfigMap "web": data.fixed  1 -> (none)'
        assert release_verdict(gone.classes.summary) == "2 of 3 would change: 1 unchanged, 2 changed"


@pytest.mark.parametrize("context", ["embedded"], indirect=True)
async def test_an_xr_that_was_failing_is_not_blamed_on_the_release(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as live:
        await live.platform.compose(patched(config_map("web")), READY)
        await live.fleet(1)
        await live.platform.compose(templated("{{ fail `no` }}"), name=f"broken-{unique}")
        xr = await live.platform.create("broken", compositionRef={"name": f"broken-{unique}"})
        await until_condition(live.client, xr, "Synced", "False")
        found = await released(live)
        assert (found.classes.summary.unchanged, found.classes.summary.not_previewed) == (1, 1)
        [entry] = [each for each in found.entries if each.outcome == "NotPreviewed"]
        assert entry.message.startswith("it was failing before")


def test_a_release_is_told_in_a_line() -> None:
    assert release_verdict(Summary(xrs=1000, unchanged=1000)) == "0 of 1,000 would change"
    changed = Summary(xrs=1000, unchanged=988, changed=11, deletes=2, not_previewed=1)
    assert release_verdict(changed) == (
        "11 of 1,000 would change, 1 not previewed: 988 unchanged, 11 changed (2 delete something), 1 not previewed"
    )


async def test_the_new_program_asks_a_running_control_plane_and_writes_nothing(tmp_path: Path) -> None:
    async with open_control_plane(Settings(data=tmp_path)) as plane:
        platform = Platform(plane.client, "release", controllers=plane.controllers)
        await platform.define()
        await platform.compose(patched(config_map("web")), READY)
        xrs = [await platform.create(f"x{number}", spec={"size": str(number)}) for number in range(3)]
        for xr in xrs:
            await platform.ready(xr)
        await platform.at_rest(*xrs)

        async def asked(*words: str) -> Result:
            command = ["preview", "--release", *words, "--kubeconfig", str(plane.kubeconfig)]
            return await asyncio.to_thread(CliRunner().invoke, root, command)

        before = (await plane.client.list(platform.kind)).resource_version
        told = await asked()
        assert (told.exit_code, told.stdout.splitlines()[0]) == (0, "0 of 3 would change")
        data = json.loads((await asked("-o", "json")).stdout)
        assert (data["summary"]["xrs"], data["summary"]["unchanged"]) == (3, 3)
        assert (await plane.client.list(platform.kind)).resource_version == before, "something was written"
        both = await asked("-f", str(tmp_path / "nothing.yaml"))
        assert both.exit_code == 2
