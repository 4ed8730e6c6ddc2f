"""The apply that happens most: a manager states the very fields it owns already, some of them with other values.

A controller that follows a change does little else. Merging, claiming and comparing are then one walk, in which every
step is checked: `restate` answers only where the configuration fits its type, claims neither more nor less than its
manager owns, and finds each of its places in the live object. Anything else, be it an error or only unusual, is left to
the general way in `apply`, and where `restate` answers, that way would lead to the same bytes.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from planform.machinery.managed_fields import Fields
from planform.machinery.ownership import in_order, same
from planform.machinery.typed import UNTRACKED_METADATA, TypeNode, type_errors

_SCALARS: Final = frozenset({str, int, float, bool})
_IDENTITY: Final = ("apiVersion", "kind")

Restated = tuple[Any, Fields | None]
"""A value with the configuration over it, and what that changed; None for nothing.

It shares with the live value what did not change, and nothing with the configuration."""


class _Unusual(Exception):
    """This is for the general way."""


def restate(node: TypeNode, live: dict[str, Any], config: dict[str, Any], owned: Fields) -> tuple[Any, Fields] | None:
    """The live object with the configuration over it and the fields written, if it claims exactly what is `owned`.

    Untracked metadata stays as it is in `live`.
    """
    try:
        after, written = _object(node, live, config, owned)
    except (_Unusual, orjson.JSONEncodeError):
        return None
    return after, written or {}


def _object(node: TypeNode, live: dict[str, Any], config: dict[str, Any], owned: Fields) -> Restated:
    """A whole object, in which identity and bookkeeping are nobody's: the rest of it is a map like any other."""
    if not node.granular:
        raise _Unusual
    tracked = {}
    for name, value in config.items():
        if name == "metadata":
            if metadata := _tracked_metadata(node.fields[name], live.get(name), value):
                tracked[name] = metadata
        elif name not in _IDENTITY:
            tracked[name] = value
        elif type(value) is not str or live.get(name) != value:
            raise _Unusual
    return _map(node, live, tracked, owned)


def _tracked_metadata(node: TypeNode, live: Any, metadata: Any) -> dict[str, Any]:
    if type(metadata) is not dict or type(live) is not dict:
        raise _Unusual
    tracked = {}
    for name, value in metadata.items():
        if name not in UNTRACKED_METADATA:
            tracked[name] = value
        elif type(value) not in _SCALARS or type(value) not in node.fields[name].types or live.get(name) != value:
            raise _Unusual
    return tracked


def _map(node: TypeNode, live: Any, config: dict[str, Any], owned: Fields, *, itself: bool = False) -> Restated:
    """A granular map; `itself` says that its place is to be owned too, as in lists and below undeclared names."""
    if type(live) is not dict or len(owned) != len(config) + itself or itself is not ("." in owned):
        raise _Unusual
    merged: dict[str, Any] = live
    written: Fields = {}
    fields, element = node.fields, node.element
    for name, value in config.items():
        below, child, former, sort = owned.get(f"f:{name}"), fields.get(name, element), live.get(name), type(value)
        if below is None or child is None or sort not in child.types:
            raise _Unusual
        if sort in _SCALARS:
            if below or type(former) not in _SCALARS:
                raise _Unusual
            if value == former and sort is type(former):
                continue
            after, change = _replaced(former, value)
        else:
            after, change = _container(child, former, value, below, itself=name not in fields)
            if after is former:
                continue
        if merged is live:
            merged = dict(live)
        merged[name] = after
        if change is not None:
            written[f"f:{name}"] = change
    return merged, in_order(written) if written else None


def _container(node: TypeNode, live: Any, config: Any, owned: Fields, *, itself: bool) -> Restated:
    if type(config) is dict and node.granular:
        if config:
            return _map(node, live, config, owned, itself=itself)
        if owned or type(live) is not dict:
            raise _Unusual
        return live, None
    if type(config) is list and node.associative:
        return _list(node, live, config, owned)
    if owned or config is None or type(live) is not type(config) or type_errors(node, config):
        raise _Unusual
    return _replaced(live, config)


def _list(node: TypeNode, live: Any, config: list[Any], owned: Fields) -> Restated:
    """An associative list, if it is of the same items in the same order."""
    keys = node.item_keys(config)
    if keys is None or type(live) is not list or node.item_keys(live) != keys:
        raise _Unusual
    if not len(owned) == len(keys) == len({*keys}):
        raise _Unusual
    merged: list[Any] = live
    written: Fields = {}
    for index, key in enumerate(keys):
        item, below = config[index], owned.get(key)
        if below is None or type(item) not in node.item.types:
            raise _Unusual
        if type(item) in _SCALARS:
            if below:
                raise _Unusual
            continue  # a set names its items by their values, so these are the same
        after, change = _container(node.item, live[index], item, below, itself=True)
        if after is live[index]:
            continue
        if merged is live:
            merged = list(live)
        merged[index] = after
        if change is not None:
            written[key] = change
    return merged, in_order(written) if written else None


def _replaced(live: Any, config: Any) -> Restated:
    """A leaf. Values that are equal but written differently, as 1 and 1.0, are replaced without counting as written."""
    encoded = orjson.dumps(config)
    if live == config and encoded == orjson.dumps(live):
        return live, None
    return orjson.loads(encoded), None if same(live, config) else {}
