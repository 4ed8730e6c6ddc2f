"""The hand-written templates: one for each line of `corpus/*.txt`, with `⏎` for a line break.

A line may begin with options in brackets, such as `[missingkey=error]` or `[delims=<< >>]`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from tests.gotemplate.oracle import Question

FOLDER = Path(__file__).parent / "corpus"
_OPTIONS = re.compile(r"\[(missingkey|delims)=([^\]]*)\] ?")


@cache
def data() -> Any:
    return json.loads((FOLDER / "data.json").read_text())


def questions(name: str) -> list[Question]:
    """The cases of one file."""
    lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    return [_question(line) for line in lines if line and not line.startswith("# ")]


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def _question(line: str) -> Question:
    missing_key, left, right = "default", "", ""
    while match := _OPTIONS.match(line):
        line = line[match.end() :]
        if match[1] == "missingkey":
            missing_key = match[2]
        else:
            left, right = match[2].split(" ")
    return Question(line.replace("⏎", "\n"), data(), missing_key, left, right)
