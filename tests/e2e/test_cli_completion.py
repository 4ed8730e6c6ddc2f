"""What the Tab key offers: kinds, names and namespaces of the control plane that the command would ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.control_plane import Program, config_map, manifest
from tests.e2e.control_plane import planform as planform_in

pytestmark = pytest.mark.xdist_group("e2e-cli")


def offered(program: Program, line: str, **env: str) -> list[str]:
    """The words after a line whose last word is unfinished, as bash asks for them."""
    place = str(len(line.split(" ")) - 1)
    done = program(env={"_PLANFORM_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": place, **env})
    assert not done.err
    return [word.partition(",")[2] for word in done.lines if word]


def test_kinds_then_their_names_are_offered(planform: Program, namespace: str) -> None:
    planform("apply", "-n", namespace, "-f", "-", stdin=manifest(config_map("left"), config_map("right")))
    assert offered(planform, "planform get configm") == ["configmaps"]
    for command in ("get", "describe", "delete", "label", "edit", "trace", "explain-run"):
        assert offered(planform, f"planform {command} -n {namespace} cm ri") == ["right"]
    assert offered(planform, f"planform get -n {namespace} cm left r") == ["right"]
    assert offered(planform, f"planform get -n {namespace} cm left l") == []
    assert offered(planform, f"planform trace -n {namespace} cm/l") == ["cm/left"]
    assert offered(planform, f"planform get -n {namespace}") == [namespace]


def test_nothing_is_offered_and_nothing_said_where_nobody_answers(planform: Program, tmp_path: Path) -> None:
    assert offered(planform, "planform get nosuchkind x") == []
    assert offered(planform, "planform nosuchcommand zz") == []
    assert offered(planform, "planform function revisions no-such-function") == []
    assert offered(planform_in(tmp_path), "planform get configm") == []
