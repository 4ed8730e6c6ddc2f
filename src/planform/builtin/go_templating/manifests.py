"""What was rendered, as objects: documents between `---` lines, or JSON values one after the other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from planform.apimachinery import yaml_loader
from planform.builtin.compiled import Refused
from planform.functions.values import Object

_SEPARATOR: Final = re.compile(r"^---[ \t\r]*(?:#.*)?$", re.MULTILINE)
_NEAR: Final = 60


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object and where it stands in what was rendered; both count from 1."""

    object: Object
    document: int
    line: int

    @property
    def where(self) -> str:
        kind, name = self.object.get("kind"), _metadata(self.object).get("name")
        named = f'{kind} "{name}"' if name else f"{kind}"
        return f"document {self.document} (line {self.line}, {named})"


def manifests(text: str) -> Iterator[Manifest]:
    """The objects, one at a time, so that the caller can pause between them. Raises Refused."""
    if text.lstrip()[:1] == "{":
        values = _json_values(text)
        if values is not None:
            for number, value in enumerate(values, start=1):
                yield _checked(value, number, 1)
            return
    for number, (line, document) in enumerate(_documents(text), start=1):
        try:
            values = yaml_loader.load_all(document)
        except yaml_loader.YamlError as error:
            raise Refused(_located(error, document, number, line)) from None
        for value in values:
            yield _checked(value, number, line)


def _documents(text: str) -> Iterator[tuple[int, str]]:
    """The texts between separators that hold more than white space, with the number of their first line."""
    start, line = 0, 1
    for separator in [*_SEPARATOR.finditer(text), None]:
        end = separator.start() if separator else len(text)
        document = text[start:end]
        if document.strip():
            # The last line counts as one that was ended: a block scalar there has its line break.
            yield line, document if document.endswith("\n") else f"{document}\n"
        line += document.count("\n") + 1
        start = separator.end() + 1 if separator else end


def _json_values(text: str) -> list[Any] | None:
    """All values of a JSON stream; None if it is none."""
    decoder, values, at = json.JSONDecoder(), [], 0
    try:
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            value, at = decoder.raw_decode(text, at)
            values.append(value)
    except (ValueError, RecursionError):
        return None
    return values


def _checked(value: Any, document: int, line: int) -> Manifest:
    where = f"cannot decode manifest: document {document} (line {line})"
    if not isinstance(value, dict):
        raise Refused(f"{where} is no object")
    if not isinstance(value.get("kind"), str) or not value["kind"]:
        raise Refused(f"{where}: Object 'Kind' is missing")
    annotations = _metadata(value).get("annotations")
    if annotations is not None and not isinstance(annotations, dict):
        raise Refused(f"{where}: metadata.annotations of {value['kind']} must be an object")
    for key, annotation in (annotations or {}).items():
        if not isinstance(annotation, str):
            shown = json.dumps(annotation)
            raise Refused(f'{where}: annotation "{key}" of {value["kind"]} must be a string: put {shown} in quotes')
    return Manifest(value, document, line)


def _metadata(value: Object) -> Object:
    found = value.get("metadata")
    return found if isinstance(found, dict) else {}


def _located(error: yaml_loader.YamlError, document: str, number: int, first: int) -> str:
    problem = str(error).removeprefix(f"line {error.line}, column {error.column}: ")
    lines = document.split("\n")
    near = lines[error.line - 1].strip()[:_NEAR] if 0 < error.line <= len(lines) else ""
    within = max(error.line, 1)
    return (
        f"cannot decode manifest: error on line {first + within - 1} (document {number}, line {within})"
        f" near: '{near}': {problem}"
    )
