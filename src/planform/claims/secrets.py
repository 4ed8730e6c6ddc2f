"""How connection details get from an XR's Secret to that of its claim, and when they must not. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planform.api.kinds import Object
from planform.api.metadata import name_of, namespace_of, uid_of
from planform.api.names import CONNECTION_SECRET_TYPE
from planform.api.owners import controller_of, controller_reference, is_controlled_by, owners_of
from planform.errors import PlanformError


class SecretRefused(PlanformError):
    """Connection details that must not be copied: from, or over, a Secret of somebody else."""

    reason = "ConnectionSecretRefused"
    retryable = True


def details_place(xr: Mapping[str, Any]) -> tuple[str, str] | None:
    """Namespace and name of the Secret with the XR's connection details; None if it has no place for them."""
    reference = xr["spec"].get("writeConnectionSecretToRef")
    return (reference["namespace"], reference["name"]) if reference else None


def has_published(xr: Mapping[str, Any]) -> bool:
    """Whether the XR says that its connection details were written."""
    return bool(((xr.get("status") or {}).get("connectionDetails") or {}).get("lastPublishedTime"))


def secret_for_claim(
    claim: Mapping[str, Any], xr: Mapping[str, Any], source: Mapping[str, Any], existing: Object | None
) -> Object | None:
    """The claim's Secret to write; None if the existing one is as it must be. Raises SecretRefused.

    The source must be controlled by the XR, or a claim could be used to read any Secret there is. Over an existing
    Secret the claim writes if it controls it, or if nobody does and it was made for connection details.
    """
    if not is_controlled_by(source, xr):
        raise SecretRefused(f'{_shown(source)} is not controlled by {xr["kind"]} "{name_of(xr)}"')
    owner = controller_reference(claim)
    data = source.get("data") or {}
    if existing is None:
        place = {"name": claim["spec"]["writeConnectionSecretToRef"]["name"], "namespace": namespace_of(claim)}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {**place, "ownerReferences": [owner]},
            "type": CONNECTION_SECRET_TYPE,
            "data": data,
        }
    controller = controller_of(existing) or {}
    if controller and controller["uid"] != uid_of(claim):
        raise SecretRefused(f'{_shown(existing)} is controlled by {controller["kind"]} "{controller["name"]}"')
    if not controller and existing.get("type") != CONNECTION_SECRET_TYPE:
        raise SecretRefused(
            f"{_shown(existing)} exists, is not controlled by this claim and not for connection details"
        )
    if controller and (existing.get("data") or {}) == data:
        return None
    owners = owners_of(existing)
    return {
        **existing,
        "metadata": {**existing["metadata"], "ownerReferences": owners if controller else [*owners, owner]},
        "data": data,
    }


def _shown(secret: Mapping[str, Any]) -> str:
    return f"Secret {namespace_of(secret)}/{name_of(secret)}"
