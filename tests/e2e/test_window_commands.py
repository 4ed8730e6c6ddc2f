"""`planform freeze` and `planform window` against a control plane that runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from planform.cli.rollouts.freeze import frozen
from planform.errors import UsageError
from tests.e2e.control_plane import Program, RunningPlane

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def test_a_freeze_holds_whom_it_is_for_until_it_is_over(plane: RunningPlane, planform: Program, namespace: str) -> None:
    plane.kubectl("label", "namespace", namespace, f"tier={namespace}")
    freeze = ("freeze", namespace, "--for", f"tier={namespace}", "--until", "2100-01-04", "--reason", "year end")
    assert "would be frozen" in planform(*freeze, "--dry-run").out
    assert f"frozen until 2100-01-04T00:00:00Z by ChangeWindow {namespace}" in planform(*freeze).out
    again = planform(*freeze, code=2)
    assert "already" in again.err
    assert "planform window status" in again.err
    held = planform("window", "status", "--namespace", namespace, "-o", "json").json()
    assert (held["admitted"], held["window"], held["next"]) == (False, namespace, "2100-01-04T00:00:00Z")
    assert "year end" in planform("window", "status", "-n", namespace).out
    assert planform("window", "status", "-n", namespace, "--at", "2100-01-04T00:00:00Z").out == "may be moved\n"
    assert planform("window", "status", "-o", "json").json()["admitted"], "an XR in no namespace is not meant"
    listed = {each["name"]: each for each in planform("window", "list", "-o", "json").json()}
    assert listed[namespace]["open"] and listed[namespace]["for"] == f"namespaces tier={namespace}"
    table = planform("window", "list").out
    assert "NAME" in table and namespace in table
    one = planform("window", "status", namespace, "-o", "yaml").out
    assert "forbids changes until 2100-01-04" in one
    plane.kubectl("wait", "--for=jsonpath={.status.open}=true", f"changewindow/{namespace}", "--timeout=10s")
    planform("delete", "changewindow", namespace)
    assert planform("window", "status", "-n", namespace).out == "may be moved\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--until", "2100-01-04", "--reason", "x"), "say whom to freeze"),
        (("--all", "--for", "a=b", "--until", "2100-01-04", "--reason", "x"), "say whom to freeze"),
        (("--all", "--until", "someday", "--reason", "x"), "is no date"),
        (("--all", "--until", "2020-01-01", "--reason", "x"), "is in the past"),
        (("--all", "--from", "2101-01-01", "--until", "2100-01-01", "--reason", "x"), "is not before"),
        (("--all", "--until", "2100-01-01", "--time-zone", "Mars", "--reason", "x"), "no time zone"),
        (("--for", "a==", "--until", "2100-01-01"), "--reason"),
        (("--for", "(", "--until", "2100-01-01", "--reason", "x"), "--for"),
    ],
)
def test_what_cannot_be_frozen_is_refused_before_anything_is_made(
    plane: RunningPlane, arguments: tuple[str, ...], complaint: str
) -> None:
    assert complaint in plane.planform("freeze", *arguments, code=2).err


def test_status_is_about_a_window_or_about_an_xr(planform: Program) -> None:
    assert "name a window" in planform("window", "status", "w", "-n", "default", code=2).err
    assert "no label" in planform("window", "status", "--xr-labels", "gold", code=2).err
    assert "no time" in planform("window", "status", "--at", "noon", code=2).err
    assert planform("window", "status", "no-such-window", code=1).err


@pytest.mark.parametrize(
    ("labels", "selector"),
    [
        ("tier=gold", {"matchLabels": {"tier": "gold"}}),
        (
            "tier in (gold,silver)",
            {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "silver"]}]},
        ),
        ("tier!=gold", {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}),
        ("!dev", {"matchExpressions": [{"key": "dev", "operator": "DoesNotExist"}]}),
        ("prod", {"matchExpressions": [{"key": "prod", "operator": "Exists"}]}),
    ],
)
def test_labels_are_taken_as_kubectl_takes_them(labels: str, selector: object) -> None:
    made = frozen("", labels, "", begin="", until="2027-01-04", zone="Europe/Zurich", reason="r", now=NOW)
    assert made["spec"]["for"] == {"namespaces": selector}
    assert made["spec"]["once"] == {"to": "2027-01-03T23:00:00Z"}
    assert made["metadata"]["name"].endswith("-20270103")


def test_numbers_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="compare numbers"):
        frozen("", "size>3", "", begin="", until="2027-01-04", zone="UTC", reason="r", now=NOW)
