"""What a platform's directory holds: objects to apply, functions to serve from source, tests to run.

Read anew after every save; what cannot be read is a problem to show, and the rest goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from planform.api.kinds import Object, gvk_of
from planform.api.metadata import name_of, namespace_of
from planform.apimachinery import yaml_loader
from planform.apimachinery.yaml_loader import YamlError
from planform.cli.dev.excerpts import Problem, excerpt
from planform.cli.objects.manifests import TEST_GROUP

ENTRIES: Final = ("function.py", "main.py")
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv", "dist", "build"})
_YAML: Final = (".yaml", ".yml")
_WATCHED: Final = (*_YAML, ".json", ".py", ".toml", ".k", ".star", ".tmpl")
_META_GROUP: Final = "meta.pkg.crossplane.io"
_FIRST: Final = ("Namespace", "CustomResourceDefinition", "CompositeResourceDefinition", "Function", "Composition")

Stamps = Mapping[Path, tuple[int, int]]
"""Files, with when they were changed and their size."""


@dataclass(frozen=True)
class Source:
    """A function whose source is here."""

    name: str
    directory: Path
    entry: Path


@dataclass(frozen=True)
class Document:
    """An object, and where it is written."""

    object: Object
    file: Path
    number: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        gvk = gvk_of(self.object)
        return gvk.group, gvk.kind, namespace_of(self.object), name_of(self.object)


@dataclass
class Contents:
    """All of a directory at one moment."""

    documents: list[Document] = field(default_factory=list)
    functions: list[Source] = field(default_factory=list)
    tests: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def stamps(directory: Path) -> dict[Path, tuple[int, int]]:
    """The files that matter, and whether they are as they were."""
    found: dict[Path, tuple[int, int]] = {}
    for path in _files(directory):
        if path.suffix in _WATCHED:
            try:
                stat = path.stat()
            except OSError:  # it went away between the two
                continue
            found[path] = stat.st_mtime_ns, stat.st_size
    return found


def _files(directory: Path) -> Iterator[Path]:
    for root, directories, files in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith(".") and name not in _SKIPPED)
        yield from (Path(root, name) for name in sorted(files) if not name.startswith("."))


def read_contents(directory: Path, files: Stamps) -> Contents:
    """Sort what the files hold. Definitions come first, then functions and Compositions, then the rest."""
    contents = Contents()
    texts = {path: path for path in files if path.suffix in _YAML}
    for path in texts:
        if path.name.endswith(("_test.yaml", "_test.yml")):
            contents.tests.append(path)
            continue
        for number, document in enumerate(_documents(path, contents.problems), start=1):
            if _is_meta(document):
                contents.functions += _source(document, path, contents.problems)
            elif document is not None and not _belongs_to_tests(path, directory):
                contents.documents += _object(document, path, number, contents.problems)
    homes = [source.directory for source in contents.functions if source.directory != directory]
    # The example beside a function's source is for those who look at it alone.
    contents.documents = [each for each in contents.documents if not any(home in each.file.parents for home in homes)]
    contents.documents.sort(key=lambda each: _rank(each.object))
    return contents


def _rank(obj: Object) -> int:
    return _FIRST.index(obj["kind"]) if obj["kind"] in _FIRST else len(_FIRST)


def _documents(path: Path, problems: list[Problem]) -> list[Any]:
    try:
        text = path.read_bytes()
    except OSError:
        return []
    try:
        return list(yaml_loader.load_all(text, strict=True))
    except YamlError as error:
        problems.append(Problem(str(error), path, error.line, excerpt(path, error.line)))
    except ValueError as error:
        problems.append(Problem(str(error), path))
    return []


def _is_meta(document: Any) -> bool:
    return isinstance(document, dict) and str(document.get("apiVersion", "")).startswith(f"{_META_GROUP}/")


def _source(document: Any, path: Path, problems: list[Problem]) -> Iterator[Source]:
    """The function that a package definition describes: its source is beside `package/`, or beside the file."""
    if document.get("kind") != "Function":
        return
    home = path.parent.parent if path.parent.name == "package" else path.parent
    name = str(name_of(document) or home.name)
    entry = next((home / each for each in ENTRIES if (home / each).is_file()), None)
    if entry is None:
        problems.append(Problem(f'function "{name}" has no {" or ".join(ENTRIES)} beside its package', path))
        return
    yield Source(name, home, entry)


def _belongs_to_tests(path: Path, directory: Path) -> bool:
    return any(part in ("test", "tests") for part in path.relative_to(directory).parts[:-1])


def _object(document: Any, path: Path, number: int, problems: list[Problem]) -> Iterator[Document]:
    if not isinstance(document, dict):
        problems.append(Problem(f"document {number} is not an object", path))
        return
    if str(document.get("apiVersion", "")).startswith(f"{TEST_GROUP}/"):
        return
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _object(item, path, number, problems)
        return
    if not document.get("apiVersion") or not document.get("kind"):
        return  # values of a chart, a workflow of CI: not ours
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        problems.append(Problem(f"document {number}: {document['kind']} has no metadata.name", path))
        return
    yield Document(document, path, number)
