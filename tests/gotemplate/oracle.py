"""Go's own answer to a template: builds the program in `oracle/` once and asks it in batches.

The program is kept outside the tree, next to the other test programs, under the digest of its source.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.testbins import Go, Workshop, cache_directory, locked

SOURCE = Path(__file__).parent / "oracle"


@dataclass(frozen=True)
class Question:
    """A template and its data, as both engines are asked."""

    text: str
    data: Any = None
    missing_key: str = "default"
    left: str = ""
    right: str = ""
    name: str = "main"
    others: Sequence[tuple[str, str]] = ()
    repeat: int = 0

    def request(self, number: int) -> dict[str, Any]:
        return {
            "id": number,
            "templates": [{"name": name, "text": text} for name, text in ((self.name, self.text), *self.others)],
            "data": self.data,
            "missingkey": self.missing_key,
            "left": self.left,
            "right": self.right,
            "repeat": self.repeat,
        }


@dataclass(frozen=True)
class Answer:
    """`kind` is ok, parse or exec; a Go program that panics counts as one that failed to execute."""

    kind: str
    output: str = ""
    error: str = ""
    seconds: float = 0.0
    functions: Mapping[str, str] = field(default_factory=dict)


def build() -> Path:
    """The path of the program, which is built if need be."""
    digest = hashlib.sha256()
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    cache = cache_directory()
    program = cache / "gotemplate-oracle" / digest.hexdigest()[:16] / "oracle"
    if program.exists():
        return program
    with locked(cache, "gotemplate-oracle"):
        if not program.exists():
            _build_to(program, cache)
    return program


def _build_to(program: Path, cache: Path) -> None:
    scratch = cache / "scratch" / "gotemplate-oracle"
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(SOURCE, scratch)
    log = cache / "logs" / "gotemplate-oracle.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    Go.find(Workshop(cache, scratch, log)).run("build", "-trimpath", "-ldflags", "-s -w", "-o", "oracle", ".")
    program.parent.mkdir(parents=True, exist_ok=True)
    (scratch / "oracle").rename(program)
    shutil.rmtree(scratch, ignore_errors=True)


def ask(questions: Sequence[Question]) -> list[Answer]:
    """One answer for each question, from one run of the program."""
    return _ask([question.request(number) for number, question in enumerate(questions)])


def function_types() -> Mapping[str, str]:
    """The Go types of sprig's functions, by name."""
    return _ask([{"id": 0, "list": True}])[0].functions


def _ask(requests: Sequence[Mapping[str, Any]]) -> list[Answer]:
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    environment = {**os.environ, "TZ": "UTC"}
    done = subprocess.run(
        [build()], input=lines.encode(), stdout=subprocess.PIPE, env=environment, check=True, timeout=300
    )
    answers = [_answer(json.loads(line)) for line in done.stdout.splitlines()]
    if len(answers) != len(requests):
        raise AssertionError(f"the oracle answered {len(answers)} of {len(requests)} questions")
    return answers


def _answer(given: Mapping[str, Any]) -> Answer:
    kind = "exec" if given["kind"] == "panic" else given["kind"]
    output = base64.b64decode(given["output"]).decode("utf-8", "surrogateescape")
    return Answer(kind, output, given.get("error", ""), given.get("seconds", 0.0), given.get("functions", {}))
