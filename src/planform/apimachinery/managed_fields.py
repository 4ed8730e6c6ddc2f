"""Sets of fields and the managedFields list that keeps them.

A set of fields is kept as the FieldsV1 JSON shows it, so that storing one costs nothing: a dict from path elements
(`f:name`, `k:{"name":"x"}`, `v:"p"`) to what is owned below them. `{}` owns the place itself; next to other elements
the key `.` says so. At the root `{}` is the empty set. Keys are sorted.

Sets are values: no function here changes one, and results share parts with their arguments, but with nothing else. So
the sets of an object that nobody else has are nobody else's either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from planform.apimachinery.typed import TypeNode, element_text

Fields = dict[str, Any]
"""A set of fields in its FieldsV1 form."""

APPLY, UPDATE = "Apply", "Update"
ANCIENT_CHANGES = "ancient-changes"
MAX_UPDATERS = 10


def union(left: Fields, right: Fields) -> Fields:
    return _join(left, right) if left and right else left or right


def difference(left: Fields, right: Fields) -> Fields:
    """What only `left` has. Membership is taken path by path: removing `.spec` leaves `.spec.a`."""
    return (_minus(left, right) or {}) if left and right else left


def intersection(left: Fields, right: Fields) -> Fields:
    return (_meet(left, right) or {}) if left and right else {}


def with_own(below: Fields | None) -> Fields:
    """The same place, itself owned too; None is a place below which nothing is."""
    if not below or "." in below:
        return below or {}
    return {".": {}, **below}


def owns_itself(below: Fields) -> bool:
    return not below or "." in below


def _join(left: Fields, right: Fields) -> Fields:
    if left is right:
        return left
    if not left or not right:
        return with_own(left or right)
    joined: Fields = {}
    for element in sorted(left.keys() | right.keys()):
        mine, other = left.get(element), right.get(element)
        if mine is None or other is None:
            joined[element] = other if mine is None else mine
        else:
            joined[element] = {} if element == "." else _join(mine, other)
    return joined


def _minus(left: Fields, right: Fields) -> Fields | None:
    if not left:
        return None if owns_itself(right) else left
    if not right:
        return {element: below for element, below in left.items() if element != "."}
    rest: Fields = {}
    for element, below in left.items():
        other = right.get(element)
        if other is None:
            rest[element] = below
        elif element != "." and (remaining := _minus(below, other)) is not None:
            rest[element] = remaining
    return _normal(rest)


def _meet(left: Fields, right: Fields) -> Fields | None:
    if not left or not right:
        return {} if owns_itself(left) and owns_itself(right) else None
    shared: Fields = {}
    for element, below in left.items():
        other = right.get(element)
        if other is not None and (both := {} if element == "." else _meet(below, other)) is not None:
            shared[element] = both
    return _normal(shared)


def _normal(below: Fields) -> Fields | None:
    """A place that owns only itself is `{}`, and one that owns nothing is none."""
    if len(below) == 1 and "." in below:
        return {}
    return below or None


def with_declared(fields: Fields, node: TypeNode) -> Fields:
    """The set and every declared field on the way to its members; a set names a structure only by what is in it."""
    named: Fields = {}
    for element, below in fields.items():
        if not below:
            named[element] = below
            continue
        child = below_type(node, element)
        deeper = with_declared(below, child)
        named[element] = with_own(deeper) if element[:2] == "f:" and element[2:] in node.fields else deeper
    return named


def settled(fields: Fields, node: TypeNode) -> Fields:
    """The set as the type has it now: what a schema has since made atomic is owned as a whole."""
    out = fields
    for element, below in fields.items():
        if not below:
            continue
        child = below_type(node, element)
        holds_fields = next(reversed(below))[0] == "f"  # one place holds fields or items, and `.` sorts before both
        now = settled(below, child) if (child.granular if holds_fields else child.associative) else {}
        if now is not below:
            out = {**out, element: now}
    return out


def below_type(node: TypeNode, element: str) -> TypeNode:
    return node.child(element[2:]) if element[:2] == "f:" else node.item


def paths(fields: Fields, prefix: str = "") -> Iterator[str]:
    """Every member as messages print it, the members of each place before what lies deeper."""
    deeper: list[tuple[str, Fields]] = []
    for element, below in fields.items():
        if element == ".":
            continue
        path = prefix + element_text(element)
        if owns_itself(below):
            yield path
        if below:
            deeper.append((path, below))
    for path, below in deeper:
        yield from paths(below, path)


class Owner(NamedTuple):
    """Who: the identity of an entry. Appliers are the same in every version, so theirs is empty here."""

    manager: str
    operation: str
    api_version: str
    subresource: str

    def __str__(self) -> str:
        """As conflicts name it."""
        text = orjson.dumps(self.manager).decode()
        if self.subresource:
            text += f" with subresource {orjson.dumps(self.subresource).decode()}"
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


def owner(manager: str, operation: str, api_version: str, subresource: str) -> Owner:
    return Owner(manager, operation, api_version if operation == UPDATE else "", subresource)


class Holding(NamedTuple):
    """What: the fields an owner has, in which version it last wrote them, and when."""

    fields: Fields
    api_version: str
    time: str


Owners = dict[Owner, Holding]


def entry(who: Owner, what: Holding) -> dict[str, Any]:
    """One item of metadata.managedFields."""
    encoded: dict[str, Any] = {
        "manager": who.manager,
        "operation": who.operation,
        "apiVersion": what.api_version,
        "time": what.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": what.fields,
    }
    if not what.time:
        del encoded["time"]
    if who.subresource:
        encoded["subresource"] = who.subresource
    return encoded


def encode(owners: Owners) -> list[dict[str, Any]]:
    """metadata.managedFields; who owns nothing is left out."""
    return in_order([entry(who, what) for who, what in owners.items() if what.fields])


def in_order(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items of metadata.managedFields: appliers first, then the oldest first."""
    return sorted(entries, key=_place) if len(entries) > 1 else entries


def _place(item: dict[str, Any]) -> tuple[str, ...]:
    return item["operation"], item.get("time", ""), item["manager"], item["apiVersion"], item.get("subresource", "")


def apart(entries: Sequence[dict[str, Any]], who: Owner) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The item of one owner in a list that `encode` made, and those of the others."""
    mine, others = None, []
    for item in entries:
        if (
            item["manager"] == who.manager
            and item["operation"] == who.operation
            and item.get("subresource", "") == who.subresource
            and who.api_version in ("", item["apiVersion"])
        ):
            mine = item
        else:
            others.append(item)
    return mine, others


def stored_owners(entries: Sequence[Mapping[str, Any]]) -> Owners:
    """The owners in a list that `encode` made."""
    owners: Owners = {}
    for item in entries:
        who = owner(item["manager"], item["operation"], item["apiVersion"], item.get("subresource", ""))
        owners[who] = Holding(item["fieldsV1"], item["apiVersion"], item.get("time", ""))
    return owners


def written_owners(entries: Any) -> Owners:
    """The owners in a list that a client wrote; raises ValueError saying which entry is wrong and why."""
    if not isinstance(entries, list):
        raise ValueError("metadata.managedFields must be a list")
    owners: Owners = {}
    for index, item in enumerate(entries):
        try:
            who, what = _written(item)
        except ValueError as error:
            raise ValueError(f"metadata.managedFields[{index}]: {error}") from error
        owners[who] = what
    return owners


def _written(item: Any) -> tuple[Owner, Holding]:
    if not isinstance(item, Mapping):
        raise ValueError("must be an object")
    texts = {name: item.get(name) or "" for name in ("manager", "operation", "apiVersion", "time", "subresource")}
    if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
        raise ValueError(f"{wrong[0]} must be a string")
    if texts["operation"] not in (APPLY, UPDATE):
        raise ValueError("operation must be `Apply` or `Update`")
    if not texts["apiVersion"]:
        raise ValueError("apiVersion must not be empty")
    if item.get("fieldsType") != "FieldsV1":
        raise ValueError("fieldsType must be `FieldsV1`")
    fields = decode(item.get("fieldsV1") or {})
    time = texts["time"] and datetime.fromisoformat(texts["time"]).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    who = owner(texts["manager"], texts["operation"], texts["apiVersion"], texts["subresource"])
    return who, Holding(fields, texts["apiVersion"], time)


def decode(fields: Any) -> Fields:
    """A set from somebody else's FieldsV1: sorted, keys in one spelling, elements of unknown sorts left out.

    Raises ValueError for what is not a FieldsV1.
    """
    if not isinstance(fields, Mapping):
        raise ValueError(f"FieldsV1 must be made of objects, not {fields!r}")
    decoded: Fields = {}
    for element, below in fields.items():
        if element == ".":
            decoded["."] = {}
        elif (spelled := _element(element)) is not None:
            decoded[spelled] = _normal_member(decode(below))
    return dict(sorted(decoded.items()))


def _normal_member(below: Fields) -> Fields:
    return {} if len(below) == 1 and "." in below else below


def _element(text: str) -> str | None:
    sort, colon, rest = text.partition(":")
    if not colon:
        raise ValueError(f"FieldsV1 element {text!r} has no type")
    if sort not in ("k", "v", "i"):
        return text if sort == "f" else None
    value = orjson.loads(rest)
    if (sort == "k" and not isinstance(value, dict)) or (sort == "i" and type(value) is not int):
        raise ValueError(f"FieldsV1 element {text!r} cannot be read")
    return f"{sort}:{orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()}"


def fold_oldest_updaters(owners: Owners) -> Owners:
    """Keep at most MOST_UPDATERS Update entries: the oldest ones of each version become one, `ancient-changes`."""
    if len(owners) <= MAX_UPDATERS:
        return owners
    updaters = [who for who in owners if who.operation == UPDATE]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return owners
    folded = dict(owners)
    oldest: dict[str, Owner] = {}
    for who in sorted(updaters, key=lambda who: (owners[who].time, who)):
        older = oldest.setdefault(who.api_version, who)
        if older == who:
            continue
        bucket = oldest[who.api_version] = Owner(ANCIENT_CHANGES, UPDATE, who.api_version, "")
        parts = [folded.pop(part) for part in dict.fromkeys((older, who, bucket)) if part in folded]
        folded[bucket] = _together(parts)
        excess -= len(parts) - 1
        if excess <= 0:
            break
    return folded


def _together(parts: Sequence[Holding]) -> Holding:
    fields: Fields = {}
    for part in parts:
        fields = union(fields, part.fields)
    return Holding(fields, parts[0].api_version, max(part.time for part in parts))
