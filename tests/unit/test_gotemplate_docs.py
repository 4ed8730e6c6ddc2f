"""The reference page tells the truth: its examples run, and it lists what is offered and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

from planform.gotemplate import Limits
from planform.gotemplate.builtins import builtins
from planform.gotemplate.helm import helm
from planform.gotemplate.parser import MAX_BLOCKS, MAX_PARENTHESES, MAX_RANGES, MAX_STAGES
from planform.gotemplate.sprig import REFUSED, sprig

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "go-templates.md").read_text()


def test_the_examples_run() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 3
    namespace: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "go-templates.md", "exec"), namespace)


def test_every_function_is_listed_once_and_no_other() -> None:
    table = PAGE.partition("## Functions")[2].partition("Not all of sprig")[0]
    listed = re.findall(r"`(\w+)`", table)
    assert sorted(listed) == sorted([*builtins, *sprig, *helm])


def test_every_refused_function_is_listed_with_its_reason() -> None:
    for name, reason in REFUSED.items():
        assert re.search(rf"^\|.*`{name}`.*\| {re.escape(reason)} \|$", PAGE, re.MULTILINE)


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    assert f"| `steps` | {limits.steps:,} |" in PAGE
    assert f"| `output` | {limits.output >> 20} Mi characters |" in PAGE
    assert f"| `items` | {limits.items:,} |" in PAGE
    assert f"| `depth` | {limits.depth} |" in PAGE
    assert f"{MAX_BLOCKS} deep" in PAGE
    assert f"more than {MAX_PARENTHESES}" in PAGE
    assert f"ranges more than {MAX_RANGES}" in PAGE
    assert f"pipelines of more than {MAX_STAGES} stages" in PAGE
