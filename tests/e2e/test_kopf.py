"""A kopf operator runs on the control plane unchanged: watches, status patches, finalizers, events, timers, owners."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.control_plane import Program, RunningPlane, in_env, manifest
from tests.e2e.widgets import widget
from tests.harness.processes import Child, running

pytestmark = pytest.mark.xdist_group("e2e")

OPERATOR = Path(__file__).parent / "operator.py"


@pytest.fixture
def operator(plane: RunningPlane, namespace: str, widgets: None, tmp_path: Path) -> Iterator[Child]:
    command = [sys.executable, "-m", "kopf", "run", "--namespace", namespace, "--verbose", str(OPERATOR)]
    with running(in_env(plane.env, command), tmp_path / "kopf.log", name="kopf") as child:
        yield child
        child.process.kill()  # asked politely, it would wait some seconds for its timers


def test_an_operator_makes_follows_and_cleans_up(kubectl: Program, operator: Child) -> None:
    try:
        kubectl("create", "-f", "-", stdin=manifest(widget("a")))
        kubectl("wait", "widget/a", "--for=jsonpath={.status.phase}=Ready", "--timeout=20s")
        assert kubectl("get", "cm", "a-page", "-o", "jsonpath={.data.colour}").out == "red"
        metadata = kubectl("get", "widget", "a", "-o", "json").json()["metadata"]
        assert metadata["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]

        kubectl("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"colour":"blue"}}')
        kubectl("wait", "widget/a", "--for=jsonpath={.status.phase}=Repainted from red", "--timeout=20s")
        assert kubectl("get", "cm", "a-page", "-o", "jsonpath={.data.colour}").out == "blue"
        kubectl("wait", "widget/a", "--for=jsonpath={.status.ticks}", "--timeout=20s")
        assert "made a red page" in kubectl("events", "--for", "widget/a").out

        kubectl("delete", "widget", "a", "--timeout=20s")
        kubectl("get", "cm", "a-farewell")
        kubectl("wait", "cm/a-page", "--for=delete", "--timeout=20s")
    except AssertionError as failure:
        raise AssertionError(f"{failure}\n\nthe operator said:\n{operator.output_tail(40)}") from failure
    assert not operator.has_ended(), operator.output_tail()
