"""What an object says is wrong with it, as every command prints it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.cli.diagnosis.findings import Patient, examine
from planform.cli.objects.drawing import as_text, as_value, shortened
from planform.cli.objects.problems import age, problems_of
from planform.cli.objects.waiting import WaitTimedOut, parse_goal
from planform.client.resource_tree import Node, Target

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
LONG = "cannot apply: " + "admission webhook said no, and said it at length; " * 10 + "spec.size must be at most 5"


def an_xr(metadata: Object | None = None, **planform: Any) -> Object:
    return {
        "apiVersion": "example.org/v1",
        "kind": "XApp",
        "metadata": {"name": "web", **(metadata or {})},
        "status": {"planform": planform, "conditions": [{"type": "Synced", "status": "False", "message": LONG}]},
    }


def a_node(obj: Object) -> Node:
    return Node(Target(GroupVersionKind("example.org", "v1", "XApp"), "", "web"), obj)


CALL = {"step": "size", "function": "sizer", "revision": "sizer-1", "since": "2026-06-01T11:59:18Z"}


@pytest.mark.parametrize(
    ("obj", "told"),
    [
        (an_xr(), []),
        (an_xr(problems=[{"message": "no quota", "resource": "db"}]), ['resource "db": no quota']),
        (an_xr(problems=[{"message": "no\nanswer", "step": "size"}]), ['step "size": no answer']),
        (an_xr(problems=[{"message": "not chosen"}]), ["not chosen"]),
        (an_xr(problems=["nonsense", {"resource": "db"}]), []),
        (an_xr(problems="nonsense", runningCall="nonsense"), []),
        (
            an_xr(runningCall={**CALL, "deadline": "2026-06-01T12:00:18Z"}),
            ['step "size": function "sizer" (revision sizer-1) has not answered for 42s; its deadline is in 18s'],
        ),
        (
            an_xr(runningCall={**CALL, "deadline": "2026-06-01T11:59:48Z"}),
            [
                'step "size": function "sizer" (revision sizer-1) has not answered for 42s; its deadline passed 12s'
                " ago: do the controllers run?"
            ],
        ),
        (
            an_xr({"deletionTimestamp": "2026-06-01T11:00:00Z", "finalizers": ["foregroundDeletion", "acme.io/drain"]}),
            [
                "being deleted for 1h0m; held by finalizer foregroundDeletion (the garbage collector, until what it"
                " owns is gone)",
                "being deleted for 1h0m; held by finalizer acme.io/drain (whoever runs acme.io)",
            ],
        ),
        (
            an_xr({"deletionTimestamp": "2026-06-01T12:00:30Z"}),
            ["being deleted; no finalizer holds it"],
        ),
    ],
    ids=[
        "well",
        "of a resource",
        "of a step",
        "of neither",
        "no message",
        "not ours",
        "hangs",
        "overdue",
        "held",
        "goes soon",
    ],
)
def test_problems_are_told_with_where_they_lie(obj: Object, told: list[str]) -> None:
    assert problems_of(obj, NOW) == told


def test_an_object_that_is_not_there_has_none() -> None:
    assert problems_of(None, NOW) == []


def test_the_tree_shows_the_cause_in_full_where_the_column_has_no_room() -> None:
    text = as_text([a_node(an_xr())], now=NOW)
    assert shortened(LONG) in text.split("\n")[1]
    assert f"  : {LONG}" in text.split("\n")
    assert LONG not in as_text([a_node(an_xr())])


def test_a_cause_that_the_problems_tell_is_told_once() -> None:
    problem = {"message": LONG, "step": "size"}
    xr = an_xr(problems=[problem])
    xr["status"]["conditions"][0] |= {"reason": "ReconcileError", "message": f'step "size": {LONG}'}
    assert as_text([a_node(xr)], now=NOW).count(LONG) == 1


def test_the_tree_as_data_has_the_problems() -> None:
    assert as_value(a_node(an_xr(problems=[{"message": "no quota"}])), NOW)["problems"] == ["no quota"]
    assert "problems" not in as_value(a_node(an_xr()), NOW)


def test_whoever_waits_in_vain_hears_the_problems() -> None:
    error = WaitTimedOut("xapp/web", parse_goal("condition=Ready"), an_xr(problems=[{"message": "no quota"}]), 5)
    assert str(error).endswith("\n  no quota")


def test_the_doctor_begins_with_what_is_stuck_and_tells_problems_and_calls() -> None:
    names = {"kind": "XApp", "plural": "xapps"}
    established = {"conditions": [{"type": "Established", "status": "True"}]}
    xrd = {
        "apiVersion": "apiextensions.crossplane.io/v2",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": "xapps.example.org"},
        "spec": {"group": "example.org", "names": names, "versions": []},
        "status": established,
    }
    findings = examine(Patient([xrd, an_xr(problems=[{"message": "no quota"}], runningCall=CALL)], NOW))
    assert [each.level for each in findings] == ["stuck", "stuck", "works"]
    by_check = {each.check: each for each in findings}
    assert by_check["not-synced"].details == ("no quota",)
    assert "has not answered for 42s" in by_check["running-call"].message


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (61, "1m1s"), (3660, "1h1m"), (90_000, "1d1h"), (-5, "0s")]
)
def test_ages_are_short(seconds: int, text: str) -> None:
    assert age(datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(seconds, UTC)) == text
