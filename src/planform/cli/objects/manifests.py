"""Objects from files: YAML or JSON, directories, standard input; definitions and namespaces first.

What a directory holds for its author only, tests of compositions, is no business of a control plane and left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from planform.api.kinds import Object
from planform.apimachinery import yaml_loader
from planform.errors import UsageError

_FIRST = ("Namespace", "CustomResourceDefinition", "CompositeResourceDefinition")
ENDINGS = (".yaml", ".yml", ".json")
TEST_GROUP = "test.planform.dev"


def read_manifests(
    files: Sequence[str], *, generated_names: bool = False, unread: list[str] | None = None
) -> list[Object]:
    """Every object in the files, what others depend on first; raises UsageError with file and document number.

    With `generated_names`, an object may leave its name to the server. With `unread`, what is no object is noted there
    and left out; files that do not exist are an error all the same.
    """
    objects = [obj for name in files for obj in _objects(name, generated_names, unread)]
    if not objects and not unread:
        raise UsageError(f"no objects in {', '.join(_shown(name) for name in files)}")
    return sorted(objects, key=lambda obj: _FIRST.index(obj["kind"]) if obj["kind"] in _FIRST else len(_FIRST))


def _objects(name: str, generated_names: bool, unread: list[str] | None) -> Iterator[Object]:
    in_directory = Path(name).is_dir()
    for path, text in _texts(name):
        try:
            documents = yaml_loader.load_all(text, strict=True)
        except ValueError as error:
            _note_or_raise(UsageError(f"{path}: {error}"), unread)
            continue
        for number, document in enumerate(documents, start=1):
            if document is None or (in_directory and _is_test(document)):
                continue
            try:
                yield from list(_checked(document, f"{path}, document {number}", generated_names))
            except UsageError as error:
                _note_or_raise(error, unread)


def _note_or_raise(error: UsageError, unread: list[str] | None) -> None:
    if unread is None:
        raise error
    unread.append(error.message)


def _is_test(document: Any) -> bool:
    return isinstance(document, dict) and str(document.get("apiVersion")).startswith(f"{TEST_GROUP}/")


def _texts(name: str) -> Iterator[tuple[str, bytes]]:
    if name == "-":
        yield _shown(name), sys.stdin.buffer.read()
        return
    path = Path(name)
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.suffix in ENDINGS and file.is_file():
                yield str(file), file.read_bytes()
    elif path.is_file():
        yield name, path.read_bytes()
    elif "://" in name:
        raise UsageError(f"{name} is no file", hint=f"fetch it yourself: curl -fsSL {name} | planform ... -f -")
    else:
        raise UsageError(f"{name} does not exist")


def _shown(name: str) -> str:
    return "standard input" if name == "-" else name


def _checked(document: Any, where: str, generated_names: bool) -> Iterator[Object]:
    if not isinstance(document, dict):
        raise UsageError(f"{where}: not an object")
    if _is_test(document):
        raise UsageError(
            f"{where}: {document.get('kind')} is not for a control plane", hint="run it: planform test FILE"
        )
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _checked(item, where, generated_names)
        return
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            raise UsageError(f"{where}: {field} is missing")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if name is None and generated_names and isinstance(metadata, dict):
        name = metadata.get("generateName")
    if name is None:
        raise UsageError(f"{where}: {document['kind']} has no metadata.name")
    if not isinstance(name, str):
        shown = str(name).lower() if isinstance(name, bool) else name
        raise UsageError(
            f"{where}: metadata.name must be text, and YAML reads it as {shown}", hint="put the name in quotes"
        )
    yield document
