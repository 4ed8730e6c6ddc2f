"""Who an object belongs to, in the form in which Kubernetes writes it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planform.api.kinds import Object
from planform.api.metadata import metadata_of, name_of, uid_of


def controller_reference(owner: Mapping[str, Any]) -> Object:
    """What an object carries that this owner controls: it goes with the owner, and foreground deletion waits for it.

    An owner that is not stored yet, as in a rendering, has no uid.
    """
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_reference(owner: Mapping[str, Any]) -> Object:
    """What an object carries that this owner keeps and does not control: it goes with the last of its owners."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
    }


def owners_of(obj: Mapping[str, Any] | None) -> Sequence[Object]:
    """The owner references, as they stand in the object."""
    return metadata_of(obj).get("ownerReferences") or ()


def controller_of(obj: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The owner reference of whoever controls an object."""
    for reference in owners_of(obj):
        if reference.get("controller"):
            return reference
    return None


def controller_uid(obj: Mapping[str, Any] | None) -> str:
    """The uid of whoever controls an object; empty if nobody does."""
    return str((controller_of(obj) or {}).get("uid") or "")


def is_controlled_by(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Whether this very owner, not a namesake, controls the object; what nobody controls is nobody's."""
    controller = controller_of(obj)
    return controller is not None and controller.get("uid") == uid_of(owner)


def is_owned_by(obj: Mapping[str, Any], uid: str) -> bool:
    """Whether the owner of this uid is among the object's, be it the controller or not."""
    return any(reference.get("uid") == uid for reference in owners_of(obj))
