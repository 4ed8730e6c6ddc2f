"""What tells an API server to ask our webhook, about which writes, and what to do if nobody answers.

Protection from deletion must hold while we are away, so deleting what is marked as in use then fails; only objects that
carry the mark are concerned. Everything else is advice at the door: without it a mistake is told a moment later, by a
condition, and the rules of the CRDs hold anyway. So those writes go through when nobody answers.

Who writes what acts must be recorded, or it would count as an administrator's: those writes fail when nobody answers.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

from planform.api.authors import AUTHORED, SERVICE_ACCOUNT_ANNOTATION
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import BLUEPRINTS_GROUP, EXTENSIONS_GROUP, OPERATIONS_GROUP
from planform.client.protocol import Client
from planform.composition.usages import IN_USE_LABEL, USAGES_WEBHOOK
from planform.errors import AlreadyExists, Conflict, NotFound

VALIDATING: Final = GroupVersionKind("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration")
MUTATING: Final = GroupVersionKind("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration")
NAME: Final = "planform"
VALIDATE: Final = "/validate"
BIND: Final = "/bind"
RECORD: Final = "/record"
_MANAGER: Final = "planform-webhook"
_NAMES_ACCOUNT: Final = (
    f"has(object.metadata.annotations) && '{SERVICE_ACCOUNT_ANNOTATION}' in object.metadata.annotations"
)
_LOCKED: Final = "has(object.versionPolicy) && object.versionPolicy == 'Lock'"


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
    writes = ["CREATE", "UPDATE"]
    pipelines = _rule(EXTENSIONS_GROUP, writes, "compositions", "compositionrevisions")
    operations = _rule(OPERATIONS_GROUP, writes, "operations", "cronoperations", "watchoperations")
    blueprints = _rule(BLUEPRINTS_GROUP, writes, "blueprints", "actionsets", "profiles")
    in_use = {"objectSelector": {"matchLabels": {IN_USE_LABEL: "true"}}, "sideEffects": "NoneOnDryRun"}
    bound = {"matchConditions": [{"name": "locks-versions", "expression": _LOCKED}], "reinvocationPolicy": "Never"}
    ask, bind = address.client_config(VALIDATE, bundle), address.client_config(BIND, bundle)
    record = address.client_config(RECORD, bundle)
    others = {"name": "others", "expression": f"request.userInfo.username != {json.dumps(user)}"}
    named = {"name": "names-service-account", "expression": _NAMES_ACCOUNT}
    authored = [_rule(group, writes, *sorted(_plural(kind) for kind in kinds)) for group, kinds in AUTHORED.items()]
    return [
        _configuration(
            VALIDATING,
            _webhook(USAGES_WEBHOOK, ask, "Fail", [_rule("*", ["DELETE"], "*")], **in_use),
            _webhook("pipelines.planform.dev", ask, "Ignore", [pipelines, operations]),
            _webhook("blueprints.planform.dev", ask, "Ignore", [blueprints]),
        ),
        _configuration(
            MUTATING,
            _webhook("locks.planform.dev", bind, "Fail", [_rule(BLUEPRINTS_GROUP, writes, "blueprints")], **bound),
            _webhook(
                "authors.planform.dev", record, "Fail", authored, matchConditions=[others], reinvocationPolicy="Never"
            ),
            _webhook(
                "namespaces.planform.dev",
                record,
                "Fail",
                [_rule("", writes, "namespaces")],
                matchConditions=[others, named],
                reinvocationPolicy="Never",
            ),
        ),
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


def _plural(kind: str) -> str:
    return f"{kind.lower()}s"


def _rule(group: str, operations: list[str], *resources: str) -> Object:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": operations,
        "resources": list(resources),
        "scope": "*",
    }


def _webhook(name: str, client: Object, on_failure: str, rules: list[Object], **more: Any) -> Object:
    return {
        "name": name,
        "clientConfig": client,
        "rules": rules,
        "failurePolicy": on_failure,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "admissionReviewVersions": ["v1"],
        **more,
    }
