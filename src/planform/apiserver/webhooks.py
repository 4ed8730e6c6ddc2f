"""Conversion between the versions of a custom kind, by asking the webhook that its CRD names."""

from __future__ import annotations

import base64
import binascii
import ssl
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from planform.api.kinds import Object
from planform.apiserver.registry import ServedKind
from planform.errors import InternalError

if TYPE_CHECKING:
    import aiohttp

_SECONDS = 30.0
_REVIEW = "apiextensions.k8s.io/v1"


class Webhooks:
    """Calls conversion webhooks over one HTTP session. `services` maps `namespace/name` to a base URL, since the
    embedded engine has no cluster network through which a service could be reached."""

    def __init__(self, services: Mapping[str, str] | None = None) -> None:
        self._services = dict(services or {})
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def convert(self, served: ServedKind, objects: Sequence[Object], api_version: str) -> Sequence[Object]:
        """The objects in another version, in order, with their identity as it was. Raises InternalError."""
        config = ((served.conversion or {}).get("webhook") or {}).get("clientConfig") or {}
        url = self._url(served, config)
        review = {
            "kind": "ConversionReview",
            "apiVersion": _REVIEW,
            "request": {"uid": str(uuid.uuid4()), "desiredAPIVersion": api_version, "objects": list(objects)},
        }
        answer = await self._post(served, url, config.get("caBundle"), review)
        return _converted(served, review["request"], answer, objects, api_version)

    def _url(self, served: ServedKind, config: Mapping[str, Any]) -> str:
        if config.get("url"):
            return str(config["url"])
        service = config.get("service") or {}
        name = f"{service.get('namespace')}/{service.get('name')}"
        base = self._services.get(name)
        if base is None:
            raise InternalError(
                f"conversion webhook for {served.kind.resource} names service {name}, which the embedded engine "
                "cannot reach",
                hint="give the webhook's address as clientConfig.url",
            )
        return base.rstrip("/") + "/" + str(service.get("path") or "").lstrip("/")

    async def _post(self, served: ServedKind, url: str, ca_bundle: str | None, review: Any) -> Any:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS))
        try:
            async with self._session.post(
                url,
                data=orjson.dumps(review),
                headers={"content-type": "application/json"},
                ssl=_trust(ca_bundle) if ca_bundle else True,
            ) as response:
                body = await response.read()
                if response.status != 200:
                    raise InternalError(
                        f"conversion webhook for {served.kind.resource} failed: {url} answered {response.status}"
                    )
                return orjson.loads(body)
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError, ssl.SSLError) as error:
            raise InternalError(f"conversion webhook for {served.kind.resource} failed: {url}: {error}") from error


def _trust(ca_bundle: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode())
    except (binascii.Error, ssl.SSLError, UnicodeDecodeError) as error:
        raise InternalError(f"the caBundle of the conversion webhook is not a certificate: {error}") from error


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
