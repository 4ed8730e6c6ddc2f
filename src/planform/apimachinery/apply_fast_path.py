"""The fast path of an apply: for an object that is new, or a manager that applies about the fields it applied before.

A controller that follows a change does little else. Checking, merging, claiming, pruning and comparing are then one
walk: it answers only where the configuration fits its type, each field merges with a live one of its shape, and no
structure loses the last field that its manager had in it. Anything else, be it an error or only unusual, is left to
`apply`; where the fast path answers, `apply` would lead to the same bytes.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import orjson

from planform.apimachinery.managed_fields import Fields, owns_itself, with_own
from planform.apimachinery.merging import fresh
from planform.apimachinery.ownership import applied, in_order, same
from planform.apimachinery.typed import ABSENT, UNTRACKED_FIELDS, UNTRACKED_METADATA, TypeNode, fits

_SCALARS: Final = frozenset({str, int, float, bool})
_CONTAINERS: Final = frozenset({dict, list})
_IDENTITY: Final = ("apiVersion", "kind")
_UNTRACKED: Final = frozenset(UNTRACKED_FIELDS) - {"f:metadata"}
_UNTRACKED_BELOW_METADATA: Final = frozenset(UNTRACKED_FIELDS["f:metadata"])

FastApplied = tuple[Any, Fields | None, Fields | None]
"""A value with the configuration over it, the places that this wrote, and what the configuration claims.

The value shares with the live one what did not change, and nothing with the configuration; the claim is the very set
that was owned if it is the same. A place that came or went stands for all below it. None is for nothing."""


class _Unusual(Exception):
    """This is not for the fast path."""


def claim(node: TypeNode, config: dict[str, Any]) -> Fields | None:
    """What applying a whole object claims, if it fits its type."""
    try:
        return _claim(node, _tracked(node, config, None)) or {}
    except (_Unusual, orjson.JSONEncodeError):
        return None


def fast_apply(
    node: TypeNode, live: dict[str, Any], config: dict[str, Any], owned: Fields
) -> tuple[Any, Fields, Fields] | None:
    """The live object with the configuration of a manager that owned these fields over it, what was written, the claim.

    It holds if nobody else owns anything that `overlap` finds at the places written. Untracked metadata stays as it is
    in `live`.
    """
    try:
        tracked = _tracked(node, config, live)
        if not _UNTRACKED.isdisjoint(owned) or not _UNTRACKED_BELOW_METADATA.isdisjoint(owned.get("f:metadata", ())):
            return None
        if "f:metadata" in owned and "metadata" not in tracked:
            return None
        after, written, claimed = _map(node, live, tracked, owned)
    except (_Unusual, orjson.JSONEncodeError):
        return None
    return after, written or {}, claimed or {}


def overlap(fields: Fields, written: Fields) -> bool:
    """Whether a set has anything at the places written, or below them."""
    for element, below in written.items():
        other = fields.get(element)
        if other is not None and (not below or overlap(other, below)):
            return True
    return False


def _tracked(node: TypeNode, config: dict[str, Any], live: dict[str, Any] | None) -> dict[str, Any]:
    """An object less what is nobody's: identity and bookkeeping, which have to be those of the live object."""
    if not node.granular:
        raise _Unusual
    tracked = {}
    for name, value in config.items():
        if name == "metadata":
            former = None if live is None else live.get(name, ABSENT)
            if metadata := _tracked_metadata(node.fields[name], value, former):
                tracked[name] = metadata
        elif name not in _IDENTITY:
            tracked[name] = value
        elif type(value) is not str or (live is not None and live.get(name) != value):
            raise _Unusual
    return tracked


def _tracked_metadata(node: TypeNode, metadata: Any, live: Any) -> dict[str, Any]:
    if type(metadata) is not dict or (live is not None and type(live) is not dict):
        raise _Unusual
    tracked = {}
    for name, value in metadata.items():
        if name not in UNTRACKED_METADATA:
            tracked[name] = value
        elif (
            type(value) not in _SCALARS
            or type(value) not in node.fields[name].types
            or (live is not None and live.get(name) != value)
        ):
            raise _Unusual
    return tracked


def _claim(node: TypeNode, config: Any) -> Fields | None:
    """What `applied` says, of a value that has to fit its type."""
    claimed: Fields = {}
    if type(config) is dict and config and node.granular:
        fields, element = node.fields, node.element
        for name in sorted(config):
            below, child = config[name], fields.get(name, element)
            if child is None or type(below) not in child.types:
                raise _Unusual
            if type(below) not in _CONTAINERS:
                claimed[f"f:{name}"] = {}
            elif (deeper := _claim(child, below)) is not None or name not in fields:
                claimed[f"f:{name}"] = deeper if name in fields else with_own(deeper)
        return claimed or None
    if type(config) is list and node.associative:
        for key, item in _by_key(node, config).items():
            if type(item) not in node.item.types:
                raise _Unusual
            claimed[key] = with_own(_claim(node.item, item)) if type(item) is dict else {}
        return in_order(claimed)
    if config and type(config) in _CONTAINERS and not fits(node, config):
        raise _Unusual
    return claimed


def _map(
    node: TypeNode, live: Any, config: dict[str, Any], owned: Fields, *, itself: bool = False
) -> tuple[Any, Fields | None, Fields]:
    """A granular map; `itself` says that its place is claimed too, as in lists and below undeclared names."""
    if type(live) is not dict:
        raise _Unusual
    merged: dict[str, Any] = live
    written: Fields = {}
    claimed: Fields = {".": {}} if itself else {}
    as_owned = not itself or "." in owned
    fields, element = node.fields, node.element
    for name, value in config.items():
        place = f"f:{name}"
        below = owned.get(place)
        former = live.get(name, ABSENT)
        child = fields.get(name, element)
        sort = type(value)
        if child is None or sort not in child.types:
            raise _Unusual
        if sort in _SCALARS and value == former and sort is type(former) and below is not None and not below:
            claimed[place] = below
            continue
        after, change, deeper = _value(child, former, value, below, itself=name not in fields)
        if after is not former:
            if merged is live:
                merged = dict(live)
            merged[name] = after
        if change is not None:
            written[place] = change
        if deeper is not None:
            claimed[place] = deeper
        as_owned = as_owned and deeper is below
    if not claimed.keys() - {"."}:
        raise _Unusual
    if as_owned and len(claimed) == len(owned):
        return merged, written or None, owned
    for place in owned.keys() - claimed.keys() - {"."}:
        _check_goes(node, live, place, owned[place])
        if merged is live:
            merged = dict(live)
        del merged[place[2:]]
        written[place] = {}
    return merged, written or None, dict(sorted(claimed.items()))


def _check_goes(node: TypeNode, live: dict[str, Any], place: str, owned: Fields) -> None:
    """Whether a field goes, with all that is in it, when its manager no longer states it and nobody else has it."""
    name = place[2:]
    if place[:2] != "f:" or name not in live or not (name in node.fields or owns_itself(owned)):
        raise _Unusual
    if type(live[name]) in _CONTAINERS and applied(node.child(name), live[name]) is None:
        raise _Unusual


def _value(node: TypeNode, live: Any, config: Any, owned: Fields | None, *, itself: bool) -> FastApplied:
    """Any place; None is owned where nothing is."""
    if live is ABSENT:
        if owned is not None:
            raise _Unusual
        claimed = _claim(node, config)
        return fresh(config), {}, with_own(claimed) if itself else claimed
    sort = type(config)
    if sort is dict and config and node.granular:
        return _map(node, live, config, owned or {}, itself=itself)
    if sort is list and node.associative:
        return _list(node, live, config, owned or {}, itself=itself)
    if owned or config is None:
        raise _Unusual
    claimed = {} if owned is None else owned
    if sort in _SCALARS:
        if type(live) not in _SCALARS:
            raise _Unusual
        if type(live) is sort and live == config:
            return live, None, claimed
    elif type(live) is not sort or not fits(node, config):
        raise _Unusual
    elif sort is dict and node.granular:
        return live, None, claimed  # an empty map takes nothing away
    encoded = orjson.dumps(config)
    if live == config and encoded == orjson.dumps(live):
        return live, None, claimed
    # Values that are equal but written differently, as 1 and 1.0, are replaced without counting as written.
    return orjson.loads(encoded), None if same(live, config) else {}, claimed


def _list(node: TypeNode, live: Any, config: list[Any], owned: Fields, *, itself: bool) -> FastApplied:
    """An associative list, if it states items of the live one in their order, and new ones after those."""
    if type(live) is not list or not config:
        raise _Unusual
    known, stated = _by_key(node, live), _by_key(node, config)
    together = known | stated
    if [key for key in together if key in stated] != [*stated] or not owned.keys() - {"."} <= known.keys():
        raise _Unusual
    merged: list[Any] = []
    written: Fields = {}
    claimed: Fields = {".": {}} if itself else {}
    as_owned = not itself or "." in owned
    for key in together:
        former, item, below = known.get(key, ABSENT), stated.get(key, ABSENT), owned.get(key)
        if item is not ABSENT:
            if type(item) not in node.item.types:
                raise _Unusual
            after, change, claimed[key] = _value(node.item, former, item, below, itself=True)
            merged.append(after)
            if change is not None:
                written[key] = change
            as_owned = as_owned and claimed[key] is below
        elif below is None:
            merged.append(former)
        elif owns_itself(below):
            written[key] = {}
        else:
            raise _Unusual
    as_before = len(merged) == len(live) and all(map(operator.is_, merged, live))
    as_owned = as_owned and len(claimed) == len(owned)
    return live if as_before else merged, written or None, owned if as_owned else in_order(claimed)


def _by_key(node: TypeNode, items: list[Any]) -> dict[str, Any]:
    keys = node.item_keys(items)
    if keys is None or len(by_key := dict(zip(keys, items, strict=True))) < len(items):
        raise _Unusual
    return by_key
