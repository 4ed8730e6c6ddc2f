"""Server-side apply, and who owns what after any other write.

Two entry points, both pure: `apply` merges what one manager wants into an object, and `track_update` says who owns the
fields of an object that was written in any other way. They never change their arguments, and leave defaulting,
validation and the resourceVersion check to the caller. A result may share with the live object the entries of
managedFields and what an apply cannot touch (all but the status, or the status); everything else in it is the caller's.

Versions: conversion between versions of a kind changes only apiVersion, so sets written in different versions are
compared as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planform.apimachinery import last_applied
from planform.apimachinery.apply_fast_path import claim, fast_apply, overlap
from planform.apimachinery.managed_fields import (
    APPLY,
    MAX_UPDATERS,
    UPDATE,
    Fields,
    Holding,
    Owner,
    Owners,
    apart,
    difference,
    encode,
    entry,
    fold_oldest_updaters,
    in_order,
    intersection,
    owner,
    paths,
    settled,
    stored_owners,
    union,
    with_declared,
    written_owners,
)
from planform.apimachinery.merging import fresh, merge, share_unchanged, without
from planform.apimachinery.objects import Object
from planform.apimachinery.ownership import applied, changed, created, same
from planform.apimachinery.typed import UNTRACKED_FIELDS, UNTRACKED_METADATA, TypedError, TypeNode, fits, type_errors
from planform.errors import ApplyConflict

BEFORE_FIRST_APPLY: Final = "before-first-apply"
_METADATA: Final[Fields] = {"f:metadata": {}}


def apply(
    live: Object | None,
    config: Object,
    *,
    node: TypeNode,
    manager: str,
    api_version: str,
    subresource: str = "",
    force: bool = False,
    now: str,
    status_subresource: bool = False,
    sets_fit: bool = False,
    share: bool = False,
) -> Object:
    """The object after `manager` applied `config`, with its managedFields; `live` is None if it is to be created.

    What this manager applied before and left out now is removed unless others own it. An apply that changes nothing
    returns an object equal to `live`, times included. Untracked metadata (uid, resourceVersion ...) stays as it is in
    `live`: preconditions that the configuration carries are the caller's to check. `sets_fit` says that the live
    object was written under this very type, and `share` that the result may have parts of it, other than the outermost
    maps of object and metadata.

    Raises ApplyConflict if others own fields that would change and `force` is not set, TypedError if the configuration
    does not fit its type.
    """
    reach = _Reach(subresource, status_subresource)
    wanted = reach.of(config)
    me = owner(manager, APPLY, api_version, subresource)
    if live is None:
        return _first(node, config, wanted, reach, me, api_version, now)
    if sets_fit and manager != last_applied.KUBECTL:
        again = _fast_applied(node, live, config, wanted, reach, me, api_version, now, share=share)
        if again is not None:
            return again

    claimed = _claimed(node, config, wanted, api_version)
    before = reach.of(live)
    former = stored_owners(_entries(live))
    if not sets_fit:
        former = _settled(former, node)
    untracked = not former
    if untracked:
        former = _written_by(
            owner(BEFORE_FIRST_APPLY, UPDATE, api_version, subresource), node, before, api_version, now
        )
    last = former[me].fields if me in former else {}
    owners = {**former, me: Holding(claimed, api_version, former[me].time if me in former else now)}

    after = merge(node, before, wanted) if before else wanted
    if difference(last, claimed):
        after = _pruned(node, after, last, owners)
    written, removed = _changes(node, before, after)
    if not force and (conflicts := _conflicts(owners, me, written)):
        if manager == last_applied.KUBECTL:
            conflicts = _less(conflicts, last_applied.fields_still_as_applied(live, node))
        if conflicts:
            raise _conflict_error(conflicts)
    owners = _shared_out(owners, former, me, union(written, removed), now)
    result = reach.fresh(live, after)
    if share:
        share_unchanged(live, result)
    _keep_untracked(live, result)
    if manager == last_applied.KUBECTL:
        last_applied.follow(result, config)
    return _with_entries(result, owners, unchanged=not untracked and owners == former)


def _fast_applied(
    node: TypeNode,
    live: Object,
    config: Object,
    wanted: Object,
    reach: _Reach,
    me: Owner,
    api_version: str,
    now: str,
    *,
    share: bool,
) -> Object | None:
    """The object after an apply that takes nothing from other owners, if `fast_apply` knows it."""
    mine, others = apart(_entries(live), me)
    if mine is None and not others:
        return None  # this ends a time without tracking
    if mine is not None and mine["apiVersion"] != api_version:
        return None
    owned: Fields = mine["fieldsV1"] if mine else {}
    if not _fits_beyond_reach(node, config, wanted):
        return None
    fast = fast_apply(node, reach.of(live), wanted, owned)
    if fast is None:
        return None
    after, written, claimed = fast
    # Sharing out is for the general way. That also forgets claims to the object itself, which some client made up.
    if any("." in item["fieldsV1"] or overlap(item["fieldsV1"], written) for item in others):
        return None
    result = {**reach.put(live, after)} if share else reach.fresh(live, after)
    _keep_untracked(live, result)
    if written or claimed != owned:
        del result["metadata"]["managedFields"]
        result["metadata"]["managedFields"] = in_order([*others, entry(me, Holding(claimed, api_version, now))])
    return result


def _shared_out(owners: Owners, former: Owners, me: Owner, lost: Fields, now: str) -> Owners:
    """The owners after an apply by one of them: what it changed or removed, the others own no longer."""
    shared: Owners = {}
    for who, what in owners.items():
        fields = what.fields if who == me else difference(what.fields, lost)
        if fields:
            shared[who] = Holding(fields, what.api_version, what.time)
    if me in shared and (lost or shared != former):
        shared[me] = shared[me]._replace(time=now)
    return shared


def _first(
    node: TypeNode, config: Object, wanted: Object, reach: _Reach, me: Owner, api_version: str, now: str
) -> Object:
    """An apply that creates: there is nobody to merge or quarrel with."""
    claimed = _claimed(node, config, wanted, api_version)
    result = fresh(reach.put({}, wanted))
    if me.manager == last_applied.KUBECTL:
        last_applied.follow(result, config)
    return _with_entries(result, {me: Holding(claimed, api_version, now)} if claimed else {}, unchanged=False)


def track_update(
    live: Object | None,
    new: Object,
    *,
    node: TypeNode,
    manager: str,
    api_version: str,
    subresource: str = "",
    now: str,
    status_subresource: bool = False,
    sets_fit: bool = False,
) -> list[dict[str, Any]]:
    """metadata.managedFields after a write other than apply turned `live` (None: a creation) into `new`.

    A managedFields list in `new` replaces the live one first: it is how clients rewrite ownership. An empty list, or
    one empty entry, ends tracking; none at all, or one that cannot be read, leaves the live one in force. `sets_fit`
    says that the live object was written under this very type.
    """
    given = None if subresource else new.get("metadata", {}).get("managedFields")
    me = owner(manager, UPDATE, api_version, subresource)
    reach = _Reach(subresource, status_subresource)
    if live is None and not given:
        fields = _created(node, reach.of(new))
        return [entry(me, Holding(fields, api_version, now))] if fields else []
    stored = former = _entries(live)
    if not sets_fit:
        former = _all_entries(_settled(stored_owners(stored), node))
    entries = former if given is None or given == stored else _given_entries(given, former, node)
    if live is not None and not entries:
        return []
    written, removed = _changes(node, reach.of(live or {}), reach.of(new))
    if written or removed:
        entries = _updated(entries, me, written, removed, now)
    elif entries is former:
        return list(stored)
    kept = [item for item in entries if item["fieldsV1"]]
    return in_order(kept) if len(kept) <= MAX_UPDATERS else encode(fold_oldest_updaters(stored_owners(kept)))


def _updated(entries: list[Object], me: Owner, written: Fields, removed: Fields, now: str) -> list[Object]:
    """The entries after one owner wrote and removed these fields: what they had of them, the others own no longer."""
    lost = union(written, removed)
    mine, others = apart(entries, me)
    held: Fields = mine["fieldsV1"] if mine else {}
    if removed or difference(written, held):  # else it wrote what it owns already
        held = union(difference(held, lost), written)
    updated = [{**item, "fieldsV1": difference(item["fieldsV1"], lost)} for item in others]
    if written:
        updated.append(entry(me, Holding(held, me.api_version, now)))
    elif mine:
        updated.append({**mine, "fieldsV1": held})
    return updated


def same_but_server_metadata(old: Object, new: Object) -> bool:
    """Whether a write changes nothing that counts: equal but for resourceVersion and the times in managedFields."""
    for name, value in new.items():
        if name != "metadata" and (former := old.get(name)) is not value and former != value:
            return False  # as most writes do
    return same(_without_server_metadata(old), _without_server_metadata(new))


def _without_server_metadata(obj: Object) -> Object:
    metadata = {name: value for name, value in obj.get("metadata", {}).items() if name != "resourceVersion"}
    entries = metadata.pop("managedFields", None) or ()
    if entries:
        metadata["managedFields"] = [{name: item[name] for name in item if name != "time"} for item in entries]
    return {**obj, "metadata": metadata}


class _Reach:
    """Which top-level fields a request can touch: …/status only status, the main path all but it (if there is one)."""

    __slots__ = ("_status_only", "_without_status")

    def __init__(self, subresource: str, status_subresource: bool) -> None:
        self._status_only = subresource == "status"
        self._without_status = status_subresource and not self._status_only

    def of(self, obj: Object) -> Object:
        if self._status_only:
            return {"status": obj["status"]} if "status" in obj else {}
        if self._without_status and "status" in obj:
            return {name: value for name, value in obj.items() if name != "status"}
        return obj

    def put(self, obj: Object, part: Object) -> Object:
        """The object with its reachable part replaced."""
        if self._status_only:
            return {**{name: value for name, value in obj.items() if name != "status"}, **part}
        if self._without_status and "status" in obj:
            return {**part, "status": obj["status"]}
        return part

    def fresh(self, obj: Object, part: Object) -> Object:
        """The same, of which the caller may change what this request can touch."""
        if self._status_only:
            obj = {**obj, "metadata": {**obj.get("metadata", {})}}
        return self.put(obj, fresh(part))


def _created(node: TypeNode, obj: Object) -> Fields:
    """What writing a whole new object claims: as if UNTRACKED_FIELDS were subtracted, without building those first."""
    tracked = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}
    metadata = {name: value for name, value in obj.get("metadata", {}).items() if name not in UNTRACKED_METADATA}
    if metadata:
        tracked["metadata"] = metadata
    if not tracked:
        return {}
    fields = created(node, tracked)
    fields.pop(".", None)
    if metadata:
        fields["f:metadata"].pop(".", None)
    return fields


def _changes(node: TypeNode, old: Object, new: Object) -> tuple[Fields, Fields]:
    written, removed = changed(node, old, new)
    return difference(written or {}, UNTRACKED_FIELDS), difference(removed or {}, UNTRACKED_FIELDS)


def _written_by(who: Owner, node: TypeNode, obj: Object, api_version: str, now: str) -> Owners:
    fields = _created(node, obj)
    return {who: Holding(fields, api_version, now)} if fields else {}


def _entries(live: Object | None) -> list[dict[str, Any]]:
    return (live or {}).get("metadata", {}).get("managedFields") or []


def _given_entries(given: Any, former: list[Object], node: TypeNode) -> list[Object]:
    if not given or given == [{}]:
        return []
    try:
        return _all_entries(_settled(written_owners(given), node))
    except (ValueError, RecursionError):
        return former


def _all_entries(owners: Owners) -> list[Object]:
    return [entry(who, what) for who, what in owners.items()]


def _settled(owners: Owners, node: TypeNode) -> Owners:
    return {who: what._replace(fields=settled(what.fields, node)) for who, what in owners.items()}


def _pruned(node: TypeNode, merged: Object, last: Fields, owners: Owners) -> Object:
    """The merged object less what its manager applied last and nobody claims now.

    A structure goes with the last owned field in it, and an item of a list with its last owner; both take along what
    nobody owns inside them. What stands outside what was last applied stays, owned or not.
    """
    everyone = _METADATA
    for what in owners.values():
        everyone = union(everyone, what.fields)
    owned, last = with_declared(everyone, node), difference(with_declared(last, node), _METADATA)
    everything = with_declared(applied(node, merged) or {}, node)
    bare = with_declared(applied(node, without(node, merged, last)) or {}, node)
    kept = without(node, merged, difference(everything, union(bare, owned)))
    remaining = with_declared(applied(node, kept) or {}, node)
    result: Object = without(node, merged, intersection(difference(everything, union(remaining, owned)), last))
    return result


def _conflicts(owners: Owners, me: Owner, written: Fields) -> dict[Owner, Fields]:
    shared = {who: intersection(what.fields, written) for who, what in owners.items() if who != me}
    return {who: fields for who, fields in sorted(shared.items()) if fields}


def _less(conflicts: Mapping[Owner, Fields], allowed: Fields) -> dict[Owner, Fields]:
    return {who: left for who, fields in conflicts.items() if (left := difference(fields, allowed))}


def _conflict_error(conflicts: Mapping[Owner, Fields]) -> ApplyConflict:
    found = [(who, path) for who, fields in conflicts.items() for path in paths(fields)]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path} for who, path in found
    ]
    if len(found) == 1:
        text = f"Apply failed with 1 conflict: conflict with {found[0][0]}: {found[0][1]}"
    else:
        lines = [line for who, fields in conflicts.items() for line in (f"conflicts with {who}:", *_bulleted(fields))]
        text = "\n".join([f"Apply failed with {len(found)} conflicts: {lines[0]}", *lines[1:]])
    return ApplyConflict(text, details={"causes": causes})


def _bulleted(fields: Fields) -> list[str]:
    return [f"- {path}" for path in paths(fields)]


def _claimed(node: TypeNode, config: Object, wanted: Object, api_version: str) -> Fields:
    """What the part of a configuration within reach claims, if all of it fits its type."""
    if _fits_beyond_reach(node, config, wanted) and (claimed := claim(node, wanted)) is not None:
        return claimed
    _check_type(node, config, api_version)
    return difference(applied(node, wanted) or {}, UNTRACKED_FIELDS)


def _fits_beyond_reach(node: TypeNode, config: Object, wanted: Object) -> bool:
    return wanted is config or fits(node, {name: value for name, value in config.items() if name not in wanted})


def _check_type(node: TypeNode, config: Object, api_version: str) -> None:
    errors = type_errors(node, config)
    if not errors:
        return
    metadata = config.get("metadata") or {}
    named = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    versioned = api_version if "/" in api_version else f"/{api_version}"
    text = errors[0] if len(errors) == 1 else "\n  ".join(["errors:", *errors])
    what = f"{named}; {versioned}, Kind={config.get('kind', '')}"
    raise TypedError(f"failed to create typed patch object ({what}): {text}")


def _keep_untracked(live: Object, result: Object) -> None:
    kept = {name: value for name, value in live.get("metadata", {}).items() if name in UNTRACKED_METADATA}
    result["metadata"] = {**result.get("metadata", {}), **kept}


def _with_entries(obj: Object, owners: Owners, *, unchanged: bool) -> Object:
    if unchanged:
        return obj
    metadata = obj.setdefault("metadata", {})
    metadata.pop("managedFields", None)
    if owners:
        metadata["managedFields"] = encode(fold_oldest_updaters(owners))
    return obj
