"""What tells an API server to ask our webhook, about which writes, and what to do if nobody answers: as the list of
admission plugins has it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Final

from planform.admission import MUTATING_PATHS, Hook, registered_hooks, rule_of
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.client.protocol import Client
from planform.errors import AlreadyExists, Conflict, NotFound

VALIDATING: Final = GroupVersionKind("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration")
MUTATING: Final = GroupVersionKind("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration")
NAME: Final = "planform"
_MANAGER: Final = "planform-webhook"


@dataclass(frozen=True)
class Address:
    """Where the API server finds the webhook: a Service of its cluster, or a URL if we run outside."""

    namespace: str
    service: str = "planform-webhook"
    url: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """What the certificate has to be for."""
        if self.url:
            from urllib.parse import urlsplit

            return (urlsplit(self.url).hostname or "",)
        host = f"{self.service}.{self.namespace}.svc"
        return (host, f"{host}.cluster.local")

    def client_config(self, path: str, bundle: bytes) -> Object:
        ca = {"caBundle": base64.b64encode(bundle).decode()}
        if self.url:
            return {"url": self.url.rstrip("/") + path, **ca}
        return {"service": {"namespace": self.namespace, "name": self.service, "path": path, "port": 443}, **ca}


def configurations(address: Address, bundle: bytes, user: str = "") -> list[Object]:
    """Both, complete as a server gives them back. `user` is who we are: nobody is asked about our own writes."""
    return [
        _configuration(kind, *(_webhook(hook, address, bundle, user) for hook in registered_hooks(mutating=mutating)))
        for kind, mutating in ((VALIDATING, False), (MUTATING, True))
    ]


def trusted_by(configuration: Object | None) -> bytes:
    """The bundle that every webhook of a configuration has; empty if they differ, or there is none."""
    bundles = {each["clientConfig"].get("caBundle") or "" for each in (configuration or {}).get("webhooks") or ()}
    return base64.b64decode(bundles.pop()) if len(bundles) == 1 else b""


async def find(client: Client, kind: GroupVersionKind) -> Object | None:
    try:
        return await client.get(kind, NAME)
    except NotFound:
        return None


async def register(client: Client, wanted: Object) -> int:
    """Have the configuration stored as wanted; gives the number of writes. Several replicas may try at once."""
    while True:
        found = await find(client, gvk_of(wanted))
        try:
            if found is None:
                await client.create(wanted, manager=_MANAGER)
                return 1
            if found.get("webhooks") == wanted["webhooks"]:
                return 0
            await client.update({**found, "webhooks": wanted["webhooks"]}, manager=_MANAGER)
            return 1
        except (AlreadyExists, Conflict, NotFound):
            continue


def _configuration(kind: GroupVersionKind, *webhooks: Object) -> Object:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "planform"}},
        "webhooks": list(webhooks),
    }


def _webhook(hook: Hook, address: Address, bundle: bytes, user: str) -> Object:
    conditions = {"others": f"request.userInfo.username != {json.dumps(user)}"} if hook.not_our_own else {}
    made: Object = {
        "name": hook.name,
        "clientConfig": address.client_config(hook.path, bundle),
        "rules": [rule_of(each) for each in hook.rules],
        "failurePolicy": "Fail" if hook.fails_closed else "Ignore",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {"matchLabels": dict(hook.labels)} if hook.labels else {},
        "sideEffects": "NoneOnDryRun" if hook.has_side_effects else "None",
        "timeoutSeconds": hook.timeout,
        "admissionReviewVersions": ["v1"],
    }
    if found := {**conditions, **hook.conditions}:
        made |= {"matchConditions": [{"name": name, "expression": text} for name, text in found.items()]}
    if hook.path in MUTATING_PATHS:
        made |= {"reinvocationPolicy": "Never"}
    return made
