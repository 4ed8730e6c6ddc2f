"""What refers to an object by its uid follows when the object gets another. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from planform.api.kinds import Object


def remapped(obj: Mapping[str, Any], uids: Mapping[str, str]) -> Object:
    """The object with every uid that is known replaced where a field is called so; without its own.

    A name may be made of a uid, and stays: the object that it names keeps it too. Owners of whom no new uid is known
    are left out: they are not there, and a cluster would collect the object.
    """
    metadata = {name: value for name, value in obj["metadata"].items() if name != "uid"}
    if references := metadata.pop("ownerReferences", None):
        kept = [each for each in references if each["uid"] in uids]
        metadata |= {"ownerReferences": kept} if kept else {}
    managed = metadata.pop("managedFields", None)
    found: Object = _replaced({**obj, "metadata": metadata}, uids)
    if managed:
        found["metadata"]["managedFields"] = managed_fields(managed, uids)
    return found


def managed_fields(entries: Sequence[Mapping[str, Any]], uids: Mapping[str, str]) -> list[Object]:
    """Who owns which fields; owner references are told apart by their uid, which is part of the field's name there."""
    return [{**entry, "fieldsV1": _renamed(entry.get("fieldsV1") or {}, uids)} for entry in entries]


def with_generation(status: Any, before: int, after: int) -> Any:
    """A status whose author has seen as much of the new object as it had seen of the old one."""
    if isinstance(status, Mapping):
        return {
            name: (after if value >= before else max(0, after - 1))
            if name in ("observedGeneration", "generation") and isinstance(value, int)
            else with_generation(value, before, after)
            for name, value in status.items()
        }
    return [with_generation(item, before, after) for item in status] if isinstance(status, list) else status


def _replaced(value: Any, uids: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {
            name: uids.get(item, item)
            if isinstance(item, str) and name.lower().endswith("uid")
            else _replaced(item, uids)
            for name, item in value.items()
        }
    return [_replaced(item, uids) for item in value] if isinstance(value, list) else value


def _renamed(fields: Mapping[str, Any], uids: Mapping[str, str]) -> Object:
    return {_new_name(name, uids): _renamed(below, uids) for name, below in fields.items()}


def _new_name(name: str, uids: Mapping[str, str]) -> str:
    if not name.startswith("k:"):
        return name
    keys = orjson.loads(name[2:])
    if not isinstance(keys.get("uid"), str):
        return name
    return "k:" + orjson.dumps({**keys, "uid": uids.get(keys["uid"], keys["uid"])}).decode()
