"""Strategic merge patch: a merge patch that knows from the schema which lists are keyed, and obeys directives.

Only built-in kinds have it. The schema says by `x-kubernetes-patch-strategy: merge` that the items of a list merge, and
by `x-kubernetes-patch-merge-key` which member tells one item from another; without the key, items are plain values.
Directives in the patch say more: `$patch` (replace or delete this object or item), `$retainKeys` (drop all other
members), `$setElementOrder/LIST` (the order of the items), `$deleteFromPrimitiveList/LIST` (values to take out).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planform.apimachinery.patches import MalformedPatch, json_equal

Schema = Mapping[str, Any]
Resolve = Callable[[str], Schema]

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE: Final = "$deleteFromPrimitiveList/"


def strategic_merge(
    doc: Mapping[str, Any], patch: Mapping[str, Any], schema: Schema, resolve: Resolve | None = None
) -> dict[str, Any]:
    """The document with the patch applied; raises MalformedPatch if the patch contradicts itself or the schema.

    `resolve` gives the schema behind a `$ref`. Neither argument is changed; unchanged parts are shared.
    """
    if not isinstance(patch, Mapping):
        raise MalformedPatch("a strategic merge patch must be an object")
    return _merge_object(dict(doc), patch, _Field.of(schema, resolve))


@dataclass(frozen=True, slots=True)
class _Field:
    """What the schema says about one value; a value it does not know is merged as in a plain merge patch."""

    schema: Schema
    resolve: Resolve | None
    strategies: frozenset[str]
    merge_key: str

    @classmethod
    def of(cls, schema: Schema, resolve: Resolve | None) -> _Field:
        strategies = frozenset(str(schema.get("x-kubernetes-patch-strategy") or "").split(","))
        merge_key = str(schema.get("x-kubernetes-patch-merge-key") or "")
        # The extensions stand beside the reference, the members behind it.
        while True:
            alone: Sequence[Schema] = schema.get("allOf") or ()
            reference = schema.get("$ref") or (alone[0].get("$ref") if len(alone) == 1 else None)
            if reference is None or resolve is None:
                return cls(schema, resolve, strategies, merge_key)
            schema = resolve(reference)

    def member(self, name: str) -> _Field:
        properties = self.schema.get("properties") or {}
        found = properties.get(name) or self.schema.get("additionalProperties") or {}
        return _Field.of(found if isinstance(found, Mapping) else {}, self.resolve)

    def item(self) -> _Field:
        return _Field.of(self.schema.get("items") or {}, self.resolve)


def _merge_object(old: dict[str, Any], patch: Mapping[str, Any], field: _Field) -> dict[str, Any]:
    match patch.get(_PATCH, "merge"):
        case "replace":
            return _merge_object({}, {key: value for key, value in patch.items() if key != _PATCH}, field)
        case "delete":
            return {}
        case "merge":
            pass
        case other:
            raise MalformedPatch(f"unknown patch type {other!r} in {_shown(patch)}")
    new = _retain(old, patch)
    orders = {key.removeprefix(_ORDER): _list(key, value) for key, value in patch.items() if key.startswith(_ORDER)}
    for name, change in patch.items():
        if name in {_PATCH, _RETAIN} or name.startswith((_ORDER, _DELETE)):
            continue
        if change is None:
            new.pop(name, None)
        else:
            new[name] = _merge_value(new.get(name), change, field.member(name), orders.get(name))
    for name, order in orders.items():
        if name not in patch and isinstance(items := new.get(name), list):
            new[name] = _arrange(items, order, items, field.member(name).merge_key)
    for name, change in patch.items():
        if name.startswith(_DELETE) and isinstance(items := new.get(name.removeprefix(_DELETE)), list):
            gone = {_identity(value) for value in _list(name, change)}
            new[name.removeprefix(_DELETE)] = [item for item in items if _identity(item) not in gone]
    return new


def _merge_value(old: Any, change: Any, field: _Field, order: list[Any] | None) -> Any:
    if isinstance(change, Mapping):
        keep = isinstance(old, dict) and "replace" not in field.strategies
        return _merge_object(old if keep else {}, change, field)
    if isinstance(change, list):
        return _merge_list(old if isinstance(old, list) else [], change, field, order)
    return old if json_equal(old, change) else change


def _retain(old: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the object, less what `$retainKeys` does not list; it must list all that the patch sets."""
    if _RETAIN not in patch:
        return dict(old)
    names = _list(_RETAIN, patch[_RETAIN])
    for name, value in patch.items():
        if value is not None and not name.startswith("$") and name not in names:
            raise MalformedPatch(f"{name!r} is set by the patch but missing from its {_RETAIN}")
    return {name: value for name, value in old.items() if name in names}


def _merge_list(old: list[Any], patch: list[Any], field: _Field, order: list[Any] | None) -> list[Any]:
    if "merge" not in field.strategies:
        return old if json_equal(old, patch) else patch
    if any(isinstance(item, list) for item in patch):
        raise MalformedPatch("lists of lists cannot be merged")
    if any(isinstance(item, Mapping) for item in (*patch, *old)):
        if not field.merge_key:
            raise MalformedPatch("cannot merge lists of objects without a merge key")
        return _merge_keyed(old, patch, field, order)
    _check_order(patch, order, "")
    known = {_identity(item) for item in old}
    merged = old + [item for item in _distinct(patch) if _identity(item) not in known]
    return _arrange(merged, patch if order is None else order, old, "")


def _merge_keyed(old: list[Any], patch: list[Any], field: _Field, order: list[Any] | None) -> list[Any]:
    key, item_field = field.merge_key, field.item()
    changes: list[Mapping[str, Any]] = []
    gone: set[Hashable] = set()
    replace = False
    for item in patch:
        if not isinstance(item, Mapping):
            raise MalformedPatch(f"list element types are not identical: {item!r} is not an object")
        match item.get(_PATCH, "merge"):
            case "merge":
                changes.append(item)
            case "delete":
                gone.add(_key_of(item, key))
            case "replace":
                replace = True
            case other:
                raise MalformedPatch(f"unknown patch type {other!r} in {_shown(item)}")
    if replace:
        return [_merge_object({}, change, item_field) for change in changes]
    _check_order(changes, order, key)
    merged = [item for item in old if not isinstance(item, Mapping) or _identity(item.get(key)) not in gone]
    places = {
        _identity(item.get(key)): place for place, item in reversed([*enumerate(merged)]) if isinstance(item, Mapping)
    }
    for change in changes:
        place = places.get(identity := _key_of(change, key))
        if place is None:
            places[identity] = len(merged)
            merged.append(_merge_object({}, change, item_field))
        else:
            merged[place] = _merge_object(merged[place], change, item_field)
    return _arrange(merged, changes if order is None else order, old, key)


def _arrange(items: list[Any], order: Sequence[Any], old: Sequence[Any], key: str) -> list[Any]:
    """Items that `order` names come in that order, the others in their old one.

    The two rows are then woven together: an item that only the server has goes before the next one of the other row if
    it stood before it already. So a new item comes before all that follow it, and so, with no order given, first.
    """
    wanted = {_identity_by(item, key): place for place, item in reversed([*enumerate(order)])}
    stood = {_identity_by(item, key): place for place, item in reversed([*enumerate(old)])}
    named = sorted(
        (item for item in items if _identity_by(item, key) in wanted), key=lambda item: wanted[_identity_by(item, key)]
    )
    others = [item for item in items if _identity_by(item, key) not in wanted]
    woven: list[Any] = []
    waiting = 0
    for item in named:
        place = stood.get(_identity_by(item, key))
        while (
            place is not None and waiting < len(others) and stood.get(_identity_by(others[waiting], key), place) < place
        ):
            woven.append(others[waiting])
            waiting += 1
        woven.append(item)
    return woven + others[waiting:]


def _check_order(patch: Sequence[Any], order: Sequence[Any] | None, key: str) -> None:
    """What the patch lists must be in `$setElementOrder`, in the same order."""
    if not order:
        return
    rest = iter([_identity_by(item, key) for item in order])
    for item in patch:
        if _identity_by(item, key) not in rest:
            raise MalformedPatch(f"the order in the patch list does not match its {_ORDER} list: {_shown(item)}")


def _identity_by(item: Any, key: str) -> Hashable:
    return _key_of(item, key) if key else _identity(item)


def _key_of(item: Any, key: str) -> Hashable:
    if not isinstance(item, Mapping) or key not in item:
        raise MalformedPatch(f"{_shown(item)} does not contain declared merge key: {key}")
    return _identity(item[key])


def _identity(value: Any) -> Hashable:
    """What makes two plain values the same: true is not 1."""
    if isinstance(value, (dict, list)):
        raise MalformedPatch(f"{_shown(value)} is neither a text nor a number")
    return isinstance(value, bool), value


def _distinct(items: Iterable[Any]) -> list[Any]:
    return list({_identity(item): item for item in items}.values())


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedPatch(f"{name} must be a list")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
