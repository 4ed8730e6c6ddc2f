"""Conversion between the versions of a custom kind, by asking the webhook that its CRD names."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import orjson

from planform.api.kinds import Object
from planform.apiserver.admission.webhook_calls import CallFailed, WebhookCalls
from planform.apiserver.crds.registry import ServedKind
from planform.errors import InternalError

_SECONDS = 30.0
_REVIEW = "apiextensions.k8s.io/v1"


class Webhooks:
    """Calls conversion webhooks."""

    def __init__(self, calls: WebhookCalls | None = None) -> None:
        self._calls = calls or WebhookCalls()

    async def close(self) -> None:
        await self._calls.close()

    async def convert(self, served: ServedKind, objects: Sequence[Object], api_version: str) -> Sequence[Object]:
        """The objects in another version, in order, with their identity as it was. Raises InternalError."""
        config = ((served.conversion or {}).get("webhook") or {}).get("clientConfig") or {}
        review = {
            "kind": "ConversionReview",
            "apiVersion": _REVIEW,
            "request": {"uid": str(uuid.uuid4()), "desiredAPIVersion": api_version, "objects": list(objects)},
        }
        try:
            answer = orjson.loads(await self._calls.post(config, orjson.dumps(review), seconds=_SECONDS))
        except (CallFailed, orjson.JSONDecodeError) as error:
            raise InternalError(f"conversion webhook for {served.kind.resource} failed: {error}") from error
        return _converted(served, review["request"], answer, objects, api_version)


def _converted(
    served: ServedKind, request: Any, answer: Any, objects: Sequence[Object], api_version: str
) -> Sequence[Object]:
    """What the webhook returned, checked: it may change neither identity nor number."""
    name = served.kind.resource
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict) or response.get("uid") != request["uid"]:
        raise InternalError(f"conversion webhook for {name} answered another request")
    result = response.get("result") or {}
    if result.get("status") != "Success":
        raise InternalError(f"conversion webhook for {name} failed: {result.get('message', 'no reason given')}")
    converted = response.get("convertedObjects")
    if not isinstance(converted, list) or len(converted) != len(objects):
        raise InternalError(f"conversion webhook for {name} returned another number of objects than it was given")
    for before, after in zip(objects, converted, strict=True):
        if not isinstance(after, dict) or after.get("apiVersion") != api_version or after.get("kind") != before["kind"]:
            raise InternalError(f"conversion webhook for {name} did not return objects of {api_version}")
        labels_and_annotations = {
            field: value
            for field, value in (after.get("metadata") or {}).items()
            if field in ("labels", "annotations") and value
        }
        kept = {key: value for key, value in before["metadata"].items() if key not in ("labels", "annotations")}
        after["metadata"] = {**kept, **labels_and_annotations}
    return converted
