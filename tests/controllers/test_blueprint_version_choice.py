"""Which version of a function each phase runs, on both engines, and what becomes of it as releases pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from planform.api.names import EVENT
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, PhaseFunction, phase_function
from planform.reconcile.context import ControllerContext
from tests.controllers.acting import AGED, DUMPS, TWO_VERSIONS, Theatre, action, phase, version_of

pytestmark = pytest.mark.timeout(90)


async def test_the_status_says_which_version_ran_and_which_rule_chose_it(
    context: ControllerContext, unique: str
) -> None:
    both = {"path": "/", "format": "x"}
    async with Theatre.open(context, unique, *DUMPS, versions=TWO_VERSIONS) as theatre:
        await theatre.blueprint(
            {
                "b": action(
                    phase("stable", "Dump", {"path": "/"}),
                    phase("pinned", "Dump", both, funcVersion="0.1.0"),
                    phase("unversioned"),
                    defer=phase("d", "Dump", both, funcVersion="v0.1.0"),
                )
            }
        )
        done = await theatre.run("b")
        entry = done["status"]["actions"][0]
        told = [(each["funcVersion"], each["resolution"]) for each in (*entry["phases"], entry["deferPhase"])]
        pinned = {"requested": "v0.1.0", "source": "Pin", "reason": "the phase asks for v0.1.0"}
        assert told == [
            ("v0.0.0", {"source": "Stable", "reason": "v0.0.0 is stable"}),
            ("v0.1.0", {"requested": "0.1.0", "source": "Pin", "reason": "the phase asks for 0.1.0"}),
            (
                "v0.0.0",
                {
                    "source": "Unversioned",
                    "reason": "no version of the function is stable, and none was asked for",
                },
            ),
            ("v0.1.0", pinned),
        ]
        assert [each["output"]["ran"] for each in entry["phases"][:2]] == ["v0.0.0", "v0.1.0"]


async def test_a_hint_is_followed_by_the_functions_that_know_it_and_told_for_the_others(
    context: ControllerContext, unique: str
) -> None:
    async with Theatre.open(context, unique, *DUMPS, versions=TWO_VERSIONS) as theatre:
        await theatre.blueprint(
            {"b": action(phase("a", "Dump", {"path": "/", "format": "x"}), phase("b"), phase("c"), phase("d"))}
        )
        done = await theatre.run(theatre.request("b", preferredVersion="v0.1.0"))
        entry = done["status"]["actions"][0]
        assert [each["funcVersion"] for each in entry["phases"]] == ["v0.1.0", "v0.0.0", "v0.0.0", "v0.0.0"]
        codes = [(each["code"], each["function"], each["phase"]) for each in done["status"]["warnings"]]
        assert codes == [("VersionPreview", "Dump", "a"), ("HintNotAvailable", "Say", "b")]


async def test_arguments_are_those_of_the_version_that_runs(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique, *DUMPS, versions=TWO_VERSIONS) as theatre:
        args = {"path": "/", "level": 3}
        await theatre.blueprint(
            {
                "old": action(phase("a", "Dump", args)),
                "new": action(phase("a", "Dump", args, funcVersion="v0.1.0")),
            }
        )
        assert (await theatre.run("old"))["status"]["state"] == "complete"
        done = await theatre.run("new")
        assert [each["message"] for each in done["status"]["errors"]] == [
            'Dump v0.1.0: required argument "format" is missing',
            'Dump v0.1.0: argument "level" is not supported (it takes: format, path)',
        ]


async def test_a_version_may_render_its_arguments_itself_where_another_does_not(
    context: ControllerContext, unique: str
) -> None:
    async def raw(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
        return {"raw": args["text"], "rendered": context.render(args["text"])}

    functions = [
        PhaseFunction(name="Echo", run=raw, arguments=("text",), renders_itself=True),
        PhaseFunction(name="Echo", run=raw, version="v1.0.0", arguments=("text",)),
    ]
    async with Theatre.open(context, unique, *functions) as theatre:
        args = {"text": "{{ .Object.metadata.name }}"}
        await theatre.blueprint({"b": action(phase("a", "Echo", args), phase("c", "Echo", args, funcVersion="v1.0.0"))})
        done = await theatre.run("b")
        outputs = [each["output"] for each in done["status"]["actions"][0]["phases"]]
        assert outputs == [
            {"raw": "{{ .Object.metadata.name }}", "rendered": "target"},
            {"raw": "target", "rendered": "target"},
        ]


async def test_a_warning_reaches_status_event_log_and_metric_once(
    context: ControllerContext, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Theatre.open(context, unique, *DUMPS, versions=AGED, release="0.2") as theatre:
        phases = [phase(f"p{number}", "Dump", {"path": "/"}, funcVersion="v0.0.0") for number in range(30)]
        await theatre.blueprint({"b": action(*phases)})
        with caplog.at_level("WARNING", logger="planform.blueprints.controller"):
            done = await theatre.run("b")
        text = "Dump v0.0.0: deprecated since 0.2, stops working in 0.4, move to v0.1.0"
        (warning,) = done["status"]["warnings"]
        assert warning.pop("firstSeen")
        assert warning == {
            "code": "VersionDeprecated",
            "function": "Dump",
            "version": "v0.0.0",
            "action": "b",
            "phase": "p0",
            "message": text,
            "deprecatedIn": "0.2",
            "removedIn": "0.4",
            "replacement": "v0.1.0",
        }
        assert sum(text in record.getMessage() for record in caplog.records) == 1
        assert (
            'planform_deprecated_function_used{function="Dump",version="v0.0.0",removed_in="0.4"} 1'
            in context.metrics.render()
        )
        await context.events.written()
        events = (await context.client.list(EVENT, namespace=unique)).items
        assert [each["message"] for each in events if each["reason"] == "VersionDeprecated"] == [text]


async def test_a_blueprint_that_locks_its_versions_stays_on_them_after_a_promotion(
    context: ControllerContext, unique: str
) -> None:
    args = {"path": "/"}
    async with Theatre.open(context, unique, *DUMPS, versions=TWO_VERSIONS) as theatre:
        await theatre.blueprint({"b": action(phase("a", "Dump", args))}, versionPolicy="Lock")
        await theatre.run("b")
    await context.manager.stop("actionsets")
    second = Theatre(context, unique)
    second.use(*DUMPS, versions=AGED, release="0.2")
    done = await second.run("b", name="after")
    entry = done["status"]["actions"][0]["phases"][0]
    assert (entry["funcVersion"], entry["resolution"]["source"]) == ("v0.0.0", "Lock")
    assert [each["code"] for each in done["status"]["warnings"]] == ["VersionDeprecated"]


async def test_four_releases_pass_over_a_pinned_blueprint_and_one_that_follows(
    context: ControllerContext, unique: str
) -> None:
    """Works, warns, warns, refuses; and whoever does not pin moves with the promotion."""
    told: list[tuple[str, str, list[str], list[str]]] = []
    async with Theatre.open(context, unique, start=False) as theatre:
        await theatre.blueprint(
            {
                "pinned": action(phase("a", "Dump", funcVersion="v0.0.0"), defer=phase("d")),
                "follows": action(phase("a", "Dump")),
            }
        )
        versions = [PhaseFunction(name="Dump", run=version_of, version=number) for number in ("v0.0.0", "v0.1.0")]
        for release in ("0.1", "0.2", "0.3", "0.4"):
            live = versions if release != "0.4" else versions[1:]
            file = AGED if release != "0.1" else AGED.replace("stable: v0.1.0", "stable: v0.0.0")
            theatre.use(*live, versions=file, release=release)
            pinned, follows = await theatre.run("pinned"), await theatre.run("follows")
            told.append(
                (
                    pinned["status"]["state"],
                    follows["status"]["actions"][0]["phases"][0]["output"]["ran"],
                    [each["code"] for each in pinned["status"].get("warnings") or ()],
                    [each["code"] for each in follows["status"].get("warnings") or ()],
                )
            )
            await context.manager.stop("actionsets")
        assert told == [
            ("complete", "v0.0.0", [], ["StableWillChange"]),
            ("complete", "v0.1.0", ["VersionDeprecated"], []),
            ("complete", "v0.1.0", ["VersionDeprecated"], []),
            ("failed", "v0.1.0", [], []),
        ]
        assert len(theatre.calls) == 3  # the deferPhases of the three that ran


async def test_an_artifact_of_a_version_that_the_reader_does_not_know_is_refused(
    context: ControllerContext, unique: str
) -> None:
    functions = [
        PhaseFunction(name="Dump", run=version_of),
        PhaseFunction(name="Dump", run=version_of, version="v2.0.0", stable=True),
        PhaseFunction(name="Load", run=version_of, reads={"Dump": "<2.0.0"}),
    ]
    async with Theatre.open(context, unique, *functions) as theatre:
        outputs = {"copy": {"keyValue": {"path": "/x"}}}
        await theatre.blueprint(
            {"backup": action(phase("a", "Dump"), outputs=outputs), "restore": action(phase("b", "Load"))}
        )
        new = await theatre.run("backup")
        old = await theatre.run(theatre.request("backup", preferredVersion="v0.0.0"))
        refused = await theatre.run(theatre.request("restore", artifacts=new["status"]["actions"][0]["artifacts"]))
        assert theatre.errors(refused) == [("b", "ArtifactIncompatible")]
        done = await theatre.run(theatre.request("restore", artifacts=old["status"]["actions"][0]["artifacts"]))
        assert done["status"]["state"] == "complete"


@phase_function("Legacy")
class _Legacy:
    """Asked for its progress, as functions are that do not tell it."""

    def __call__(self, context: PhaseContext, args: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"args": dict(args)}


async def test_a_plain_class_without_any_further_member_runs(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique, _Legacy) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Legacy"))})
        assert (await theatre.run("b"))["status"]["state"] == "complete"
