"""ActionSets on both engines: what runs, in which order, with which versions, and what is left of it."""

from __future__ import annotations

import pytest

from planform.controllers.workbench import Workbench
from tests.controllers.acting import Theatre, action, phase

pytestmark = pytest.mark.timeout(60)


async def test_phases_run_in_order_and_see_what_earlier_ones_left(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint(
            {
                "backup": action(
                    phase("first", args={"text": "{{ .Object.metadata.name }}"}),
                    phase("second", args={"text": "{{ .Phases.first.Output.text }}-again"}),
                    outputs={"copy": {"keyValue": {"path": "{{ .Phases.second.Output.text }}"}}},
                )
            }
        )
        done = await theatre.run("backup")
        assert theatre.calls == ["target", "target-again"]
        status = done["status"]
        assert status["state"] == "complete"
        assert status["actions"][0]["artifacts"]["copy"]["keyValue"] == {"path": "target-again"}
        assert [entry["state"] for entry in status["actions"][0]["phases"]] == ["complete", "complete"]
        assert status["progress"]["percentCompleted"] == "100"
        assert "finalizers" not in done["metadata"]
        assert {"runner", "snapshots"} & status.keys() == set()
