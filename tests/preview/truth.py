"""What a preview says, and what happened, in the same words: for tests that compare the two field by field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from planform.api.kinds import Object
from planform.api.previews import ChangeClass, XrEntry
from planform.preview.field_diffs import content_of, field_changes

Place = tuple[str, str]
"""An XR's name, and a resource's name in the composition."""
Fields = dict[str, Any]
"""The values of fields afterwards, by path; None for one that is gone."""
Effects = tuple[dict[Place, Fields], dict[Place, Fields], set[Place]]


def predicted(classes: Iterable[ChangeClass], entries: Iterable[XrEntry], xrs: Iterable[Object]) -> Effects:
    """By resource the fields that change and what they become, resources that come with their content, and those that
    go."""
    uids = {xr["metadata"]["name"]: own_of(xr) for xr in xrs}
    known = {each.id: each for each in classes}
    updates: dict[Place, Fields] = {}
    creates: dict[Place, Fields] = {}
    deletes: set[Place] = set()
    for entry in entries:
        for change in known[entry.class_].changes if entry.class_ else ():
            if not change.resource:
                continue
            place = (entry.name, change.resource)
            if change.action == "Update":
                updates[place] = {each.path: own(each.after, uids[entry.name]) for each in change.fields}
            if change.action in ("Create", "Recreate"):
                content = {each.path: own(each.after, uids[entry.name]) for each in change.fields}
                creates[place] = {key: value for key, value in content.items() if key in SHOWN}
            if change.action in ("Delete", "Recreate"):
                deletes.add(place)
    return updates, creates, deletes


SHOWN = ("data", "spec")
"""What a new resource is compared by: its name and status are only known then."""


def own_of(xr: Object) -> dict[str, str]:
    return {
        "{name}": xr["metadata"]["name"],
        "{namespace}": xr["metadata"]["namespace"],
        "{uid}": xr["metadata"]["uid"],
    }


def own(value: Any, names: dict[str, str]) -> Any:
    """A value with what is the XR's own in the place of placeholders."""
    if value is msgspec.UNSET:
        return None
    if isinstance(value, dict):
        return {key: own(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [own(each, names) for each in value]
    for placeholder, name in names.items():
        value = value.replace(placeholder, name) if isinstance(value, str) else value
    return value


def happened(before: dict[Place, Object], after: dict[Place, Object]) -> Effects:
    updates: dict[Place, Fields] = {}
    for place in before.keys() & after.keys():
        changes = field_changes(content_of(before[place]), content_of(after[place]))
        fields = {each.path: None if each.after is msgspec.UNSET else each.after for each in changes}
        if fields:
            updates[place] = fields
    creates = {
        place: {key: after[place][key] for key in SHOWN if after[place].get(key)}
        for place in after.keys() - before.keys()
    }
    return updates, creates, before.keys() - after.keys()


def differences(real: Effects, said: Effects) -> list[str]:
    """Where the two part, one line each."""
    found = []
    for what, one, other in (("updates", real[0], said[0]), ("creates", real[1], said[1])):
        for place in sorted(one.keys() | other.keys()):
            if one.get(place) != other.get(place):
                found.append(f"{what} {place}: happened {one.get(place)}, previewed {other.get(place)}")
    return found + [f"deletes {each}" for each in sorted(real[2] ^ said[2])]
