"""Whole compositions through `planform render`, compared with golden files: the designs' snippets and others.

PLANFORM_UPDATE_GOLDEN=1 pytest tests/unit/test_builtin_golden.py     writes what is rendered now
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "golden" / "functions"
CASES = sorted(path.parent.name for path in FOLDER.glob("*/composition.yaml"))


def render(case: Path, capsys: pytest.CaptureFixture[str]) -> str:
    from planform.cli import main

    words = ["render", str(case / "xr.yaml"), str(case / "composition.yaml"), "--include-function-results"]
    for flag, name in (("-o", "observed.yaml"), ("-e", "required.yaml")):
        if (case / name).exists():
            words += [flag, str(case / name)]
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    assert ended.value.code in (0, None), printed.err
    return printed.out


@pytest.mark.parametrize("name", CASES)
def test_a_composition_renders_what_it_rendered_before(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "starlark" in name:
        pytest.importorskip("starlark", reason="the extra `starlark` is not installed")
    case = FOLDER / name
    rendered = render(case, capsys)
    golden = case / "rendered.yaml"
    if os.environ.get("PLANFORM_UPDATE_GOLDEN"):
        golden.write_text(rendered)
    assert rendered == golden.read_text()
    assert render(case, capsys) == rendered, "twice the same"


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 22
