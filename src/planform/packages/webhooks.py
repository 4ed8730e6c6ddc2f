"""Webhooks that a package brings: its configurations, made to point at where its program serves them.

A package cannot know where it will run. Its configurations name a placeholder; the service and the authority are put in
when it is installed, into webhook configurations and into definitions that are converted by a webhook.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from planform.api.kinds import Object
from planform.api.metadata import name_of

_CONFIGURATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_DEFINITIONS: Final = ("CustomResourceDefinition", "ManagedResourceDefinition")


class WebhookService(NamedTuple):
    """Where a package serves webhooks, and the authority that its certificate is of, in PEM."""

    package: str
    namespace: str
    name: str
    port: int
    authority: bytes

    def client_config(self, config: Any) -> Object:
        """A `clientConfig` that leads here; the path is the package's own."""
        given = config if isinstance(config, dict) else {}
        service = given.get("service")
        path = service.get("path") if isinstance(service, dict) else None
        pointed: Object = {"name": self.name, "namespace": self.namespace, "port": self.port}
        return {
            "service": {**pointed, "path": path} if path else pointed,
            "caBundle": base64.b64encode(self.authority).decode(),
        }


def pointed_at(service: WebhookService | None, objects: Sequence[Object], kind: str) -> Iterator[Object]:
    """The objects of a package of this kind as they are installed. Without a service, webhook configurations are left
    out: nobody would answer, and whatever they are about could not be written."""
    names: set[tuple[str, str]] = set()
    for obj in objects:
        if obj["kind"] in _CONFIGURATIONS:
            if service is not None:
                yield _configuration(service, obj, kind, names)
        elif service is not None and obj["kind"] in _DEFINITIONS and _is_converted(obj):
            yield _definition(service, obj)
        else:
            yield obj


def _configuration(service: WebhookService, obj: Object, kind: str, names: set[tuple[str, str]]) -> Object:
    """Generated configurations all have the same name, so that of the package is put in its place."""
    name = f"crossplane-{kind.lower()}-{service.package}"
    if (obj["kind"], name) in names:
        name = f"{name}-{name_of(obj)}"
    names.add((obj["kind"], name))
    hooks = [
        {**hook, "clientConfig": service.client_config(hook.get("clientConfig"))}
        for hook in obj.get("webhooks") or ()
        if isinstance(hook, dict)
    ]
    return {**obj, "metadata": {**obj["metadata"], "name": name}, "webhooks": hooks}


def _is_converted(obj: Object) -> bool:
    conversion = (obj.get("spec") or {}).get("conversion")
    return isinstance(conversion, dict) and conversion.get("strategy") == "Webhook"


def _definition(service: WebhookService, obj: Object) -> Object:
    conversion = obj["spec"]["conversion"]
    webhook = conversion.get("webhook") or {}
    pointed = {**webhook, "clientConfig": service.client_config(webhook.get("clientConfig"))}
    pointed.setdefault("conversionReviewVersions", ["v1"])
    return {**obj, "spec": {**obj["spec"], "conversion": {**conversion, "webhook": pointed}}}
