"""Usages: objects that keep one resource from being deleted while another one uses it."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from planform.functions.values import Object

VERSIONS: Final = ("v2", "v1")
_KINDS: Final = frozenset({"Usage", "ClusterUsage"})
_MAX_LENGTH: Final = 63


def usage(*, of: Object, by: Object, version: str, replay_deletion: bool) -> Object | None:
    """The usage of one resource by another; None if the user is itself a usage, or one of them has no name yet."""
    of_name, by_name = _metadata(of, "name"), _metadata(by, "name")
    if by.get("kind") in _KINDS or not of_name or not by_name:
        return None
    metadata = {"name": _name(by, of)}
    namespace = _metadata(of, "namespace")
    if version == "v1":
        api_version, kind = "apiextensions.crossplane.io/v1beta1", "Usage"
    else:
        api_version, kind = "protection.crossplane.io/v1beta1", "Usage" if namespace else "ClusterUsage"
        if namespace:
            metadata["namespace"] = namespace
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": {
            "of": _reference(of, of_name),
            "by": _reference(by, by_name),
            "reason": "dependency",
            "replayDeletion": replay_deletion,
        },
    }


def _reference(resource: Object, name: str) -> Object:
    return {
        "apiVersion": resource.get("apiVersion"),
        "kind": resource.get("kind"),
        "resourceRef": {"name": name},
    }


def _name(by: Object, of: Object) -> str:
    """The same for the same pair, and a label's length at most."""
    parts = [str(by.get("kind")), _metadata(by, "name"), str(of.get("kind")), _metadata(of, "name")]
    whole = "-".join(parts).lower()
    suffix = f"-{hashlib.sha256(whole.encode()).hexdigest()[:6]}-dependency"
    return whole[: _MAX_LENGTH - len(suffix)].rstrip("-.") + suffix


def _metadata(resource: Object, member: str) -> str:
    metadata: Any = resource.get("metadata")
    found = metadata.get(member) if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""
