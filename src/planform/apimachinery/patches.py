"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386), without touching what they are given.

A result shares every part that did not change with the document it came from; so a patch costs what it changes, and
`result is doc` already says that a merge patch did nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

MAX_OPERATIONS: Final = 10_000
"""How many operations a JSON patch may have."""
MAX_COPIED: Final = 6 * 1024 * 1024
"""How many bytes, roughly, the `copy` operations of one patch may add: a chain of copies doubles the document."""


class PatchError(ValueError):
    """The patch cannot be applied; `code` is the HTTP code of the answer."""

    code: ClassVar[int] = 422


class MalformedPatch(PatchError):
    """It is not a patch at all, whatever the document."""

    code = 400


class PatchFailed(PatchError):
    """It is a patch, but not for this document."""


class PatchTooLarge(PatchError):
    """It has more operations, or copies more, than any honest patch."""

    code = 413


def json_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same: 1 equals 1.0, but never true."""
    if left is right:
        return True
    if type(left) is str:
        return bool(left == right)
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and len(left) == len(right)
            and all(key in right and json_equal(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(json_equal, left, right))
    return (type(left) is bool) is (type(right) is bool) and bool(left == right)


def merge_patch(doc: Any, patch: Any) -> Any:
    """The document with a merge patch applied: objects merge, null removes, everything else replaces."""
    if type(patch) is not dict and not isinstance(patch, Mapping):
        return doc if json_equal(doc, patch) else patch
    old: dict[str, Any] = doc if isinstance(doc, dict) else {}
    new: dict[str, Any] | None = None if old is doc else {}
    for key, change in patch.items():
        if change is None:
            if key in old:
                new = dict(old) if new is None else new
                del new[key]
        else:
            before = old.get(key)
            after = merge_patch(before, change)
            if after is not before:
                new = dict(old) if new is None else new
                new[key] = after
    return old if new is None else new


def merge_diff(old: Any, new: Any) -> Any:
    """The merge patch that turns `old` into `new`; an empty object if they are equal objects.

    A member of `new` that is null cannot be said in a merge patch: the patch removes it instead.
    """
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, after in new.items():
        if key not in old:
            patch[key] = after
        elif not json_equal(old[key], after):
            patch[key] = merge_diff(old[key], after)
    return patch


def json_patch(doc: Any, operations: Any, *, max_copied: int = MAX_COPIED) -> Any:
    """The document with the operations applied in order, all of them or none."""
    if not isinstance(operations, list):
        raise MalformedPatch("a JSON patch must be a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise PatchTooLarge(f"a JSON patch may have {MAX_OPERATIONS} operations, got {len(operations)}")
    draft = _Draft(doc, max_copied)
    for index, operation in enumerate(operations):
        if not isinstance(operation, Mapping):
            raise MalformedPatch(f"operation {index} is not an object")
        try:
            draft.apply(operation)
        except PatchFailed as error:
            raise type(error)(f"operation {index}: {error}") from None
    return draft.root


_index = re.compile(r"0|[1-9][0-9]{0,9}").fullmatch
_MISSING: Final = object()


class _Draft:
    """A document while it is patched: containers are copied the first time they change, and then changed in place."""

    def __init__(self, doc: Any, max_copied: int) -> None:
        self.root = doc
        self._copyable = max_copied
        # The containers made by this patch, by identity; holding them keeps an identity from being given out again.
        self._own: dict[int, Any] = {}

    def apply(self, operation: Mapping[str, Any]) -> None:
        name = operation.get("op")
        path = _pointer(operation, "path")
        match name:
            case "add":
                self._add(path, _value(operation))
            case "remove":
                self._remove(path)
            case "replace":
                self._replace(path, _value(operation))
            case "move":
                source = _pointer(operation, "from")
                if path[: len(source)] == source and path != source:
                    raise PatchFailed(f"cannot move {_text(source)} into itself")
                self._add(path, self._remove(source) if source else self.root)
            case "copy":
                value = self._find(_pointer(operation, "from"))
                self._spend(value)
                # The value is now in two places, so nothing is this patch's own any more: the next change copies.
                self._own.clear()
                self._add(path, value)
            case "test":
                self._test(path, _value(operation))
            case _:
                raise PatchFailed(f"unknown operation {name!r}")

    def _add(self, path: tuple[str, ...], value: Any) -> None:
        if not path:
            self.root = value
            return
        parent, token = self._parent(path)
        if isinstance(parent, dict):
            parent[token] = value
        else:
            position = len(parent) if token == "-" else _position(parent, token, path, len(parent))
            parent.insert(position, value)

    def _remove(self, path: tuple[str, ...]) -> Any:
        if not path:
            raise PatchFailed("cannot remove the whole document")
        parent, token = self._parent(path)
        if isinstance(parent, dict):
            value = parent.pop(token, _MISSING)
            if value is _MISSING:
                raise PatchFailed(f"{_text(path)} does not exist")
            return value
        return parent.pop(_position(parent, token, path, len(parent) - 1))

    def _replace(self, path: tuple[str, ...], value: Any) -> None:
        if not path:
            self.root = value
            return
        parent, token = self._parent(path)
        if isinstance(parent, dict):
            if token not in parent:
                raise PatchFailed(f"{_text(path)} does not exist")
            parent[token] = value
        else:
            parent[_position(parent, token, path, len(parent) - 1)] = value

    def _test(self, path: tuple[str, ...], value: Any) -> None:
        parent = self._find(path[:-1])
        # An absent member tests equal to null, as with the API server.
        found = parent.get(path[-1]) if path and isinstance(parent, dict) else self._find(path)
        if not json_equal(found, value):
            raise PatchFailed(f"test of {_text(path)} failed")

    def _find(self, path: tuple[str, ...]) -> Any:
        value = self.root
        for depth, token in enumerate(path):
            value = _child(value, token, path[: depth + 1])
        return value

    def _parent(self, path: tuple[str, ...]) -> tuple[Any, str]:
        """The container that holds the last token, ready to be changed, as is every container above it."""
        here = self.root = self._owned(self.root, ())
        for depth, token in enumerate(path[:-1], 1):
            child = self._owned(_child(here, token, path[:depth]), path[:depth])
            here[token if isinstance(here, dict) else int(token)] = child
            here = child
        return here, path[-1]

    def _owned(self, container: Any, path: tuple[str, ...]) -> Any:
        if id(container) in self._own:
            return container
        if not isinstance(container, (dict, list)):
            raise PatchFailed(f"{_text(path)} is neither an object nor a list")
        copy = container.copy()
        self._own[id(copy)] = copy
        return copy

    def _spend(self, value: Any) -> None:
        """Pay for a copy by its size as text; stops counting as soon as there is not enough left."""
        todo = [value]
        while todo:
            item = todo.pop()
            self._copyable -= 8 + (len(item) if isinstance(item, str) else 0)
            if self._copyable < 0:
                raise PatchTooLarge("the copy operations of this patch make the document too large")
            if isinstance(item, dict):
                self._copyable -= sum(map(len, item))
                todo.extend(item.values())
            elif isinstance(item, list):
                todo.extend(item)


def _pointer(operation: Mapping[str, Any], member: str) -> tuple[str, ...]:
    text = operation.get(member)
    if not isinstance(text, str):
        raise PatchFailed(f"{member!r} is missing or not a string")
    if text == "":
        return ()
    if not text.startswith("/") or re.search(r"~(?![01])", text):
        raise PatchFailed(f"{text!r} is not a JSON pointer")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/"))


def _text(path: Sequence[str]) -> str:
    return '"' + "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in path) + '"'


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchFailed("'value' is missing")
    return operation["value"]


def _child(value: Any, token: str, path: Sequence[str]) -> Any:
    if isinstance(value, dict):
        if token not in value:
            raise PatchFailed(f"{_text(path)} does not exist")
        return value[token]
    if isinstance(value, list):
        return value[_position(value, token, path, len(value) - 1)]
    raise PatchFailed(f"{_text(path[:-1])} is neither an object nor a list")


def _position(items: list[Any], token: str, path: Sequence[str], last: int) -> int:
    if not _index(token):
        raise PatchFailed(f"{_text(path)}: {token!r} is not an index")
    if int(token) > last:
        raise PatchFailed(f"{_text(path)} does not exist, the list has {len(items)} elements")
    return int(token)
