"""Which stored objects a selector means, found without decoding more of them than their labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import orjson

from planform.apimachinery.selectors import FieldSelector, LabelSelector, SelectorError, parse_fields, parse_labels
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs.requests import Selection
from planform.errors import BadRequest
from planform.store import Key

Matches = Callable[[Key, bytes], bool]


class _Labelled(msgspec.Struct):
    labels: dict[str, str] = {}


class _Envelope(msgspec.Struct):
    metadata: _Labelled


_decode_labels = msgspec.json.Decoder(_Envelope).decode


def labels_of(value: bytes) -> Mapping[str, str]:
    return _decode_labels(value).metadata.labels


def compile_selection(served: ServedKind, selection: Selection) -> Matches | None:
    """A test of stored objects; None when everything in the namespace is meant. Raises BadRequest."""
    try:
        labels = parse_labels(selection.labels)
        fields = parse_fields(selection.fields)
    except SelectorError as error:
        raise BadRequest(str(error)) from error
    by_field = _compile_fields(served, fields)
    if labels.empty:
        return by_field
    by_label = _compile_labels(labels)
    if by_field is None:
        return by_label

    def both(key: Key, value: bytes) -> bool:
        return by_field(key, value) and by_label(key, value)

    return both


def _compile_labels(selector: LabelSelector) -> Matches:
    matches = selector.matches

    def by_label(key: Key, value: bytes) -> bool:
        return matches(_decode_labels(value).metadata.labels)

    return by_label


def _compile_fields(served: ServedKind, selector: FieldSelector) -> Matches | None:
    if selector.empty:
        return None
    known: dict[str, str] = {**served.strategy.selectable}
    known.update({path.lstrip("."): path.lstrip(".") for path in served.selectable})
    for term in selector.terms:
        if term.field in ("metadata.name", "metadata.namespace"):
            continue
        if term.field not in known:
            if served.builtin:
                names = sorted({"metadata.name", "metadata.namespace", *known})
                listed = ", ".join(f'"{name}"' for name in names)
                raise BadRequest(f'"{term.field}" is not a known field selector: only {listed}')
            raise BadRequest(f"field label not supported: {term.field}")

    def by_field(key: Key, value: bytes) -> bool:
        obj: Any = None

        def lookup(field: str) -> str:
            nonlocal obj
            if field == "metadata.name":
                return key.name
            if field == "metadata.namespace":
                return key.namespace
            if obj is None:
                obj = orjson.loads(value)
            return _text_at(obj, known[field])

        return selector.matches(lookup)

    name = selector.exact("metadata.name")
    if len(selector.terms) == 1 and name is not None:
        return lambda key, value: key.name == name
    return by_field


def _text_at(obj: Any, path: str) -> str:
    for part in path.split("."):
        if not isinstance(obj, dict):
            return ""
        obj = obj.get(part)
    if obj is None:
        return ""
    if isinstance(obj, bool):
        return "true" if obj else "false"
    return str(obj)


def single_name(selection: Selection) -> str:
    """The one name that `metadata.name=X` selects, or the empty string; also how RBAC reads such requests."""
    if not selection.fields:
        return ""
    try:
        return parse_fields(selection.fields).exact("metadata.name") or ""
    except SelectorError:
        return ""
