"""The embedded engine inside a test: store, verbs and built-in controllers, without a wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.apiserver.admission.dynamic.dispatch import DynamicAdmission
from planform.apiserver.admission.webhook_calls import WebhookCalls
from planform.apiserver.auth.rbac import Rbac
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.apiserver.verbs.core import ConversionWebhooks, Core
from planform.clock import Clock, SystemClock
from planform.engine.controllers import start_builtin_controllers
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import open_manager
from planform.reconcile.sources import Watches
from planform.store import open_store
from planform.telemetry.metrics import MetricsRegistry

CRD = gvk("apiextensions.k8s.io/v1", "CustomResourceDefinition")
CONFIG_MAP = gvk("v1", "ConfigMap")
NAMESPACE = gvk("v1", "Namespace")


@dataclass(frozen=True)
class Embedded:
    """A running engine with the namespace `default`."""

    core: Core
    client: LocalClient

    async def establish(self, crd: Object) -> None:
        """Create or change a CRD and wait until it is served as written."""
        await self.client.apply(crd, manager="test", force=True)
        name = crd["metadata"]["name"]
        async with self.client.watch(CRD, fields=f"metadata.name={name}") as changes:
            async for change in changes:
                conditions = change.object.get("status", {}).get("conditions", [])
                if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                    return

    async def gone(self, kind: GroupVersionKind, name: str, namespace: str = "default") -> None:
        """Wait until an object does not exist."""
        async with self.client.watch(
            kind, namespace=namespace, fields=f"metadata.name={name}", send_initial_events=True, bookmarks=True
        ) as changes:
            exists = False
            async for change in changes:
                if change.type == "DELETED" or (change.type == "BOOKMARK" and not exists):
                    return
                exists = True


@asynccontextmanager
async def embedded_engine(
    directory: Path | None = None,
    *,
    clock: Clock | None = None,
    webhooks: ConversionWebhooks | None = None,
    calls: WebhookCalls | None = None,
) -> AsyncIterator[Embedded]:
    clock, rng = clock or SystemClock(), Random(7)
    async with await open_store(directory, clock=clock) as store:
        core = open_engine(store, clock, rng=rng, webhooks=webhooks)
        client = LocalClient(core)
        if calls is not None:
            core.dynamic_admission = DynamicAdmission(core, calls, Rbac(store))
        async with Watches(client, clock=clock, rng=rng) as watches, open_manager(watches, clock=clock) as manager:
            builtin_controllers = start_builtin_controllers(
                core, manager, limiter=ConcurrencyLimiter(4), rng=rng, metrics=MetricsRegistry()
            )
            if not (await client.list(NAMESPACE)).items:
                await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
            yield Embedded(core, client)
            builtin_controllers.close()
            if calls is not None:
                await calls.close()


def widget_crd(*versions: Object, group: str = "example.org", conversion: Object | None = None) -> Object:
    """A CRD of namespaced Widgets with these versions."""
    spec: Object = {
        "group": group,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": list(versions),
    }
    if conversion is not None:
        spec["conversion"] = conversion
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": spec,
    }


def version(name: str, properties: Object, *, storage: bool = True, **more: object) -> Object:
    """One served version whose spec has these properties."""
    spec = {"type": "object", "properties": properties}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        **more,
    }


def widget(name: str = "w", *, api_version: str = "example.org/v1", **spec: object) -> Object:
    return {
        "apiVersion": api_version,
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
