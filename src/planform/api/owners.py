"""Who an object belongs to, in the form in which Kubernetes writes it down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planform.api.kinds import Object


def controller_reference(owner: Mapping[str, Any]) -> Object:
    """What an object carries that this owner controls: it goes with the owner, and foreground deletion waits for it.

    An owner that is not stored yet, as in a rendering, has no uid.
    """
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_reference(owner: Mapping[str, Any]) -> Object:
    """What an object carries that this owner keeps and does not control: it goes with the last of its owners."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of whoever controls an object."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Mapping[str, Any] = reference
            return found
    return None
