"""Putting a configuration over an object, taking fields out of it again, and finding what two objects can share.

The first two make new maps and lists where they change something, and share everything else with their arguments.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import orjson

from planform.apimachinery.managed_fields import Fields, owns_itself
from planform.apimachinery.typed import ABSENT, TypeNode

_CONTAINERS: Final = frozenset({dict, list})
_MERGEABLE: Final = _CONTAINERS | {type(None)}


def merge(node: TypeNode, live: Any, config: Any) -> Any:
    """The live value with the configuration over it. Maps and associative lists merge; everything else is replaced.

    Null for a map or list that holds something leaves it alone. A value that the configuration does not change is
    returned as it is, the same object: whoever compares the two then sees at once that nothing happened.
    """
    if type(live) is dict and node.granular and live:
        if type(config) is dict:
            return _merged_map(node, live, config)
        return live if config is None else config
    if type(live) is list and node.associative and live:
        if type(config) is list:
            live_keys, config_keys = node.item_keys(live), node.item_keys(config)
            if live_keys is not None and config_keys is not None:
                return _merged_list(node, live_keys, live, dict(zip(config_keys, config, strict=True)))
        return live if config is None else config
    return config


def _merged_map(node: TypeNode, live: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    merged = live
    for name, value in config.items():
        former = live.get(name, ABSENT)
        sort = type(value)
        if former is not ABSENT and sort in _MERGEABLE:
            value = merge(node.child(name), former, value)
            if value is former:
                continue
        elif value == former and sort is type(former):
            continue
        if merged is live:
            merged = dict(live)
        merged[name] = value
    return merged


def _merged_list(node: TypeNode, keys: list[str], live: list[Any], config: Mapping[str, Any]) -> list[Any]:
    """Items of the configuration in its order; the other live items stay where they were between those shared.

    Live items that share a key are all replaced by the configuration's one.
    """
    known = dict(zip(keys, live, strict=True))
    repeated = {key for key, times in Counter(keys).items() if times > 1} if len(known) < len(live) else ()
    wanted = list(config)
    shared = [key for key in wanted if key in known]
    merged: list[Any] = []
    taken = 0  # of wanted
    place = 0  # in live
    while place < len(keys) or taken < len(wanted):
        if place < len(keys):
            key = keys[place]
            if key not in config:
                merged.append(live[place])
                place += 1
                continue
            if taken < len(wanted) and shared and shared[0] != key:
                place += 1
                continue
            if key not in shared or key == wanted[taken]:
                place += 1
        if taken < len(wanted):
            key = wanted[taken]
            mergeable = key in known and key not in repeated
            merged.append(merge(node.item, known[key], config[key]) if mergeable else config[key])
            taken += 1
            if shared and shared[0] == key:
                del shared[0]
    as_before = len(merged) == len(live) and all(map(operator.is_, merged, live))
    return live if as_before else merged


def without(node: TypeNode, value: Any, fields: Fields) -> Any:
    """The value less the fields of a set. A map or list from which everything was taken stays, empty."""
    if type(value) is dict and node.granular:
        kept: dict[str, Any] = {}
        for name, below in value.items():
            found = fields.get(f"f:{name}")
            if found is None:
                kept[name] = below
            elif not owns_itself(found):
                kept[name] = without(node.child(name), below, found)
        return kept
    if type(value) is list and node.associative and (keys := node.item_keys(value)) is not None:
        items: list[Any] = []
        for key, item in zip(keys, value, strict=True):
            found = fields.get(key)
            if found is None:
                items.append(item)
            elif not owns_itself(found):
                items.append(without(node.item, item, found))
        return items
    return value


def share_unchanged(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Put the old object's own maps and lists into the new one, in place, wherever they are the same to the last byte.

    Whoever compares the two then sees at once where nothing happened. The metadata stay apart: a write goes on changing
    them.
    """
    for name, value in new.items():
        if name != "metadata":
            new[name] = _shared(old.get(name), value)


def _shared(old: Any, new: Any) -> Any:
    if old is new or type(new) not in _CONTAINERS or type(old) is not type(new):
        return new
    if old == new and orjson.dumps(old) == orjson.dumps(new):
        return old
    if type(new) is dict:
        for name, value in new.items():
            if type(value) in _CONTAINERS:
                new[name] = _shared(old.get(name), value)
    return new


def fresh(value: Any) -> Any:
    """A copy that shares nothing with its original; several times as fast as copying node by node."""
    return orjson.loads(orjson.dumps(value))
