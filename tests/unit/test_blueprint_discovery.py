"""The functions of a process over HTTP, ActionSets made from others, and what phases told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from planform.api.kinds import Object
from planform.blueprints import logs as phase_logs
from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.children import NoChild, child_of
from planform.blueprints.contract import PhaseFunction
from planform.blueprints.discovery import answer
from planform.blueprints.logs import PhaseLogs
from planform.blueprints.model import encode_locks
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.blueprints.uses import FunctionUses
from planform.blueprints.versions import parse_versions
from planform.client.informer import InformerEvent
from planform.clock import SystemClock

VERSIONS = """
releases: ["0.1", "0.2", "0.3", "0.4"]
functions:
  Wait:
    stable: v1.0.0
    versions:
      v0.0.0: {introducedIn: "0.1", promotedIn: "0.1", deprecatedIn: "0.2", removedIn: "0.4", replacement: v1.0.0}
      v1.0.0: {introducedIn: "0.1", promotedIn: "0.2"}
      v1.1.0: {introducedIn: "0.3", labels: {channel: beta}}
"""


def wait(version: str, **more: Any) -> PhaseFunction:
    return PhaseFunction(
        name="Wait", run=print, version=version, required=("timeout",), arguments=("conditions",), **more
    )


def catalogue(release: str = "0.4") -> PhaseCatalogue:
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    registry.register(wait("v1.0.0", description="Wait for it."), wait("v1.1.0", resumable=True))
    if release != "0.4":
        registry.register(wait("v0.0.0"))
    registry.register(PhaseFunction(name="Custom", run=print))
    return PhaseCatalogue(registry, versions=parse_versions(VERSIONS), release=release)


def get(path: str, known: PhaseCatalogue | None = None, **headers: str) -> tuple[int, dict[str, str], Any]:
    status, told, body = answer(known or catalogue(), path, {key.replace("_", "-"): v for key, v in headers.items()})
    return status, told, orjson.loads(body) if body else None


def test_all_functions_are_listed_custom_ones_and_removed_versions_too() -> None:
    status, _, body = get("/v1/functions")
    assert (status, body["release"]) == (200, "0.4")
    custom, waits = body["functions"]
    assert (custom["name"], custom["versioned"], custom["stable"]) == ("Custom", False, "")
    assert custom["versions"][0]["state"] == "unversioned"
    assert (waits["name"], waits["versioned"], waits["stable"]) == ("Wait", True, "v1.0.0")
    assert [(each["version"], each["state"], each["since"]) for each in waits["versions"]] == [
        ("v1.1.0", "preview", "0.3"),
        ("v1.0.0", "stable", "0.2"),
        ("v0.0.0", "removed", "0.4"),
    ]


def test_a_version_says_what_it_takes_and_when_it_goes() -> None:
    _, _, body = get("/v1/functions/Wait/versions/v0.0.0", catalogue("0.3"))
    assert body == {
        "release": "0.3",
        "function": "Wait",
        "version": "v0.0.0",
        "state": "deprecated",
        "since": "0.2",
        "deprecatedIn": "0.2",
        "removedIn": "0.4",
        "replacement": "v1.0.0",
        "requiredArgs": ["timeout"],
        "arguments": ["conditions"],
        "engines": ["embedded", "kubernetes"],
        "capabilities": ["phase"],
        "description": "",
    }


def test_a_removed_version_is_gone_and_says_what_replaces_it() -> None:
    status, _, body = get("/v1/functions/Wait/versions/0.0.0")
    assert (status, body["replacement"], "requiredArgs" in body) == (410, "v1.0.0", False)
    assert (body["kind"], body["reason"], body["code"]) == ("Status", "Gone", 410)
    assert body["message"] == "Wait v0.0.0: removed in 0.4, move to v1.0.0"


@pytest.mark.parametrize(
    "path",
    ["/v1/functions/Nope", "/v1/functions/Wait/versions/v9.9.9", "/v1/functions/Wait/versions/latest", "/v1/other",
     "/v1/functions/Wait/versions", "/v1/functions/Wait/versions/v1.0.0/more"],
)  # fmt: skip
def test_what_is_not_there_is_not_found(path: str) -> None:
    status, _, body = get(path)
    assert (status, body["kind"], body["reason"]) == (404, "Status", "NotFound")


def test_functions_can_only_be_read() -> None:
    status, headers, _ = answer(catalogue(), "/v1/functions", {}, method="POST")
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_who_has_the_answer_gets_none_until_something_changes() -> None:
    known = catalogue()
    _, headers, _ = get("/v1/functions", known)
    tag = headers["etag"]
    assert get("/v1/functions", known, if_none_match=f'"other", {tag}')[0] == 304
    known.load_overlay("functions: {Wait: {stable: v1.1.0}}")
    status, headers, body = get("/v1/functions", known, if_none_match=tag)
    assert (status, headers["etag"] != tag) == (200, True)
    assert body["functions"][1]["stable"] == "v1.1.0"


def test_discovery_calls_that_version_stable_which_an_overlay_made_so() -> None:
    known = catalogue()
    known.load_overlay("functions: {Wait: {stable: v1.1.0}}")
    _, _, body = get("/v1/functions/Wait", known)
    states = {each["version"]: each["state"] for each in body["versions"]}
    assert body["stable"] == "v1.1.0"
    assert [version for version, state in states.items() if state == "stable"] == ["v1.1.0"]
    assert states["v1.0.0"] == "preview"


def test_uses_are_counted_by_pins_and_by_runs_that_go_on() -> None:
    uses = FunctionUses()

    def told(kind: str, name: str, change: str = "MODIFIED", **content: Any) -> InformerEvent:
        return InformerEvent(change, {"kind": kind, "metadata": {"name": name, "namespace": "n"}, **content})  # type: ignore[arg-type]

    pinned = {"a": {"phases": [{"func": "Wait", "funcVersion": "0.0.0"}], "deferPhase": {"func": "Wait"}}}
    running = {"actions": [{"phases": [{"func": "Wait", "funcVersion": "v0.0.0"}]}], "state": "running"}
    uses._blueprint(told("Blueprint", "b", actions=pinned))
    uses._blueprint(told("Blueprint", "b", actions=pinned))
    uses._action_set(told("ActionSet", "s", status=running))
    known = catalogue("0.3")
    _, _, body = answer(known, "/v1/functions/Wait/versions/v0.0.0", {}, uses=uses)
    assert orjson.loads(body)["inUseBy"] == {"blueprints": 1, "actionSets": 1}
    uses._action_set(told("ActionSet", "s", status={**running, "state": "complete"}))
    uses._blueprint(told("Blueprint", "b", "DELETED"))
    assert uses("Wait", "v0.0.0") == {"blueprints": 0, "actionSets": 0}


def test_what_a_locked_blueprint_was_bound_to_is_in_use_and_whoever_asks_hears_of_changes() -> None:
    uses, heard = FunctionUses(), list[str]()
    uses.subscribe(heard.append)
    actions = {"a": {"phases": [{"func": "Wait", "name": "p", "args": {}}]}}
    locks = {"planform.dev/function-versions": encode_locks({"a/p/Wait": "v1.0.0"})}
    metadata = {"name": "b", "namespace": "n", "annotations": locks}
    free = {"kind": "Blueprint", "metadata": metadata, "actions": actions}
    uses._blueprint(InformerEvent("ADDED", free))
    assert (uses("Wait", "v1.0.0")["blueprints"], heard) == (0, ["Wait"]), "it follows whatever is stable"
    for _ in range(2):
        uses._blueprint(InformerEvent("MODIFIED", {**free, "versionPolicy": "Lock"}))
    assert (uses("Wait", "v1.0.0")["blueprints"], heard) == (1, ["Wait"] * 2)
    uses._blueprint(InformerEvent("DELETED", free))
    assert (uses("Wait", "v1.0.0")["blueprints"], heard) == (0, ["Wait"] * 3)


# ActionSets from ActionSets


def parent(**changes: Any) -> Object:
    wire = {
        "name": "backup",
        "blueprint": "db",
        "object": {"kind": "Namespace", "namespace": "x"},
        "preferredVersion": "v0.1.0",
        "podOverride": {"a": 1},
        "profile": {"name": "p"},
        "artifacts": {"stale": {}},
    }
    entry = {
        "name": "backup",
        "blueprint": "db",
        "object": wire["object"],
        "phases": [],
        "artifacts": {"copy": {"keyValue": {"path": "/x"}, "producedBy": [{"func": "Dump", "funcVersion": "v0.1.0"}]}},
    }
    return {
        "metadata": {"name": "first", "namespace": "n"},
        "spec": {"actions": [wire]},
        "status": {"state": "complete", "actions": [entry]},
        **changes,
    }


def test_a_child_keeps_the_hint_the_overrides_and_who_made_the_artifacts() -> None:
    child = child_of(parent(), "restore")
    assert child["metadata"] == {"generateName": "restore-first-", "namespace": "n"}
    assert child["spec"]["actions"] == [
        {
            "name": "restore",
            "blueprint": "db",
            "object": {"kind": "Namespace", "namespace": "x"},
            "profile": {"name": "p"},
            "podOverride": {"a": 1},
            "preferredVersion": "v0.1.0",
            "artifacts": {
                "copy": {
                    "keyValue": {"path": "/x"},
                    "producedBy": [{"func": "Dump", "funcVersion": "v0.1.0"}],
                }
            },
        }
    ]


def test_a_child_can_be_told_otherwise() -> None:
    child = child_of(parent(), "restore", changes={"preferredVersion": "v0.2.0", "options": {"a": "b"}})
    assert (child["spec"]["actions"][0]["preferredVersion"], child["spec"]["actions"][0]["options"]) == (
        "v0.2.0",
        {"a": "b"},
    )


@pytest.mark.parametrize(
    ("obj", "only", "told"),
    [
        (parent(status={"state": "failed"}), (), "is failed, not complete"),
        (parent(status=None), (), "is pending, not complete"),
        (parent(), ("other",), "has no action to go on from"),
    ],
)
def test_what_did_not_complete_has_no_children(obj: Object, only: tuple[str, ...], told: str) -> None:
    with pytest.raises(NoChild, match=told):
        child_of(obj, "restore", only=only)


# What phases told


def test_lines_are_kept_over_a_restart_and_forgotten_with_their_actionset(tmp_path: Path) -> None:
    logs = PhaseLogs(SystemClock(), tmp_path / "logs")
    logs.append("uid-1", "backup", "dump", "one\ntwo")
    again = PhaseLogs(SystemClock(), tmp_path / "logs")
    assert [each["line"] for each in again.read("uid-1")] == ["one", "two"]
    again.append("uid-1", "backup", "dump", "three")
    status, body = phase_logs.answer(again, "/planform/v1/actionsets/uid-1/logs")
    assert (status, [each["line"] for each in orjson.loads(body)["lines"]]) == (200, ["one", "two", "three"])
    again.forget("uid-1")
    assert PhaseLogs(SystemClock(), tmp_path / "logs").read("uid-1") == []


def test_only_the_last_lines_are_kept() -> None:
    logs = PhaseLogs(SystemClock())
    for number in range(phase_logs.MAX_LINES + 10):
        logs.append("u", "a", "p", str(number))
    lines = logs.read("u")
    assert (len(lines), lines[0]["line"]) == (phase_logs.MAX_LINES, "10")


@pytest.mark.parametrize(
    "path", ["/planform/v1/actionsets", "/planform/v1/actionsets/..%2f/logs", "/planform/v1/runs/u/logs"]
)
def test_no_other_path_is_answered(path: str) -> None:
    assert phase_logs.answer(PhaseLogs(SystemClock()), path)[0] == 404
