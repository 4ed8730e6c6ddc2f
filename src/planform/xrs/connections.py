"""Connection details: what a Secret beside an object says about how to reach it.

Legacy XRs collect those of their composed resources, by way of their functions, and publish them in a Secret of their
own. Modern XRs compose a Secret like any other resource.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from typing import Any, Final

from planform.api.annotations import annotations_of
from planform.api.kinds import Object
from planform.api.metadata import namespace_of, uid_of
from planform.api.names import COMPOSITE_MANAGER, CONNECTION_SECRET_TYPE, SECRET
from planform.api.owners import controller_reference, is_controlled_by
from planform.client.protocol import Client
from planform.errors import NotFound, PlanformError
from planform.xrs.dependencies import Named

PUBLISHED_ANNOTATION: Final = "planform.dev/published-at"


class ForeignSecret(PlanformError):
    """The Secret into which connection details should go belongs to somebody else."""

    reason = "ForeignSecret"


def secret_reference(obj: Mapping[str, Any], home: str) -> Named | None:
    """The Secret into which an object's connection details are written; in its own namespace unless it says another."""
    reference = (obj.get("spec") or {}).get("writeConnectionSecretToRef")
    if not isinstance(reference, dict) or not reference.get("name"):
        return None
    namespace = reference.get("namespace") or namespace_of(obj) or home
    return Named("v1", "Secret", namespace, reference["name"]) if namespace else None


def default_secret(xr: Mapping[str, Any], composition: Mapping[str, Any]) -> Object | None:
    """Where a legacy XR publishes if it does not say so and its Composition names a namespace."""
    namespace = composition.get("writeConnectionSecretsToNamespace")
    if not namespace or (xr.get("spec") or {}).get("writeConnectionSecretToRef"):
        return None
    return {"name": uid_of(xr), "namespace": namespace}


async def read_details(client: Client, secret: Named) -> dict[str, bytes]:
    """What the Secret holds; nothing if there is none yet."""
    try:
        found = await client.get(SECRET, secret.name, namespace=secret.namespace)
    except NotFound:
        return {}
    return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}


async def publish_details(
    client: Client, xr: Object, details: Mapping[str, bytes], *, keys: Collection[str], now: str
) -> str | None:
    """Write an XR's connection details into its Secret if they differ; gives the time they were last written, if any.

    The time stands on the Secret, so that it reaches the XR's status also if the process dies in between. `keys` are
    the only ones to publish; none means all. Raises ForeignSecret rather than overwrite what is not ours.
    """
    secret = secret_reference(xr, "")
    if secret is None:
        return None
    wanted = {
        key: base64.b64encode(value).decode() for key, value in sorted(details.items()) if not keys or key in keys
    }
    try:
        found: Object | None = await client.get(SECRET, secret.name, namespace=secret.namespace)
    except NotFound:
        found = None
    if found is not None:
        if not is_controlled_by(found, xr):
            raise ForeignSecret(
                f"Secret {secret.namespace}/{secret.name} exists and is not controlled by this XR; "
                "its connection details were not published"
            )
        if (found.get("data") or {}) == wanted:
            return annotations_of(found).get(PUBLISHED_ANNOTATION)
    elif not wanted:
        return None
    await client.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": secret.name,
                "namespace": secret.namespace,
                "ownerReferences": [controller_reference(xr)],
                "annotations": {PUBLISHED_ANNOTATION: now},
            },
            "type": CONNECTION_SECRET_TYPE,
            "data": wanted,
        },
        manager=COMPOSITE_MANAGER,
        force=True,
    )
    return now
