"""Words that only this project used, and what to say instead: `python tools/words.py` lists where one came back.

A reader who knows Kubernetes, controller-runtime and Crossplane shall meet no vocabulary of ours. Two things are
looked at: what is named in the code (modules, classes, functions, parameters, attributes, fields), over the syntax
tree; and sentences, in docstrings, comments, messages and documentation. `tests/unit/test_words.py` runs this.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CODE: Final = ("src", "sdk/src")
"""Where names are looked at."""
TEXT: Final = ("src", "sdk/src", "tests", "tools", "bench", "docs", "README.md", "CONTRIBUTING.md")
"""Where sentences are looked at."""

NAMES: Final = {
    "pass": "reconcile",
    "passes": "reconciles",
    "plane": "manager; a control plane is a control_plane",
    "workbench": "ControllerContext",
    "bench": "context",
    "company": "coalescing",
    "storm": "burst",
    "rests at": "observed_resource_version",
    "standing": "last_run, or what it is",
    "standings": "last_runs, or what they are",
    "echo": "self-triggered",
    "own write": "tracked write",
    "teller": "StatusWriter",
    "tell": "set status, record event, notify",
    "tells": "reports",
    "told": "status fields, or what it is",
    "said": "message, or what it is",
    "says": "description",
    "blind": "ignores control-plane fields",
    "bookkeeping": "control-plane fields, server metadata",
    "machinery": "composition fields; apimachinery",
    "population": "usage index",
    "fleet": "XR index",
    "chore": "built-in controller",
    "chores": "built-in controllers",
    "departures": "delete and wait",
    "turn": "slot",
    "turns": "slots",
    "line up": "enqueue",
    "come forward": "acquire",
    "came forward": "acquired",
    "hands": "worker slots",
    "heed": "on_read",
    "restate": "fast path",
    "restated": "fast path",
    "restating": "fast path",
    "chance": "random",
    "yamlish": "yaml_loader",
    "trouble": "error",
    "troubles": "errors",
    "misshapen": "invalid",
    "complain": "add error, report",
    "complaint": "error, message",
    "complaints": "errors",
    "let go": "finalize, release",
    "owes": "has pending garbage",
    "owed": "pending garbage",
    "lending": "temporary activation",
    "lent": "temporarily active",
    "elsewhere": "unsupported, external",
    "surroundings": "the context or environment that it is",
    "deaf": "disconnected",
    "coexistence": "takeover",
    "judge": "validate",
    "judged": "validated",
    "most": "max",
    "least": "min",
    "longest": "max_length, max_seconds",
    "shortest": "min_length",
    "last words": "stderr_tail",
}
"""Words and pairs of words of a name, and what says the same."""

CLASSES: Final = {"Gate": "ConcurrencyLimiter", "Change": "store.Change only", "Registry": "whose it is"}
AT_HOME: Final = {"Gate": "/api/rollout_gates.py", "Change": "/store/"}
"""Where such a class is what its name says: a rollout's gate, a change of the store."""
MODULES: Final = {
    "places": "paths",
    "documents": "non-resource endpoints",
    "sharing": "sharding",
    "telling": "status_writer",
    "gate": "limiter",
}

ALLOWED: Final = {
    "CONTROL_PLANE": "a control plane is one",
    "ControlPlane": "a control plane is one",
    "NoControlPlane": "a control plane is one",
    "control_plane": "a control plane is one",
    "echo": "what a program of that name does",
    "tell": "a file's position, as in Python's io",
    "at_least": "plain English",
    "_AT_LEAST": "plain English",
    "longest_match": "how prefixes of images are matched",
}
"""Names with one of the words that mean something else."""

SENTENCES: Final = re.compile(
    r"\b(company|standings?|tellers?|heed(?:s|ed|ing)?|hands|storms?|chores?|workbench(?:es)?|populations?|deaf|lending"
    r"|departures?|misshapen|yamlish|last words)\b",
    re.IGNORECASE,
)
NOT_OURS: Final = {
    "src/planform/journal/files.py": "standing",
    "src/planform/journal/tables.py": "standing",
    "tests/unit/test_journal.py": "standing",
}
"""A table of the journal is called so on disk, where nothing is renamed."""
_ITSELF: Final = frozenset({"tools/words.py", "tests/unit/test_words.py"})
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def found_in_names(root: Path = ROOT) -> Iterator[str]:
    """Every name of the code with a word that has a better one."""
    for file in _files(root, CODE, ".py"):
        where = file.relative_to(root).as_posix()
        if "_pb2" in file.name:
            continue
        if file.stem in MODULES:
            yield f'{where}: module "{file.stem}": say {MODULES[file.stem]}'
        yield from _wrong(where, 1, "module", file.stem)
        for line, kind, name in _named(ast.parse(file.read_bytes())):
            if kind == "class" and name in CLASSES and not (name in AT_HOME and AT_HOME[name] in where):
                yield f'{where}:{line}: class "{name}": say {CLASSES[name]}'
            yield from _wrong(where, line, kind, name)


def found_in_sentences(root: Path = ROOT) -> Iterator[str]:
    """Every sentence with a word that only we would use so."""
    for file in (*_files(root, TEXT, ".py"), *_files(root, TEXT, ".md")):
        where = file.relative_to(root).as_posix()
        if where in _ITSELF or "_pb2" in file.name or "/golden/" in where:
            continue
        text = file.read_text()
        for line, sentence in _sentences(text) if file.suffix == ".py" else enumerate(text.splitlines(), 1):
            for match in SENTENCES.finditer(sentence):
                if NOT_OURS.get(where) != match[0]:
                    yield f'{where}:{line}: "{match[0]}"'


def _files(root: Path, below: tuple[str, ...], suffix: str) -> list[Path]:
    found = [root / each for each in below]
    return sorted(
        each
        for start in found
        for each in ([start] if start.is_file() else start.rglob(f"*{suffix}"))
        if each.suffix == suffix and "__pycache__" not in each.parts
    )


def _named(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """What is defined, by line and kind; locals are left out."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                yield node.lineno, "class", node.name
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        yield field.lineno, "field", field.target.id
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, "function", node.name
            case ast.arg():
                yield node.lineno, "parameter", node.arg
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, "attribute", node.attr
            case ast.Module():
                for statement in node.body:
                    yield from _globals(statement)


def _globals(statement: ast.stmt) -> Iterator[tuple[int, str, str]]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    for target in targets:
        if isinstance(target, ast.Name):
            yield statement.lineno, "attribute", target.id


def _wrong(where: str, line: int, kind: str, name: str) -> Iterator[str]:
    if name in ALLOWED:
        return
    parts = [part.lower() for part in _PART.findall(name)]
    for at, part in enumerate(parts):
        if part == "plane" and at and parts[at - 1] in ("control", "cross"):
            continue
        for word in dict.fromkeys((part, " ".join(parts[at : at + 2]))):
            if word in NAMES:
                yield f'{where}:{line}: {kind} "{name}": say {NAMES[word]}'


def _sentences(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for at, line in enumerate(token.string.splitlines()):
                yield token.start[0] + at, line


if __name__ == "__main__":
    wrong = [*found_in_names(), *found_in_sentences()]
    print("\n".join(wrong))
    sys.exit(bool(wrong))
