"""A real API server that asks our admission plugins, by the webhook that replicas serve, here in the test's process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from planform.api.kinds import Object
from planform.blueprints.actions import PhaseFunctions
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.cluster.endpoint import Health
from planform.cluster.journal_reviews import LocalJournal
from planform.cluster.registration import MUTATING, NAME, VALIDATING
from planform.cluster.webhook import WebhookContext, WebhookSettings, open_webhook
from planform.errors import Invalid, NotFound
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import eventually
from tests.harness.kubernetes import RealKubernetes

_WRONG: Object = {
    "apiVersion": "apiextensions.crossplane.io/v1",
    "kind": "Composition",
    "metadata": {"name": "never-admitted"},
    "spec": {
        "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "App"},
        "mode": "Pipeline",
        "pipeline": [{"step": "a", "functionRef": {"name": "f"}, "timeout": "0s"}],
    },
}


@asynccontextmanager
async def asking_webhook(context: ControllerContext, cluster: RealKubernetes) -> AsyncIterator[None]:
    """The webhook is asked from the beginning of the block to its end."""
    connection = find_connection(clock=context.clock, path=cluster.kubeconfig)
    async with KubernetesClient(connection, clock=context.clock, rng=context.rng) as client:
        here = WebhookContext(
            client=client,
            clock=context.clock,
            rng=context.rng,
            metrics=context.metrics,
            health=Health(),
            phase_functions=PhaseFunctions(engine="kubernetes"),
            journal=LocalJournal(),
            identity="test",
            leases=(),
        )

        async def asked() -> bool:
            try:
                await client.create(_WRONG, dry_run=True)
            except Invalid:
                return True
            return False

        try:
            async with open_webhook(WebhookSettings(host="127.0.0.1", port=0, namespace="default"), here):
                await eventually(asked, "the API server asks the webhook")
                yield
        finally:
            for kind in (VALIDATING, MUTATING):
                with suppress(NotFound):
                    await client.delete(kind, NAME)
