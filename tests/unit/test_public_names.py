"""No name that others see, and none that lies on disk, changes by accident.

The names stand in tests/golden/public_names.yaml. None of them is the name of a module, a class or a function, so that
files can move and identifiers can change while this file stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import public_names
from tools.public_names import GOLDEN, Sources, difference, rendered

ADVICE = (
    "A name that others see, or that lies on disk, has changed. If a line goes, the old name must still be understood. "
    "If that is so, or if names were only added: tools/public_names.py writes the file again."
)


def test_every_name_that_others_see_is_still_there() -> None:
    changed = difference(GOLDEN.read_text(), rendered())
    assert changed == [], "\n".join([ADVICE, *changed])


@pytest.fixture(scope="module")
def golden() -> Any:
    return yaml.load(GOLDEN.read_text(), Loader=yaml.CSafeLoader)


REASONS = "CamelCase words (kinds, condition types, reasons, values)"
KNOWN: list[tuple[str, Callable[[Any], Any], str]] = [
    ("field of a CRD", lambda all_: all_["CRDs"]["functions.pkg.crossplane.io"]["versions"]["v1"]["fields"], ".spec"),
    ("command", lambda all_: all_["commands"], "planform explain-run"),
    ("option", lambda all_: all_["commands"]["planform up"], "--durability"),
    ("variable of an option", lambda all_: all_["config file keys"], "planform up: data PLANFORM_DATA"),
    ("gate", lambda all_: all_["feature gates"], "FunctionRevisionSelectors"),
    ("metric", lambda all_: all_["metrics"], "planform_reconcile_total"),
    ("chart value", lambda all_: all_["chart values"], ".replicas = 2"),
    ("annotation", lambda all_: all_["qualified names"], "crossplane.io/paused"),
    ("finalizer", lambda all_: all_["qualified names"], "composite.apiextensions.crossplane.io"),
    ("event reason", lambda all_: all_[REASONS], "SelectComposition"),
    ("database", lambda all_: all_["data directory"]["databases"], "journal.sqlite"),
    ("file", lambda all_: all_["data directory"]["files"], "store/planform.db"),
    ("exit code", lambda all_: all_["exit codes"], "130"),
]


@pytest.mark.parametrize(("where", "known"), [each[1:] for each in KNOWN], ids=[each[0] for each in KNOWN])
def test_the_file_holds_names_of_every_sort(golden: Any, where: Callable[[Any], Any], known: str) -> None:
    assert known in [str(each) for each in where(golden)]


def sources(tmp_path: Path, **modules: str) -> Sources:
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    return Sources.read([tmp_path])


def test_a_name_that_is_put_together_from_constants_is_read_whole(tmp_path: Path) -> None:
    found = sources(
        tmp_path,
        names='GROUP = "planform.dev"\n',
        user='from names import GROUP\nLABEL = f"{GROUP}/digest"\ndef f(x):\n    return f"{LABEL}-{x}"\n',
    )
    assert {"planform.dev", "planform.dev/digest", "planform.dev/digest-{}"} <= set(found.texts())


def test_what_names_or_explains_python_is_no_name_for_others(tmp_path: Path) -> None:
    text = '"""Docstring."""\n__all__ = ["Thing"]\ndef f(x: "Thing") -> "Thing":\n    return cast("Thing", x)\n'
    assert list(sources(tmp_path, one=text).texts()) == []


def test_a_move_and_a_new_name_inside_change_nothing(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after" / "deeper"
    before.mkdir()
    after.mkdir(parents=True)
    (before / "one.py").write_text('def old(a):\n    return {"kind": "Run", "why": a}\n')
    (after / "two.py").write_text('class New:\n    def new(self, b):\n        return {"kind": "Run", "why": b}\n')
    one, two = Sources.read([before]), Sources.read([after])
    assert sorted(one.texts()) == sorted(two.texts())
    assert sorted(one.keys()) == sorted(two.keys())


def test_spans_are_found_with_their_attributes(tmp_path: Path) -> None:
    found = sources(tmp_path, one='with t.span("step", attributes={"b": 1, "a": 2}) as s:\n    s.set(error="x")\n')
    assert found.spans() == {"step": ["a", "b"]}
    assert list(found.span_attributes()) == ["error"]


def test_the_program_names_no_module_that_only_it_could_find() -> None:
    """The tool imports what it asks; what it writes must not tell from where."""
    tree = ast.parse(Path(public_names.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    ours = {name for name in imported if name.startswith("planform")}
    text = GOLDEN.read_text()
    assert not [name for name in ours if name in text]
