"""Walks that turn objects into sets of fields: what a configuration claims, and what a write touched.

The two differ on purpose. Applying claims leaves: a structure on the way to one belongs to nobody, so that managers can
share it. Writing claims what appeared, and that includes the maps and lists themselves.

The walks know nothing of fields that are never tracked: whoever calls them for a whole object takes those out.
`created` runs for every object that is created and sets the pace of bulk writes; it makes the FieldsV1 form directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from planform.apimachinery.managed_fields import Fields, with_own
from planform.apimachinery.typed import ABSENT, TypeNode

Change = tuple[Fields | None, Fields | None]
"""What was written (added or changed) and what was removed, at one place; None for nothing."""

_SAME: Change = (None, None)
_CONTAINERS: Final = frozenset({dict, list})
_PLAIN: Final = frozenset({str, int, float, bool})


def applied(node: TypeNode, value: Any) -> Fields | None:
    """The fields that applying this value claims; None for none, `{}` for the place itself."""
    claimed: Fields
    if type(value) is dict and node.granular and value:
        claimed = {}
        for name in sorted(value):
            deeper: Fields | None = {}
            below = value[name]
            if type(below) in _CONTAINERS:
                deeper = applied(node.child(name), below)
                if name not in node.fields:
                    deeper = with_own(deeper)
            if deeper is not None:
                claimed[f"f:{name}"] = deeper
        return claimed or None
    if type(value) is list and node.associative and (keys := node.item_keys(value)) is not None:
        claimed = {}
        for key, item in zip(keys, value, strict=True):
            claimed[key] = with_own(applied(node.item, item)) if key not in claimed else {}
        return in_order(claimed)
    return {}


def created(node: TypeNode, value: Any) -> Fields:
    """The fields that writing this value where nothing was claims: the place itself and all below it."""
    claimed: Fields
    if type(value) is dict:
        if not value or not node.granular:
            return {}
        claimed = {".": {}}
        descents, others = node.descents, node.others
        for name in sorted(value):
            below = value[name]
            if type(below) in _CONTAINERS and below and (child := descents.get(name, others)) is not None:
                claimed[f"f:{name}"] = created(child, below)
            else:
                claimed[f"f:{name}"] = {}
        return claimed
    if type(value) is list and value and node.associative and (keys := node.item_keys(value)) is not None:
        claimed = {".": {}}
        for key, item in zip(keys, value, strict=True):
            # Items that share a key cannot be told apart: they are one field together.
            claimed[key] = created(node.item, item) if key not in claimed else {}
        return claimed if len(claimed) == 2 else dict(sorted(claimed.items()))
    return {}


def changed(node: TypeNode, old: Any, new: Any) -> Change:
    """What a write that turned `old` into `new` wrote and removed. Null counts as an empty map or list."""
    if old is new:
        return _SAME
    before, after = type(old), type(new)
    if node.granular and (before is dict or after is dict):
        if (before is dict or old is None) and (after is dict or new is None):
            if old or new:
                return _changed_map(node, old or {}, new or {})
        else:
            return _reshaped(created(node, old), created(node, new))
    elif (
        node.associative
        and (old or new)
        and (before is list or old is None)
        and (after is list or new is None)
        and (old_keys := node.item_keys(old or [])) is not None
        and (new_keys := node.item_keys(new or [])) is not None
    ):
        return _changed_list(node, _by_key(old_keys, old), _by_key(new_keys, new))
    return _SAME if same(old, new) else ({}, None)


def _changed_map(node: TypeNode, old: Mapping[str, Any], new: Mapping[str, Any]) -> Change:
    written: Fields = {}
    removed: Fields = {}
    for name, value in new.items():
        former = old.get(name, ABSENT)
        if former is ABSENT:
            written[f"f:{name}"] = created(node.child(name), value)
        elif former is not value and (
            type(value) is dict or type(value) is not type(former) or not same(former, value)
        ):
            _note(f"f:{name}", changed(node.child(name), former, value), written, removed)
    for name, value in old.items():
        if name not in new:
            removed[f"f:{name}"] = created(node.child(name), value)
    return in_order(written), in_order(removed)


def _changed_list(node: TypeNode, old: Mapping[str, list[Any]], new: Mapping[str, list[Any]]) -> Change:
    written: Fields = {}
    removed: Fields = {}
    for key, items in new.items():
        former = old.get(key)
        if former is None:
            written[key] = created(node.item, items[0]) if len(items) == 1 else {}
        elif len(former) == len(items) == 1:
            _note(key, changed(node.item, former[0], items[0]), written, removed)
        elif len(former) > 1 and len(items) > 1:
            if not same(former, items):
                written[key] = {}
        else:
            # Between one item and several with the same key, the single one comes or goes with all its fields.
            removed[key] = created(node.item, former[0]) if len(former) == 1 else {}
            written[key] = created(node.item, items[0]) if len(items) == 1 else {}
    for key, former in old.items():
        if key not in new:
            removed[key] = created(node.item, former[0]) if len(former) == 1 else {}
    return in_order(written), in_order(removed)


def _reshaped(old: Fields, new: Fields) -> Change:
    """A map that became something else, or the other way round: the place stays, what was below it does not."""
    gone = {element: below for element, below in old.items() if element != "."}
    return new, gone or None


def _by_key(keys: list[str], items: list[Any] | None) -> dict[str, list[Any]]:
    grouped: dict[str, list[Any]] = {}
    for key, item in zip(keys, items or (), strict=True):
        grouped.setdefault(key, []).append(item)
    return grouped


def _note(element: str, change: Change, written: Fields, removed: Fields) -> None:
    if change[0] is not None:
        written[element] = change[0]
    if change[1] is not None:
        removed[element] = change[1]


def in_order(fields: Fields) -> Fields | None:
    return dict(sorted(fields.items())) if len(fields) > 1 else fields or None


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: 1 is 1.0, and unlike in Python neither is true."""
    if left != right:
        return False
    if type(left) not in _CONTAINERS:
        return (type(left) is bool) == (type(right) is bool)
    return orjson.dumps(left) == orjson.dumps(right) or _same_below(left, right)


def _same_below(left: Any, right: Any) -> bool:
    if type(left) is dict:
        return all(same(value, right[name]) for name, value in left.items())
    return all(same(*pair) for pair in zip(left, right, strict=True))
